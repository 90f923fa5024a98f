"""A second table engine, as another package would have it: it holds in memory what it writes and what it compares.

Spark only hands over the rows. It writes one file for each partition, under names without partition values.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema
from pyspark.sql import DataFrame, SparkSession

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.changes import TableChanges
from odi_assets.delta.commit import FileChanges, Stamp, commit
from odi_assets.delta.conflicts import membership
from odi_assets.delta.files.footers import WrittenFile, written_files
from odi_assets.delta.maintenance.maintain import Maintenance, MaintenanceOptions, maintain
from odi_assets.delta.maintenance.restore import restore
from odi_assets.delta.partition_values import partition_string
from odi_assets.delta.protocol import TakenFeatures, require_removable, require_writable, with_features
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import TableError
from odi_assets.spark.arrow import dataframe_of
from odi_assets.tables.engine import TableEngine, WriteResult, WriteSpec
from odi_assets.tables.parts import TableParts
from odi_assets.tables.schema import aligned, require_same_partitioning, spark_schema
from odi_assets.tables.schema_plan import schema_after

Row = dict[str, Any]
_UNREAD = frozenset({"columnMapping", "deletionVectors", "typeWidening", "variantType"})


class MemoryEngine(TableEngine):
    """Takes every write mode, but neither `delete_when` nor `only_if_newer`."""

    features = TakenFeatures("memory", _UNREAD, frozenset({"appendOnly", "invariants", "timestampNtz"}))

    def read_files(
        self, spark: SparkSession, handle: TableHandle, files: Iterable[LiveFile], *, file_as: str | None = None
    ) -> DataFrame:
        schema, arrow = spark_schema(handle.schema_json), _arrow_schema(handle.schema_json)
        tables = [arrow.empty_table()]
        uris: list[str] = []
        for file in files:
            tables.append(_table(handle, file, arrow))
            uris += [quote(handle.location.child(file.path).uri, safe="/:@=")] * len(tables[-1])
        rows = pa.concat_tables(tables)
        if file_as is not None:
            rows, schema = rows.append_column(file_as, pa.array(uris, pa.string())), schema.add(file_as, "string")
        return spark.createDataFrame(rows, schema) if len(rows) else spark.createDataFrame([], schema)

    def changed_rows(self, spark: SparkSession, handle: TableHandle, changes: TableChanges) -> DataFrame:
        schema, held = _arrow_schema(handle.schema_json), list[Row]()
        for commit_made in changes.commits:
            new = [row for file in commit_made.files for row in _table(handle, file, schema).to_pylist()]
            if commit_made.updated:
                known = {_key(row, commit_made.keys) for row in new}
                held = [row for row in held if _key(row, commit_made.keys) not in known]
            held += new
        rows = pa.Table.from_pylist(held, schema)
        kind = spark_schema(handle.schema_json)
        return spark.createDataFrame(rows, kind) if held else spark.createDataFrame([], kind)

    def affected_rows(self, spark: SparkSession, handle: TableHandle, changes: TableChanges) -> Iterator[DataFrame]:
        """Rows that were only moved are among them."""
        yield self.read_files(spark, handle, [*changes.files, *changes.gone])

    def write_on(self, df: DataFrame, handle: TableHandle, spec: WriteSpec, stamp: Stamp) -> WriteResult:
        if spec.delete_when is not None or spec.only_if_newer is not None:
            raise TableError("the memory engine takes neither `delete_when` nor `only_if_newer`", fix="leave it out")
        if handle.exists:
            require_writable(handle, self.features)
            require_same_partitioning(handle, spec.partition_by)
        schema_json, added, ignored = schema_after(df, handle, spec)
        if handle.exists:
            handle = with_features(handle, schema_json)
            if not spec.mode.traits.replaces_columns:
                df = aligned(df, schema_json, spec.beside)
        write = _MemoryWrite(df.toArrow().to_pylist(), handle, spec, stamp, schema_json)
        changes = write.changes(adds_columns=bool(added))
        changes = replace(
            changes,
            keys=spec.keys,
            computed_from=spec.mode.traits.computed_from,
            replace_all=changes.replace_all or bool(added and changes.removed),
            new_schema=bool(added and not changes.removed),
        )
        if changes.removed:
            require_removable(handle, f"`{spec.mode}`")
        version = commit(handle, schema_json, spec.partition_by, changes, stamp)
        columns = tuple((field.name, field.dataType.simpleString()) for field in spark_schema(schema_json))
        result = WriteResult.of(handle, changes, version, columns)
        return replace(result, columns_added=tuple(added), columns_ignored=tuple(ignored))

    def write_once(
        self,
        df: DataFrame,
        handle: TableHandle,
        spec: WriteSpec,
        stamp: Stamp,
        *,
        is_small: bool = False,  # noqa: ARG002  it has all rows in memory
    ) -> WriteResult:
        rows = df.toArrow()
        known = df.sparkSession.createDataFrame(rows if len(rows) else [], df.schema)
        return self.write(known, handle, spec, stamp)

    def write_arrow(
        self,
        rows: pa.Table | TableParts,
        handle: TableHandle,
        spec: WriteSpec,
        stamp: Stamp,
        open_spark: Callable[[], SparkSession],
    ) -> WriteResult:
        whole = rows.whole() if isinstance(rows, TableParts) else rows
        return self.write(dataframe_of(open_spark(), whole), handle, spec, stamp)

    def restore(self, handle: TableHandle, version: int, stamp: Stamp, fences: Iterable[tuple[str, int]] = ()) -> int:
        return restore(handle, version, stamp, fences)

    def maintain(self, location: Location, options: MaintenanceOptions, facts: Mapping[str, Any]) -> Maintenance:
        return maintain(location, options, facts)


class _MemoryWrite:
    def __init__(self, rows: list[Row], handle: TableHandle, spec: WriteSpec, stamp: Stamp, schema_json: str) -> None:
        declared = spec.declared or spec.mode
        if declared.traits.needs_keys:
            rows = _one_per_key(rows, spec, first=declared is WriteMode.APPEND_ONCE, uri=handle.location.uri)
        self.kinds_now = {field["name"]: field["type"] for field in json.loads(schema_json)["fields"]}
        self.rows, self.handle, self.spec, self.stamp = rows, handle, spec, stamp
        self.schema, self.kinds = _arrow_schema(schema_json), handle.columns if handle.exists else {}

    def changes(self, adds_columns: bool) -> FileChanges:
        """The files of this write, staged."""
        mode, live = self.spec.mode, self.handle.live_files
        if mode is WriteMode.OVERWRITE:
            return FileChanges("table", self._stage(self.rows), removed=live, replace_all=self.handle.exists)
        if mode is WriteMode.PARTITION_OVERWRITE:
            return self._partitions(live, adds_columns)
        if mode is WriteMode.APPEND or not live:
            return FileChanges("rows", self._stage(self.rows))
        keys = self.spec.keys
        stored = {file.path: _table(self.handle, file, self.schema).to_pylist() for file in live}
        if mode is WriteMode.APPEND_ONCE:
            known = {_key(row, keys) for rows in stored.values() for row in rows}
            return FileChanges("rows", self._stage([row for row in self.rows if _key(row, keys) not in known]))
        written = {_key(row, keys) for row in self.rows}
        hit = [file for file in live if any(_key(row, keys) in written for row in stored[file.path])]
        removed = live if adds_columns and hit else hit
        old = [row for file in removed for row in stored[file.path]]
        kept = [row for row in old if _key(row, keys) not in written]
        return FileChanges(
            "rows",
            self._stage(self.rows),
            self._stage(kept, "-moved"),
            removed,
            rows_updated=len(old) - len(kept),
            partitions=[file.partition for file in hit],
        )

    def _partitions(self, live: Sequence[LiveFile], adds_columns: bool) -> FileChanges:
        new = self._stage(self.rows)
        named = self.spec.replaced_in([file.partition for file in (*live, *new)], self.kinds_now)
        if named is not None and (outside := [file.partition for file in new if not membership(named)(file.partition)]):
            label = "/".join(f"{name}={value}" for name, value in outside[0].items())
            raise TableError(f"replacing {label} of the table would lose its other rows", fix="leave such rows out")
        is_replaced = membership([*(file.partition for file in new), *(named or ())])
        removed = [file for file in live if is_replaced(file.partition)]
        others = [file for file in live if not is_replaced(file.partition)] if removed and adds_columns else []
        kept = [row for file in others for row in _table(self.handle, file, self.schema).to_pylist()]
        moved = self._stage(kept, "-moved")
        return FileChanges("partitions", new, moved, [*removed, *others], partitions=named or ())

    def _stage(self, rows: list[Row], step: str = "") -> list[WrittenFile]:
        by, location = self.spec.partition_by, self.handle.location
        groups: dict[tuple[str | None, ...], list[Row]] = defaultdict(list)
        for row in rows:
            groups[tuple(partition_string(row[name]) for name in by)].append(row)
        stored = pa.schema([field for field in self.schema if field.name not in by])
        folder, partitions = f"odi_write={self.stamp.write_id}{step}", dict[str, dict[str, str | None]]()
        filesystem, root = location.child(folder).in_store()
        filesystem.makedirs(root, exist_ok=True)
        for number, (values, group) in enumerate(groups.items()):
            partitions[f"{folder}/part-{number}.parquet"] = dict(zip(by, values, strict=True))
            bare = [{name: row[name] for name in stored.names} for row in group]
            with filesystem.open(f"{root}/part-{number}.parquet", "wb") as stream:
                pq.write_table(pa.Table.from_pylist(bare, stored), stream)
        return [replace(file, partition=partitions[file.path]) for file in written_files(location, folder)]


def _one_per_key(rows: list[Row], spec: WriteSpec, *, first: bool, uri: str) -> list[Row]:
    """The row of the first or the last delivery of each key."""
    number = (lambda row: row[spec.delivery]) if spec.delivery else (lambda _: 0)
    chosen: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows, key=number, reverse=first):
        key = _key(row, spec.keys)
        before = chosen.get(key)
        if before is not None and not first and number(before) == number(row):
            raise TableError(f"two rows for {uri} have the same keys {key}", fix="let the transform choose one")
        chosen[key] = row
    return list(chosen.values())


def _key(row: Row, keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in keys)


def _arrow_schema(schema_json: str) -> pa.Schema:
    return pa.schema(Schema.from_json(schema_json).to_arrow())


def _table(handle: TableHandle, file: LiveFile, schema: pa.Schema) -> pa.Table:
    """The rows of a file in this schema, with its partition values."""
    with handle.location.child(file.path).open("rb") as stream:
        rows = pq.ParquetFile(stream).read()
    columns = []
    for field in schema:
        if field.name in file.partition:
            columns.append(_constant(file.partition[field.name], field.type, len(rows)))
        elif field.name in rows.column_names:
            columns.append(rows[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(len(rows), field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _constant(text: str | None, kind: pa.DataType, count: int) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array([text] * count, pa.string()).cast(pa.timestamp("us")).cast(kind)
    return pa.array([text] * count, pa.string()).cast(kind)
