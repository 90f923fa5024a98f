"""Runs in the forms that Odibi's documents give them: results objects in, status and info out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from odi_assets.state.records import RunRecord, RunStatus


def pipeline_data(results: Any) -> dict[str, Any]:
    """Odibi's document of a pipeline run, from a results object (``node_results``, ``to_dict()``) or a mapping."""
    data = results.to_dict() if hasattr(results, "to_dict") else results
    data = data if isinstance(data, Mapping) else {}
    nodes = getattr(results, "node_results", None)
    if nodes is None:
        nodes = data.get("node_results") or data.get("nodes") or {}
    return {
        "last_run": data.get("end_time") or data.get("last_run"),
        "nodes": {name: _node_data(result) for name, result in nodes.items()},
    }


def records_of(pipeline: str, data: Mapping[str, Any]) -> list[RunRecord]:
    """One record per node of Odibi's document of a pipeline run."""
    ended = _moment(data.get("last_run")) or datetime.now(UTC)
    run_id = str(data.get("run_id") or uuid4())
    return [_record(pipeline, name, node, run_id, ended) for name, node in (data.get("nodes") or {}).items()]


def info_of(record: RunRecord | None) -> dict[str, Any] | None:
    """A record as ``get_last_run_info`` gives it: ``success`` and ``metadata`` first, as Odibi has them."""
    if record is None:
        return None
    return {
        "success": record.status.succeeded,
        "metadata": dict(record.metrics),
        "timestamp": record.timestamp.isoformat(),
        "status": record.status.value,
        "run_id": record.run_id,
        "rows_processed": record.rows_processed,
        "duration_ms": record.duration_ms,
        "hwm_before": record.hwm_before,
        "hwm_after": record.hwm_after,
        "table_version": record.table_version,
        "code_version": record.code_version,
        "error": record.error,
    }


def plain(value: Any) -> Any:
    """``value`` as JSON can hold it; what JSON has no form for becomes its text."""
    return json.loads(json.dumps(value, default=str))


def _node_data(result: Any) -> dict[str, Any]:
    def get(name: str) -> Any:
        return result.get(name) if isinstance(result, Mapping) else getattr(result, name, None)

    metadata = plain(get("metadata") or {})
    data = {"success": bool(get("success")), "timestamp": get("timestamp") or metadata.get("timestamp")}
    for name in ("rows_processed", "duration", "error"):
        if get(name) is not None:
            data[name] = plain(get(name))
    return {**data, "metadata": metadata}


def _record(pipeline: str, name: str, node: Mapping[str, Any], run_id: str, ended: datetime) -> RunRecord:
    metadata = dict(node.get("metadata") or {})
    rows = node.get("rows_processed", metadata.get("rows_processed"))
    seconds = node.get("duration", metadata.get("duration"))
    return RunRecord(
        run_id=run_id,
        project=None,
        pipeline_name=pipeline,
        node_name=name,
        status=RunStatus.SUCCESS if node.get("success") else RunStatus.FAILURE,
        rows_processed=rows if isinstance(rows, int) else None,
        duration_ms=int(seconds * 1000) if isinstance(seconds, int | float) else 0,
        timestamp=_moment(node.get("timestamp")) or ended,
        metrics=metadata,
        error=None if node.get("error") is None else str(node["error"]),
    )


def _moment(text: Any) -> datetime | None:
    """A moment in UTC; without a zone it is this machine's time, as Odibi writes it."""
    try:
        moment = text if isinstance(text, datetime) else datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment.astimezone(UTC)
