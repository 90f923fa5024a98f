"""How one node of one run ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.mark import NodeMark, mark_text
from odi_assets.state.records import RunStatus
from odi_assets.util.words import counted

RESUMED_FROM = "resumed_from"
"""Key of the metrics of a node that a resumed run left out: the run in which it succeeded."""
REWIND = "rewind"
"""The trigger of a rewind in the run history, and the mode of its commit."""
ADOPT = "adopt"
"""The mode of the commit that makes a table another node's."""
PARTIAL = "partial"
"""Key of the metrics of a run of only some of the pipeline's nodes."""

CHECKS = "checks"
"""Key of the metrics of a run: the outcome of each check of the node."""
QUARANTINED = "rows_quarantined"
"""Key of the metrics of a run: rows that went to the node's quarantine."""

ROWS_LEFT: Mapping[str, str] = {
    "rows_held": "ahead of the clock, left for later",
    "rows_without_cursor": "without a cursor, left out",
    "rows_below_hwm": "arrived at or below the HWM, not read (`watermark_lag` reads late rows, `odi audit` finds them)",
    "rows_below_hwm_at_least": "or more arrived at or below the HWM, not read (`watermark_lag` reads late rows, "
    "`odi audit` finds them)",
}
"""Keys of the metrics that count rows of the sources that a run did not take in, each with why."""

LAG = ("lag_bytes", "lag_seconds", "slot_bytes")
"""Keys of the metrics of a run: how far the node was behind its sources when it began; in bytes where it captures a
log."""

PHASES = ("jvm", "read", "compute", "commit")
"""Where the seconds of a run go: waiting for Spark; planning, and reading what the plan needs; computing the rows and
writing their files; the commit, and moving the HWM. :func:`phase_metric` names the metric of each."""

ROWS_BELOW = ("rows_below_hwm", "rows_below_hwm_at_least")
"""The keys that count rows which no increment will read."""


@dataclass(frozen=True)
class RunInfo:
    """The run that a node is materialized in.

    Attributes:
        run_id: Dagster's.
        trigger: what started the run; None if unknown.
        attempt: counts from 1.
        partial: the run is of only some of the pipeline's nodes.
    """

    run_id: str
    trigger: str | None = "manual"
    attempt: int = 1
    code_version: str | None = None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    partial: bool = False


@dataclass(frozen=True)
class NodeResult:
    """How a node ended.

    Attributes:
        rows_read: rows read from all sources; None if counting them would take a second pass.
        rows_written: rows that are new or changed in the target, by Parquet footers.
        rows_total: rows in the target afterwards.
        partition_rows: how many of ``rows_written`` each partition got that was written or replaced, by the values of
            the node's partition columns.
        columns: name and Spark type of each column of the target.
        seconds: from the start of the node's plan to its end.
    """

    key: NodeKey
    status: RunStatus
    seconds: float
    uri: str
    increment: str = ""
    rows_read: int | None = None
    rows_written: int | None = None
    rows_total: int | None = None
    hwm_before: NodeMark | None = None
    hwm_after: NodeMark | None = None
    table_version: int | None = None
    columns: tuple[tuple[str, str], ...] = ()
    partition_rows: Mapping[tuple[str | None, ...], int] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def partitions(self) -> tuple[str | None, ...]:
        """Values of the node's first partition column whose partitions were written or replaced."""
        return tuple(dict.fromkeys(values[0] for values in self.partition_rows))

    def to_json(self) -> dict[str, Any]:
        """The result as JSON-ready values."""
        return {
            "pipeline": self.key.pipeline,
            "node": self.key.node,
            "status": self.status.value,
            "rows_read": self.rows_read,
            "rows_written": self.rows_written,
            "hwm_before": mark_text(self.hwm_before),
            "hwm_after": mark_text(self.hwm_after),
            "table_version": self.table_version,
            "seconds": round(self.seconds, 3),
            "increment": self.increment,
            "uri": self.uri,
            "error": self.error,
            **{name: self.metrics[name] for name in (CHECKS, QUARANTINED) if name in self.metrics},
        }


def rows_left(metrics: Mapping[str, Any]) -> list[str]:
    """Rows of the sources that a run did not take in, in words: ``2 rows ahead of the clock, left for later``."""
    return [f"{counted(metrics[name], 'row')} {why}" for name, why in ROWS_LEFT.items() if metrics.get(name)]


@dataclass(frozen=True)
class RunSummary:
    """One run of a pipeline; ``results`` in the order of the nodes, ``seconds`` from start to end."""

    run_id: str
    success: bool
    results: list[NodeResult]
    seconds: float


def phase_metric(phase: str) -> str:
    """The key of the metrics of a run that has the seconds of a phase: ``seconds_commit``."""
    return f"seconds_{phase}"


def is_left_out(result: NodeResult) -> bool:
    """Whether a resumed run left the node out because there was nothing to do."""
    return result.status is RunStatus.SKIPPED and RESUMED_FROM in result.metrics


def is_cancellation(error: BaseException) -> bool:
    """Whether somebody ended the run: Ctrl-C in the shell, *Terminate* in Dagster."""
    # Dagster's own type is not imported here. It is a BaseException too, so an error of a node is neither.
    return isinstance(error, KeyboardInterrupt) or type(error).__name__ == "DagsterExecutionInterruptedError"
