"""Explains why a stream-stream join has not returned a row: its key waits in the state, was purged, or never came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odi_assets.errors import CheckpointError
from odi_assets.streaming.checkpoint import Checkpoint, inspect
from odi_assets.streaming.state_reader import JoinSide, asked_of, read_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_FORMATS_WITH_INDEX = ("1", "2", "3")
_MOST_ROWS = 100


class KeyStatus(StrEnum):
    """Where a key is on one side of a join."""

    WAITING = "waiting"
    PURGED = "purged"
    NEVER_ARRIVED = "never_arrived"
    NOT_SEEN = "not_seen"
    """Not in the retained batches. Older ones are gone, so the key may have arrived and been purged before."""


@dataclass(frozen=True)
class SideOfKey:
    """One side of a join for one key.

    ``rows`` are the rows in the state, at most 100. ``matched`` says whether any of them found a partner; it is None if
    there are none, or the state does not say (inner joins of format 1). ``arrived_in`` and ``purged_in`` are batch ids.
    """

    side: JoinSide
    status: KeyStatus
    rows: tuple[Mapping[str, Any], ...]
    matched: bool | None
    arrived_in: tuple[int, ...]
    purged_in: tuple[int, ...]


@dataclass(frozen=True)
class WhyMissing:
    """What happened to a key: both sides, the first and last batch that were examined, and the watermark after them."""

    key: Mapping[str, Any]
    left: SideOfKey
    right: SideOfKey
    first_batch: int
    last_batch: int
    watermark: datetime | None
    reason: str


def why_missing(
    spark: SparkSession,
    checkpoint: Checkpoint | str | Path,
    key: Mapping[str, Any],
    *,
    operator_id: int = 0,
    since_batch: int | None = None,
) -> WhyMissing:
    """Whether a key of a stream-stream join still waits on either side, was purged, or never arrived.

    Args:
        spark: the session to read with.
        checkpoint: its local folder, or the result of :func:`~odi_assets.streaming.inspect`.
        key: the values of the join's equality conditions, in their order. The state stores no column names, so these
            are only for the report, unless they are the state's own: field0, field1 …
        operator_id: the stateful operator that is the join.
        since_batch: first batch of the history to examine; the oldest retained one if None.

    Raises:
        CheckpointError: there is no checkpoint, no join, no history of it, or the key has other fields.
    """
    known = checkpoint if isinstance(checkpoint, Checkpoint) else inspect(checkpoint)
    last = known.last_committed
    _require_join(known, operator_id)
    if last is None:
        raise CheckpointError(
            f"{known.path} has no committed batch yet.", fix="let its query finish a batch", path=str(known.path)
        )
    first = known.batches[0].batch_id if since_batch is None else since_batch
    left, right = (_side(spark, known, side, key, operator_id, first) for side in ("left", "right"))
    reason = f"{_told(left, known)}; {_told(right, known)}. {_conclusion(left, right)}"
    return WhyMissing(dict(key), left, right, first, last.batch_id, known.watermark, reason)


def _require_join(known: Checkpoint, operator_id: int) -> None:
    operator = known.operator(operator_id)
    if not operator.is_join:
        joins = ", ".join(str(other.operator_id) for other in known.operators if other.is_join)
        raise CheckpointError(
            f"{known.path}: operator {operator_id} is {operator.name}, not a join of two streams.",
            fix=f"its joins are the operators {joins}" if joins else "the query joins no two streams",
            path=str(known.path),
        )
    version = known.batches[-1].conf.get("spark.sql.streaming.join.stateFormatVersion", "2") if known.batches else "2"
    if version not in _FORMATS_WITH_INDEX:
        raise CheckpointError(
            f"{known.path}: the join keeps its state in format {version}, which this explanation cannot read.",
            fix="Spark calls that format unfinished: start the query anew in format 2 or 3, or use read_state",
            path=str(known.path),
        )


def _side(
    spark: SparkSession, known: Checkpoint, side: Any, key: Mapping[str, Any], operator_id: int, first: int
) -> SideOfKey:
    store = f"{side}-keyWithIndexToValue"
    state = read_state(spark, known, operator_id=operator_id, store_name=store)
    changes = read_state(
        spark, known, operator_id=operator_id, store_name=store, change_feed=True, change_start=first
    ).select("batch_id", "change_type", "key")
    with asked_of(str(known.path)):
        here = _of_key(state, key, known).limit(_MOST_ROWS).collect()
        history = _of_key(changes, key, known).select("batch_id", "change_type").distinct().collect()
    rows = tuple(_plain(row) for row in here)
    flags = [row["matched"] for row in rows if "matched" in row]
    arrived = tuple(sorted(row.batch_id for row in history if row.change_type != "delete"))
    purged = tuple(sorted(row.batch_id for row in history if row.change_type == "delete"))
    if rows:
        status = KeyStatus.WAITING
    elif purged:
        status = KeyStatus.PURGED
    else:
        status = KeyStatus.NEVER_ARRIVED if first == 0 else KeyStatus.NOT_SEEN
    return SideOfKey(side, status, rows, any(flags) if flags else None, arrived, purged)


def _of_key(frame: DataFrame, key: Mapping[str, Any], known: Checkpoint) -> DataFrame:
    from pyspark.sql import functions as F

    # The last field of the key is Spark's own: it counts the rows of one key.
    fields = frame.select("key.*").drop("index").schema.fields
    names = [field.name for field in fields]
    values = [key[name] for name in names] if set(key) == set(names) else list(key.values())
    if len(values) != len(names):
        types = ", ".join(field.dataType.simpleString() for field in fields)
        raise CheckpointError(
            f"{known.path}: the join has {len(names)} equality conditions, and the key has {len(values)} values.",
            fix=f"give one value for each condition, in their order; their types are {types}",
            path=str(known.path),
        )
    for field, value in zip(fields, values, strict=True):
        frame = frame.where(F.col("key").getField(field.name).eqNullSafe(F.lit(value).cast(field.dataType)))
    return frame


def _plain(row: Row) -> Mapping[str, Any]:
    value: Mapping[str, Any] = row["value"].asDict(recursive=True)
    return value


def _told(side: SideOfKey, known: Checkpoint) -> str:
    if side.status is KeyStatus.WAITING:
        matched = {True: "matched", False: "not matched", None: "in the state"}[side.matched]
        return f"{side.side}: {len(side.rows)} row(s) in the state, {matched}"
    if side.status is KeyStatus.PURGED:
        last = side.purged_in[-1]
        batch = known.batch(last)
        watermark = f", at watermark {batch.watermark.isoformat()}" if batch and batch.watermark else ""
        return f"{side.side}: purged in batch {last}{watermark}"
    if side.status is KeyStatus.NEVER_ARRIVED:
        return f"{side.side}: never arrived"
    return f"{side.side}: not in the batches that are kept"


def _conclusion(left: SideOfKey, right: SideOfKey) -> str:
    statuses = {left.status, right.status}
    if left.matched or right.matched:
        return "The pair was found and its row was given: look behind the join, in the sink."
    if statuses == {KeyStatus.WAITING}:
        return "Both are here and do not match: a condition beside the key, such as the range of time, is not met."
    if KeyStatus.WAITING in statuses:
        waiting = left if left.status is KeyStatus.WAITING else right
        return (
            f"The {waiting.side} row waits for its partner until the watermark passes it; an outer join gives it then."
        )
    if statuses == {KeyStatus.PURGED}:
        return "Both were here and are gone: the pair was given if the two met before the watermark passed the first."
    if KeyStatus.PURGED in statuses:
        other = right if left.status is KeyStatus.PURGED else left
        return (
            f"The watermark passed the one before the {other.side} row came; if that came later, it was dropped as "
            "late, which only numRowsDroppedByWatermark of the query's progress counts. An outer join gave the other "
            "alone."
        )
    return (
        "Neither side holds it: it is not in the input, is filtered before the join, or came later than the watermark "
        "and was dropped, which only numRowsDroppedByWatermark of the query's progress counts."
    )
