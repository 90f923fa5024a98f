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
    for answer in answers:
        if answer.verdict is not KeyVerdict.MATCHED:
            yield answer
            continue
        answers_behind = [behind[turn][key] for turn, key in evidence.passed_on.get(answer.text, ())]
        unsure = answer.text in evidence.unsure or any(evidence.lost_rows)
        yield _compared(definition, evidence, _together(answer, answers_behind, unsure))


def _together(joined: KeyExplanation, answers_behind: Sequence[KeyExplanation], unsure: bool) -> KeyExplanation:
    best = min(answers_behind, key=lambda answer: _ORDER.index(answer.verdict))
    before = joined.sentence.split(", version ")[0].rstrip(".")
    sentence = f"{before}. {best.sentence}"
    if len(answers_behind) > 1:
        sentence += f" It was joined {len(answers_behind):,} times; this came furthest."
    verdict = best.verdict
    if unsure and verdict not in _PASSED_ON:
        verdict = KeyVerdict.UNDECIDABLE
        sentence += " It is not known whether other rows of the key were joined."
    return replace(
        best,
        key=joined.key,
        verdict=verdict,
        sentence=sentence,
        rows=(*joined.rows, *(row for answer in answers_behind for row in answer.rows)),
        disagreements=(*joined.disagreements, *best.disagreements),
    )


def _compared(definition: QueryDefinition, evidence: Evidence, answer: KeyExplanation) -> KeyExplanation:
    """The answer, weighed against the node's table."""
    if evidence.written is None or definition.last.withheld:
        return answer
    if definition.last.beyond:
        return replace(answer, sentence=answer.sentence + _in_table(definition, evidence, answer))
    if answer.verdict in _WRITTEN and not evidence.written.get(answer.text, 0):
        said = "its rows went into the table, and the table has no row with this key: it was changed or removed there"
        return replace(answer, disagreements=(*answer.disagreements, said))
    return answer


def not_followed(
    definition: QueryDefinition, evidence: Evidence, answers: Iterable[KeyExplanation]
) -> Iterator[KeyExplanation]:
    """The answers of a query with something behind that is not followed."""
    for answer in answers:
        if answer.verdict not in _PASSED_ON:
            yield answer
            continue
        sentence = f"{answer.sentence} What follows is not computed here: {definition.beyond}."
        sentence += _in_table(definition, evidence, answer)
        yield replace(answer, verdict=KeyVerdict.REACHED, sentence=sentence, table_version=None)


def _in_table(definition: QueryDefinition, evidence: Evidence, answer: KeyExplanation) -> str:
    if evidence.written is None:
        return ""
    rows = evidence.written.get(answer.text, 0)
    key = ", ".join(f"{name} = {part}" for name, part in zip(definition.output_key, answer.key, strict=False))
    return f" The table has {rows:,} row{'' if rows == 1 else 's'} with {key}."
