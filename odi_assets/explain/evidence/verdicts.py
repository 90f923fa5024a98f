"""The answers: what became of each row of a key, and what became of the key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from odi_assets.spark.plans.definition import SEPARATOR


class Fate(StrEnum):
    """What became of one row, or, of an input without a row of the key, that there is none."""

    NEVER_ARRIVED = "NEVER_ARRIVED"
    NOT_READ = "NOT_READ"
    FILTERED = "FILTERED"
    NULL_KEY = "NULL_KEY"
    DROPPED_LATE = "DROPPED_LATE"
    WAITING = "WAITING"
    EXPIRED = "EXPIRED"
    COUNTED = "COUNTED"
    PENDING = "PENDING"
    KEPT = "KEPT"
    DUPLICATE_OF = "DUPLICATE_OF"
    WRITTEN = "WRITTEN"
    REACHED = "REACHED"
    """It came as far as the query can be followed."""
    UNDECIDABLE = "UNDECIDABLE"


class KeyOutcome(StrEnum):
    """What became of a key: first the verdicts of joins, then of other queries."""

    MATCHED = "MATCHED"
    OUT_OF_WINDOW = "OUT_OF_WINDOW"
    COUNTERPART_LATE = "COUNTERPART_LATE"
    COUNTERPART_FILTERED = "COUNTERPART_FILTERED"
    COUNTERPART_NOT_READ = "COUNTERPART_NOT_READ"
    NO_COUNTERPART = "NO_COUNTERPART"
    COUNTED = "COUNTED"
    PENDING = "PENDING"
    KEPT = "KEPT"
    DUPLICATE_OF = "DUPLICATE_OF"
    WRITTEN = "WRITTEN"
    REACHED = "REACHED"
    DROPPED_LATE = "DROPPED_LATE"
    FILTERED = "FILTERED"
    NULL_KEY = "NULL_KEY"
    NOT_READ = "NOT_READ"
    NEVER_ARRIVED = "NEVER_ARRIVED"
    UNDECIDABLE = "UNDECIDABLE"


@dataclass(frozen=True)
class RowFate:
    """What became of one row.

    Attributes:
        input: the input it is of.
        text: in words.
        batch: the batch that read, dropped, counted or removed it, as the fate says; None if it is not known or none.
        read_in: the batch that read it.
        watermark: the watermark that decided, or that it waits for.
        late_by: how far its time was behind the watermark.
        condition: the condition that it did not meet.
        time: its event time.
        file: where it is.
        duplicate_of: the file of the row that was kept instead.
    """

    input: str
    fate: Fate
    text: str
    batch: int | None = None
    read_in: int | None = None
    watermark: datetime | None = None
    late_by: timedelta | None = None
    condition: str | None = None
    time: datetime | None = None
    file: str | None = None
    duplicate_of: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As a document; what does not apply is left out."""
        return {name: _plain(value) for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class KeyExplanation:
    """The answer for one key.

    Attributes:
        key: as text; the parts of a key of several columns in a row.
        sentence: the verdict, in words.
        rows: the fate of each row; an input without one has the one fate NEVER_ARRIVED.
        batch: where there is a result: the batch that gave it.
        table_version: and the version of the node's table that it came with.
        condition: the condition of the join that is not met.
        misses_by: by how much: a time, or a number.
        similar: rows with a key that is almost the same, in words.
        lost: the evidence that is gone, and what would have kept it.
        disagreements: what the table, the state or the change feed says otherwise.
    """

    key: tuple[str, ...]
    verdict: KeyOutcome
    sentence: str
    rows: tuple[RowFate, ...] = ()
    batch: int | None = None
    table_version: int | None = None
    condition: str | None = None
    misses_by: timedelta | float | None = None
    similar: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    disagreements: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The key as one text."""
        return SEPARATOR.join(self.key)

    @property
    def shown_key(self) -> str:
        """The key as people write it."""
        return ", ".join(self.key)

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        found = {name: _plain(value) for name, value in vars(self).items() if name != "rows"}
        key = self.key[0] if len(self.key) == 1 else list(self.key)
        return {**found, "key": key, "rows": [row.to_json() for row in self.rows]}


def key_parts(key: str) -> tuple[str, ...]:
    """The parts of a key that is one text."""
    return tuple(key.split(SEPARATOR))


def moment(milliseconds: float) -> datetime:
    """The time of a count of milliseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple) else value
