"""Decides what became of the keys of an aggregation, of a deduplication, and of a query without state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from odi_assets.explain.evidence.duplicates import Duplicates, find_duplicates
from odi_assets.explain.evidence.evidence import NO_TIME, NOT_READ, Evidence, EvidenceRows
from odi_assets.explain.evidence.fates import RowFates, row_fates
from odi_assets.explain.evidence.rows_text import describe, duplicate_of, read_in, row_fate
from odi_assets.explain.evidence.similar import similar_keys
from odi_assets.explain.evidence.words import capital, time_text, watermark_text
from odi_assets.explain.verdicts import KeyExplanation, KeyVerdict, RowFate, key_parts, moment
from odi_assets.spark.plans.definition import SEPARATOR, Input, QueryDefinition

_SAID = {
    KeyVerdict.COUNTED: "counted",
    KeyVerdict.KEPT: "kept",
    KeyVerdict.WRITTEN: "written",
    KeyVerdict.REACHED: "read",
    KeyVerdict.PENDING: "waiting to be counted",
    KeyVerdict.UNDECIDABLE: "undecidable",
    KeyVerdict.NOT_READ: "not read yet",
    KeyVerdict.DUPLICATE_OF: "left out as duplicates",
    KeyVerdict.DROPPED_LATE: "dropped as late",
    KeyVerdict.FILTERED: "filtered out",
    KeyVerdict.NULL_KEY: "without a key",
}
_ORDER = (*_SAID, KeyVerdict.NEVER_ARRIVED)
"""Of several rows with one key, the fate that comes first is the verdict."""


@dataclass(frozen=True)
class _Decided:
    """The rows of one input.

    Attributes:
        duplicates: of a deduplication.
    """

    definition: QueryDefinition
    query_input: Input
    evidence: Evidence
    rows: EvidenceRows
    fates: RowFates
    duplicates: Duplicates | None


@dataclass(frozen=True)
class _Session:
    start: int
    end: int
    rows: tuple[int, ...]

    def meets(self, other: _Session) -> bool:
        return self.start <= other.end and other.start <= self.end


def explain_single(definition: QueryDefinition, evidence: Evidence) -> Iterator[KeyExplanation]:
    """The answers, in the order of the keys."""
    inputs = [
        (_decided(definition, query_input, evidence, rows), rows.by_key())
        for query_input, rows in zip(definition.inputs, evidence.rows, strict=True)
    ]
    judge = _JUDGES[definition.kind]
    for key in evidence.keys:
        rows_of_key: list[RowFate] = []
        for decided, indexes_by_key in inputs:
            indexes = indexes_by_key.get(key, [])
            judged = zip(indexes, judge(decided, indexes), strict=True) if indexes else ()
            rows_of_key += [_or_withheld(decided, *index_and_fate) for index_and_fate in judged]
        answer = _answer(key, rows_of_key) if rows_of_key else _absent(definition, evidence, key)
        yield _checked(definition, evidence, answer)


def _decided(definition: QueryDefinition, query_input: Input, evidence: Evidence, rows: EvidenceRows) -> _Decided:
    fates = row_fates(query_input, rows, evidence.watermarks)
    duplicates = None
    if definition.kind == "deduplication" and rows.identity is not None:
        removed = (fates.removed_first, fates.removed_last) if definition.expires else None
        duplicates = find_duplicates(rows, rows.identity, fates.accepted, fates.unknown, removed)
    return _Decided(definition, query_input, evidence, rows, fates, duplicates)


def _or_withheld(decided: _Decided, index: int, row: RowFate) -> RowFate:
    """The fate of a row, unless a condition behind the operator kept it, or its group, from being written."""
    after = decided.rows.after
    if after is None or after[index] < 0 or row.fate not in (KeyVerdict.COUNTED, KeyVerdict.KEPT):
        return row
    condition = decided.definition.withheld[int(after[index])].text
    what = "its group" if decided.definition.kind == "aggregation" else "it"
    text = f"{row.text}; {what} does not meet `{condition}`, so it is not in the table"
    return replace(row, fate=KeyVerdict.FILTERED, condition=condition, text=text)


def _answer(key: str, rows: Sequence[RowFate]) -> KeyExplanation:
    best = min(rows, key=lambda row: _ORDER.index(row.fate))
    sentence = capital(best.text)
    if len(rows) > 1:
        counts = Counter(row.fate for row in rows)
        by_fate = [f"{counts[fate]:,} {_SAID[fate]}" for fate in _ORDER if counts[fate]]
        sentence = f"{len(rows):,} rows: {', '.join(by_fate)}. {sentence}"
        others = [row for row in rows if row.fate is not best.fate]
        sentence += "".join(f". {capital(row.text)}" for row in others[:2])
    batch = best.batch if best.fate in (KeyVerdict.COUNTED, KeyVerdict.KEPT, KeyVerdict.WRITTEN) else None
    return KeyExplanation(key_parts(key), best.fate, f"{sentence}.", tuple(rows), batch)


def _absent(definition: QueryDefinition, evidence: Evidence, key: str) -> KeyExplanation:
    views = [query_input.view for query_input in definition.inputs]
    similar = tuple(
        text
        for view, near in zip(views, evidence.similar, strict=False)
        for text in similar_keys(view, key, near.get(key, ()))
    )
    text = f"{views[0]} has no row with this key" if len(views) == 1 else f"none of {', '.join(views)} has such a row"
    sentence = f"{text}. Almost the same key: {'; '.join(similar)}" if similar else text
    rows = tuple(RowFate(view, KeyVerdict.NEVER_ARRIVED, f"{view} has no row with this key") for view in views)
    return KeyExplanation(key_parts(key), KeyVerdict.NEVER_ARRIVED, f"{capital(sentence)}.", rows, similar=similar)


def _checked(definition: QueryDefinition, evidence: Evidence, answer: KeyExplanation) -> KeyExplanation:
    lost = tuple(loss for loss in evidence.lost_rows if loss is not None)
    if lost and answer.verdict is KeyVerdict.NEVER_ARRIVED:
        sentence = f"It is not known: rows of this key may be gone. {capital(str(lost[0]))}."
        rows = tuple(replace(row, fate=KeyVerdict.UNDECIDABLE) for row in answer.rows)
        answer = replace(
            answer, verdict=KeyVerdict.UNDECIDABLE, sentence=sentence, lost=tuple(map(str, lost)), rows=rows
        )
    elif answer.verdict is KeyVerdict.UNDECIDABLE and evidence.lost_batches:
        answer = replace(answer, lost=(str(evidence.lost_batches),))
    if answer.batch is not None:
        answer = replace(answer, table_version=evidence.versions.get(answer.batch))
    if evidence.written is None or not definition.is_whole:
        return answer
    written = evidence.written.get(SEPARATOR.join(answer.key), 0)
    if answer.verdict in (KeyVerdict.COUNTED, KeyVerdict.KEPT, KeyVerdict.WRITTEN) and not written:
        said = "its rows went into the table, and the table has no row with this key: it was changed or removed there"
        return replace(answer, disagreements=(said,))
    return answer


# -- what each kind of query does with the rows of a key ---------------------------------------------------------------


def _reached(decided: _Decided, index: int) -> bool:
    return bool(decided.fates.accepted[index])


def _plain(decided: _Decided, index: int) -> RowFate:
    return row_fate(decided.query_input, decided.rows, decided.fates, index)


def _written(decided: _Decided, indexes: Sequence[int]) -> list[RowFate]:
    if decided.definition.beyond:
        return [_taken(decided, index, KeyVerdict.REACHED, "was read") for index in indexes]
    return [_taken(decided, index, KeyVerdict.WRITTEN, "was written") for index in indexes]


def _taken(decided: _Decided, index: int, fate: KeyVerdict, did: str) -> RowFate:
    """The fate of a row that the batch which read it also gave."""
    row = _plain(decided, index)
    if not _reached(decided, index):
        return row
    batch = read_in(decided.rows, index)
    what = describe(decided.query_input, decided.rows, index)
    text = f"{what} {did}" + (f" in batch {batch}" if batch is not None else ", in a batch no longer known")
    return replace(row, fate=fate, text=text, batch=batch, watermark=None)


def _aggregated(decided: _Decided, indexes: Sequence[int]) -> list[RowFate]:
    definition, fates = decided.definition, decided.fates
    if not (definition.waits_for_watermark and fates.needs_ms is not None):
        return [_taken(decided, index, KeyVerdict.COUNTED, "is counted") for index in indexes]
    closing = _session_ends(decided, indexes) if definition.session else {}
    return [_windowed(decided, index, closing.get(index)) for index in indexes]


def _windowed(decided: _Decided, index: int, session: tuple[int, int, int] | None) -> RowFate:
    row = _plain(decided, index)
    if not _reached(decided, index) or decided.rows.late_us[index] == NO_TIME:
        return row
    needs_ms = decided.fates.needs_ms
    assert needs_ms is not None
    first, last = int(decided.fates.removed_first[index]), int(decided.fates.removed_last[index])
    until_ms = int(needs_ms[index])
    if session is not None:
        first, last, until_ms = session
    what = describe(decided.query_input, decided.rows, index)
    window = _window_text(decided, index)
    until = moment(until_ms - decided.query_input.passed_by_ms)
    reaches = "passes" if decided.query_input.passed_by_ms else "reaches"
    if first >= NOT_READ:
        text = f"{what} is counted{window}, and that is written when the watermark {reaches} {time_text(until)}"
        return replace(row, fate=KeyVerdict.PENDING, text=text, batch=None, watermark=until)
    if first != last:
        text = f"{what} is counted{window}, which was written in a batch no longer known"
        return replace(row, fate=KeyVerdict.COUNTED, text=text, batch=None, watermark=until)
    reached = int(decided.evidence.watermarks.at_least(np.array([first]))[0])
    text = f"{what} is counted{window}, which batch {first} wrote at watermark {watermark_text(reached)}"
    return replace(row, fate=KeyVerdict.COUNTED, text=text, batch=first, watermark=moment(reached))


def _window_text(decided: _Decided, index: int) -> str:
    windows = decided.rows.windows_us
    if windows is None or decided.definition.session:
        return " in its session" if decided.definition.session else ""
    start, end = (moment(int(time_us) / 1000) for time_us in windows[index][0])
    more = f" and {len(windows[index]) - 1:,} other windows" if len(windows[index]) > 1 else ""
    return f" in the window {time_text(start)} to {time_text(end)}{more}"


def _session_ends(decided: _Decided, indexes: Sequence[int]) -> Mapping[int, tuple[int, int, int]]:
    """By row, when its session is written: the batch as a range, and the watermark that it needs.

    A session grows with the rows that fall into it or touch it, until a batch's watermark has reached its end.
    """
    rows, windows = decided.rows, decided.rows.windows_us
    assert windows is not None
    removal_by_row: dict[int, tuple[int, int, int]] = {}
    sessions: list[_Session] = []
    for index in sorted((p for p in indexes if _reached(decided, p)), key=lambda p: int(rows.last[p])):
        grown = _Session(int(windows[index][0][0]), int(windows[index][0][1]), (index,))
        for other in [session for session in sessions if session.meets(grown)]:
            if _removal(decided, other.end)[0] >= int(rows.first[index]):
                sessions.remove(other)
                grown = _Session(min(grown.start, other.start), max(grown.end, other.end), (*other.rows, *grown.rows))
        sessions.append(grown)
    for session in sessions:
        first, last = _removal(decided, session.end)
        latest = max(int(rows.last[index]) for index in session.rows)
        for index in session.rows:
            removal_by_row[index] = max(first, latest), max(last, latest), -(-session.end // 1000)
    return removal_by_row


def _removal(decided: _Decided, end_us: int) -> tuple[int, int]:
    first, last = decided.evidence.watermarks.first_reaching(np.array([-(-end_us // 1000)]))
    return int(first[0]), int(last[0])


def _deduplicated(decided: _Decided, indexes: Sequence[int]) -> list[RowFate]:
    return [_kept_or_not(decided, index) for index in indexes]


def _kept_or_not(decided: _Decided, index: int) -> RowFate:
    duplicates = decided.duplicates
    assert duplicates is not None
    if not _reached(decided, index):
        return _plain(decided, index)
    if duplicates.unsure[index]:
        text = "it is not known whether the first row of the key was still in the state when this one came"
        return replace(_plain(decided, index), fate=KeyVerdict.UNDECIDABLE, text=text, batch=None, watermark=None)
    earlier = int(duplicates.of[index])
    if earlier < 0:
        return _taken(decided, index, KeyVerdict.KEPT, "was the first of its key, and was kept")
    return duplicate_of(decided.query_input, decided.rows, index, earlier)


_JUDGES: dict[str, Callable[[_Decided, Sequence[int]], list[RowFate]]] = {
    "aggregation": _aggregated,
    "deduplication": _deduplicated,
    "rows": _written,
}
