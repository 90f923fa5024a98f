"""What is different about a stream node: a Structured Streaming query, whose mark is its checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import NodeConfig, StreamSettings
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.kinds import GoesAlong, NodeKind
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.request import RunRequest
from odi_assets.streams.planning.inputs import log_needed_from, unread_versions
from odi_assets.streams.planning.kept_rows import kept_tables
from odi_assets.streams.planning.marks import Match, checkpoint_base, stream_marks
from odi_assets.streams.planning.plan import StreamPlan, planned_stream

if TYPE_CHECKING:
    from datetime import datetime

    import dagster as dg
    from pyspark.sql import SparkSession

    from odi_assets.config.graph import NodeKey
    from odi_assets.connections.location import Location
    from odi_assets.nodes.planning.writers import Writer
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.recovery.adopt import Adoption
    from odi_assets.nodes.recovery.findings import Disagreement
    from odi_assets.nodes.recovery.repair import Repaired
    from odi_assets.streams.execution.run import StreamRows


class StreamKind(NodeKind):
    """The steps of stream nodes. What needs Spark or Dagster, or comes after a run, is loaded when it is asked for."""

    keeps_hwm = False
    follows_every_source = True
    # The checkpoint may hold a batch that was planned and not committed.
    leaves_work = True
    # A query never takes rows back that it has read.
    takes_rows_back = False

    def plan(self, node: Node, request: RunRequest) -> StreamPlan:
        return planned_stream(node, TableHandle.open(node.target.location), request)

    def rows(self, plan: NodePlan, spark: SparkSession) -> StreamRows:
        from odi_assets.streams.execution.run import StreamRows

        return StreamRows(plan, spark)

    def definition(self, dumped: dict[str, Any]) -> dict[str, Any]:
        return dumped

    def tables_beside(self, node: Node) -> dict[str, Location]:
        return kept_tables(node)

    def has_folder(self, node: Node, uri: str) -> bool:
        base = checkpoint_base(node).uri.rstrip("/")
        return uri == base or uri.startswith(f"{base}-")

    def unread_versions(self, node: Node, table: TableHandle) -> tuple[int, ...]:
        return unread_versions(node, table)

    def log_needed_from(self, node: Node, table: TableHandle) -> int | None:
        return log_needed_from(node, table)

    def examine(self, node: Node, target: TableHandle) -> Iterable[Disagreement]:
        from odi_assets.streams.recovery.doctor import checkpoint_and_table

        return checkpoint_and_table(node, target)

    def examine_files(self, node: Node) -> Iterable[Disagreement]:
        from odi_assets.streams.recovery.doctor import checkpoint_files

        return checkpoint_files(node)

    def not_looked_at(self, node: Node) -> Iterable[tuple[str, str]]:
        from odi_assets.streams.recovery.doctor import not_looked_at

        return not_looked_at(node)

    def figures(self, node: Node) -> Mapping[str, float | datetime | None]:
        records = node.project.open_batches().of_node(str(node))
        if not records:
            return {}
        last = records[-1]
        return {
            "odi_stream_batch": last.batch,
            "odi_stream_committed_timestamp_seconds": last.committed_at,
            "odi_stream_watermark_timestamp_seconds": last.watermark,
            "odi_stream_state_rows": last.state_rows,
            "odi_stream_state_bytes": last.state_bytes,
        }

    def gaps(self, node: Node) -> str | None:
        from odi_assets.streams.recovery.doctor import kept_gaps

        return kept_gaps(node)

    def require_auditable(self, node: Node) -> None:
        raise ConfigError(
            f"{node} is a stream, whose batches are not ranges of its sources",
            fix=f"to follow a row through it: odi explain {node} --key KEY",
            node=str(node),
        )

    def is_ahead_of_table(self, node: Node) -> bool:
        return stream_marks(node, TableHandle.open(node.target.location)).match is Match.TABLE_BEHIND

    def can_go_on(self, node: Node) -> bool:
        return stream_marks(node, TableHandle.open(node.target.location)).match.can_go_on

    def rewind(self, node: Node, before: TableHandle) -> GoesAlong:
        from odi_assets.streams.recovery.rewind import plan_checkpoint

        return plan_checkpoint(node, before)

    def adopt(self, node: Node, target: TableHandle, writer: Writer | None) -> Adoption | None:
        from odi_assets.streams.recovery.adopt import adoption_of_stream

        return adoption_of_stream(node, target, writer)

    def repair(self, node: Node, *, dry_run: bool) -> Iterable[Repaired]:
        from odi_assets.streams.recovery.repair import repaired

        return repaired(node, dry_run=dry_run)

    def metadata(self, config: NodeConfig) -> Mapping[str, str]:
        stream = config.stream or StreamSettings()
        return {"stream": f"{stream.output_mode}, state in {stream.state_store}"}

    def has_limits(self, config: NodeConfig) -> bool:
        return config.stream is not None and config.stream.health is not None

    def asset_checks(self, project: Project, key: NodeKey) -> Iterable[dg.AssetChecksDefinition]:
        from odi_assets.streams.asset_checks.health import health_check
        from odi_assets.streams.asset_checks.kept_rows import kept_rows_checks

        limited = self.has_limits(project.graph.node(key))
        return [*kept_rows_checks(project, key), *([health_check(project, key)] if limited else [])]
