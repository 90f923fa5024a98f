"""What one look at a part of a deployment comes to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from odi_assets.errors import OdiError


class LookOutcome(StrEnum):
    """How a look ended."""

    RIGHT = "ok"
    WRONG = "wrong"
    NOT_LOOKED_AT = "not looked at"


@dataclass(frozen=True)
class Look:
    """One look at a part of a deployment.

    Attributes:
        part: what was looked at: ``storage``, ``daemon`` …
        found: what is there, or why nothing could be seen, in words.
        remedy: what to do; empty where nothing is wrong.
    """

    part: str
    outcome: LookOutcome
    found: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """The look as JSON-ready values."""
        return {"part": self.part, "outcome": self.outcome.value, "found": self.found, "remedy": self.remedy}


def right(part: str, found: str) -> Look:
    """A look that found nothing wrong."""
    return Look(part, LookOutcome.RIGHT, found)


def wrong(part: str, found: str, remedy: str) -> Look:
    """A look that found something wrong."""
    return Look(part, LookOutcome.WRONG, found, remedy)


def not_looked_at(part: str, why: str, remedy: str = "") -> Look:
    """What was not looked at."""
    return Look(part, LookOutcome.NOT_LOOKED_AT, why, remedy)


def refused(part: str, error: OdiError) -> Look:
    """A look that ended with an error of ours."""
    return wrong(part, error.message, error.fix or "see the message")
