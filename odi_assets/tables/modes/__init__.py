"""What each write mode stages and removes. Rows are read from staged files again, so no transform runs twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from odi_assets.config.models import WriteMode
from odi_assets.delta.commit import FileChanges, Stamp
from odi_assets.delta.footers import WrittenFile
from odi_assets.delta.partition_values import PartitionValues
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.delta.types import WriteSpec
from odi_assets.errors import TableError
from odi_assets.tables.reader import quoted, read_files, read_staged
from odi_assets.tables.schema import with_boolean
from odi_assets.tables.staging import stage, write_folder
from odi_assets.tables.upsert import matching as keyed
from odi_assets.tables.upsert import newest as order
from odi_assets.tables.upsert.arrow_rewrite import rewritten

if TYPE_CHECKING:
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Write:
    """One write under way.

    Attributes:
        df: the rows, in the table's shape; beside its columns the delete marker, if the write has one.
        schema_json: of the table after the commit.
        widens: the commit adds columns, which Delta does only in a commit that removes nothing or everything.
    """

    df: DataFrame
    handle: TableHandle
    spec: WriteSpec
    stamp: Stamp
    schema_json: str
    widens: bool = False

    @property
    def spark(self) -> SparkSession:
        return self.df.sparkSession

    @cached_property
    def uri(self) -> str:
        return self.handle.location.uri

    def folder(self, suffix: str = "") -> str:
        """The folder of files of this write, below the table's."""
        return write_folder(self.stamp.write_id + suffix)

    def stage(self, df: DataFrame, suffix: str = "") -> list[WrittenFile]:
        return stage(df, self.handle.location, self.stamp.write_id + suffix, self.spec.partition_by, self.spec.keys)

    def staged(self, files: Sequence[WrittenFile], extra: str | None = None) -> DataFrame:
        schema = with_boolean(self.schema_json, extra) if extra else self.schema_json
        return read_staged(self.spark, self.handle.location, files, schema, self.spec.partition_by)


@dataclass(frozen=True)
class Outcome:
    """Files staged by a mode, and what they mean."""

    new: Sequence[WrittenFile]
    changes: FileChanges
    carried: Sequence[WrittenFile] = ()
    updated: int = 0
    deleted: int = 0
    partitions: Sequence[PartitionValues] = ()


def single_rows(write: Write) -> Write:
    """``write`` with the rows that count, where a node's upsert or append_once is done by replacing for this once."""
    spec = write.spec
    if spec.mode is spec.declared or not spec.keys:
        return write
    if spec.declared is WriteMode.APPEND_ONCE:
        return replace(write, df=write.df.dropDuplicates(list(spec.keys)))
    if spec.declared is not WriteMode.UPSERT:
        return write
    batch = _one_per_key(write, write.stage(write.df, "-batch"))
    return replace(write, df=_kept(batch, spec.delete_when))


def _append(write: Write) -> Outcome:
    return _added(write.stage(write.df), write)


def _added(files: Sequence[WrittenFile], write: Write) -> Outcome:
    changes = FileChanges(_actions(files), kind="rows", new_schema=write.widens)
    return Outcome(files, changes, partitions=_partitions(files))


def _overwrite(write: Write) -> Outcome:
    files = write.stage(write.df)
    changes = FileChanges(
        _actions(files), kind="table", removed=write.handle.live_files, replace_all=write.handle.exists
    )
    return Outcome(files, changes, partitions=_partitions(files))


def _append_once(write: Write) -> Outcome:
    _require_keys(write)
    first = write.stage(write.df.dropDuplicates(list(write.spec.keys)))
    among = keyed.candidates(write.handle, first, write.spec.keys)
    if not among or not first:
        return _added(first, write)
    batch = write.staged(first)
    return _added(write.stage(keyed.absent(write.spark, write.handle, batch, write.spec.keys, among), "-new"), write)


def _upsert(write: Write) -> Outcome:
    _require_keys(write)
    spec = write.spec
    plain = spec.delete_when is None and spec.only_if_newer is None
    # Without options, the rows as they come are the rows to be stored, and are staged but once.
    files = write.stage(write.df, "" if plain else "-batch")
    if not files:
        return _added(files, write)
    among = keyed.candidates(write.handle, files, spec.keys)
    if plain and not write.widens:
        small = rewritten(write.handle, files, spec.keys, among, write.folder("-carried"))
        if small is not None:
            return _replaced(write, files, small.touched, small.touched.files, small.carried)
    batch = _one_per_key(write, files)
    if not plain:
        if spec.only_if_newer:
            batch = order.newer_than_stored(write.spark, write.handle, batch, spec.keys, spec.only_if_newer, among)
        files = write.stage(_kept(batch, spec.delete_when), "-new")
    touched = keyed.touched(write.spark, write.handle, batch, spec.keys, among, spec.delete_when)
    if not touched.files:
        return _added(files, write)
    # A commit that adds columns removes all files or none, so all the others have to move.
    removed = write.handle.live_files if write.widens else touched.files
    carried = write.stage(keyed.carried(write.spark, write.handle, batch, spec.keys, removed), "-carried")
    return _replaced(write, files, touched, removed, carried)


def _replaced(
    write: Write,
    files: Sequence[WrittenFile],
    touched: keyed.Touched,
    removed: Sequence[LiveFile],
    carried: Sequence[WrittenFile],
) -> Outcome:
    """Files with new and changed rows, in place of files whose other rows were carried along."""
    if not removed:
        return _added(files, write)
    changes = FileChanges(
        _actions(files),
        kind="rows",
        carried=_actions(carried, data_change=False),
        removed=removed,
        replace_all=write.widens,
    )
    partitions = [*_partitions(files), *(file.partition for file in touched.files)]
    updated = touched.rows - touched.deleted
    return Outcome(files, changes, carried, updated, touched.deleted, _distinct(partitions))


def _one_per_key(write: Write, files: Sequence[WrittenFile]) -> DataFrame:
    spec = write.spec
    batch = write.staged(files, spec.delete_when)
    if spec.only_if_newer is None:
        keyed.require_unique_keys(batch, spec.keys, write.uri)
        return batch
    batch = order.newest(batch, spec.keys, spec.only_if_newer)
    order.require_one_newest(batch, spec.keys, spec.only_if_newer, write.uri)
    return batch


def _kept(batch: DataFrame, marker: str | None) -> DataFrame:
    from pyspark.sql import functions as F

    if marker is None:
        return batch
    return batch.where(~F.coalesce(F.col(quoted(marker)), F.lit(False))).drop(marker)


def _partition_overwrite(write: Write) -> Outcome:
    if not write.spec.partition_by:
        raise TableError(
            f"partition_overwrite needs partition columns, and none is named for {write.uri}",
            fix="set `partition` or `write.partition_by` on the node",
            uri=write.uri,
        )
    files = write.stage(write.df)
    written = _partitions(files)
    replaced = [*written, *(write.spec.replace or ())]
    if write.spec.replace is not None:
        _require_within(write, written)
    removed = [file for file in write.handle.live_files if any(_is_in(file.partition, p) for p in replaced)]
    partitions = _distinct(replaced)
    if not write.widens or not removed:
        changes = FileChanges(_actions(files), kind="partitions", removed=removed, new_schema=write.widens)
        return Outcome(files, changes, partitions=partitions)
    going = {file.path for file in removed}
    others = [file for file in write.handle.live_files if file.path not in going]
    carried = write.stage(read_files(write.spark, write.handle, others), "-carried") if others else []
    changes = FileChanges(
        _actions(files),
        kind="partitions",
        carried=_actions(carried, data_change=False),
        removed=write.handle.live_files,
        replace_all=True,
    )
    return Outcome(files, changes, carried, partitions=partitions)


def _require_within(write: Write, written: Sequence[PartitionValues]) -> None:
    outside = [p for p in written if not any(_is_in(p, allowed) for allowed in write.spec.replace or ())]
    if outside:
        raise TableError(
            f"rows for partition {_label(outside[0])} of {write.uri} came out of an increment that "
            f"covers {', '.join(_label(p) for p in (write.spec.replace or ())[:5]) or 'none'}; "
            "replacing it would lose its other rows",
            fix="let the transform keep the partition column of its input, or run the node with --full-refresh",
            uri=write.uri,
        )


def _require_keys(write: Write) -> None:
    if not write.spec.keys:
        raise TableError(
            f"{write.spec.mode} needs keys, and none is named for {write.uri}",
            fix="name the columns that identify a row in `write.keys`",
            uri=write.uri,
        )


def _is_in(partition: PartitionValues, wanted: PartitionValues) -> bool:
    return all(partition.get(name) == value for name, value in wanted.items())


def _label(partition: PartitionValues) -> str:
    return "/".join(f"{name}={'NULL' if value is None else value}" for name, value in partition.items())


def _partitions(files: Sequence[WrittenFile]) -> list[PartitionValues]:
    return _distinct([file.partition for file in files if file.partition])


def _distinct(partitions: Sequence[PartitionValues]) -> list[PartitionValues]:
    unique = {tuple(sorted(p.items(), key=lambda item: item[0])): p for p in partitions}
    return [unique[key] for key in sorted(unique, key=lambda items: [(v is not None, v or "") for _, v in items])]


def _actions(files: Sequence[WrittenFile], *, data_change: bool = True) -> list[AddAction]:
    return [file.add_action(data_change=data_change) for file in files]


MODES: dict[WriteMode, Callable[[Write], Outcome]] = {
    WriteMode.APPEND: _append,
    WriteMode.APPEND_ONCE: _append_once,
    WriteMode.OVERWRITE: _overwrite,
    WriteMode.UPSERT: _upsert,
    WriteMode.PARTITION_OVERWRITE: _partition_overwrite,
}
