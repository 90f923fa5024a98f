"""How far a node that captures a log is behind, in Dagster: an asset check with the limit of the project file."""

from __future__ import annotations

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.history.capture_lag import lag_of
from odi_assets.nodes.project import Project
from odi_assets.orchestration.naming import DagsterNames

CHECK = "log_lag"


def lag_check(project: Project, key: NodeKey) -> dg.AssetChecksDefinition:
    """The check of a node that captures a log against ``log.warn_lag`` of its connection. It warns, and reads nothing
    but what the server says of the slot, and the first change above what is captured."""

    @dg.asset_check(
        asset=DagsterNames.of(project).asset(key),
        name=CHECK,
        description="The capture is behind the server's log by less than `log.warn_lag`.",
    )
    def check() -> dg.AssetCheckResult:
        capture_lag = lag_of(project, project.open_state(), key)
        if capture_lag is None:
            return dg.AssetCheckResult(passed=True, description="Nothing is captured yet.")
        return dg.AssetCheckResult(
            passed=not capture_lag.is_beyond,
            severity=dg.AssetCheckSeverity.WARN,
            description=capture_lag.text,
            metadata=capture_lag.metrics,
        )

    return check
