"""The embedded engine: Spark's executors write Parquet, the driver commits the footers through deltalake.

Needs nothing beyond PyPI. What the driver holds grows with the number of files, never with the rows in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.errors import TableError
from odi_assets.tables import upsert as keyed
from odi_assets.tables.commit import FileChanges, commit, removed_rows
from odi_assets.tables.footers import WrittenFile
from odi_assets.tables.gate import require_writable
from odi_assets.tables.handle import LiveFile, TableHandle
from odi_assets.tables.protocol import PartitionValues, Stamp, WriteResult, WriteSpec
from odi_assets.tables.reading import read_staged, read_table
from odi_assets.tables.schema import delta_schema, require_columns, require_same_columns, require_same_partitioning
from odi_assets.tables.staging import stage

if TYPE_CHECKING:
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class _Write:
    """One write under way."""

    df: DataFrame
    handle: TableHandle
    spec: WriteSpec
    stamp: Stamp
    schema_json: str

    @property
    def spark(self) -> SparkSession:
        return self.df.sparkSession

    def stage(self, df: DataFrame, suffix: str = "") -> list[WrittenFile]:
        return stage(df, self.handle.location, self.stamp.write_id + suffix, self.spec.partition_by, self.spec.keys)

    def staged(self, files: Sequence[WrittenFile]) -> DataFrame:
        return read_staged(self.spark, self.handle.location, files, self.schema_json, self.spec.partition_by)


@dataclass(frozen=True)
class _Outcome:
    """Files staged by a mode, and what they mean."""

    new: Sequence[WrittenFile]
    changes: FileChanges
    carried: Sequence[WrittenFile] = ()
    updated: int = 0
    partitions: Sequence[PartitionValues] = ()


class EmbeddedEngine:
    """Implements :class:`odi_assets.tables.protocol.TableEngine` without any JAR."""

    def open(self, location: Location) -> TableHandle:
        """The table as it stands now, or a handle that says it does not exist."""
        return TableHandle.open(location)

    def read(self, spark: SparkSession, handle: TableHandle) -> DataFrame:
        """The rows of the handle's version."""
        return read_table(spark, handle)

    def write(self, df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp) -> WriteResult:
        """Write ``df`` in one commit on ``handle``; see :meth:`TableEngine.write`."""
        require_writable(handle)
        require_same_partitioning(handle, spec.partition_by)
        uri = handle.location.uri
        schema_json = delta_schema(df, uri)
        require_columns(spec.keys, df.columns, "key", uri)
        require_columns(spec.partition_by, df.columns, "partition", uri)
        if handle.exists and spec.mode is not WriteMode.OVERWRITE:
            require_same_columns(handle, schema_json)
            schema_json = handle.schema_json
        outcome = _MODES[spec.mode](_Write(df, handle, spec, stamp, schema_json))
        changes = replace(
            outcome.changes,
            rows_written=sum(file.rows for file in outcome.new),
            rows_updated=outcome.updated,
            keys=spec.keys,
        )
        version = commit(handle, schema_json, spec.partition_by, changes, stamp)
        return _result(handle, outcome, version)


def _append(write: _Write) -> _Outcome:
    return _added(write.stage(write.df))


def _added(files: Sequence[WrittenFile]) -> _Outcome:
    return _Outcome(files, FileChanges(_actions(files), kind="rows"), partitions=_partitions(files))


def _overwrite(write: _Write) -> _Outcome:
    files = write.stage(write.df)
    changes = FileChanges(
        _actions(files), kind="table", removed=write.handle.live_files, replace_all=write.handle.exists
    )
    return _Outcome(files, changes, partitions=_partitions(files))


def _append_once(write: _Write) -> _Outcome:
    _require_keys(write)
    first = write.stage(write.df.dropDuplicates(list(write.spec.keys)))
    among = keyed.candidates(write.handle, first, write.spec.keys)
    if not among or not first:
        return _added(first)
    batch = write.staged(first)
    return _added(write.stage(keyed.absent(write.spark, write.handle, batch, write.spec.keys, among), "-new"))


def _upsert(write: _Write) -> _Outcome:
    _require_keys(write)
    files = write.stage(write.df)
    if not files:
        return _added(files)
    batch = write.staged(files)
    keyed.require_unique_keys(batch, write.spec.keys, write.handle.location.uri)
    among = keyed.candidates(write.handle, files, write.spec.keys)
    touched = keyed.touched(write.spark, write.handle, batch, write.spec.keys, among)
    if not touched.files:
        return _added(files)
    rest = keyed.carried(write.spark, write.handle, batch, write.spec.keys, touched.files)
    carried = write.stage(rest, "-carried")
    changes = FileChanges(
        _actions(files), kind="rows", carried=_actions(carried, data_change=False), removed=touched.files
    )
    partitions = [*_partitions(files), *(file.partition for file in touched.files)]
    return _Outcome(files, changes, carried, touched.rows, _distinct(partitions))


def _partition_overwrite(write: _Write) -> _Outcome:
    if not write.spec.partition_by:
        raise TableError(
            f"partition_overwrite needs partition columns, and none is named for {write.handle.location.uri}",
            fix="set `partition` or `write.partition_by` on the node",
            uri=write.handle.location.uri,
        )
    files = write.stage(write.df)
    written = _partitions(files)
    replaced = [*written, *(write.spec.replace or ())]
    if write.spec.replace is not None:
        _require_within(write, written)
    removed = [file for file in write.handle.live_files if any(_is_in(file.partition, p) for p in replaced)]
    changes = FileChanges(_actions(files), kind="partitions", removed=removed)
    return _Outcome(files, changes, partitions=_distinct(replaced))


def _require_within(write: _Write, written: Sequence[PartitionValues]) -> None:
    outside = [p for p in written if not any(_is_in(p, allowed) for allowed in write.spec.replace or ())]
    if outside:
        raise TableError(
            f"rows for partition {_label(outside[0])} of {write.handle.location.uri} came out of an increment that "
            f"covers {', '.join(_label(p) for p in (write.spec.replace or ())[:5]) or 'none'}; "
            "replacing it would lose its other rows",
            fix="let the transform keep the partition column of its input, or run the node with --full-refresh",
            uri=write.handle.location.uri,
        )


def _require_keys(write: _Write) -> None:
    if not write.spec.keys:
        raise TableError(
            f"{write.spec.mode} needs keys, and none is named for {write.handle.location.uri}",
            fix="name the columns that identify a row in `write.keys`",
            uri=write.handle.location.uri,
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


def _result(handle: TableHandle, outcome: _Outcome, version: int) -> WriteResult:
    removed: Sequence[LiveFile] = outcome.changes.removed
    rows_new = sum(file.rows for file in outcome.new)
    rows_carried = sum(file.rows for file in outcome.carried)
    before, gone = handle.rows if handle.exists else 0, removed_rows(removed)
    return WriteResult(
        version=version,
        rows_written=rows_new,
        rows_updated=outcome.updated,
        rows_total=None if before is None or gone is None else before - gone + rows_new + rows_carried,
        files_added=len(outcome.new) + len(outcome.carried),
        files_removed=len(removed),
        bytes_written=sum(file.size for file in [*outcome.new, *outcome.carried]),
        partitions=tuple(outcome.partitions),
    )


_MODES: dict[WriteMode, Callable[[_Write], _Outcome]] = {
    WriteMode.APPEND: _append,
    WriteMode.APPEND_ONCE: _append_once,
    WriteMode.OVERWRITE: _overwrite,
    WriteMode.UPSERT: _upsert,
    WriteMode.PARTITION_OVERWRITE: _partition_overwrite,
}
