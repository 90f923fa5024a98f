"""The words for how a position moved, and the rule that joins the moves of a stream's parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


class MoveWithReason(NamedTuple):
    """A move and the reason for it: words, or a function and what it makes them of, for most are never asked for."""

    move: Move
    why: str | Callable[..., str]
    parts: tuple[Any, ...] = ()

    @property
    def reason(self) -> str:
        """The reason in words."""
        return self.why if isinstance(self.why, str) else self.why(*self.parts)


UNMOVED = MoveWithReason(Move.SAME, "nothing moved")
_FORWARD, _BACK = Move.FORWARD, Move.BACK


def ordered(old: Any, new: Any, why: str | Callable[..., str], parts: tuple[Any, ...] = ()) -> MoveWithReason:
    """The verdict on two values that Python can compare; ``why`` names them, see :class:`MoveWithReason`."""
    if old == new:
        return UNMOVED
    return MoveWithReason(_FORWARD if new > old else _BACK, why, parts)


def joined(verdicts: Iterable[MoveWithReason]) -> MoveWithReason:
    """The move of a whole from the moves of its parts.

    Parts that did not move do not count. If all others moved forward, so did the whole; likewise back. If some moved
    forward and some back, or some cannot be compared, the whole cannot be compared.
    """
    moved = [verdict for verdict in verdicts if verdict is not UNMOVED]
    if len(moved) < 2:
        return moved[0] if moved else UNMOVED
    moves = {verdict.move for verdict in moved}
    move = moves.pop() if len(moves) == 1 else Move.INCOMPARABLE
    return MoveWithReason(move, _reasons, tuple(moved))


def _reasons(*verdicts: MoveWithReason) -> str:
    return "; ".join(verdict.reason for verdict in verdicts)
