"""The health of stream nodes in Dagster: an asset check with the limits of the project file, and metadata with
plots."""

from __future__ import annotations

from typing import Any

import dagster as dg

from odi_assets.checkpoints import CheckpointReader, Health, copy_of_remote, excesses, measure
from odi_assets.checkpoints.health import health_rows
from odi_assets.config.graph import NodeKey
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.orchestration.naming import DagsterNames
from odi_assets.streams.planning.marks import checkpoint_of

CHECK = "stream_health"
_ROWS = 20


def health_check(project: Project, key: NodeKey) -> dg.AssetChecksDefinition:
    """The check of a stream node against `stream.health`. It warns; what was committed stays.

    It reads the checkpoint's files and `meta_batches`; the state itself, through Spark, only for `max_skew`.
    """
    stream = project.graph.node(key).stream
    if stream is None or stream.health is None:
        raise ValueError(f"{key} has no limits in `stream.health`")
    limits = stream.health

    @dg.asset_check(
        asset=DagsterNames.of(project).asset(key),
        name=CHECK,
        description="State, watermark and checkpoint are within `stream.health`.",
    )
    def check() -> dg.AssetCheckResult:
        records = project.open_batches().of_node(str(key))
        checkpoint = checkpoint_of(Node.of(project, key), records)
        if checkpoint is None:
            return dg.AssetCheckResult(passed=True, description="The stream has run no batch yet.")
        with (
            copy_of_remote(checkpoint, logs_only=False) as copy,
            CheckpointReader(checkpoint.uri, copy=copy, settings=checkpoint.reader_options) as reader,
        ):
            health = measure(reader, read_state=limits.max_skew is not None, records=records, most_batches=1)
        beyond = excesses(health, limits)
        return dg.AssetCheckResult(
            passed=not beyond,
            severity=dg.AssetCheckSeverity.WARN,
            description="; ".join(excess.message for excess in beyond) or "All figures are within their limits.",
            metadata=health_metadata(health),
        )

    return check


def health_metadata(health: Health) -> dict[str, Any]:
    """Metadata of a stream's health: figures that Dagster plots over time, and a table."""
    last = health.last
    figures: dict[str, Any] = {
        "batch": last.batch_id if last else None,
        "state_rows": last.state_rows if last else None,
        "state_bytes": sum(last.bytes.values()) if last and last.bytes else None,
        "rows_dropped": last.rows_dropped if last else None,
        "rows_removed": last.rows_removed if last else None,
        "commit_ms": last.commit_ms if last else None,
        "load_ms": last.load_ms if last else None,
        "stuck_batches": health.stuck_batches,
        "skew": health.skew,
        "snapshot_lag": health.snapshot_lag,
        "checkpoint_files": health.files,
        "checkpoint_bytes": health.bytes,
        "watermark": dg.MetadataValue.timestamp(health.watermark) if health.watermark else None,
        "oldest_event_time": dg.MetadataValue.timestamp(health.oldest) if health.oldest else None,
    }
    metadata = {name: value for name, value in figures.items() if value is not None}
    rows = [{name: _shown(value) for name, value in row.items()} for row in health_rows(health)]
    metadata["batches"] = dg.MetadataValue.md(_table(rows[-_ROWS:]))
    return metadata


def _table(rows: list[dict[str, str]]) -> str:
    names = [name for name in (rows[0] if rows else {}) if any(row[name] for row in rows)]
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(value: Any) -> str:
    return "" if value is None else f"{value:%Y-%m-%d %H:%M:%S}" if hasattr(value, "year") else str(value)
