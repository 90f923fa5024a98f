"""What ``odi doctor`` finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from odi_assets.config.graph import NodeKey
from odi_assets.delta.maintenance.restore import LostFile, has_version_before
from odi_assets.delta.table import TableHandle
from odi_assets.errors import OdiError
from odi_assets.nodes.node import Node


class Kind(StrEnum):
    """What disagrees with what."""

    STATE_BEHIND = "state behind its table"
    TABLE_BEHIND = "table behind its state"
    MARK_AHEAD = "HWM ahead of the clock"
    SET_BY_HAND = "state set by hand"
    FILES_MISSING = "files missing"
    HISTORY_BEHIND = "run without a row of history"
    HISTORY_AHEAD = "row of history without its commit"
    REDEFINED = "table or HWM of another definition"
    UPSTREAM_CHANGED = "input is another table"
    INPUT_STUCK = "input that cannot be read on"
    SOON_LOST = "log that is deleted before it is read"
    WAITS = "stream of a cursor document went back or is gone"
    STREAM_APART = "checkpoint and table apart"
    BATCH_IN_FLIGHT = "batch not finished"
    KEPT_BEHIND = "kept rows behind their batches"
    KEPT_LOST = "kept rows lost"
    QUARANTINE_APART = "quarantine apart from its node's commits"
    TOKEN_LOGGED = "token in a log"
    LOG_BEHIND = "capture behind its log"
    SLOT_LEFT = "slot of a node that left"
    SLOT_HELD = "slot of somebody else"
    UNREADABLE = "cannot be looked at"
    DAMAGED = "damaged"
    NOT_LOOKED_AT = "not looked at"


NOTED = (Kind.NOT_LOOKED_AT, Kind.SLOT_HELD)
"""What is said, and is no disagreement."""

_OF_FILES = (Kind.FILES_MISSING, Kind.UNREADABLE, Kind.DAMAGED)


@dataclass(frozen=True)
class Disagreement:
    """One finding about one node, or about the system tables (``key`` is None): what is wrong, and the command that
    repairs it."""

    key: NodeKey | None
    kind: Kind
    message: str
    remedy: str

    def to_json(self) -> dict[str, str | None]:
        """The finding as JSON-ready values."""
        return {
            "pipeline": self.key.pipeline if self.key else None,
            "node": self.key.node if self.key else None,
            "kind": self.kind.value,
            "message": self.message,
            "remedy": self.remedy,
        }


def over(key: NodeKey | None, error: OdiError | OSError) -> Disagreement:
    """The finding about what cannot be looked at because of ``error``."""
    if isinstance(error, OSError):
        return Disagreement(key, Kind.UNREADABLE, str(error), "look at its permissions and its storage")
    return Disagreement(key, Kind.UNREADABLE, error.message, error.fix or "see the message")


def lasting(look: Callable[[bool], list[Disagreement]], *, deep: bool) -> list[Disagreement]:
    """What is found at a second look too, if the first one found a disagreement: a run may have committed between the
    parts of a look.

    Args:
        look: finds disagreements; its argument says whether it reads data files. It does so twice where some are
            damaged.
    """
    disagreements = look(deep)
    kinds = {disagreement.kind for disagreement in disagreements}
    if kinds <= set(NOTED):
        return disagreements
    again = look(deep and not kinds.isdisjoint(_OF_FILES))
    # A look that was cut short has not found what it would have found.
    known = set(Kind) if Kind.UNREADABLE in kinds else {*kinds, *NOTED}
    return [disagreement for disagreement in again if disagreement.kind in known]


def lost_text(handle: TableHandle, lost: Sequence[LostFile]) -> str:
    """What is wrong with a table that has lost data files."""
    return (
        f"{len(lost):,} of {len(handle.live_files):,} files of version {handle.version} are gone or damaged, {lost[0]} "
        "among them"
    )


def lost_remedy(node: Node, handle: TableHandle, lost: Sequence[LostFile]) -> str:
    """What to do about a node's table that has lost data files. Acceptance takes out those that are gone or cut, of a
    node with an HWM; it does not read files of the right size."""
    ways = [f"put them back, or odi run {node.command} --full-refresh"]
    if has_version_before(handle, lost):
        ways.append(f"odi state rewind {node} --list")
    if node.following and not any(file.why for file in lost):
        ways.append(f"odi state accept {node}")
    return ", or ".join(ways)
