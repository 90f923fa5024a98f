"""How far a table has to go back until it holds nothing that a rewind upstream undoes."""

from __future__ import annotations

from collections.abc import Mapping

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import WriteMode
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import app_ids
from odi_assets.nodes.project import Project


def last_unaffected(handle: TableHandle, key: NodeKey, limits: Mapping[str, int]) -> int | None:
    """The newest version that holds nothing read from a version of an input beyond its limit; None: there is none.

    Args:
        limits: by upstream node, the version its table goes back to.
    """
    affected: dict[int, bool] = {}
    now = False
    newest: int | None = None
    for stamp in reversed(list(handle.stamps())):
        if stamp.app_id not in app_ids(key):
            # Compaction changes no row.
            continue
        if not now and affected:
            newest = stamp.version - 1
        now = _is_affected(stamp, limits, now, affected)
        affected[stamp.version] = now
    return handle.version if affected and not now else newest


def _is_affected(stamp: CommittedStamp, limits: Mapping[str, int], before: bool, affected: Mapping[int, bool]) -> bool:
    facts = CommitFacts.of(stamp)
    if facts.rewound_to is not None:
        earlier = [affected[version] for version in sorted(affected) if version <= facts.rewound_to]
        return earlier[-1] if earlier else False
    read = facts.inputs
    beyond = read is None or any(int(read.get(name, -1)) > limit for name, limit in limits.items())
    return beyond or (before and facts.mode != WriteMode.OVERWRITE)


def all_downstream(project: Project, key: NodeKey) -> list[NodeKey]:
    """Every node that reads from ``key``, directly or not, in the order they run."""
    reached = {key}
    for candidate in project.graph.order():
        if reached.intersection(project.graph.upstream(candidate)):
            reached.add(candidate)
    return [candidate for candidate in project.graph.order() if candidate in reached and candidate != key]
