"""Compaction: small files of a table put together into larger ones, in one fenced commit that changes no row.

deltalake's own `optimize` heeds no app transaction, and two of them at once double rows. :func:`compact` is for tables
of nodes: Arrow streams the rows of each bin from file to file, without a JVM; what is held in memory is one row group.
:func:`rewrite` is for system tables, whose owner says which rows the one new file has.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from odi_assets.connections.location import Location
from odi_assets.delta.commit import FileChanges, Stamp, commit, replace_files
from odi_assets.delta.damage import file_system
from odi_assets.delta.errors import unreadable
from odi_assets.delta.files.footers import WRITE_FOLDER, WrittenFile, footer_statistics, written_files
from odi_assets.delta.protocol import require_writable
from odi_assets.delta.retry import raced
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import FencedError, TableConflictError

APP_ID = "odi_assets:maintenance"
"""The Delta app transaction that lets one maintenance of a table commit at a time."""

_BATCH_ROWS = 16_384
_SYSTEM_ROW_GROUP = 8192
_ROW_GROUP_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Compaction:
    """Files that went, and files that came in their place."""

    files_removed: int = 0
    files_added: int = 0
    version: int | None = None


def bins(handle: TableHandle, small_bytes: int, target_bytes: int) -> list[list[LiveFile]]:
    """Files smaller than ``small_bytes``, in groups of one partition that together make about ``target_bytes``."""
    by_partition: dict[tuple[tuple[str, str | None], ...], list[LiveFile]] = defaultdict(list)
    for file in handle.live_files:
        if file.size < small_bytes:
            by_partition[tuple(file.partition.items())].append(file)
    groups: list[list[LiveFile]] = []
    for files in by_partition.values():
        current: list[LiveFile] = []
        for file in sorted(files, key=lambda file: file.path):
            if current and sum(member.size for member in current) + file.size > target_bytes:
                groups.append(current)
                current = []
            current.append(file)
        groups.append(current)
    return [files for files in groups if len(files) > 1]


def compact(location: Location, small_bytes: int, target_bytes: int, facts: Mapping[str, Any]) -> Compaction:
    """Compact the table's small files. Nodes may write at the same time: what they write is kept, and if they took
    files away, the compaction is planned again.

    Raises:
        TableConflictError: other writers took its files away each time.
        TableError: the table uses features that plain files would break.
    """

    def attempt() -> Compaction:
        handle = TableHandle.open(location)
        if not handle.exists:
            return Compaction()
        require_writable(handle)
        groups = bins(handle, small_bytes, target_bytes)
        return _commit(handle, groups, facts) if groups else Compaction()

    return raced(attempt, lost=lambda error: isinstance(error, TableConflictError | FencedError))


def rewrite(
    handle: TableHandle, files: Sequence[LiveFile], rows: pa.Table, indexed: Sequence[str], app_id: str
) -> None:
    """Put one file with ``rows`` in the place of ``files`` of a table without partitions; concurrent appends pass.

    Reads and writes through deltalake's own storage, so that any store will do without its SDK.

    Args:
        indexed: the columns that get statistics.
        app_id: the app transaction that lets one compaction at a time commit.

    Raises:
        StateError: nothing was changed.
    """
    path = f"part-{uuid4()}.folded.parquet"
    with handle.calls("compacting"):
        storage, footers = file_system(handle.location), list[pq.FileMetaData]()
        pq.write_table(rows, path, filesystem=storage, row_group_size=_SYSTEM_ROW_GROUP, metadata_collector=footers)
        statistics = footer_statistics(footers[0], frozenset(indexed), first=0)
        written = WrittenFile(
            path, storage.get_file_info(path).size, int(time.time() * 1000), len(rows), {}, statistics
        )
    replace_files(handle, [written.add_action(data_change=False)], files, app_id)


def rows_in_files(handle: TableHandle, files: Sequence[LiveFile]) -> pa.Table:
    """All rows of ``files`` of a table without partitions; columns that a file lacks are null."""
    schema, storage = pa.schema(handle.table.schema().to_arrow()), file_system(handle.location)
    batches = (
        _conformed(batch, schema)
        for file in files
        for batch in pq.ParquetFile(file.path, filesystem=storage).iter_batches(_BATCH_ROWS, use_threads=False)
    )
    return pa.Table.from_batches(batches, schema)


def _commit(handle: TableHandle, groups: Sequence[Sequence[LiveFile]], facts: Mapping[str, Any]) -> Compaction:
    stamp = Stamp.next_on(handle, APP_ID, facts)
    folder = f"{WRITE_FOLDER}={stamp.write_id}"
    partitions: dict[str, dict[str, str | None]] = {}
    lacking: dict[str, set[str]] = {}
    for number, files in enumerate(groups):
        path = "/".join([folder, *_partition_folders(files[0]), f"part-{number:05d}.parquet"])
        _merge(handle, files, path)
        partitions[path] = files[0].partition
        lacking[path] = _without_bounds(handle, files)
    written = [
        _honest(replace(file, partition=partitions[file.path]), lacking[file.path])
        for file in written_files(handle.location, folder)
    ]
    removed = [file for files in groups for file in files]
    changes = FileChanges("rows", (), written, removed, data_change=False)
    version = commit(handle, handle.schema_json, handle.partition_columns, changes, stamp)
    return Compaction(len(removed), len(written), version)


def _partition_folders(file: LiveFile) -> list[str]:
    # As they are on storage: whoever wrote them escaped them so that their reader finds the value again.
    return [part for part in file.path.split("/")[:-1] if "=" in part and not part.startswith(f"{WRITE_FOLDER}=")]


def _merge(handle: TableHandle, files: Sequence[LiveFile], path: str) -> None:
    whole = pa.schema(handle.table.schema().to_arrow())
    stored = pa.schema([field for field in whole if field.name not in handle.partition_columns])
    filesystem, target = handle.location.child(path).in_store()
    filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
    with filesystem.open(target, "wb") as stream, pq.ParquetWriter(stream, stored, compression="snappy") as writer:
        for group in _row_groups(_batches(handle, files, stored)):
            writer.write_table(pa.Table.from_batches(group, stored))


def _batches(handle: TableHandle, files: Sequence[LiveFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file in files:
        with _damage_named(handle, file), handle.location.child(file.path).open("rb") as stream:
            for batch in pq.ParquetFile(stream).iter_batches(_BATCH_ROWS):
                yield _conformed(batch, schema)


@contextmanager
def _damage_named(handle: TableHandle, file: LiveFile) -> Iterator[None]:
    """Raises DamagedTableError where a data file is gone, or cannot be read."""
    with handle.calls("compacting the Delta table"):
        try:
            yield
        except (FileNotFoundError, IsADirectoryError, pa.ArrowException) as error:
            raise unreadable(handle.location, file.path, error) from error
        except OSError as error:
            # Arrow says so of pages that cannot be decoded; a store that does not answer has an error number.
            if error.errno is not None:
                raise
            raise unreadable(handle.location, file.path, error) from error


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    # A file from before a column joined the table has no such column.
    names = {name.lower(): name for name in batch.schema.names}
    columns = [
        batch.column(names[field.name.lower()]).cast(field.type)
        if field.name.lower() in names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(held_batch.nbytes for held_batch in held) >= _ROW_GROUP_BYTES:
            yield held
            held = []
    if held:
        yield held


def _without_bounds(handle: TableHandle, files: Sequence[LiveFile]) -> set[str]:
    """Columns that a source file has no bounds for, NaN for example: Arrow would bound the other values alone."""
    actions = handle.add_actions
    paths = {file.path for file in files}
    rows = [index for index, file in enumerate(handle.live_files) if file.path in paths]
    unbounded = set()
    for name in handle.columns:
        known = f"min.{name}" in actions.column_names
        if not known or any(actions[f"min.{name}"][row].as_py() is None for row in rows):
            unbounded.add(name)
    return unbounded


def _honest(file: WrittenFile, lacking: set[str]) -> WrittenFile:
    stats = json.loads(file.stats)
    for bounds in ("minValues", "maxValues"):
        stats[bounds] = {name: value for name, value in stats[bounds].items() if name not in lacking}
    return replace(file, stats=json.dumps(stats))
