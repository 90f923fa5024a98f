"""What one run of a node will do, as decided before it does anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.config.models import NodeConfig, WriteMode
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.fences import app_id, range_app_id
from odi_assets.nodes.hwm_text import hwm_text
from odi_assets.nodes.planning.time_range import Bounds
from odi_assets.nodes.project import READ_VIEW, Project
from odi_assets.sources.model import UNKNOWN, PartitionFilter, ReadPlan
from odi_assets.state.records import HwmEntry


@dataclass(frozen=True)
class NodePlan:
    """What one run of a node will do.

    Attributes:
        reads: one plan per source.
        target: the node's table, at the version whose fence was checked.
        mode: how the rows will be written, which is not always how the project file says: a full refresh, or a
            source that has to be read whole, replaces the table.
        replace: partitions to replace, for partition_overwrite; None: just those that rows are written to.
        number: the fence of the commit.
        entry: the HWM entry as read from state; a tombstone too.
        bounds: set for bounded runs, which never touch the HWM.
        within: of a bounded run, the partitions that the rows to be written are in; others are left out.
        repaired: the target's log was ahead of state, and the HWM was taken from there.
        nothing_new: no incremental source is ahead of its HWM: nothing is to be done.
        inputs: where each source stood, and each node that this one waits for without reading it.
    """

    project: Project
    key: NodeKey
    node: NodeConfig
    reads: tuple[ReadPlan, ...]
    target: TableHandle
    mode: WriteMode
    number: int
    hwm_before: Any
    hwm_after: Any
    entry: HwmEntry | None
    replace: tuple[Mapping[str, str | None], ...] | None = None
    bounds: Bounds | None = None
    within: PartitionFilter | None = None
    full_refresh: bool = False
    repaired: bool = False
    nothing_new: bool = False
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def app_id(self) -> str:
        return app_id(self.key) if self.bounds is None else range_app_id(self.key)

    @property
    def state_key(self) -> str:
        return state_key(self.key, self.node)

    @property
    def moves_hwm(self) -> bool:
        """Whether a commit of this plan carries an HWM."""
        return self.bounds is None and any(read.incremental for read in self.reads)

    @property
    def summary(self) -> str:
        """What will be read, in words."""
        if self.bounds is not None:
            return f"{self.bounds}"
        if len(self.reads) == 1:
            return self.reads[0].summary
        # Where nothing is to be done, the inputs that would be read whole are not read either.
        reads = [read for read in self.reads if read.incremental or not self.nothing_new]
        return "; ".join(f"{read.name}: {read.summary}" for read in reads)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON-ready values, for ``odi plan --json`` and for the commit's metadata."""
        return {
            "pipeline": self.key.pipeline,
            "node": self.key.node,
            "action": "nothing" if self.nothing_new else "write",
            "mode": self.mode.value,
            "summary": self.summary,
            "hwm_before": hwm_text(self.hwm_before),
            "hwm_after": hwm_text(self.hwm_after),
            "table_version": self.target.version,
            "full_refresh": self.full_refresh,
            "bounds": str(self.bounds) if self.bounds else None,
            "reads": [
                {
                    "name": read.name,
                    "source": read.label,
                    "format": read.format,
                    "incremental": read.incremental,
                    "summary": read.summary,
                    "files": len(read.files) if read.files is not None else None,
                    "rows": read.known_rows,
                    "hwm_before": hwm_text(read.hwm_before),
                    "hwm_after": hwm_text(read.hwm_after),
                }
                for read in self.reads
            ],
        }


def combined_hwm(plan: NodePlan) -> Any:
    """The node's HWM once all its reads are in the target; UNKNOWN while one of them is."""
    following = [read for read in plan.reads if read.incremental]
    if not following:
        return plan.hwm_before
    if any(read.hwm_after is UNKNOWN for read in following):
        return UNKNOWN
    if following[0].name == READ_VIEW and len(following) == 1:
        return following[0].hwm_after
    return {read.name: read.hwm_after for read in following if read.hwm_after is not None}
