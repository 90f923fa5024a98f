"""One row's fate, in words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from odi_assets.explain.evidence.evidence import NO_TIME, NOT_READ, EvidenceRows
from odi_assets.explain.evidence.fates import RowFates
from odi_assets.explain.evidence.words import distance, time_text, watermark_text
from odi_assets.explain.verdicts import KeyVerdict, RowFate, moment
from odi_assets.spark.plans.definition import Input


def read_in(rows: EvidenceRows, index: int) -> int | None:
    """The batch that read the row, if it is known."""
    return int(rows.first[index]) if rows.first[index] == rows.last[index] < NOT_READ else None


def row_fate(query_input: Input, rows: EvidenceRows, fates: RowFates, index: int) -> RowFate:
    """The fate of a row up to the state of the operator: WAITING or EXPIRED is said of every row that reached it."""
    time_us = int(rows.time_us[index])
    known: dict[str, Any] = {
        "input": query_input.view,
        "read_in": read_in(rows, index),
        "time": None if time_us == NO_TIME else moment(time_us / 1000),
        "file": rows.file[index],
    }
    what = describe(query_input, rows, index)
    if fates.null_key[index]:
        text = f"{what} has no key (NULL), and NULL is equal to nothing"
        return RowFate(fate=KeyVerdict.NULL_KEY, text=text, batch=read_in(rows, index), **known)
    if fates.filtered[index]:
        condition = query_input.every_condition[int(rows.failed[index])].text
        text = f"{what} does not meet `{condition}`, and was left out"
        return RowFate(fate=KeyVerdict.FILTERED, text=text, batch=read_in(rows, index), condition=condition, **known)
    if fates.not_read[index]:
        return RowFate(fate=KeyVerdict.NOT_READ, text=f"{what} has landed, and no batch has read it yet", **known)
    if fates.late[index]:
        return _dropped(rows, fates, index, what, known)
    if fates.duplicate[index]:
        assert fates.once is not None
        return duplicate_of(query_input, rows, index, int(fates.once.of[index]))
    if fates.unknown[index] and fates.one_of[index]:
        text = f"it is not known whether {what} was kept: one of several that are the same to the deduplication was"
        return RowFate(fate=KeyVerdict.UNDECIDABLE, text=text, **known)
    if fates.unknown[index]:
        text = f"{what} may have come too late: the watermark it met is no longer known"
        return RowFate(fate=KeyVerdict.UNDECIDABLE, text=text, **known)
    return _kept(query_input, rows, fates, index, what, known)


def describe(query_input: Input, rows: EvidenceRows, index: int) -> str:
    """``the row of payments of 10:00:00``."""
    time_us = int(rows.time_us[index])
    when = "" if time_us == NO_TIME else f" of {time_text(moment(time_us / 1000))}"
    return f"the row of {query_input.view}{when}"


def _dropped(rows: EvidenceRows, fates: RowFates, index: int, what: str, known: dict[str, Any]) -> RowFate:
    before_ms, batch = int(fates.before_ms[index]), read_in(rows, index)
    behind = timedelta(microseconds=before_ms * 1000 - int(rows.dropped_us[index]))
    by = "exactly at" if not behind else f"{distance(behind)} behind"
    text = f"{what} came too late: {by} the watermark {watermark_text(before_ms)}"
    text += f" when batch {batch} read it" if batch is not None else ""
    watermark = moment(before_ms)
    return RowFate(fate=KeyVerdict.DROPPED_LATE, text=text, batch=batch, watermark=watermark, late_by=behind, **known)


def _kept(
    query_input: Input, rows: EvidenceRows, fates: RowFates, index: int, what: str, known: dict[str, Any]
) -> RowFate:
    if fates.needs_ms is None or rows.late_us[index] == NO_TIME:
        return RowFate(
            fate=KeyVerdict.WAITING, text=f"{what} stays in the state for ever: no watermark removes it", **known
        )
    until = moment(int(fates.needs_ms[index]) - query_input.passed_by_ms)
    reaches = "passes" if query_input.passed_by_ms else "reaches"
    if fates.removed_first[index] >= NOT_READ:
        text = f"{what} waits in the state until the watermark {reaches} {time_text(until)}"
        return RowFate(fate=KeyVerdict.WAITING, text=text, watermark=until, **known)
    first, last = int(fates.removed_first[index]), int(fates.removed_last[index])
    if first != last:
        text = f"{what} left the state when the watermark reached {time_text(until)}, in a batch no longer known"
        return RowFate(fate=KeyVerdict.EXPIRED, text=text, watermark=until, **known)
    reached = int(fates.removed_at_ms[index])
    gone = f"left the state in batch {first}: its watermark"
    if first == read_in(rows, index):
        gone = f"was never kept in the state: by the end of batch {first}, which read it, the watermark"
    text = f"{what} {gone} {watermark_text(reached)} had "
    text += f"{'passed' if query_input.passed_by_ms else 'reached'} {time_text(until)}"
    return RowFate(fate=KeyVerdict.EXPIRED, text=text, batch=first, watermark=moment(reached), **known)


def duplicate_of(query_input: Input, rows: EvidenceRows, index: int, earlier: int) -> RowFate:
    """The fate of a row that a deduplication left out, for it had kept the row at ``earlier``."""
    batch, before = read_in(rows, index), read_in(rows, earlier)
    text = f"{describe(query_input, rows, index)} has the key of {describe(query_input, rows, earlier)}"
    if batch is not None and batch == before:
        text += f", which came in the same batch {batch}: one of them was kept"
    else:
        text += f", which batch {before} had kept" if before is not None else ", which had been kept before"
    time_us = int(rows.time_us[index])
    return RowFate(
        query_input.view,
        KeyVerdict.DUPLICATE_OF,
        text,
        batch=batch,
        read_in=batch,
        time=None if time_us == NO_TIME else moment(time_us / 1000),
        file=rows.file[index],
        duplicate_of=str(rows.file[earlier]),
    )
