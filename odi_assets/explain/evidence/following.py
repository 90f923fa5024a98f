"""What became of the rows of a key behind the operator that decides about it first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from odi_assets.explain.evidence.evidence import Evidence
from odi_assets.explain.verdicts import KeyExplanation, KeyVerdict
from odi_assets.spark.plans.definition import QueryDefinition

_ORDER = (
    KeyVerdict.MATCHED,
    KeyVerdict.COUNTED,
    KeyVerdict.KEPT,
    KeyVerdict.REACHED,
    KeyVerdict.PENDING,
    KeyVerdict.UNDECIDABLE,
    KeyVerdict.COUNTERPART_NOT_READ,
    KeyVerdict.DUPLICATE_OF,
    KeyVerdict.COUNTERPART_LATE,
    KeyVerdict.DROPPED_LATE,
    KeyVerdict.COUNTERPART_FILTERED,
    KeyVerdict.FILTERED,
    KeyVerdict.NULL_KEY,
    KeyVerdict.OUT_OF_WINDOW,
    KeyVerdict.NO_COUNTERPART,
)
"""Of several pairs with one key, the verdict that comes first is the answer."""

_WRITTEN = frozenset({KeyVerdict.MATCHED, KeyVerdict.COUNTED, KeyVerdict.KEPT, KeyVerdict.WRITTEN})
_PASSED_ON = _WRITTEN | {KeyVerdict.REACHED}


def followed(
    definition: QueryDefinition,
    evidence: Evidence,
    answers: Iterable[KeyExplanation],
    behind: Sequence[Mapping[str, KeyExplanation]],
) -> Iterator[KeyExplanation]:
    """The answers of a join; for joined rows, with the answers of the operator behind the join."""
    for one in answers:
        if one.verdict is not KeyVerdict.MATCHED:
            yield one
            continue
        found = [behind[turn][key] for turn, key in evidence.passed_on.get(one.text, ())]
        unsure = one.text in evidence.unsure or any(evidence.lost_rows)
        yield _compared(definition, evidence, _together(one, found, unsure))


def _together(joined: KeyExplanation, found: Sequence[KeyExplanation], unsure: bool) -> KeyExplanation:
    best = min(found, key=lambda one: _ORDER.index(one.verdict))
    before = joined.sentence.split(", version ")[0].rstrip(".")
    sentence = f"{before}. {best.sentence}"
    if len(found) > 1:
        sentence += f" It was joined {len(found):,} times; this came furthest."
    verdict = best.verdict
    if unsure and verdict not in _PASSED_ON:
        verdict = KeyVerdict.UNDECIDABLE
        sentence += " It is not known whether other rows of the key were joined."
    return replace(
        best,
        key=joined.key,
        verdict=verdict,
        sentence=sentence,
        rows=(*joined.rows, *(row for one in found for row in one.rows)),
        disagreements=(*joined.disagreements, *best.disagreements),
    )


def _compared(definition: QueryDefinition, evidence: Evidence, found: KeyExplanation) -> KeyExplanation:
    """The answer, weighed against the node's table."""
    if evidence.written is None or definition.last.withheld:
        return found
    if definition.last.beyond:
        return replace(found, sentence=found.sentence + _in_table(definition, evidence, found))
    if found.verdict in _WRITTEN and not evidence.written.get(found.text, 0):
        said = "its rows went into the table, and the table has no row with this key: it was changed or removed there"
        return replace(found, disagreements=(*found.disagreements, said))
    return found


def not_followed(
    definition: QueryDefinition, evidence: Evidence, answers: Iterable[KeyExplanation]
) -> Iterator[KeyExplanation]:
    """The answers of a query with something behind that is not followed."""
    for one in answers:
        if one.verdict not in _PASSED_ON:
            yield one
            continue
        sentence = f"{one.sentence} What follows is not computed here: {definition.beyond}."
        sentence += _in_table(definition, evidence, one)
        yield replace(one, verdict=KeyVerdict.REACHED, sentence=sentence, table_version=None)


def _in_table(definition: QueryDefinition, evidence: Evidence, one: KeyExplanation) -> str:
    if evidence.written is None:
        return ""
    rows = evidence.written.get(one.text, 0)
    key = ", ".join(f"{name} = {part}" for name, part in zip(definition.output_key, one.key, strict=False))
    return f" The table has {rows:,} row{'' if rows == 1 else 's'} with {key}."
