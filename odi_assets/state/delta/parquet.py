"""Parquet files of a system table, written and read by deltalake's own storage, so that any store will do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

_ROW_GROUP = 8192
_MILLISECOND = timedelta(milliseconds=1)


class DataFiles:
    """The folder of a table."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None) -> None:
        options = dict(storage_options) if storage_options else None
        self._files = pa_fs.PyFileSystem(DeltaStorageHandler(_with_scheme(uri), options))

    def read(self, paths: Iterable[str], schema: pa.Schema) -> pa.Table:
        """The rows of the files at ``paths`` in the form of ``schema``; columns that a file lacks are null."""
        parts = [_shaped(pq.read_table(path, filesystem=self._files), schema) for path in paths]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def write(self, path: str, rows: pa.Table, indexed: Sequence[str]) -> AddAction:
        """Write ``rows``, and return the action that adds the file, as rows that only moved, with statistics
        of the columns ``indexed``."""
        pq.write_table(rows, path, filesystem=self._files, row_group_size=_ROW_GROUP)
        size = self._files.get_file_info(path).size
        now = int(datetime.now().timestamp() * 1000)
        return AddAction(path, size, {}, now, False, json.dumps(_statistics(rows, indexed)))


def _with_scheme(uri: str) -> str:
    return uri if urlsplit(uri).scheme and "://" in uri else f"file://{uri}"


def _shaped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _statistics(rows: pa.Table, indexed: Sequence[str]) -> dict[str, Any]:
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in indexed:
        column = rows.column(name)
        nulls[name] = column.null_count
        if column.null_count < len(column):
            bounds = pc.min_max(column).as_py()
            low[name], high[name] = _bound(bounds["min"], up=False), _bound(bounds["max"], up=True)
    return {"numRecords": len(rows), "minValues": low, "maxValues": high, "nullCount": nulls}


def _bound(value: Any, *, up: bool) -> Any:
    """Delta keeps moments in milliseconds: the bound must lie outside of what it is cut from."""
    if not isinstance(value, datetime):
        return value
    cut = value.replace(microsecond=value.microsecond // 1000 * 1000)
    cut = cut + _MILLISECOND if up and cut < value else cut
    return cut.isoformat(timespec="milliseconds").replace("+00:00", "Z")
