"""The fate of each row up to the stateful operator and in its state: Spark's rules of lateness and removal.

They were compared with Spark 4.2.1 in every batch of long runs, for both state stores:

* A row that comes in batch b is dropped as late if its time is at or below the watermark of the batch **before** b.
* It leaves the state in the first batch, from b on, whose watermark has passed its time by the range of the join (or
  the end of its window, or the delay of a deduplication). If that is b itself, it is joined before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odi_assets.explain.evidence.duplicates import Duplicates, find_duplicates, one_of
from odi_assets.explain.evidence.evidence import NO_TIME, NOT_READ, Booleans, EvidenceRows, Integers, Watermarks
from odi_assets.spark.plans.definition import Input


@dataclass(frozen=True)
class RowFates:
    """Rows of one input, decided; an entry a row. Exactly one of the first seven holds for a row.

    Attributes:
        filtered: a condition is not met.
        null_key: a part of the key is NULL.
        not_read: its file has not been read.
        late: it was dropped.
        unknown: it is not known whether it was dropped.
        duplicate: a deduplication before the operator had kept its like.
        accepted: it reached the operator.
        before_ms: the watermark of the batch before the one that read it, as far as it is known.
        needs_ms: the watermark that removes it from the state; None if nothing does.
        removed_first, removed_last: the batch that removed it lies between them; ``NOT_READ`` if none has so far.
        removed_at_ms: the watermark of that batch, where it is known.
        once: the deduplication before the operator; None without one.
        one_of: a row of which it is not known whether that deduplication kept it.
    """

    filtered: Booleans
    null_key: Booleans
    not_read: Booleans
    late: Booleans
    unknown: Booleans
    duplicate: Booleans
    accepted: Booleans
    before_ms: Integers
    needs_ms: Integers | None
    removed_first: Integers
    removed_last: Integers
    removed_at_ms: Integers
    once: Duplicates | None
    one_of: Booleans


def row_fates(query_input: Input, rows: EvidenceRows, watermarks: Watermarks) -> RowFates:
    """Decide the rows of an input."""
    conditions = query_input.every_condition
    null_conditions = [index for index, condition in enumerate(conditions) if condition.null_of_key]
    no_key = np.array([key is None for key in rows.key], dtype=bool)
    # What fails only behind the deduplication comes to it.
    before = (rows.failed >= 0) & (rows.failed < len(query_input.conditions))
    null_key = (before & np.isin(rows.failed, null_conditions)) | (no_key & (rows.failed < 0) & bool(null_conditions))
    out = before | null_key
    not_read = ~out & (rows.first >= NOT_READ)
    late, in_time = _lateness(rows, watermarks, ~out & ~not_read)
    unknown = ~out & ~not_read & ~late & ~in_time
    once, duplicate, unsure = None, np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
    if query_input.once is not None and rows.once_identity is not None:
        once = find_duplicates(rows, rows.once_identity, in_time, unknown, _leaves_once(query_input, rows, watermarks))
        unsure = in_time & (once.unsure | one_of(rows, once))
        duplicate = in_time & (once.of >= 0) & ~unsure
        unknown = unknown | unsure
    after = in_time & ~duplicate & ~unknown & (rows.failed >= len(query_input.conditions))
    null_key = null_key | (after & np.isin(rows.failed, null_conditions))
    filtered = (before | after) & ~null_key
    accepted = in_time & ~duplicate & ~unknown & ~after
    needs, first, last = _removal(query_input, rows, watermarks)
    return RowFates(
        filtered=filtered,
        null_key=null_key,
        not_read=not_read,
        late=late,
        unknown=unknown,
        duplicate=duplicate,
        accepted=accepted,
        before_ms=watermarks.at_most(rows.last - 1),
        needs_ms=needs,
        removed_first=first,
        removed_last=last,
        removed_at_ms=watermarks.at_least(first),
        once=once,
        one_of=unsure,
    )


def _lateness(rows: EvidenceRows, watermarks: Watermarks, candidates: Booleans) -> tuple[Booleans, Booleans]:
    """Which rows were dropped as late, and which were not; a row in neither is undecided."""
    times = rows.dropped_us
    timed = times != NO_TIME
    least, most = watermarks.at_least(rows.first - 1), watermarks.at_most(rows.last - 1)
    late = candidates & timed & (least * 1000 >= times)
    return late, candidates & (~timed | (most * 1000 < times))


def _leaves_once(query_input: Input, rows: EvidenceRows, watermarks: Watermarks) -> tuple[Integers, Integers] | None:
    """The batches between which a row leaves the state of the deduplication before the operator; None if no row that is
    its like comes after that, for it would be late."""
    once, times = query_input.once, rows.once_late_us
    if once is None or times is None or not once.expires or once.state_range_ms is None:
        return None
    first, last = watermarks.first_reaching(-(-times // 1000) + once.state_range_ms)
    return np.maximum(first, rows.first), np.maximum(last, rows.last)


def _removal(
    query_input: Input, rows: EvidenceRows, watermarks: Watermarks
) -> tuple[Integers | None, Integers, Integers]:
    never = np.full(len(rows), NOT_READ, dtype=np.int64)
    if query_input.state_range_ms is None:
        return None, never, never
    timed = rows.late_us != NO_TIME
    needs = -(-rows.late_us // 1000) + query_input.state_range_ms
    first, last = watermarks.first_reaching(needs)
    first, last = np.maximum(first, rows.first), np.maximum(last, rows.last)
    return needs, np.where(timed, first, never), np.where(timed, last, never)
