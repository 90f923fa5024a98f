"""Who wrote a table: its node, or the node whose quarantine it is. Needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from odi_assets.connections.location import Location
from odi_assets.delta.history import CommittedStamp, app_ids_in
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IdentityMismatchError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, node_of_app

QUARANTINE_PREFIX = "odi_assets.quarantine:"
"""Of the app transactions of a quarantine; the name of the node comes next, and then a ``:``."""


@dataclass(frozen=True)
class Writer:
    """Who made the commits of a table, or who set an HWM.

    Attributes:
        nodes: usually one; several, if the log no longer says which was the last.
        project: None if that is not known.
        quarantines: the table is their quarantine.
    """

    nodes: tuple[str, ...]
    project: str | None = None
    quarantines: bool = False

    def __str__(self) -> str:
        names = " and ".join(self.nodes)
        return names if self.project is None else f"{names} of project {self.project}"

    def is_of(self, node: Node) -> bool:
        """Whether that was ``node``."""
        return str(node) in self.nodes and self.project in (None, node.project.config.project)


def committer(stamp: CommittedStamp) -> Writer | None:
    """The node that made a commit; None if that was no node."""
    app, project = stamp.app_id, stamp.facts.get("project")
    if app.startswith(QUARANTINE_PREFIX):
        # Its transaction may have a former name of the node.
        return Writer((stamp.facts.get("node") or _quarantined(app),), project, quarantines=True)
    return None if node_of_app(app) is None else Writer((CommitFacts.of(stamp).node,), project)


def writer_of(table: TableHandle) -> Writer | None:
    """Who made the newest commit of ours; None if nobody did."""
    if not table.exists:
        return None
    for stamp in table.stamps():
        writer = committer(stamp)
        # A commit that settles rows in a former quarantine names no node.
        if writer is not None and (not writer.quarantines or "node" in stamp.facts):
            return writer
    # A checkpoint keeps the fences of commits that the log no longer holds, and they have the names of the nodes.
    apps = app_ids_in(table.location)
    if names := {name for app in apps if (name := node_of_app(app)) is not None}:
        return Writer(tuple(sorted(names)))
    names = {_quarantined(app) for app in apps if app.startswith(QUARANTINE_PREFIX)}
    return Writer(tuple(sorted(names)), quarantines=True) if names else None


def _quarantined(app: str) -> str:
    return app.removeprefix(QUARANTINE_PREFIX).partition(":")[0]


def other_writer(node: Node, target: TableHandle) -> Writer | None:
    """Who made the newest commit of ours in the table of ``node``, if that was not the node; None if nobody did."""
    writer = writer_of(target)
    return None if writer is None or (writer.is_of(node) and not writer.quarantines) else writer


def require_written_by_itself(node: Node, target: TableHandle) -> None:
    """Raises IdentityMismatchError if another node or project made the newest commit of ours in the node's table."""
    if (writer := other_writer(node, target)) is not None:
        raise written_by_another(node, target, writer)


def written_by_another(node: Node, target: TableHandle, writer: Writer) -> IdentityMismatchError:
    """The error over a table of ``node`` that another node or project wrote."""
    return IdentityMismatchError(
        f"{node}: the table at {target.location.uri} was written by {writer}, and {node} of project "
        f"{node.project.config.project} would add its own rows",
        fix=f"if it was renamed and the rows are the same, take table and HWM over: odi state adopt {node}; "
        "or rename it back; or, if `write.path` was edited, put it back, or give it a table of its own; "
        f"or rebuild the table from its sources: odi run {node.command} --full-refresh",
        node=str(node),
        writer=str(writer),
        target=target.location.uri,
    )


def require_no_quarantine(node: Node, target: TableHandle) -> None:
    """Raises IdentityMismatchError if the table that ``node`` would write is a quarantine: nothing brings its rows
    back."""
    writer = writer_of(target)
    if writer is None or not writer.quarantines:
        return
    raise IdentityMismatchError(
        f"{node}: the table at {target.location.uri} is the quarantine of {writer}, and {node} of project "
        f"{node.project.config.project} would write its own rows there",
        fix="give the node a table of its own (`write.path`); or, if nobody needs the bad rows, delete that folder",
        node=str(node),
        writer=str(writer),
        target=target.location.uri,
    )


# -- the quarantine ----------------------------------------------------------------------------------------------------


def quarantine_of(node: Node) -> Location | None:
    """Where the quarantine of a node is; None if it has none."""
    path = node.config.quarantine
    return None if path is None else node.project.location(node.config.write.connection, path)


def other_quarantiner(node: Node, table: TableHandle) -> Writer | None:
    """Who wrote a table that ``node`` has for its quarantine, if that was not the node; None if nobody did."""
    writer = writer_of(table)
    return None if writer is None or (writer.is_of(node) and writer.quarantines) else writer


def require_own_quarantine(node: Node) -> None:
    """Raises IdentityMismatchError if another node or project wrote the quarantine of ``node``."""
    location = quarantine_of(node)
    table = None if location is None else TableHandle.open(location)
    writer = None if table is None else other_quarantiner(node, table)
    if table is None or writer is None:
        return
    ways = ["give the node a `quarantine` of its own"]
    if writer.quarantines:
        ways.append(f"if it was renamed, or is to go on with the rows that are there: odi state adopt {node}")
    raise IdentityMismatchError(
        f"{node}: its quarantine at {table.location.uri} was written by {writer}, and {node} of project "
        f"{node.project.config.project} would write its own bad rows there",
        fix="; or ".join(ways),
        node=str(node),
        writer=str(writer),
        target=table.location.uri,
    )


def quarantine_facts(node: Node, table: TableHandle, **facts: Any) -> dict[str, Any]:
    """What a commit of ``node`` in a quarantine says. In one that another node has taken over, it names no node: the
    table stays that node's."""
    own = {} if other_quarantiner(node, table) else {"node": str(node)}
    return {**own, "project": node.project.config.project, **facts}
