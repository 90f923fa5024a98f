"""One thing that people are to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

_LONGEST = 2_000


@dataclass(frozen=True)
class Alert:
    """One thing that people are to know.

    Attributes:
        event: as ``on_events`` names it.
        project: its name.
        environment: of the project's state; empty for the one without a name.
        subject: the pipeline, job or node that it is about.
        status: a word: ``FAILURE``, ``STALE``, ``OVER`` …
        message: what happened, in sentences.
        facts: more about it, by names.
        at: when it was found out, as ISO 8601 has it.
    """

    event: str
    project: str
    environment: str
    subject: str
    status: str
    message: str
    facts: Mapping[str, str] = field(default_factory=dict)
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def title(self) -> str:
        """The alert in a line."""
        of = f" ({self.environment})" if self.environment else ""
        return f"{self.status}: {self.subject} of {self.project}{of}"

    @property
    def is_trouble(self) -> bool:
        """Whether something is wrong."""
        return self.status not in ("SUCCESS", "OVER")

    @property
    def text(self) -> str:
        """The whole alert as plain text, and never longer than a message may be."""
        lines = [self.title, self.message, *(f"{name}: {value}" for name, value in self.facts.items())]
        return "\n".join(filter(None, lines))[:_LONGEST]

    def with_held(self, held: int) -> Alert:
        """The alert, saying how many like it were held back before."""
        return replace(self, facts={**self.facts, "held back before": str(held)}) if held else self

    def to_json(self) -> dict[str, Any]:
        """As JSON, for the sensor's cursor."""
        return {**vars(self), "facts": dict(self.facts)}
