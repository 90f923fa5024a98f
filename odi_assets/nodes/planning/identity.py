"""Whether a mark, an HWM and a table are still of the node that plans with them.

What a mark measures is stored in each commit and in state. A definition that changed so that the mark means something
else stops the plan: read on above it, rows would be lost or repeated. What is the same stays the same: a project, a
lake or a landing zone that was moved, a connection that was renamed or leads to the same place in another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from odi_assets.config.graph import NodeKey
from odi_assets.connections.location import is_there
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IdentityMismatchError
from odi_assets.nodes.commit_facts import CommitFacts, HwmOrigin
from odi_assets.nodes.node import Node, app_ids
from odi_assets.nodes.planning.known_rows import require_known_rows
from odi_assets.nodes.planning.writers import (
    Writer,
    other_writer,
    require_no_quarantine,
    writer_of,
    written_by_another,
)
from odi_assets.sources.marks import Identity, VersionMark
from odi_assets.sources.reading import changes, same_cursor

if TYPE_CHECKING:
    from odi_assets.nodes.mark import NodeMark
    from odi_assets.nodes.planning.start import Start

_ORDERS = {"files": "files that are new", "version": "the table's versions"}


def require_own(node: Node, start: Start, target: TableHandle) -> None:
    """Raises IdentityMismatchError if the table or the HWM that ``node`` would go on with is another node's, the table
    holds parts of another source or rows above the HWM, or the node would not know the rows of the table."""
    require_own_table(node, start, target)
    require_own_hwm(node, start.origin)
    require_hwm_not_taken(node, start.origin)
    require_no_unmarked_rows(node, start, target)
    require_sources_of_parts(node, start, target)
    require_known_rows(node, target)


# -- the table ---------------------------------------------------------------------------------------------------------


def require_own_table(node: Node, start: Start, target: TableHandle) -> None:
    """Raises IdentityMismatchError if another node or project wrote the table that ``node`` adds to.

    A node that replaces its table with each run may take over one that another node of its project left, unless its
    HWM is of another table.
    """
    require_no_quarantine(node, target)
    writer = other_writer(node, target)
    if writer is None:
        return
    of_table = None if start.hwm is None or start.origin is None else start.origin.table_id
    has_other = of_table not in (None, target.table_id)
    same_project = writer.project in (None, node.project.config.project)
    if same_project and not has_other and (not node.following or node.config.write.mode.traits.increment == "table"):
        return
    raise written_by_another(node, target, writer)


# -- the HWM -----------------------------------------------------------------------------------------------------------


def require_own_hwm(node: Node, origin: HwmOrigin | None) -> None:
    """Raises IdentityMismatchError if the HWM under the node's state key belongs to another node or project.

    A node that follows no source ignores an HWM under its key.
    """
    if origin is None or not node.following:
        return
    project = node.project.config.project
    if origin.node in (None, str(node)) and origin.project in (None, project):
        return
    owner = Writer((origin.node or str(node),), origin.project)
    raise IdentityMismatchError(
        f"{node} of project {project}: the HWM under the state key `{node.state_key}` belongs to {owner}",
        fix=f"if it was renamed and its rows are the same, take the HWM over: odi state adopt {node}; or rename it "
        "back; or keep the two apart by `system.environment`, by another `system.path`, or by a `state_key`; "
        f"or rebuild its table from its sources: odi run {node.command} --full-refresh",
        node=str(node),
        key=node.state_key,
    )


def require_hwm_not_taken(node: Node, origin: HwmOrigin | None) -> None:
    """Raises IdentityMismatchError if the HWM is of a table that another node of the project writes now: the node was
    renamed, or split, and its name goes on with a table of its own."""
    if origin is None or origin.place in (None, node.target.location.true_path()) or is_moved(node, origin):
        return
    project = node.project
    others = (key for key in project.graph.nodes if key != node.key)
    other = next((key for key in others if project.target(key).true_path() == origin.place), None)
    if other is None:
        return
    writer = writer_of(TableHandle.open(project.target(other)))
    take_over = (
        f"if {other} has its rows, let it take over table and HWM, and {node} begins with its first run: "
        f"odi state adopt {other}; or "
        if writer is not None and str(node) in writer.nodes
        else ""
    )
    raise IdentityMismatchError(
        f"{node}: its HWM is of the table at {origin.place}, which {other} writes now",
        fix=f"{take_over}put `write.path` back; or rebuild its table from its sources: odi run {node.command} "
        "--full-refresh",
        node=str(node),
        key=node.state_key,
    )


def require_no_unmarked_rows(node: Node, start: Start, target: TableHandle, written_by: NodeKey | None = None) -> None:
    """Raises IdentityMismatchError if ``node`` appends, and its table has rows that no mark counts: they would be
    appended again.

    Args:
        written_by: the node that wrote the table, if it had another name then.
    """
    if not node.following or node.config.write.mode.traits.takes_rows_again:
        return
    commit = unmarked_rows(written_by or node.key, target)
    is_part = commit is not None and CommitFacts.of(commit).unmarked
    if commit is None or _is_said_since(start, commit) or (start.hwm is None and not is_part):
        return
    was_stream = CommitFacts.of(commit).stream is not None
    how, then = "by a stream" if was_stream else "when the node followed none of its sources", ""
    if is_part:
        how = "by a run of a part of it, in a write mode that takes rows again"
        then = f", run it (odi run {node.command}) until it leaves no rows for later, and edit it then"
    raise IdentityMismatchError(
        f"{node}: version {commit.version} of its table was written {how}, and its HWM does not count these rows; "
        f"above {start.hwm or 'nothing'}, they would be appended again",
        fix=f"put the definition back{then}; "
        f"or rebuild the table from its sources: odi run {node.command} --full-refresh; "
        f"or, if you know up to where it was loaded, say so: odi state set {node.state_key} VALUE, in the form in "
        "which `odi state get` prints one; the one that it prints now is from before these rows",
        node=str(node),
    )


def unmarked_rows(key: NodeKey, target: TableHandle) -> CommittedStamp | None:
    """The commit of a node since which its table may hold rows that no mark counts; None if there is none."""
    fences = app_ids(key)
    if not target.exists or not any(map(target.transaction_number, fences)):
        return None
    for stamp in target.stamps():
        facts = CommitFacts.of(stamp) if stamp.app_id in fences else None
        if facts is None:
            continue
        if facts.unmarked:
            return stamp
        if stamp.app_id == fences[0]:
            return stamp if facts.hwm is None else None
    return None


def _is_said_since(start: Start, last: CommittedStamp) -> bool:
    """Whether somebody set the HWM by hand, or accepted the table, since its commit ``last``."""
    entry = None if start.repaired else start.current
    if entry is None or entry.is_index:
        return False
    if entry.target_commit is not None:
        # An adoption writes its own commit, and what that carries.
        is_own = CommitFacts.of(last).hwm is not None
        return entry.target_commit > last.version or (entry.target_commit == last.version and not is_own)
    return entry.updated_at > last.committed_at


# -- what the marks measure --------------------------------------------------------------------------------------------


def matched(node: Node, origin: HwmOrigin | None) -> dict[str, str]:
    """By each source of ``node`` that has a mark, the name under which the HWM keeps it: an input may be renamed.

    Args:
        origin: what the HWM is of; None if that is not known: then it is taken for one of this node.

    Raises:
        IdentityMismatchError: the marks measure something else.
    """
    names = same_sources(node, origin)
    if origin is None or not origin.measures:
        return names
    moved, now = is_moved(node, origin), measured(node)
    unmatched = {name: measure for name, measure in origin.measures.items() if name not in names.values()}
    traits = node.config.write.mode.traits
    if traits.increment == "table":
        # Sources without a mark are read whole, and replace the table.
        return names
    for name, identity in now.items():
        if name not in names and unmatched:
            then = name if name in unmatched else next(iter(unmatched))
            raise _other_source(node, difference(unmatched[then], identity, moved=moved) or "changed")
    require_followed(node, origin)
    return names


def require_followed(node: Node, origin: HwmOrigin | None) -> None:
    """Raises IdentityMismatchError if ``node`` appends, and follows none of its sources any more: whoever adopted that
    would have each run append all rows again."""
    appends = not node.config.write.mode.traits.takes_rows_again
    if origin is None or not origin.measures or node.following or not appends:
        return
    then = _order(next(iter(origin.measures.values())))
    raise IdentityMismatchError(
        f"{node}: what its HWM measures was followed by {then}, and is read whole now: each run would append all rows "
        "again",
        fix="put `incremental` back; or write in a mode that takes rows again, as `overwrite`, or `append_once` with "
        f"`keys`; or, if each run is to append all rows, begin with them: odi run {node.command} --full-refresh",
        node=str(node),
    )


def require_sources_of_table(node: Node, start: Start, target: TableHandle) -> None:
    """Raises IdentityMismatchError if a part that is read now, and moves no mark, would stand beside rows of another
    source: the marks would not show it, and no later run would notice."""
    if start.hwm is None or start.origin is None or not node.following:
        differences = other_sources_of_parts(node, start, target)
    else:
        differences = list(_other_sources_of_marks(node, start.hwm, start.origin))
    if differences:
        raise IdentityMismatchError(
            f"{node}: {'; '.join(differences)}; rows of both would stand side by side",
            fix=f"put the definition back; or load all rows from there first: odi run {node.command}",
            node=str(node),
        )


def _other_sources_of_marks(node: Node, hwm: NodeMark, origin: HwmOrigin) -> Iterator[str]:
    """How sources are others than those that the marks measure, each in words, where an increment would not stop: it
    would replace the table.

    Raises:
        IdentityMismatchError: an increment would stop too.
    """
    is_replaced = node.config.write.mode.traits.increment == "table"
    names = same_sources(node, origin) if is_replaced else matched(node, origin)
    by_version = any(identity.increment == "version" for identity in origin.measures.values())
    marks = node.marks(hwm, None, origin.measures, names=names) if by_version else {}
    moved = is_moved(node, origin)
    for source in node.sources:
        then, mark = origin.measures.get(names.get(source.name, source.name)), marks.get(source.name)
        if then is None or not source.follows:
            continue
        if isinstance(mark, VersionMark) and mark.table_id is not None:
            # A table is known by its id, wherever it is.
            yield from filter(None, [source.why_unreachable(mark)])
        elif source.name not in names or not same_source(then, source.identity, moved=moved):
            yield f"its table has rows of {_place(then)}, and {_place(source.identity)} is read now"


def require_sources_of_parts(node: Node, start: Start, target: TableHandle) -> None:
    """Raises IdentityMismatchError if a table that has no HWM holds parts of another source than ``node`` reads, and is
    not replaced as a whole."""
    is_replaced = node.config.write.mode.traits.increment == "table"
    differences = [] if is_replaced else other_sources_of_parts(node, start, target)
    if differences:
        raise IdentityMismatchError(
            f"{node}: {'; '.join(differences)}; rows of both would stand side by side",
            fix=f"if the rows are the same, go on with them: odi state adopt {node}; or put the definition back; "
            f"or rebuild the table from its sources: odi run {node.command} --full-refresh",
            node=str(node),
        )


def other_sources_of_parts(node: Node, start: Start, target: TableHandle) -> list[str]:
    """How sources are others than those that parts of a table without an HWM are of, each in words."""
    facts = CommitFacts.last_in(target, app_ids(node.key)) if start.hwm is None and target.exists else None
    origin = None if facts is None else facts.origin_of_part
    if origin is None:
        return []
    moved, parts = is_moved(node, origin), list(origin.measures.values())
    return [
        f"its table has parts of {', '.join(map(_place, parts))}, and {_place(identity)} is read now"
        for identity in measured(node).values()
        if not any(same_source(then, identity, moved=moved) for then in parts)
    ]


def same_sources(node: Node, origin: HwmOrigin | None) -> dict[str, str]:
    """The pairs of :func:`matched` that measure the same."""
    if origin is None or not origin.measures:
        return {name: name for name in node.following}
    moved = is_moved(node, origin)
    former_names: dict[str, str] = {}
    for name, identity in measured(node).items():
        # By what it reads first, then by its own name: two inputs may be one table.
        names = sorted(
            origin.measures,
            key=lambda then: (not same_source(origin.measures[then], identity, moved=moved), then != name),
        )
        same = (then for then in names if difference(origin.measures[then], identity, moved=moved) is None)
        if (
            then := next((former_name for former_name in same if former_name not in former_names.values()), None)
        ) is not None:
            former_names[name] = then
    return former_names


def is_moved(node: Node, origin: HwmOrigin) -> bool:
    """Whether the project's folder is another one now: what it holds was moved or copied with it."""
    return origin.root is not None and origin.root != str(node.project.root.resolve())


def difference(then: Identity, now: Identity, *, moved: bool) -> str | None:
    """How a source differs from what its mark measures, in words; None if it is the same.

    Args:
        moved: the project's folder was moved.
    """
    is_same = same_source(then, now, moved=moved)
    # Versions of another table are noticed by its id, and the table is read whole.
    if _same_columns(then, now) and (is_same or now.increment == "version"):
        differences = changes(then.reading, now.reading)
        return f"is read in another way: {'; '.join(differences)}" if differences else None
    if is_same:
        # The same column in another mode, or columns of which one has the mode in its name.
        is_mode = _order(then) == _order(now)
        before, after = (
            f"{_order(identity)}{f' (mode: {identity.increment})' if is_mode else ''}" for identity in (then, now)
        )
        return f"was followed by {before}, and is followed by {after} now"
    if _same_columns(then, now):
        return f"was {_place(then)}, and is {_place(now)} now"
    return f"was {_place(then)}, followed by {_order(then)}, and is {_place(now)}, followed by {_order(now)} now"


def same_order(then: Identity, now: Identity) -> bool:
    """Whether a mark of ``then`` orders what ``now`` reads: the same kind, increment and cursor, understood alike."""
    return _same_columns(then, now) and same_cursor(then.reading, now.reading)


def _same_columns(then: Identity, now: Identity) -> bool:
    same_mode = then.increment in ("", now.increment)
    column = now.cursor if then.increment else now.cursor.partition(", else ")[0]
    return then.kind == now.kind and same_mode and then.cursor.casefold() == column.casefold()


def same_source(then: Identity, now: Identity, *, moved: bool) -> bool:
    """Whether ``now`` reads what ``then`` read, wherever it is."""
    if then.kind != now.kind:
        return False
    if then.place and then.place == now.place:
        return True
    if _plain(then.source) != _plain(now.source):
        return False
    if not then.place or now.kind == "delta":
        # An early version stored no place; a table is known by its id.
        return True
    return then.connection == now.connection and (moved or not _is_beside(then, now))


def _plain(source: str) -> str:
    return "/".join(part for part in source.split("/") if part not in ("", "."))


def _is_beside(then: Identity, now: Identity) -> bool:
    """Whether the folder that a mark measured still is where it was, and is another one than is read now."""
    if then.kind != "files" or "://" in then.place:
        return False
    folder = Path(then.place.removesuffix(f"/{_plain(then.source)}"))
    try:
        there = is_there(folder)
    except OSError:
        # Something is in the way to it; that it was moved is not known.
        return True
    return there and f"{folder.resolve()}/{_plain(then.source)}" != now.place


def _place(identity: Identity) -> str:
    return identity.place or identity.source


def _order(identity: Identity) -> str:
    return _ORDERS.get(identity.increment) or f"the column `{identity.cursor}`"


def _other_source(node: Node, how: str) -> IdentityMismatchError:
    return IdentityMismatchError(
        f"{node}: what its HWM measures {how}; read on above that HWM, rows would be lost or repeated",
        fix=f"if the rows are the same, go on with them: odi state adopt {node}; or put the definition back; "
        f"or rebuild the table from its sources: odi run {node.command} --full-refresh",
        node=str(node),
    )


def measured(node: Node) -> Mapping[str, Identity]:
    """What the marks of the node's sources measure now, by source."""
    return {source.name: source.identity for source in node.sources if source.follows}


def origin_now(node: Node, table_id: str | None = None) -> HwmOrigin:
    """What an HWM of ``node`` is of, as the node is defined now."""
    project = node.project
    return HwmOrigin(str(node), project.config.project, str(project.root.resolve()), table_id, measured(node))
