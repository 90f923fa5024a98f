"""``odi show``: rows of a node's table, without Spark."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import typer

from odi_assets.cli.terminal.options import JsonOption, NodeArgument, Settings
from odi_assets.cli.terminal.output import Column, data_json, data_table, note
from odi_assets.delta.damage import require_no_remains
from odi_assets.delta.table import TableHandle
from odi_assets.util.words import counted


def show(
    settings: Settings,
    node: NodeArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many rows.")] = 10,
    version: Annotated[int | None, typer.Option("--version", min=0, help="An earlier version of the table.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print rows of a node's table. Which ones comes as it may: a table has no order."""
    project = settings.project()
    key = project.node_named(node)
    handle = TableHandle.open(project.target(key), version)
    if not handle.exists:
        require_no_remains(handle.location)
        note(f"{key} has no table yet: run it with odi run {key.pipeline} --node {key.node}")
        raise typer.Exit(1)
    rows = _rows(handle, limit)
    if as_json:
        data_json([{name: _json(value) for name, value in row.items()} for row in rows])
        return
    if rows:
        data_table([Column(name, lambda row, name=name: _text(row[name]), wrap=True) for name in handle.columns], rows)  # type: ignore[misc]
    total = handle.rows
    note(f"{counted(len(rows), 'row')}{f' of {total:,}' if total is not None else ''}, version {handle.version}")


def _rows(handle: TableHandle, limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with handle.reads("reading the table"):
        for batch in pa.RecordBatchReader.from_stream(handle.table.scan()):
            rows += batch.slice(0, limit - len(rows)).to_pylist()
            if len(rows) >= limit:
                break
    return rows


def _json(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no such numbers; Spark writes them so as well.
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value if isinstance(value, str | int | float | bool | None) else _parts(value)


def _parts(value: Any) -> Any:
    """A struct, a list or a map; maps come as pairs."""
    if isinstance(value, dict):
        return {name: _json(member) for name, member in value.items()}
    return [_json(member) for member in value] if isinstance(value, list | tuple) else str(value)


def _text(value: Any) -> str:
    plain = _json(value)
    return "NULL" if plain is None else plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
