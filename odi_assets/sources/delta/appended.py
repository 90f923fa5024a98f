"""A Delta table as a stream: the files of its first version, then those that each later commit appended.

An offset is ``{"table_id", "since", "version", "index", "commit"}``: of the list of files of ``version``, the first
``index`` are read. ``commit`` identifies the commit of ``version``: another history of the table may have the same
version number. ``since`` is the version that the stream began with. The list of that version has all of its files; the
list of a later version has the files that its commit appended. The lists never change, so a batch that is run again
reads the same rows. Versions that were undone before a batch came to them, by a rewind of the table, are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow.fs import PyFileSystem

from odi_assets.connections.location import Location
from odi_assets.delta.changes import changes, is_other_history
from odi_assets.delta.history import commit_digest
from odi_assets.delta.maintenance.restore import removed_files
from odi_assets.delta.protocol import require_readable
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import SourceError
from odi_assets.sources.streamed import Offset
from odi_assets.spark.lazy import T
from odi_assets.util.lazy import pc, pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PASSED_OVER = 50
"""After this many versions without rows, the offset moves on although there is nothing to read: logs are cleaned."""


def first_offset(handle: TableHandle) -> dict[str, Any]:
    """The offset of a stream that begins now: nothing is read of the table's newest version."""
    version = int(handle.version or 0)
    return {"table_id": handle.table_id, "since": version, "version": version, "index": 0, "commit": handle.commit}


def next_files(
    location: Location,
    start: Offset,
    label: str,
    *,
    most: int | None = None,
    upto: int | None = None,
    skip: bool = False,
) -> tuple[dict[str, Any], list[LiveFile]]:
    """What a batch reads after ``start``: where it ends, and its files. The same offset if there is nothing.

    Args:
        label: the table in words.
        most: how many files it takes at most; None: all.
        upto: the newest version that it reads; None: the table's.
        skip: pass over commits that change or remove rows, instead of refusing them.

    Raises:
        SourceError: the table is another one, or a commit changed or removed rows.
        TableError: a version that is needed is no longer in the table's log, or the table's files do not tell its rows.
    """
    handle = _opened(location, start, label)
    newest = int(handle.version or 0) if upto is None else upto
    offset, found = dict(start), list[LiveFile]()
    version, index = int(start["version"]), int(start["index"])
    undone = _undone(handle, version, newest)
    while True:
        files = [] if version in undone else _files_of(handle, start, version, label, skip)
        taken = files[index:] if most is None else files[index : index + most - len(found)]
        index += len(taken)
        found += taken
        if taken:
            offset |= {"version": version, "index": index}
        if index < len(files) or version >= newest or (most is not None and len(found) >= most):
            break
        version, index = version + 1, 0
    if not found and version - int(start["version"]) >= _PASSED_OVER:
        offset |= {"version": version, "index": index}
    if offset["version"] != start["version"]:
        offset["commit"] = commit_digest(location, offset["version"])
    return offset, found


def unread_versions(location: Location, start: Offset, label: str, *, skip: bool = False) -> set[int]:
    """Versions that together have all files that a stream has to read after ``start``. Few of them: the newest version
    has most files, and the others are read only for files that left the table.

    Raises:
        SourceError, TableError: as :func:`next_files` does.
    """
    end, files = next_files(location, start, label, skip=skip)
    newest = TableHandle.open(location)
    live = {file.path for file in newest.live_files}
    left = {file.path for file in files} - live
    found = {int(newest.version or 0)} if len(left) < len(files) else set()
    undone = _undone(newest, int(start["version"]), int(end["version"])) if left else set()
    for version in range(int(start["version"]), int(end["version"]) + 1) if left else ():
        if version not in undone and left & {file.path for file in _files_of(newest, start, version, label, skip)}:
            found.add(version)
    return found


def files_between(
    location: Location, start: Offset | None, end: Offset, label: str, skip: bool = False
) -> list[LiveFile]:
    """The files of a batch that reads from ``start`` to ``end``; of a stream's first batch if ``start`` is None.

    Raises:
        SourceError, TableError: as :func:`next_files` does.
    """
    if start is None or start["since"] != end["since"]:
        # When the first batch is run again, Spark asks for its start a second time.
        start = {**end, "version": end["since"], "index": 0}
    handle = _opened(location, end, label)
    found: list[LiveFile] = []
    undone = _undone(handle, int(start["version"]), int(end["version"]))
    for version in range(int(start["version"]), int(end["version"]) + 1):
        files = [] if version in undone else _files_of(handle, end, version, label, skip)
        low = int(start["index"]) if version == int(start["version"]) else 0
        high = int(end["index"]) if version == int(end["version"]) else len(files)
        found += files[low:high]
    return found


def require_there(handle: TableHandle, files: Sequence[LiveFile], label: str) -> None:
    """Make sure that no file that a batch is to read has left the table and been deleted since. Only files that left
    the table are looked for.

    Raises:
        SourceError: some are gone.
        TableError: the store cannot be looked at.
    """
    lost = removed_files(handle, files)
    if lost:
        raise SourceError(
            f"{label}: files that were not read yet were vacuumed: {len(lost):,} of {len(files):,}, {lost[0]} among "
            "them",
            fix="put them back from a copy of the table, or read it from its beginning: run the node with "
            "--full-refresh",
            path=handle.location.uri,
        )


def _opened(location: Location, offset: Offset, label: str) -> TableHandle:
    handle = TableHandle.open(location)
    if not handle.exists or handle.table_id != offset["table_id"]:
        now = "was dropped and made again" if handle.exists else "is gone"
        raise SourceError(
            f"{label}: the table that the stream has read {now}",
            fix="put the table back, or read it from its beginning: run the node with --full-refresh",
            path=location.uri,
        )
    if is_other_history(handle, int(offset["version"]), offset.get("commit")):
        raise SourceError(
            f"{label}: version {offset['version']}, up to which the stream has read it, is another commit now: the "
            "table was put back from a copy",
            fix="put the table back that was read, or read it from its beginning: run the node with --full-refresh",
            path=location.uri,
        )
    require_readable(handle)
    return handle


def _files_of(handle: TableHandle, offset: Offset, version: int, label: str, skip: bool) -> list[LiveFile]:
    """The list of files of one version, always in the same order."""
    if version == int(offset["since"]):
        return _by_age(TableHandle.open(handle.location, version))
    found: list[LiveFile] = []
    for commit in changes(handle, version - 1, version).commits:
        if commit.kind == "none":
            continue
        if commit.kind != "rows" or commit.updated or commit.deleted:
            if skip:
                continue
            if commit.restored is not None:
                raise SourceError(
                    f"{label}: version {version} took the table back to version {commit.restored}, and the stream has "
                    "read rows that are gone with that",
                    fix="put the table back, or read it from its beginning: run the node with --full-refresh",
                    path=handle.location.uri,
                    version=version,
                    table_id=handle.table_id,
                    restored=commit.restored,
                )
            raise SourceError(
                f"{label}: version {version} changed or removed rows, and a stream takes only rows that are added",
                fix="let the stream pass over such versions (`on_change: ignore` of the input, in `stream.inputs`), "
                "write the table with `append`, or read it from its beginning: run the node with --full-refresh",
                path=handle.location.uri,
                version=version,
            )
        found += commit.files
    return sorted(found, key=lambda file: file.path)


def _undone(handle: TableHandle, after: int, upto: int) -> set[int]:
    """The versions after ``after`` whose rows a later one took back, up to ``upto``, and those that did so."""
    found: set[int] = set()
    for version in range(after + 1, upto + 1):
        for commit in changes(handle, version - 1, version).commits:
            if commit.restored is not None and commit.restored >= after:
                found.update(range(commit.restored + 1, version + 1))
    return found


def _by_age(handle: TableHandle) -> list[LiveFile]:
    """All files of a version, the oldest first: rows that came late are not read before those that they follow."""
    paths, times = handle.file_columns(("path", "modification_time"))
    ages = {unquote(path): str(time) for path, time in zip(paths, times, strict=True)}
    return sorted(handle.live_files, key=lambda file: (ages[file.path], file.path))


def read_stream(
    spark: SparkSession, name: str, location: Location, label: str, *, most: int | None = None, skip: bool = False
) -> DataFrame:
    """The table as a streaming DataFrame, with the columns that it has now.

    Args:
        name: the input's name in the checkpoint.
        most, skip: as :func:`next_files` takes them.

    Raises:
        TableError: there is no table, or its files do not tell its rows.
    """
    handle = TableHandle.open(location)
    require_readable(handle)
    source = _data_source(f"odi_table_{name}", location, handle.schema_json, label, most, skip)
    spark.dataSource.register(source)
    return spark.readStream.name(name).format(source.name()).load()


def _data_source(kind: str, location: Location, schema_json: str, label: str, most: int | None, skip: bool) -> Any:
    """The class of a Python data source. It is made in here so that executors get it by value: they need pyarrow, and
    deltalake for tables on a store, but not this package."""
    import json

    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

    schema = T.StructType.fromJson(json.loads(schema_json))
    uri, is_local, options = location.uri, location.is_local, dict(location.storage_options)

    def table() -> Location:
        return Location(uri, options)

    class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self) -> None:
            self.upto: int | None = None

        def prepareForTriggerAvailableNow(self) -> None:
            self.upto = int(TableHandle.open(table()).version or 0)

        def getDefaultReadLimit(self) -> ReadLimit:
            return ReadAllAvailable() if most is None else ReadMaxFiles(most)

        def initialOffset(self) -> dict[str, Any]:
            from odi_assets.sources.delta.appended import first_offset

            return first_offset(TableHandle.open(table()))

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
            from odi_assets.sources.delta.appended import next_files

            files = limit.max_files if isinstance(limit, ReadMaxFiles) else None
            return next_files(table(), start, label, most=files, upto=self.upto, skip=skip)[0]

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            from odi_assets.sources.delta.appended import files_between, require_there

            files = files_between(table(), start, end, label, skip)
            require_there(TableHandle.open(table()), files, label)
            return [InputPartition((file.path, dict(file.partition))) for file in files]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            from pyspark.sql.pandas.types import to_arrow_schema

            path, values = partition.value
            wanted = to_arrow_schema(schema, timezone="UTC")

            def constant(text: str | None, kind: Any, rows: int) -> Any:
                array = pa.array([text] * rows, pa.string())
                if pa.types.is_timestamp(kind) and kind.tz is not None:
                    return pc.assume_timezone(array.cast(pa.timestamp("us")), "UTC")
                return array.cast(kind)

            def column(batch: Any, field: Any) -> Any:
                if field.name in values:
                    return constant(values[field.name], field.type, batch.num_rows)
                if field.name not in batch.schema.names:
                    return pa.nulls(batch.num_rows, field.type)
                stored = batch.column(field.name)
                if pa.types.is_timestamp(field.type) and field.type.tz and not getattr(stored.type, "tz", None):
                    # INT96 has no zone, and is in UTC.
                    stored = pc.assume_timezone(stored, "UTC")
                return stored.cast(field.type)

            if is_local:
                file = pq.ParquetFile(f"{uri}/{path}", pre_buffer=False)
            else:
                from deltalake.fs import DeltaStorageHandler

                file = pq.ParquetFile(PyFileSystem(DeltaStorageHandler(uri, options)).open_input_file(path))
            for batch in file.iter_batches(batch_size=10_000, use_threads=False):
                yield pa.RecordBatch.from_arrays([column(batch, field) for field in wanted], schema=wanted)

    class TableStreamSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return kind

        def schema(self) -> T.StructType:
            return schema

        def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:  # noqa: ARG002  Spark's signature
            return TableStreamReader()

    return TableStreamSource
