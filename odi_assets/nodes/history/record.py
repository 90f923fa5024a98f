"""A node's row of run history."""

from __future__ import annotations

from datetime import UTC, datetime

from odi_assets.nodes.history import attempts
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunRecord


def record(
    project: Project, state: StateBackend, result: NodeResult, run: RunInfo, partition_key: str | None = None
) -> None:
    """Write the node's row of run history, and forget that the attempt is open."""
    ended = datetime.now(UTC)
    state.record_runs(
        [
            RunRecord(
                run_id=run.run_id,
                project=project.config.project,
                pipeline_name=result.key.pipeline,
                node_name=result.key.node,
                status=result.status,
                rows_processed=result.rows_written,
                duration_ms=int(result.seconds * 1000),
                metrics={
                    **result.metrics,
                    "rows_read": result.rows_read,
                    "rows_written": result.rows_written,
                    "increment": result.increment,
                },
                environment=project.environment,
                timestamp=ended,
                started_at=run.started_at,
                partition_key=partition_key,
                trigger=run.trigger,
                attempt=run.attempt,
                hwm_before=result.hwm_before,
                hwm_after=result.hwm_after,
                table_version=result.table_version,
                code_version=run.code_version,
                error=result.error,
            )
        ]
    )
    attempts.end(project, result.key, run.run_id, run.attempt)
