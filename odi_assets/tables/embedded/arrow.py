"""Arrow tables into Delta tables without a JVM, in the same commits as the embedded engine makes.

What Arrow cannot do exactly goes through Spark: large upserts, tables whose rules Spark has to check, `append_once`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import Schema
from pyarrow.fs import FSSpecHandler, LocalFileSystem, PyFileSystem

from odi_assets.config.models import WriteMode
from odi_assets.delta.commit import FileChanges, Stamp, commit
from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.protocol import require_removable, require_writable, with_features
from odi_assets.delta.schema_evolution import UNDECIDED, plan_schema, replaced_schema
from odi_assets.delta.table import TableHandle
from odi_assets.delta.types import simple_name
from odi_assets.errors import TableError
from odi_assets.tables.engine import WriteResult, WriteSpec
from odi_assets.tables.modes.base import Write, mode_of
from odi_assets.tables.modes.upsert import upserted
from odi_assets.tables.partition_folders import require_folders
from odi_assets.tables.parts import TableParts
from odi_assets.tables.schema import require_columns, require_partitioned, require_same_partitioning, spelled_as
from odi_assets.tables.undecided import with_marks, with_types
from odi_assets.tables.upsert.arrow_rewrite import copy_unmarked, rewrite
from odi_assets.tables.upsert.matching import MatchedFiles, candidates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BY_ARROW = (WriteMode.APPEND, WriteMode.OVERWRITE, WriteMode.PARTITION_OVERWRITE, WriteMode.UPSERT)
_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}
_MOST_PARTITIONS = 10_000


class _NeedsSpark(Exception):
    """Arrow cannot do this write exactly."""


@dataclass(frozen=True)
class ArrowWrite(Write):
    """A write of rows that are an Arrow table; the modes only hand them on to :meth:`stage`.

    Attributes:
        parts: the rows, if they are too many for ``df``, which has their columns then.
    """

    df: pa.Table
    parts: TableParts | None = None

    @property
    def spark(self) -> SparkSession:
        raise _NeedsSpark

    def stage(self, df: DataFrame | pa.Table, step: str = "") -> list[WrittenFile]:
        """Write an Arrow table as Parquet into the folder of ``step``."""
        if not isinstance(df, pa.Table):
            raise _NeedsSpark
        location, by = self.handle.location, self.spec.partition_by
        if location.is_local:
            filesystem, root = LocalFileSystem(), str(location.local_path)
        else:
            remote, root = location.in_store()
            filesystem = PyFileSystem(FSSpecHandler(remote))
        form = ds.ParquetFileFormat()
        # A writer of Arrow takes batches faster than it writes them, so each table is written by itself.
        tables = (
            [df]
            if self.parts is None
            else (_aligned(storable(part, self.uri), self.schema_json) for part in self.parts)
        )
        for table in tables:
            require_folders(table, by, self.uri)
            ds.write_dataset(
                table,
                f"{root}/{self.folder(step)}",
                format=form,
                file_options=form.make_write_options(compression="snappy", coerce_timestamps="us"),
                filesystem=filesystem,
                partitioning=ds.partitioning(pa.schema([df.schema.field(name) for name in by]), flavor="hive"),
                basename_template=f"part-{{i}}-{uuid.uuid4().hex}.parquet",
                max_partitions=_MOST_PARTITIONS,
                existing_data_behavior="error" if self.parts is None else "overwrite_or_ignore",
            )
        return self.files(step)


def write_arrow(
    rows: pa.Table | TableParts,
    handle: TableHandle,
    spec: WriteSpec,
    stamp: Stamp,
    by_spark: Callable[[pa.Table, WriteSpec, Stamp], WriteResult],
) -> WriteResult:
    """Write ``rows`` in one commit on ``handle``, or leave the table as it was; see ``TableEngine.write_arrow``.

    Args:
        by_spark: writes the rows where Arrow cannot do it.

    Raises:
        FencedError, TableConflictError, TableError: as ``TableEngine.write`` does.
    """
    parts = rows if isinstance(rows, TableParts) else None
    rows = rows.schema.empty_table() if isinstance(rows, TableParts) else rows
    keeps_columns = handle.exists and not spec.mode.traits.replaces_columns
    rows, undecided = with_types(rows, handle, may_decide_later=not keeps_columns)
    rows = storable(rows, handle.location.uri)
    if not rows.num_rows and parts is None and spec.mode.traits.needs_keys:
        # There is nothing to compare.
        spec = replace(spec, mode=WriteMode.APPEND)
    try:
        if spec.mode not in _BY_ARROW or (handle.exists and _has_rules(handle)):
            raise _NeedsSpark
        return _write(rows, parts, handle, spec, stamp, undecided)
    except _NeedsSpark:
        # The files of a write that was given up have a folder of their own; no version names them.
        retried = replace(stamp, write_id=uuid.uuid4().hex)
        whole = rows if parts is None else storable(parts.whole(), handle.location.uri)
        return by_spark(whole, spec, retried)


def storable(rows: pa.Table, uri: str) -> pa.Table:
    """``rows`` with the types that Delta has: exact, and wider where Delta has no such type.

    Raises:
        TableError: a column has a type, or a value, that Delta cannot store.
    """
    columns = []
    for field in rows.schema:
        kind = _storable(field.type)
        if kind is None:
            raise TableError(
                f"column `{field.name}` has type {field.type}, which Delta cannot store ({uri})",
                fix="cast it before it is returned"
                if field.type != pa.null()
                else f"give it a type: all of it is NULL; for pandas, frame.astype({{'{field.name}': 'string'}})",
                uri=uri,
                column=field.name,
            )
        try:
            columns.append(rows[field.name].cast(kind))
            columns[-1].validate(full=True)  # of text: it is UTF-8
        except pa.ArrowException as error:
            raise TableError(
                f"column `{field.name}` has values that {kind} does not hold exactly ({uri}): {error}",
                fix="round or cast it before it is returned",
                uri=uri,
                column=field.name,
            ) from error
    return pa.Table.from_arrays(columns, names=rows.column_names)


def _storable(kind: pa.DataType) -> pa.DataType | None:
    """The type of Delta for an Arrow type; None if there is none."""
    types = pa.types
    delta_type: pa.DataType | None = None
    if types.is_dictionary(kind):
        delta_type = _storable(kind.value_type)
    elif types.is_timestamp(kind):
        delta_type = pa.timestamp("us", "UTC" if kind.tz else None)
    elif types.is_date(kind):
        delta_type = pa.date32()
    elif types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view":
        delta_type = pa.string()
    elif types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        delta_type = pa.binary()
    elif types.is_float16(kind):
        delta_type = pa.float32()
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _storable(kind.value_type)
        delta_type = None if inner is None else pa.list_(inner)
    elif types.is_struct(kind):
        inner_types = {field.name: _storable(field.type) for field in kind}
        twice = len({name.lower() for name in inner_types}) < kind.num_fields
        delta_type = None if twice or None in inner_types.values() else pa.struct(list(inner_types.items()))
    elif types.is_map(kind):
        key, value = _storable(kind.key_type), _storable(kind.item_type)
        delta_type = None if key is None or value is None else pa.map_(key, value)
    elif types.is_decimal(kind):
        delta_type = pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 and kind.scale >= 0 else None
    elif types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        delta_type = _WIDER.get(kind, kind)
    return delta_type


def _write(
    rows: pa.Table,
    parts: TableParts | None,
    handle: TableHandle,
    spec: WriteSpec,
    stamp: Stamp,
    undecided: Collection[str],
) -> WriteResult:
    if handle.exists:
        require_writable(handle)
        require_same_partitioning(handle, spec.partition_by)
    keeps_columns = handle.exists and not spec.mode.traits.replaces_columns
    if keeps_columns:
        rows = rows.rename_columns([spelled_as(name, list(handle.columns)) for name in rows.column_names])
    rows, marks = _without_marker(rows, spec, handle)
    uri = handle.location.uri
    require_columns(spec.keys, rows.column_names, "key", uri)
    require_partitioned(spec.partition_by, rows.column_names, uri)
    if spec.declared not in (None, spec.mode) and spec.keys and (parts is not None or not _are_unique(rows, spec.keys)):
        # The declared mode says which rows are stored, or that it is not known which.
        raise _NeedsSpark
    schema_json = with_marks(str(Schema.from_arrow(_nullable(rows.schema)).to_json()), undecided)
    added: list[str] = []
    ignored: list[str] = []
    if keeps_columns:
        schema_json, added, ignored = plan_schema(handle, schema_json, spec.schema_policy)
        rows = _aligned(rows, schema_json)
    elif handle.exists:
        schema_json = replaced_schema(handle, schema_json)
    if handle.exists:
        handle = with_features(handle, schema_json)
    if (added or parts is not None) and handle.live_files and spec.mode not in (WriteMode.APPEND, WriteMode.OVERWRITE):
        # Other files have to be rewritten, or rows compared.
        raise _NeedsSpark
    if marks is not None:
        rows = rows.append_column(str(spec.delete_when), marks)
    spec = replace(spec, delete_when=None if marks is None else spec.delete_when)
    write = ArrowWrite(rows, handle, spec, stamp, schema_json, bool(added), parts=parts)
    changes = _upsert(write) if spec.mode is WriteMode.UPSERT else mode_of(spec.mode).stage(write)
    if handle.exists and (changes.removed or (spec.mode.traits.replaces_columns and handle.live_files)):
        require_removable(handle, f"`{spec.mode}`")
    changes = replace(changes, keys=spec.keys, computed_from=spec.mode.traits.computed_from, new_schema=bool(added))
    version = commit(handle, schema_json, spec.partition_by, changes, stamp)
    columns = tuple((field["name"], simple_name(field["type"])) for field in json.loads(schema_json)["fields"])
    result = WriteResult.of(handle, changes, version, columns)
    return replace(result, columns_added=tuple(added), columns_ignored=tuple(ignored))


def _without_marker(rows: pa.Table, spec: WriteSpec, handle: TableHandle) -> tuple[pa.Table, pa.ChunkedArray | None]:
    """``rows`` without the column that ``spec.delete_when`` names, and this column; None in its place if it marks no
    row."""
    if spec.delete_when is None:
        return rows, None
    name, stored = spelled_as(spec.delete_when, rows.column_names), handle.columns if handle.exists else {}
    if name not in rows.column_names or not pa.types.is_boolean(rows[name].type) or name in stored:
        # Spark names what is wrong.
        raise _NeedsSpark
    marks = pc.fill_null(rows[name], False)
    if not pc.any(marks).as_py():
        return rows.drop_columns([name]), None
    if spec.mode is not WriteMode.UPSERT:
        raise _NeedsSpark
    return rows.drop_columns([name]), marks


def _upsert(write: ArrowWrite) -> FileChanges:
    """As ``modes.upsert`` does it, where Arrow can."""
    spec, keys, marker = write.spec, write.keys, write.spec.delete_when
    if spec.only_if_newer is not None or not _are_unique(write.df, keys):
        raise _NeedsSpark
    if marker is not None and not write.handle.live_files:
        # There is nothing to delete.
        write = replace(write, df=write.df.filter(pc.invert(write.df[marker])).drop_columns([marker]))
        marker = None
    if marker is not None and not write.handle.location.is_local:
        raise _NeedsSpark
    files = write.stage(write.df)
    among = candidates(write.handle, files, keys) if files else []
    matched = (
        rewrite(write.handle, files, keys, among, write.folder("-moved"), marker) if among else MatchedFiles((), 0)
    )
    if matched is None:
        raise _NeedsSpark
    if marker is not None:
        copy_unmarked(write.handle, files, marker, write.folder("-new"))
        files = write.files("-new")
    return upserted(files, write.files("-moved") if among else [], matched, matched.files)


def _are_unique(rows: pa.Table, keys: tuple[str, ...]) -> bool:
    """Whether no key is NULL and no two rows have the same keys. Keys that are no plain values count as not unique."""
    if any(rows[key].null_count or pa.types.is_nested(rows[key].type) for key in keys):
        return False
    if any(pa.types.is_floating(rows[key].type) for key in keys):
        return False
    return bool(rows.group_by(list(keys)).aggregate([]).num_rows == rows.num_rows)


def _has_rules(handle: TableHandle) -> bool:
    """Whether the table demands something of rows that only Spark can check."""
    fields = json.loads(handle.schema_json)["fields"]
    properties: Mapping[str, Any] = handle.table.metadata().configuration
    constrained = any(name.startswith("delta.constraints.") for name in properties)
    return constrained or any(not _is_plain(field) for field in fields)


def _is_plain(part: Any) -> bool:
    """Whether a field, or a type, and all within it may be NULL and has no description."""
    if isinstance(part, list):
        return all(map(_is_plain, part))
    if not isinstance(part, dict):
        return True
    flags = (part.get(name, True) for name in ("nullable", "containsNull", "valueContainsNull"))
    demands = set(part.get("metadata") or ()) - {UNDECIDED}
    return all(flags) and not demands and all(_is_plain(value) for name, value in part.items() if name != "metadata")


def _aligned(rows: pa.Table, schema_json: str) -> pa.Table:
    """``rows`` with exactly the columns of the table, in its order; NULL where they have none."""
    target = pa.schema(Schema.from_json(schema_json).to_arrow())
    present = set(rows.column_names)
    columns = [
        rows[field.name].cast(field.type) if field.name in present else pa.nulls(rows.num_rows, field.type)
        for field in target
    ]
    return pa.Table.from_arrays(columns, schema=_nullable(target))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True).remove_metadata() for field in schema])
