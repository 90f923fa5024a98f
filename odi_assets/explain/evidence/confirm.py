"""Compares answers with the state of the query: rows that wait have to be in it, rows that expired to be gone.

It takes no part in the answers: they are right without it, also when state was cleaned away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from odi_assets.checkpoints.files import first_changes
from odi_assets.checkpoints.inspect import Operator, rows_store
from odi_assets.checkpoints.reader import CheckpointReader, JoinSide
from odi_assets.explain.evidence.collect import key_sql, only_asked
from odi_assets.explain.verdicts import KeyExplanation, KeyVerdict, RowFate
from odi_assets.spark.lazy import F
from odi_assets.spark.plans.definition import SEPARATOR, QueryDefinition
from odi_assets.tables.columns import quoted

_SIDES: tuple[JoinSide, JoinSide] = ("left", "right")
_OPERATORS = {
    "join": ("symmetricHashJoin",),
    "aggregation": ("stateStoreSave", "sessionWindowStateStoreSaveExec"),
    "deduplication": ("dedupe", "dedupeWithinWatermark"),
}
"""By kind of the definition, Spark's names of its operator."""


def confirmed(
    reader: CheckpointReader, definition: QueryDefinition, answers: Iterable[KeyExplanation], batch: int
) -> list[KeyExplanation]:
    """The answers, corrected by the state after ``batch``: the state of the first operator of ``definition``, if the
    query has no second one like it.

    Raises:
        CheckpointError: the state cannot be read.
    """
    explanations = list(answers)
    keys = [SEPARATOR.join(explanation.key) for explanation in explanations]
    operator = _operator(reader, definition)
    if operator is None:
        return explanations
    if definition.is_join:
        held, removed = _of_join(reader, operator, len(definition.key_names), keys, batch)
        return [
            _joined(definition, explanation, key, held, removed, batch)
            for explanation, key in zip(explanations, keys, strict=True)
        ]
    fate = _in_state(definition)
    if fate is None:
        return explanations
    names = [f"key.{quoted(name)}" for name in definition.key_names]
    rows = reader.read(batch=batch, operator=operator.operator_id).selectExpr(f"{key_sql(names)} AS key")
    state = only_asked(rows, keys).distinct().collect()
    there = {row["key"] for row in state}
    withheld = {condition.text for condition in definition.withheld}
    return [
        _single(explanation, fate, withheld, key in there, batch)
        for explanation, key in zip(explanations, keys, strict=True)
    ]


def _operator(reader: CheckpointReader, definition: QueryDefinition) -> Operator | None:
    names = _OPERATORS.get(definition.kind, ())
    operators = [operator for operator in reader.inspect().operators if operator.name in names]
    return operators[0] if len(operators) == 1 else None


def _in_state(definition: QueryDefinition) -> KeyVerdict | None:
    """The fate of rows whose key has to be in the state, and only of such rows; None if no fate is like that."""
    if definition.inputs[0].state_range_ms is None:
        return {"aggregation": KeyVerdict.COUNTED, "deduplication": KeyVerdict.KEPT}.get(definition.kind)
    return KeyVerdict.PENDING if definition.waits_for_watermark else None


def _of_join(
    reader: CheckpointReader, operator: Operator, parts: int, keys: Sequence[str], last: int
) -> tuple[list[Mapping[str, int]], list[Mapping[tuple[str, int], int] | None]]:
    """By side: how many rows of each key the state after ``last`` has; and by key and batch how many rows the change
    feed reports as removed, since its first batch. All in one go, for each job of Spark costs a second."""
    checkpoint, at = reader.inspect(), operator.operator_id
    key = key_sql([f"key.field{index}" for index in range(parts)])
    firsts = [first_changes(checkpoint, operator, (rows_store(side),)) for side in _SIDES]
    frames = []
    for index, side in enumerate(_SIDES):
        rows = reader.read(side=side, batch=last, operator=at)
        frames.append(rows.selectExpr(f"{index} AS side", f"{key} AS key", "-1L AS batch"))
        if firsts[index] <= last:
            changes = reader.changes(firsts[index], last, side=side, operator=at).where("change_type = 'delete'")
            frames.append(changes.selectExpr(f"{index} AS side", f"{key} AS key", "batch_id AS batch"))
    asked_rows = only_asked(reduce(lambda frame, next_frame: frame.union(next_frame), frames), keys)
    held: list[dict[str, int]] = [{}, {}]
    removed: list[dict[tuple[str, int], int]] = [{("", first): 0} for first in firsts]
    for row in asked_rows.groupBy("side", "key", "batch").agg(F.count(F.lit(1)).alias("rows")).collect():
        if row["batch"] < 0:
            held[row["side"]][row["key"]] = row["rows"]
        else:
            removed[row["side"]][row["key"], row["batch"]] = row["rows"]
    return list(held), [counts if first <= last else None for counts, first in zip(removed, firsts, strict=True)]


def _joined(
    definition: QueryDefinition,
    answer: KeyExplanation,
    key: str,
    held: Sequence[Mapping[str, int]],
    removed: Sequence[Mapping[tuple[str, int], int] | None],
    batch: int,
) -> KeyExplanation:
    said = []
    for side, query_input in enumerate(definition.inputs):
        rows = [row for row in answer.rows if row.input == query_input.view]
        if any(row.fate is KeyVerdict.UNDECIDABLE for row in rows):
            continue
        waiting = sum(row.fate is KeyVerdict.WAITING for row in rows)
        there = held[side].get(key, 0)
        if there != waiting:
            said.append(
                f"the state after batch {batch} has {there} rows of {query_input.view} with this key, not {waiting}"
            )
        said += _expired(query_input.view, key, rows, removed[side])
    return replace(answer, disagreements=(*answer.disagreements, *said)) if said else answer


def _expired(
    view: str, key: str, rows: Sequence[RowFate], removed: Mapping[tuple[str, int], int] | None
) -> Iterable[str]:
    if removed is None:
        return
    first = min(batch for _, batch in removed)
    gone = [(row.batch, row.read_in) for row in rows if row.fate is KeyVerdict.EXPIRED and row.batch is not None]
    expected = Counter(batch for batch, read_in in gone if batch >= first and batch != read_in)
    # Of a row that the batch which read it removes at once, a query of several operators has changes, one of one not.
    passing = Counter(batch for batch, read_in in gone if batch == read_in)
    for batch in {*expected, *(number for removed_key, number in removed if removed_key == key)}:
        count = removed.get((key, batch), 0)
        if not expected[batch] <= count <= expected[batch] + passing[batch]:
            yield f"the change feed says that batch {batch} removed {count} rows of {view}, not {expected[batch]}"


def _single(answer: KeyExplanation, fate: KeyVerdict, withheld: set[str], there: bool, batch: int) -> KeyExplanation:
    expected = any(
        row.fate is fate or (fate is not KeyVerdict.PENDING and row.condition in withheld) for row in answer.rows
    )
    if expected == there or any(row.fate is KeyVerdict.UNDECIDABLE for row in answer.rows):
        return answer
    said = f"the state after batch {batch} has {'no' if expected else 'a'} group of this key"
    return replace(answer, disagreements=(*answer.disagreements, said))
