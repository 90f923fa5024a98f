"""What is known of a stream's past: watermarks by batch, and the rows of the keys that are asked about.

Rows are columns of numpy arrays, one entry a row, so that a hundred thousand keys are decided in one pass. Times are
microseconds since 1970, UTC, watermarks milliseconds, as in Spark. What is not known is a range of batches instead of
one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

NOT_READ = 2**40
"""Batch of a row whose file no batch has read so far."""

NO_TIME = -(2**62)
"""Time of a row that has none."""

NEVER_MS = 2**50
"""A watermark that is never reached."""


def objects(values: Sequence[Any]) -> NDArray[Any]:
    """An array of values of any kind, None too."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


@dataclass(frozen=True)
class Watermarks:
    """The watermarks that batches ran with, as far as they are known. A watermark never goes back, so those that are
    known bound those that are not."""

    batches: Integers
    milliseconds: Integers

    @classmethod
    def of(cls, known: Mapping[int, int]) -> Watermarks:
        """Watermarks in milliseconds by batch; 0 before there was one."""
        ordered = sorted(known)
        values = np.array([known[batch] for batch in ordered], dtype=np.int64)
        return cls(np.array(ordered, dtype=np.int64), np.maximum.accumulate(values) if len(values) else values)

    @property
    def last(self) -> int:
        """The newest batch; -1 if there is none."""
        return int(self.batches[-1]) if len(self.batches) else -1

    def at_least(self, batch: Integers) -> Integers:
        """What the watermark of a batch was at least."""
        indexes = np.searchsorted(self.batches, batch, side="right") - 1
        return np.where(indexes >= 0, self._value(indexes), 0)

    def at_most(self, batch: Integers) -> Integers:
        """What the watermark of a batch was at most; before the first batch there was none."""
        indexes = np.searchsorted(self.batches, batch, side="left")
        upper_bounds = np.where(indexes < len(self.batches), self._value(indexes), NEVER_MS)
        return np.where(batch < 0, 0, upper_bounds)

    def first_reaching(self, milliseconds: Integers) -> tuple[Integers, Integers]:
        """The first batch whose watermark is at least this, as a range; :data:`NOT_READ` if none was so far."""
        indexes = np.searchsorted(self.milliseconds, milliseconds, side="left")
        reached = indexes < len(self.batches)
        latest = np.where(reached, self._batch(indexes), NOT_READ)
        before = np.where(indexes > 0, self._batch(indexes - 1), -1)
        return np.where(reached, before + 1, NOT_READ), latest

    def _value(self, indexes: Integers) -> Integers:
        return self._taken(self.milliseconds, indexes)

    def _batch(self, indexes: Integers) -> Integers:
        return self._taken(self.batches, indexes)

    @staticmethod
    def _taken(values: Integers, indexes: Integers) -> Integers:
        if not len(values):
            return np.zeros_like(indexes)
        return values[np.clip(indexes, 0, len(values) - 1)]


@dataclass(frozen=True)
class EvidenceRows:
    """Rows of one input.

    Attributes:
        key: the key as text; None where a part of it is NULL.
        identity: of a deduplication, what makes two rows the same.
        time_us: the event time, to be shown; :data:`NO_TIME` without one.
        late_us: the time that the watermark is compared with; :data:`NO_TIME` where no watermark is.
        failed: the place of the first condition (``Input.every_condition``) that the row does not meet; -1 if it meets
            all.
        first, last: the batch that read it lies between them; both are :data:`NOT_READ` if none has so far.
        file: where the row is.
        after: the place of the first condition behind the operator (``QueryDefinition.withheld``) that the row, or its
            group, does not meet; -1 if there is none; None if no condition follows.
        windows_us: of an aggregation, start and end of each window of the row; shape ``(rows, windows, 2)``.
        once_identity: of an input that is deduplicated before the operator, what makes two rows the same there.
        once_late_us: and the time that the watermark is compared with there.
    """

    key: NDArray[Any]
    time_us: Integers
    late_us: Integers
    failed: Integers
    first: Integers
    last: Integers
    file: NDArray[Any]
    identity: NDArray[Any] | None = None
    windows_us: Integers | None = None
    after: Integers | None = None
    once_identity: NDArray[Any] | None = None
    once_late_us: Integers | None = None

    @property
    def dropped_us(self) -> Integers:
        """The time that decides whether a row is dropped as late: the one that the watermark reaches first."""
        if self.once_late_us is None:
            return self.late_us
        both = (self.late_us != NO_TIME) & (self.once_late_us != NO_TIME)
        return np.where(both, np.minimum(self.late_us, self.once_late_us), np.maximum(self.late_us, self.once_late_us))

    def by_key(self) -> dict[str, list[int]]:
        """The places of the rows of each key."""
        indexes_by_key: dict[str, list[int]] = defaultdict(list)
        for index, key in enumerate(self.key):
            indexes_by_key[key].append(index)
        return indexes_by_key

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows of a join that have one key.

    Attributes:
        left, right: places in the rows of the two inputs.
        holds: by pair and condition of the join, whether the condition is met.
        apart: by pair and condition, the first side of the comparison minus the second: microseconds, or a number. NaN
            where it is not known.
    """

    left: Integers
    right: Integers
    holds: NDArray[np.bool_]
    apart: NDArray[np.float64]


@dataclass(frozen=True)
class Lost:
    """Evidence that is gone.

    Attributes:
        what: what is gone, and what took it.
        fix: what would have kept it.
    """

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"


@dataclass(frozen=True)
class Evidence:
    """All that the fates of some keys are decided from.

    Attributes:
        keys: those that are asked about, as text, in the order of the question.
        rows: by input, in the order of the definition.
        pairs: of a join.
        watermarks: by batch.
        versions: by batch, the version of the node's table that holds it; batches without one are not known.
        lost_rows: by input, rows that may have been there and can no longer be read.
        lost_batches: what is no longer known of batches.
        similar: by input and key, rows with keys that differ only in capitals, blanks or the like: ``(key, file)``.
        written: by key, how many rows the node's table has; None if that is not looked at.
        then: what the operator behind a join is decided from: the pairs are rows of it. There is one for each of
            several keys whose pairs have one key behind it.
        passed_on: by key, the place in ``then`` and the key there of its pairs.
        unsure: keys of which pairs may have been joined.
    """

    keys: tuple[str, ...]
    rows: tuple[EvidenceRows, ...]
    watermarks: Watermarks
    pairs: Pairs | None = None
    versions: Mapping[int, int] = field(default_factory=dict)
    lost_rows: tuple[Lost | None, ...] = ()
    lost_batches: Lost | None = None
    similar: tuple[Mapping[str, tuple[tuple[str, str], ...]], ...] = ()
    written: Mapping[str, int] | None = None
    then: tuple[Evidence, ...] = ()
    passed_on: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    unsure: frozenset[str] = frozenset()
