"""Whether a node's table still holds the rows that its HWM says it holds."""

from __future__ import annotations

from dataclasses import dataclass

from odi_assets.config.graph import NodeKey
from odi_assets.delta.history import TableCommit, replaces_rows
from odi_assets.delta.maintenance.restore import has_version_before, lost_files
from odi_assets.delta.table import TableHandle
from odi_assets.errors import StateError, TargetBehindStateError
from odi_assets.nodes.commit_facts import HwmOrigin
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.identity import is_moved
from odi_assets.nodes.planning.start import Start
from odi_assets.nodes.planning.writers import writer_of
from odi_assets.state.records import NO_TABLE, HwmEntry

_LOOKED_AT = 8
"""How many files of the table each plan checks for their presence, spread evenly; ``odi doctor`` checks all."""

_FROM_LOG = "the table's log"


@dataclass(frozen=True)
class ForeignChange:
    """A commit of somebody else that removed a table's rows, and how, as a participle: ``overwritten``."""

    commit: TableCommit
    how: str

    def __str__(self) -> str:
        return f"{self.how} by somebody else, at version {self.commit.version}"


def require_target(node: Node, start: Start, target: TableHandle) -> None:
    """Raises TargetBehindStateError if rows below the HWM are gone: the next increment would leave a gap."""
    entry = start.entry
    if start.hwm is None:
        return
    if start.log_version is not None:
        # The log is ahead of state, so the rows are expected in the version whose HWM counts.
        entry = HwmEntry(node.state_key, start.hwm.value, None, start.seen_at, 0, False, start.log_version, _FROM_LOG)
    if entry is None:
        return
    why = what_is_behind(node.key, entry, target)
    if why is None:
        return
    commit = entry.target_commit
    former_place = _former_place(node, entry, target)
    of = "the table" if former_place is None else f"the table at {former_place}"
    held = "" if commit is None or commit == NO_TABLE else f", which version {commit} of {of} held"
    way_back = "put `write.path` back, where that table was; or " if former_place is not None else ""
    raise TargetBehindStateError(
        f"{node}: state says it was loaded up to {start.hwm}{held}; the table at {target.location.uri} {why}",
        fix=f"{way_back}reset: {_rebuilt(node)}{_rewound(node, target, former_place)}{_accepted(node)}",
        node=str(node),
        key=node.state_key,
        hwm=start.hwm.value,
        target=target.location.uri,
    )


def require_hwm_known(node: Node, start: Start, target: TableHandle) -> None:
    """Raises StateError if a node that appends has a table of its own, and nothing says up to where that was loaded:
    its rows would come twice."""
    fence = app_id(node.key)
    if node.config.write.mode.traits.takes_rows_again or start.entry is not None:
        return
    if not target.transaction_number(fence) or target.last_stamp(fence, carrying="hwm") is not None:
        return
    why = (
        f"the log of the table at {target.location.uri} no longer holds the commit that would tell it"
        if target.last_stamp(fence) is None
        else f"the table at {target.location.uri} was written when the node had no increment, so nothing says which "
        "rows it has"
    )
    raise StateError(
        f"{node}: state has no HWM, and {why}; loading everything again would repeat the rows that are there",
        fix=f"{_rebuilt(node)}; or, if you know up to where it was loaded, say so: odi state set {node.state_key} "
        "VALUE, with a VALUE as `odi state get` prints it",
        node=str(node),
        target=target.location.uri,
    )


def _rebuilt(node: Node) -> str:
    """What makes the table of a node again, for messages."""
    if node.captures:
        return f"make new snapshots in an empty change log (odi run {node.command} --full-refresh --yes)"
    return f"rebuild it from its sources (odi run {node.command} --full-refresh)"


def _former_place(node: Node, entry: HwmEntry, target: TableHandle) -> str | None:
    """Where the table of an HWM was, if `write.path` leads elsewhere now; None if it does not, or if state does not
    say it."""
    origin = HwmOrigin.from_json(entry.origin)
    if origin is None or origin.place in (None, target.location.true_path()) or is_moved(node, origin):
        return None
    return origin.place


def _rewound(node: Node, target: TableHandle, former_place: str | None) -> str:
    """How to go back to the table, or to a version before, for messages; nothing if each version that is kept has lost
    files."""
    if not target.exists:
        edited = ", or `write.path`, if it was edited" if former_place is None else ""
        return f"; or put the table back from a copy{edited}"
    lost = lost_files(target.location, target.live_files)
    if lost and not has_version_before(target, lost):
        return ""
    return f"; or rewind: put the table and its HWM back together (odi state rewind {node} --list)"


def _accepted(node: Node) -> str:
    """What goes on with a table that lacks rows, for messages; nothing for a change log, whose gap nobody would see."""
    return "" if node.captures else f"; or accept: go on with the table as it is (odi state accept {node})"


def what_is_behind(key: NodeKey, entry: HwmEntry, target: TableHandle, *, look_at_files: bool = True) -> str | None:
    """What happened to the rows below the HWM of ``entry``, to complete "the table …"; None if they are there."""
    expected = entry.target_commit
    if not target.exists:
        return None if expected == NO_TABLE else "does not exist"
    version, origin = int(target.version or 0), HwmOrigin.from_json(entry.origin)
    if origin is not None and origin.table_id not in (None, target.table_id):
        writer = writer_of(target)
        if writer is not None and str(key) not in writer.nodes:
            return f"was written by {writer}"
        return "is another one: it was dropped, and made again"
    if expected is not None and version < expected:
        return f"is at version {version}"
    if expected is not None and entry.run_id is not None and not target.transaction_number(app_id(key)):
        return "is another one: it was dropped, and somebody else made it again"
    change = None if expected is None else rows_removed_since(expected, target)
    if change is not None:
        return f"was {change}"
    if origin is not None and expected is not None and expected >= 0 and origin.is_other_history(target, expected):
        return f"has another history: its version {expected} is another commit; it was put back from a copy"
    return _without_files(target) if look_at_files else None


def rows_removed_since(expected: int, target: TableHandle) -> ForeignChange | None:
    """The newest commit of somebody else, after version ``expected``, that removed all rows of that version."""
    for commit in target.commits():
        if commit.version <= expected:
            return None
        if commit.stamp is not None:
            continue
        if (how := replaces_rows(commit)) is not None:
            return ForeignChange(commit, how)
        if commit.operation in ("DELETE", "TRUNCATE") and target.rows == 0:
            return ForeignChange(commit, "emptied")
    return None


def _without_files(target: TableHandle) -> str | None:
    files = target.live_files
    gone = lost_files(target.location, files[:: max(1, len(files) // _LOOKED_AT)])
    return f"has lost files of its version {target.version}, {gone[0]} among them" if gone else None
