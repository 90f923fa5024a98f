"""The words for how a position moved, and the rule that joins the moves of a stream's parts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple


class Move(StrEnum):
    """How a stream of the new document differs from the same stream of the old one."""

    FORWARD = "forward"
    SAME = "same"
    BACK = "back"
    INCOMPARABLE = "incomparable"
    NEW = "new"
    GONE = "gone"


class Verdict(NamedTuple):
    """A move and the reason for it, in words."""

    move: Move
    reason: str


UNMOVED = Verdict(Move.SAME, "nothing moved")


def ordered(old: Any, new: Any, what: str) -> Verdict:
    """The verdict on two values that Python can compare; ``what`` names them in the reason."""
    if old == new:
        return UNMOVED
    return Verdict(Move.FORWARD if new > old else Move.BACK, what)


def joined(verdicts: Iterable[Verdict]) -> Verdict:
    """The move of a whole from the moves of its parts.

    Parts that did not move do not count. If all others moved forward, so did the whole; likewise back. If some moved
    forward and some back, or some cannot be compared, the whole cannot be compared.
    """
    moved = [verdict for verdict in verdicts if verdict.move is not Move.SAME]
    if len(moved) < 2:
        return moved[0] if moved else UNMOVED
    moves = {verdict.move for verdict in moved}
    reason = "; ".join(verdict.reason for verdict in moved)
    return Verdict(moves.pop() if len(moves) == 1 else Move.INCOMPARABLE, reason)
