"""The state store of a node, which its function asks for by a parameter named ``store``.

What the function puts into it counts once the rows it returns are in the node's table, and only then: the commit of
these rows names the version of the store. So a run that is killed, refused or retried never counts twice, and a table
that is put back to an earlier version has the store of that version again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError, StateError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.store.provider import StateStoreProvider
from odi_assets.store.staged import Named, StagedStore, require_there
from odi_assets.store.state_store import StateStore

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeStore:
    """The store that the function of ``node`` asked for, with what the function changed in it."""

    node: str
    staged: StagedStore

    @property
    def store(self) -> StateStore:
        """What the function gets."""
        return self.staged.store

    def stage(self) -> dict[str, Any]:
        """Write what was changed, and return what the node's commit is to say of its store."""
        return {"name": self.store.id.rpartition("/")[2], **vars(self.staged.stage())}

    def publish(self) -> None:
        """Make what was staged a version of the store. The node's commit has named it, so it counts already: if this
        fails, the node's next run does it."""
        try:
            self.staged.publish()
        except StateError as error:
            _log.warning("%s: its state store will be brought up to date by its next run: %s", self.node, error.message)


def open_node_store(plan: NodePlan) -> NodeStore:
    """The store of the plan's node at the version that belongs to its table's rows; empty if they will be replaced by
    all that the sources hold.

    Raises:
        ConfigError: the run is of a range, whose rows the store may have seen already.
        StateError: the store cannot be read.
    """
    node = plan.node
    if plan.request.is_bounded:
        raise ConfigError(
            f"the function of {node} asks for its state store, which has no state for a range",
            fix=f"run the node without a range or partitions, or rebuild its table and its store: "
            f"odi run {node.command} --full-refresh",
            node=str(node),
        )
    starts_over = plan.request.full_refresh or (bool(node.following) and plan.start.hwm is None)
    facts = None if starts_over else _facts(plan.target)
    return NodeStore(str(node), StagedStore(_provider(node, facts), Named.from_json(facts) if facts else None))


def require_named(node: Node, target: TableHandle) -> None:
    """Raises StateError if the store that the node's table names is not where its next run looks for it."""
    facts = _facts(target)
    if facts is not None:
        require_there(_provider(node, facts), Named.from_json(facts))


def _provider(node: Node, facts: Mapping[str, Any] | None) -> StateStoreProvider:
    # A node that was renamed goes on with the store that its table's commits name.
    location = node.project.stores.child(str(facts["name"]) if facts else str(node.key))
    return StateStoreProvider(location.uri, location.storage_options)


def _facts(target: TableHandle) -> Mapping[str, Any] | None:
    """What the newest commit that names a store says of it, without those that a rewind has undone; None if there is
    none. Whether the table's commits are the node's, planning has checked."""
    undone_after: int | None = None
    for stamp in target.stamps():
        if undone_after is not None and stamp.version > undone_after:
            continue
        rewound_to = CommitFacts.of(stamp).rewound_to
        if rewound_to is not None:
            undone_after = rewound_to
        elif stamp.facts.get("store"):
            facts: Mapping[str, Any] = stamp.facts["store"]
            return facts
    return None
