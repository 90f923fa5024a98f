"""A run as a row of ``meta_runs``: Odibi's columns first, then ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from odi_assets.state import values
from odi_assets.state.odibi_runs import plain
from odi_assets.state.records import RunRecord, RunStatus


def to_row(record: RunRecord, environment: str | None) -> dict[str, Any]:
    """The row of ``record``, stamped with ``environment``."""
    return {
        "run_id": record.run_id,
        "project": record.project,
        "pipeline_name": record.pipeline_name,
        "node_name": record.node_name,
        "status": RunStatus(record.status).value,
        "rows_processed": record.rows_processed,
        "duration_ms": record.duration_ms,
        "metrics_json": json.dumps(plain(dict(record.metrics)), ensure_ascii=False),
        "environment": environment,
        "timestamp": record.timestamp.astimezone(UTC),
        "date": record.timestamp.astimezone(UTC).date(),
        "started_at": record.started_at.astimezone(UTC) if record.started_at else None,
        "partition_key": record.partition_key,
        "trigger": record.trigger,
        "attempt": record.attempt,
        "hwm_before": _hwm_text(record.hwm_before),
        "hwm_after": _hwm_text(record.hwm_after),
        "table_version": record.table_version,
        "code_version": record.code_version,
        "error": record.error,
    }


def from_row(row: Mapping[str, Any]) -> RunRecord:
    """The record of a row; columns that Odibi does not write may be missing or null."""
    return RunRecord(
        run_id=row.get("run_id") or "",
        project=row.get("project"),
        pipeline_name=row.get("pipeline_name") or "",
        node_name=row.get("node_name") or "",
        status=RunStatus.parse(row.get("status")),
        rows_processed=row.get("rows_processed"),
        duration_ms=row.get("duration_ms") or 0,
        metrics=_metrics(row.get("metrics_json")),
        environment=row.get("environment"),
        timestamp=row.get("timestamp") or datetime.min.replace(tzinfo=UTC),
        started_at=row.get("started_at"),
        partition_key=row.get("partition_key"),
        trigger=row.get("trigger"),
        attempt=row.get("attempt") or 1,
        hwm_before=values.decode(row.get("hwm_before"), None),
        hwm_after=values.decode(row.get("hwm_after"), None),
        table_version=row.get("table_version"),
        code_version=row.get("code_version"),
        error=row.get("error"),
    )


def newest_first(record: RunRecord) -> tuple[datetime, int]:
    """Sort key, to be reversed."""
    return record.timestamp, record.attempt


def _hwm_text(value: Any) -> str | None:
    return None if value is None else values.encode(value).json


def _metrics(text: str | None) -> dict[str, Any]:
    data = values.decode(text, None)
    return data if isinstance(data, dict) else {}
