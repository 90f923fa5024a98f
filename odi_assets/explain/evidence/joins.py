"""Decides what became of the keys of a join of two streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import IntEnum

import numpy as np

from odi_assets.explain.evidence.evidence import Booleans, Evidence, EvidenceRows, Integers, Lost, Pairs
from odi_assets.explain.evidence.fates import RowFates, row_fates
from odi_assets.explain.evidence.rows_text import describe, row_fate
from odi_assets.explain.evidence.similar import similar_keys
from odi_assets.explain.evidence.words import amount, capital, distance
from odi_assets.explain.verdicts import KeyExplanation, KeyVerdict, RowFate, key_parts
from odi_assets.spark.plans.definition import SEPARATOR, QueryDefinition


class _Pair(IntEnum):
    """What became of a pair of rows. Of several pairs with one key, that with the lowest number is the answer."""

    MATCHED = 0
    UNKNOWN = 1
    NOT_READ = 2
    LATE = 3
    FILTERED = 4
    DUPLICATE = 5
    OUT_OF_WINDOW = 6


_VERDICTS = {
    _Pair.MATCHED: KeyVerdict.MATCHED,
    _Pair.UNKNOWN: KeyVerdict.UNDECIDABLE,
    _Pair.NOT_READ: KeyVerdict.COUNTERPART_NOT_READ,
    _Pair.LATE: KeyVerdict.COUNTERPART_LATE,
    _Pair.FILTERED: KeyVerdict.COUNTERPART_FILTERED,
    _Pair.DUPLICATE: KeyVerdict.DUPLICATE_OF,
    _Pair.OUT_OF_WINDOW: KeyVerdict.OUT_OF_WINDOW,
}


_NOT_WRITTEN = Lost(
    "Spark does not write down which of the rows of one batch that are the same to a deduplication it keeps",
    "a deduplication by all columns that matter later leaves no choice",
)


@dataclass(frozen=True)
class _Sides:
    rows: tuple[EvidenceRows, EvidenceRows]
    fates: tuple[RowFates, RowFates]


def explain_join(definition: QueryDefinition, evidence: Evidence) -> Iterator[KeyExplanation]:
    """The answers, in the order of the keys."""
    sides = _sides(definition, evidence)
    left, right = sides.rows
    pairs = evidence.pairs
    assert pairs is not None
    ends = _ends(sides, pairs)
    batches = np.maximum(left.last[pairs.left], right.last[pairs.right])
    best = _best_pairs([left.key[index] for index in pairs.left], ends, batches)
    by_key = [rows.by_key() for rows in sides.rows]
    for key in evidence.keys:
        indexes = tuple(indexes_by_key.get(key, ()) for indexes_by_key in by_key)
        rows = tuple(_fates_of(definition, evidence, sides, side, indexes[side], key) for side in (0, 1))
        pair = best.get(key)
        if pair is None:
            answer = _without_pair(definition, evidence, key, rows)
        else:
            answer = _with_pair(definition, evidence, sides, key, rows, pair, _Pair(ends[pair]))
        yield _checked(definition, evidence, answer)


def joined_pairs(definition: QueryDefinition, evidence: Evidence) -> tuple[Booleans, Booleans]:
    """Which pairs were joined, and for which pairs that is not known."""
    assert evidence.pairs is not None
    ends = _ends(_sides(definition, evidence), evidence.pairs)
    return np.asarray(ends == _Pair.MATCHED), np.asarray(ends == _Pair.UNKNOWN)


def _sides(definition: QueryDefinition, evidence: Evidence) -> _Sides:
    left, right = evidence.rows
    fates = (
        row_fates(query_input, rows, evidence.watermarks)
        for query_input, rows in zip(definition.inputs, (left, right), strict=True)
    )
    return _Sides((left, right), (next(fates), next(fates)))


# -- pairs -------------------------------------------------------------------------------------------------------------


def _ends(sides: _Sides, pairs: Pairs) -> Integers:
    indexes = pairs.left, pairs.right
    in_window = np.asarray(pairs.holds.all(axis=1), dtype=bool)

    def either(name: str) -> Booleans:
        return np.asarray(
            getattr(sides.fates[0], name)[indexes[0]] | getattr(sides.fates[1], name)[indexes[1]], dtype=bool
        )

    choices = [
        (~in_window, _Pair.OUT_OF_WINDOW),
        (either("filtered") | either("null_key"), _Pair.FILTERED),
        (either("late"), _Pair.LATE),
        (either("duplicate"), _Pair.DUPLICATE),
        (either("not_read"), _Pair.NOT_READ),
        (either("unknown"), _Pair.UNKNOWN),
    ]
    # Two rows that were not late, and that the condition allows, always meet: one comes before the watermark has
    # removed the other, and a row that the batch's own watermark removes is joined first.
    conditions, ends = zip(*choices, strict=True)
    return np.select(list(conditions), [int(end) for end in ends], int(_Pair.MATCHED)).astype(np.int64)


def _best_pairs(keys: Sequence[str], ends: Integers, batches: Integers) -> dict[str, int]:
    """By key, the pair that is the answer; of equal ones, that which was joined first."""
    order = np.lexsort((batches, ends))[::-1]
    return {keys[pair]: int(pair) for pair in order}


# -- answers -----------------------------------------------------------------------------------------------------------


def _fates_of(
    definition: QueryDefinition, evidence: Evidence, sides: _Sides, side: int, indexes: Sequence[int], key: str
) -> tuple[RowFate, ...]:
    query_input = definition.inputs[side]
    if indexes:
        return tuple(row_fate(query_input, sides.rows[side], sides.fates[side], index) for index in indexes)
    lost = evidence.lost_rows[side] if evidence.lost_rows else None
    if lost is not None:
        text = f"{query_input.view} has no row of it now, and what it had is not all there: {lost.what}"
        return (RowFate(query_input.view, KeyVerdict.UNDECIDABLE, text),)
    similar = evidence.similar[side].get(key, ()) if evidence.similar else ()
    text = f"{query_input.view} has no row with this key" + (", but one that is almost the same" if similar else "")
    return (RowFate(query_input.view, KeyVerdict.NEVER_ARRIVED, text),)


def _without_pair(
    definition: QueryDefinition, evidence: Evidence, key: str, rows: tuple[tuple[RowFate, ...], ...]
) -> KeyExplanation:
    """There is no pair, because one side has no row with the key, or neither has."""
    absent = [side for side in (0, 1) if rows[side][0].file is None]
    names = [definition.inputs[side].view for side in absent]
    every = (*rows[0], *rows[1])
    similar = tuple(
        text
        for side in absent
        for text in similar_keys(
            definition.inputs[side].view, key, evidence.similar[side].get(key, ()) if evidence.similar else ()
        )
    )
    if len(absent) == 2:
        sentence = f"Neither {names[0]} nor {names[1]} has a row with this key"
    else:
        there = rows[1 - absent[0]]
        sentence = f"{names[0]} has no row with this key, so there is nothing to join. " + capital(there[0].text)
    if similar:
        sentence += f". Almost the same key: {'; '.join(similar)}"
    return KeyExplanation(key_parts(key), KeyVerdict.NO_COUNTERPART, f"{sentence}.", every, similar=similar)


def _with_pair(
    definition: QueryDefinition,
    evidence: Evidence,
    sides: _Sides,
    key: str,
    rows: tuple[tuple[RowFate, ...], ...],
    pair: int,
    end: _Pair,
) -> KeyExplanation:
    pairs = evidence.pairs
    assert pairs is not None
    indexes = int(pairs.left[pair]), int(pairs.right[pair])
    facts: dict[str, object] = {}
    if end is _Pair.MATCHED:
        sentence, facts = _matched(definition, evidence, sides, indexes)
    elif end is _Pair.OUT_OF_WINDOW:
        sentence, facts = _out_of_window(definition, evidence, sides, indexes, pair)
    elif end is _Pair.LATE:
        sentence = _rows_text(definition, sides, indexes, (KeyVerdict.DROPPED_LATE,))
    elif end is _Pair.FILTERED:
        sentence = _rows_text(definition, sides, indexes, (KeyVerdict.FILTERED, KeyVerdict.NULL_KEY))
    elif end is _Pair.DUPLICATE:
        sentence = _rows_text(definition, sides, indexes, (KeyVerdict.DUPLICATE_OF,))
    elif end is _Pair.NOT_READ:
        sentence = _rows_text(definition, sides, indexes, (KeyVerdict.NOT_READ,))
    else:
        sentence, facts = _unknown(definition, evidence, sides, indexes)
    return KeyExplanation(key_parts(key), _VERDICTS[end], f"{sentence}.", (*rows[0], *rows[1]), **facts)  # type: ignore[arg-type]


def _matched(
    definition: QueryDefinition, evidence: Evidence, sides: _Sides, indexes: tuple[int, int]
) -> tuple[str, dict[str, object]]:
    left, right = (sides.rows[side] for side in (0, 1))
    ranges = [
        (int(rows.first[index]), int(rows.last[index])) for rows, index in zip((left, right), indexes, strict=True)
    ]
    batch = max(first for first, _ in ranges)
    known = batch == max(last for _, last in ranges)
    version = evidence.versions.get(batch) if known else None
    what = " and ".join(describe(definition.inputs[side], sides.rows[side], indexes[side]) for side in (0, 1))
    sentence = f"Joined: {what}" + (f", in batch {batch}" if known else ", in a batch no longer known")
    sentence += f", version {version} of the table" if version is not None else ""
    return sentence, {"batch": batch if known else None, "table_version": version}


def _out_of_window(
    definition: QueryDefinition, evidence: Evidence, sides: _Sides, indexes: tuple[int, int], pair: int
) -> tuple[str, dict[str, object]]:
    pairs = evidence.pairs
    assert pairs is not None
    failing = int(np.argmin(pairs.holds[pair]))
    condition, apart = definition.conditions[failing], float(pairs.apart[pair, failing])
    left, right = (describe(definition.inputs[side], sides.rows[side], indexes[side]) for side in (0, 1))
    sentence = f"{capital(left)} and {right} have this key, and are not joined: `{condition.text}` is not met"
    by: timedelta | float | None = None
    if condition.sides and not np.isnan(apart):
        by = timedelta(microseconds=abs(apart)) if condition.kind == "time" else abs(apart)
        sentence += f", by {distance(by) if isinstance(by, timedelta) else amount(by)}"
    return sentence, {"condition": condition.text, "misses_by": by}


def _rows_text(
    definition: QueryDefinition, sides: _Sides, indexes: tuple[int, int], fates: tuple[KeyVerdict, ...]
) -> str:
    pair_fates = [row_fate(definition.inputs[s], sides.rows[s], sides.fates[s], indexes[s]) for s in (0, 1)]
    texts = [row.text for row in pair_fates if row.fate in fates]
    others = [row.input for row in pair_fates if row.fate not in fates]
    return capital(", and ".join(texts)) + (f". So the row of {others[0]} was not joined to it" if others else "")


def _unknown(
    definition: QueryDefinition, evidence: Evidence, sides: _Sides, indexes: tuple[int, int]
) -> tuple[str, dict[str, object]]:
    pair_fates = [row_fate(definition.inputs[s], sides.rows[s], sides.fates[s], indexes[s]) for s in (0, 1)]
    not_known = capital(", and ".join(row.text for row in pair_fates if row.fate is KeyVerdict.UNDECIDABLE))
    one_of = any(sides.fates[side].one_of[indexes[side]] for side in (0, 1))
    lost = _NOT_WRITTEN if one_of else evidence.lost_batches
    sentence = not_known if one_of or not lost else f"It is not known whether these rows were joined: {lost}"
    return sentence, {"lost": (str(lost),) if lost else ()}


def _checked(definition: QueryDefinition, evidence: Evidence, answer: KeyExplanation) -> KeyExplanation:
    """The answer, weighed against rows that may be missing from the evidence, and against the node's table."""
    lost = tuple(loss for loss in evidence.lost_rows if loss is not None)
    if lost and answer.verdict not in (KeyVerdict.MATCHED, KeyVerdict.UNDECIDABLE):
        sentence = f"It is not known: rows of this key may be gone. {capital(str(lost[0]))}."
        answer = replace(answer, verdict=KeyVerdict.UNDECIDABLE, sentence=sentence, lost=tuple(map(str, lost)))
    if evidence.written is None or not definition.is_whole:
        return answer
    rows = evidence.written.get(SEPARATOR.join(answer.key), 0)
    if answer.verdict is KeyVerdict.UNDECIDABLE and rows and not definition.outer:
        sentence = "Joined: the table has its row. It is no longer known in which batch."
        return replace(answer, verdict=KeyVerdict.MATCHED, sentence=sentence, table_version=None)
    if answer.verdict is KeyVerdict.MATCHED and not rows:
        said = "the rows were joined, and the table has no row with this key: it was changed or removed there since"
        return replace(answer, disagreements=(*answer.disagreements, said))
    if rows and not definition.outer and answer.verdict not in (KeyVerdict.MATCHED, KeyVerdict.UNDECIDABLE):
        said = f"the table has {rows:,} row{'s' if rows > 1 else ''} with this key, which these inputs do not explain"
        return replace(answer, disagreements=(*answer.disagreements, said))
    return answer
