"""``odi runs list``, and what the commands of ``odi runs`` share."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.options import JsonOption, Settings
from odi_assets.cli.output import Column, count, data_json, data_table, hwm_change, is_narrow, moment, note, short_id

if TYPE_CHECKING:
    from odi_assets.state.records import RunRecord

_COLUMNS = (
    Column("ended (UTC)"),
    Column("node"),
    Column("attempt", "right"),
    Column("status"),
    Column("rows", "right"),
    Column("seconds", "right", spare=True),
    Column("version", "right", spare=True),
    Column("HWM before → after", wrap=True),
    Column("run", spare=True),
)


def list_(
    settings: Settings,
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", "-p", metavar="NAME", help="Only this pipeline.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", "-n", metavar="NAME", help="Only this node.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many, the newest.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List what ran, newest first."""
    project = settings.project()
    if node and "." in node and pipeline is None:
        pipeline, _, node = node.partition(".")
    records = project.open_state().list_runs(pipeline=pipeline, node=node, limit=limit)
    if not records:
        # A name that history does not know may be a node that has not run, or a mistake.
        project.pipeline_nodes(pipeline, (node,) if node else ())
        note("Nothing has run yet.")
    if as_json:
        data_json([record_json(record) for record in records])
    elif records:
        show_table(records, leave_out={"attempt"})


def show_table(records: Sequence[RunRecord], leave_out: Container[str]) -> None:
    """Print a line per record, without the columns of these names."""
    one_pipeline = len({record.pipeline_name for record in records}) == 1
    shown = [place for place, column in enumerate(_COLUMNS) if column.name not in leave_out]
    rows = [_row(record, one_pipeline) for record in records]
    data_table([_COLUMNS[place] for place in shown], [[row[place] for place in shown] for row in rows])


def _row(record: RunRecord, one_pipeline: bool) -> list[str]:
    from odi_assets.sources.marks import hwm_text

    return [
        moment(record.timestamp),
        record.node_name if one_pipeline else f"{record.pipeline_name}.{record.node_name}",
        str(record.attempt),
        f"{record.status.value} (rewind)" if record.trigger == "rewind" else record.status.value,
        count(record.rows_processed),
        f"{record.duration_ms / 1000:.1f}",
        count(record.table_version),
        hwm_change(hwm_text(record.hwm_before), hwm_text(record.hwm_after), is_narrow()),
        short_id(record.run_id),
    ]


def record_json(record: RunRecord) -> dict[str, Any]:
    """A run's row as ``--json`` gives it."""
    from dataclasses import fields

    found = {field.name: _json_ready(getattr(record, field.name)) for field in fields(record)}
    return {**found, "date": record.date.isoformat()}


def _json_ready(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return json.loads(json.dumps(value, default=str))
