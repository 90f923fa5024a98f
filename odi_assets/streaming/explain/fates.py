"""The fate of each row up to the stateful operator and in its state: Spark's rules of lateness and removal.

They were compared with Spark 4.2.1 in every batch of long runs, for both state stores:

* A row that comes in batch b is dropped as late if its time is at or below the watermark of the batch **before** b.
* It leaves the state in the first batch, from b on, whose watermark has passed its time by the range of the join (or
  the end of its window, or the delay of a deduplication). If that is b itself, it is joined before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odi_assets.streaming.explain.definition import Input
from odi_assets.streaming.explain.evidence import NO_TIME, NOT_READ, Booleans, Integers, Rows, Watermarks


@dataclass(frozen=True)
class RowFates:
    """Rows of one input, decided; an entry a row. Exactly one of the first six holds for a row.

    Attributes:
        filtered: a condition is not met.
        null_key: a part of the key is NULL.
        not_read: its file has not been read.
        late: it was dropped.
        unknown: it cannot be told whether it was dropped.
        accepted: it reached the operator.
        before_ms: the watermark of the batch before the one that read it, as far as it is known.
        needs_ms: the watermark that removes it from the state; None if nothing does.
        removed_first, removed_last: the batch that removed it lies between them; ``NOT_READ`` if none has so far.
        removed_at_ms: the watermark of that batch, where it is known.
    """

    filtered: Booleans
    null_key: Booleans
    not_read: Booleans
    late: Booleans
    unknown: Booleans
    accepted: Booleans
    before_ms: Integers
    needs_ms: Integers | None
    removed_first: Integers
    removed_last: Integers
    removed_at_ms: Integers


def row_fates(given: Input, rows: Rows, watermarks: Watermarks) -> RowFates:
    """Decide the rows of an input."""
    null_conditions = [place for place, one in enumerate(given.conditions) if one.null_of_key]
    no_key = np.array([key is None for key in rows.key], dtype=bool)
    failing = rows.failed >= 0
    null_key = (failing & np.isin(rows.failed, null_conditions)) | (no_key & ~failing & bool(null_conditions))
    filtered = failing & ~null_key
    out = filtered | null_key
    not_read = ~out & (rows.first >= NOT_READ)
    timed = rows.late_us != NO_TIME
    least, most = watermarks.at_least(rows.first - 1), watermarks.at_most(rows.last - 1)
    candidates = ~out & ~not_read
    late = candidates & timed & (least * 1000 >= rows.late_us)
    in_time = candidates & (~timed | (most * 1000 < rows.late_us))
    needs, first, last = _removal(given, rows, watermarks)
    at_ms = watermarks.at_least(first)
    unknown = candidates & ~late & ~in_time
    return RowFates(filtered, null_key, not_read, late, unknown, in_time, most, needs, first, last, at_ms)


def _removal(given: Input, rows: Rows, watermarks: Watermarks) -> tuple[Integers | None, Integers, Integers]:
    never = np.full(len(rows), NOT_READ, dtype=np.int64)
    if given.state_range_ms is None:
        return None, never, never
    timed = rows.late_us != NO_TIME
    needs = -(-rows.late_us // 1000) + given.state_range_ms
    first, last = watermarks.first_reaching(needs)
    first, last = np.maximum(first, rows.first), np.maximum(last, rows.last)
    return needs, np.where(timed, first, never), np.where(timed, last, never)
