"""Compares answers with the state of the query: rows that wait have to be in it, rows that expired to be gone.

It takes no part in the answers: they are right without it, also when state was cleaned away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from odi_assets.streaming.checkpoints.files import first_changes
from odi_assets.streaming.checkpoints.reader import CheckpointReader, JoinSide
from odi_assets.streaming.explain.collect import key_sql
from odi_assets.streaming.explain.definition import SEPARATOR, Definition
from odi_assets.streaming.explain.verdicts import Fate, KeyExplanation, RowFate
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SIDES: tuple[JoinSide, JoinSide] = ("left", "right")


def confirmed(
    reader: CheckpointReader, definition: Definition, answers: Iterable[KeyExplanation], batch: int
) -> list[KeyExplanation]:
    """The answers, with what the state after ``batch`` says otherwise.

    Raises:
        CheckpointError: the state cannot be read.
    """
    found = list(answers)
    keys = [SEPARATOR.join(one.key) for one in found]
    if definition.is_join:
        held = [_counts(reader.read(side=side, batch=batch), len(definition.key_names), keys) for side in _SIDES]
        removed = [_removed(reader, side, len(definition.key_names), keys, batch) for side in _SIDES]
        return [_joined(definition, one, key, held, removed, batch) for one, key in zip(found, keys, strict=True)]
    fate = _in_state(definition)
    if fate is None:
        return found
    names = [f"key.{quoted(name)}" for name in definition.key_names]
    state = _counted(reader.read(batch=batch).selectExpr(f"{key_sql(names)} AS key"), keys)
    return [_single(one, fate, state.get(key, 0), batch) for one, key in zip(found, keys, strict=True)]


def _in_state(definition: Definition) -> Fate | None:
    """The fate of rows whose key has to be in the state, and is not there otherwise; None if there is none such."""
    if definition.inputs[0].state_range_ms is None:
        return {"aggregation": Fate.COUNTED, "deduplication": Fate.KEPT}.get(definition.kind)
    return Fate.PENDING if definition.waits_for_watermark else None


def _counts(state: DataFrame, parts: int, keys: Sequence[str]) -> Mapping[str, int]:
    return _counted(state.selectExpr(f"{_fields(parts)} AS key"), keys)


def _removed(
    reader: CheckpointReader, side: JoinSide, parts: int, keys: Sequence[str], last: int
) -> Mapping[tuple[str, int], int] | None:
    """By key and batch, how many rows the change feed says were removed, since the first batch that it tells of."""
    known = reader.inspect()
    first = first_changes(known, known.operator(0), (f"{side}-keyWithIndexToValue",))
    if first > last:
        return None
    changes = reader.changes(first, last, side=side).where("change_type = 'delete'")
    rows = changes.selectExpr(f"{_fields(parts)} AS key", "batch_id")
    from pyspark.sql import functions as F

    grouped = rows.where(F.col("key").isin(list(keys))).groupBy("key", "batch_id").count()
    found = {(row["key"], int(row["batch_id"])): int(row["count"]) for row in grouped.collect()}
    return found | {("", first): 0}


def _fields(parts: int) -> str:
    return key_sql([f"key.field{place}" for place in range(parts)])


def _counted(state: DataFrame, keys: Sequence[str]) -> dict[str, int]:
    from pyspark.sql import functions as F

    rows = state.where(F.col("key").isin(list(keys))).groupBy("key").count().collect()
    return {row["key"]: int(row["count"]) for row in rows}


def _joined(
    definition: Definition,
    answer: KeyExplanation,
    key: str,
    held: Sequence[Mapping[str, int]],
    removed: Sequence[Mapping[tuple[str, int], int] | None],
    batch: int,
) -> KeyExplanation:
    said = []
    for place, given in enumerate(definition.inputs):
        rows = [row for row in answer.rows if row.input == given.view]
        if any(row.fate is Fate.UNDECIDABLE for row in rows):
            continue
        waiting = sum(row.fate is Fate.WAITING for row in rows)
        there = held[place].get(key, 0)
        if there != waiting:
            said.append(f"the state after batch {batch} has {there} rows of {given.view} with this key, not {waiting}")
        said += _expired(given.view, key, rows, removed[place])
    return replace(answer, disagreements=(*answer.disagreements, *said)) if said else answer


def _expired(
    view: str, key: str, rows: Sequence[RowFate], removed: Mapping[tuple[str, int], int] | None
) -> Iterable[str]:
    if removed is None:
        return
    first = min(batch for _, batch in removed)
    stored = [row for row in rows if row.fate is Fate.EXPIRED and row.batch != row.read_in]
    expected = Counter(row.batch for row in stored if row.batch is not None and row.batch >= first)
    for batch in {*expected, *(number for one, number in removed if one == key)}:
        found = removed.get((key, batch), 0)
        if found != expected[batch]:
            yield f"the change feed says that batch {batch} removed {found} rows of {view}, not {expected[batch]}"


def _single(answer: KeyExplanation, fate: Fate, there: int, batch: int) -> KeyExplanation:
    expected = any(row.fate is fate for row in answer.rows)
    if expected == bool(there) or any(row.fate is Fate.UNDECIDABLE for row in answer.rows):
        return answer
    said = f"the state after batch {batch} has {'no' if expected else 'a'} group of this key"
    return replace(answer, disagreements=(*answer.disagreements, said))
