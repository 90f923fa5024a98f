"""When a node's table last gained rows, and whether that is longer ago than the project file allows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.node import app_ids
from odi_assets.nodes.project import Project


@dataclass(frozen=True)
class NodeFreshness:
    """How fresh a node's table is.

    Attributes:
        within: how long it may be without new rows.
        gained: when a run last committed rows to it; None if none did, or its log no longer has it.
    """

    within: timedelta
    gained: datetime | None

    def is_stale(self, now: datetime | None = None) -> bool:
        """Whether the table is without new rows for longer than it may be; one that never had any is not stale."""
        return self.gained is not None and (now or datetime.now(UTC)) - self.gained > self.within


def freshness_of(project: Project, key: NodeKey) -> NodeFreshness | None:
    """How fresh the table of a node is; None if the project file does not say how fresh it must be."""
    wanted = project.graph.node(key).freshness
    return None if wanted is None else NodeFreshness(wanted.within, last_gain(project, key))


def last_gain(project: Project, key: NodeKey) -> datetime | None:
    """When a run last committed rows of a node; None if its table's log no longer has it."""
    target = TableHandle.open(project.target(key))
    stamps = (target.last_stamp(app_id) for app_id in app_ids(key))
    return max((stamp.committed_at for stamp in stamps if stamp is not None), default=None)
