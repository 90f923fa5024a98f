"""``odi runs list``, and what the commands of ``odi runs`` share."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.runs.filters import NodeFilter, PipelineOption, SinceOption, StatusOption, chosen_runs
from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import Column, data_json, data_table, hwm_change, moment, note, short_id
from odi_assets.nodes.result import rows_left
from odi_assets.sources.marks import hwm_text

if TYPE_CHECKING:
    from odi_assets.state.records import RunRecord

_COLUMNS = (
    Column("ended (UTC)", lambda run: moment(run.timestamp)),
    Column("node", lambda run: f"{run.pipeline_name}.{run.node_name}"),
    Column("attempt", lambda run: run.attempt, "right"),
    Column("status", lambda run: f"{run.status.value}{' (rewind)' if run.trigger == 'rewind' else ''}"),
    Column("rows", lambda run: run.rows_processed, "right"),
    Column("seconds", lambda run: f"{run.duration_ms / 1000:.1f}", "right", spare=True),
    Column("version", lambda run: run.table_version, "right", spare=True),
    Column("left", lambda run: _left(run), wrap=True),
    Column("HWM before → after", lambda run: _hwms(run), wrap=True),
    Column("run", lambda run: short_id(run.run_id), spare=True),
)


def list_(
    settings: Settings,
    pipeline: PipelineOption = None,
    node: NodeFilter = None,
    status: StatusOption = None,
    since: SinceOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many, the newest.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List what ran, newest first."""
    records = chosen_runs(settings.project(), pipeline, node, status, since, limit)
    if not records:
        note("No run is like that." if status or since else "Nothing has run yet.")
    if as_json:
        data_json([record_json(record) for record in records])
    elif records:
        show_table(records, leave_out={"attempt"})


def show_table(records: Sequence[RunRecord], leave_out: Container[str]) -> None:
    """Print a line per record, without the columns of these names."""
    columns = {column.name: column for column in _COLUMNS if column.name not in leave_out}
    if not any(map(_left, records)):
        columns.pop("left", None)
    if len({record.pipeline_name for record in records}) == 1:
        columns["node"] = Column("node", lambda run: run.node_name)
    data_table([*columns.values()], records)


def _left(record: RunRecord) -> str | None:
    return "; ".join(rows_left(record.metrics)) or None


def _hwms(record: RunRecord) -> str:
    return hwm_change(hwm_text(record.hwm_before), hwm_text(record.hwm_after))


def record_json(record: RunRecord) -> dict[str, Any]:
    """A run's row as ``--json`` gives it."""
    from dataclasses import fields

    values = {field.name: _json_ready(getattr(record, field.name)) for field in fields(record)}
    return {**values, "date": record.date.isoformat()}


def _json_ready(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return json.loads(json.dumps(value, default=str))
