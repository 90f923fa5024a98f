"""One row's fate, in words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from odi_assets.explain.evidence.evidence import NO_TIME, NOT_READ, EvidenceRows
from odi_assets.explain.evidence.fates import RowFates
from odi_assets.explain.evidence.words import distance, time_text, watermark_text
from odi_assets.explain.verdicts import KeyVerdict, RowFate, moment
from odi_assets.spark.plans.definition import Input


def read_in(rows: EvidenceRows, place: int) -> int | None:
    """The batch that read the row, if it is known."""
    return int(rows.first[place]) if rows.first[place] == rows.last[place] < NOT_READ else None


def row_fate(given: Input, rows: EvidenceRows, fates: RowFates, place: int) -> RowFate:
    """The fate of a row up to the state of the operator: WAITING or EXPIRED is said of every row that reached it."""
    time_us = int(rows.time_us[place])
    known: dict[str, Any] = {
        "input": given.view,
        "read_in": read_in(rows, place),
        "time": None if time_us == NO_TIME else moment(time_us / 1000),
        "file": rows.file[place],
    }
    what = describe(given, rows, place)
    if fates.null_key[place]:
        text = f"{what} has no key (NULL), and NULL is equal to nothing"
        return RowFate(fate=KeyVerdict.NULL_KEY, text=text, batch=read_in(rows, place), **known)
    if fates.filtered[place]:
        condition = given.every_condition[int(rows.failed[place])].text
        text = f"{what} does not meet `{condition}`, and was left out"
        return RowFate(fate=KeyVerdict.FILTERED, text=text, batch=read_in(rows, place), condition=condition, **known)
    if fates.not_read[place]:
        return RowFate(fate=KeyVerdict.NOT_READ, text=f"{what} has landed, and no batch has read it yet", **known)
    if fates.late[place]:
        return _dropped(rows, fates, place, what, known)
    if fates.duplicate[place]:
        assert fates.once is not None
        return duplicate_of(given, rows, place, int(fates.once.of[place]))
    if fates.unknown[place] and fates.one_of[place]:
        text = f"it is not known whether {what} was kept: one of several that are the same to the deduplication was"
        return RowFate(fate=KeyVerdict.UNDECIDABLE, text=text, **known)
    if fates.unknown[place]:
        text = f"{what} may have come too late: the watermark it met is no longer known"
        return RowFate(fate=KeyVerdict.UNDECIDABLE, text=text, **known)
    return _kept(given, rows, fates, place, what, known)


def describe(given: Input, rows: EvidenceRows, place: int) -> str:
    """``the row of payments of 10:00:00``."""
    time_us = int(rows.time_us[place])
    when = "" if time_us == NO_TIME else f" of {time_text(moment(time_us / 1000))}"
    return f"the row of {given.view}{when}"


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
    text = f"{what} left the state in batch {first}: its watermark {watermark_text(reached)} had "
    text += f"{'passed' if query_input.passed_by_ms else 'reached'} {time_text(until)}"
    return RowFate(fate=KeyVerdict.EXPIRED, text=text, batch=first, watermark=moment(reached), **known)


def duplicate_of(given: Input, rows: EvidenceRows, place: int, earlier: int) -> RowFate:
    """The fate of a row that a deduplication left out, for it had kept the row at ``earlier``."""
    batch, before = read_in(rows, place), read_in(rows, earlier)
    text = f"{describe(given, rows, place)} has the key of {describe(given, rows, earlier)}"
    if batch is not None and batch == before:
        text += f", which came in the same batch {batch}: one of them was kept"
    else:
        text += f", which batch {before} had kept" if before is not None else ", which had been kept before"
    time_us = int(rows.time_us[place])
    return RowFate(
        given.view,
        KeyVerdict.DUPLICATE_OF,
        text,
        batch=batch,
        read_in=batch,
        time=None if time_us == NO_TIME else moment(time_us / 1000),
        file=rows.file[place],
        duplicate_of=str(rows.file[earlier]),
    )
