"""Explains from a checkpoint alone why a stream-stream join has not returned a row of a key.

A checkpoint knows what its state holds, and what the retained batches put into it and removed. It does not know the
input: a row that came too late, or was filtered, was never stored and leaves no trace. Where retention took the
evidence away, the answer is "undecidable", and says which evidence is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odi_assets.checkpoints.files import first_changes
from odi_assets.checkpoints.inspect import Checkpoint, rows_store
from odi_assets.checkpoints.reader import CheckpointReader, JoinSide
from odi_assets.errors import CheckpointError
from odi_assets.explain.evidence.words import capital
from odi_assets.explain.verdicts import KeyExplanation, KeyVerdict, SideOfKey, StateOfKey
from odi_assets.spark.lazy import F
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

_FORMATS_WITH_INDEX = ("1", "2", "3")
_MOST_ROWS = 100
_RETENTION = "spark.sql.streaming.minBatchesToRetain"


def key_names(reader: CheckpointReader, operator: int = 0) -> tuple[str, ...]:
    """The names that the state of a join has for the values of its key: field0, field1 …

    Raises:
        CheckpointError: there is no checkpoint, no join, or its state cannot be read.
    """
    _require_join(reader.inspect(), operator)
    return tuple(field.name for field in _key_fields(reader.read(rows_store("left"), operator=operator)))


def explain_key(
    reader: CheckpointReader, key: Sequence[Any], *, operator: int = 0, since_batch: int | None = None
) -> KeyExplanation:
    """What a stream-stream join did with a key: whether it waits on either side, was purged, or was never stored.

    Args:
        reader: of a checkpoint on this machine.
        key: the values of the join's equality conditions, in their order.
        operator: the stateful operator that is the join.
        since_batch: first batch of the history to examine; the oldest whose changes are kept if None.

    Raises:
        CheckpointError: there is no checkpoint, no join, no history of it, or the key has other fields.
    """
    checkpoint = reader.inspect()
    _require_join(checkpoint, operator)
    last = checkpoint.committed_batch()
    stores = [rows_store(side) for side in _SIDES]
    oldest = first_changes(checkpoint, checkpoint.operator(operator), stores)
    first = oldest if since_batch is None else checkpoint.committed_batch(since_batch)
    left, right = (_side(reader, side, key, operator, first) for side in _SIDES)
    verdict, conclusion = _conclusion(left, right)
    lost = (_missing_evidence(first),) if KeyVerdict.UNDECIDABLE in (left.fate, right.fate) else ()
    sentence = f"{_side_text(left, checkpoint, first)}; {_side_text(right, checkpoint, first)}. {conclusion}"
    state = StateOfKey(left, right, first, last, checkpoint.watermark)
    return KeyExplanation(tuple(map(str, key)), verdict, capital(sentence), lost=lost, state=state)


_SIDES: tuple[JoinSide, JoinSide] = ("left", "right")


def _require_join(checkpoint: Checkpoint, operator_id: int) -> None:
    operator = checkpoint.operator(operator_id)
    if not operator.is_join:
        joins = ", ".join(str(other.operator_id) for other in checkpoint.operators if other.is_join)
        raise CheckpointError(
            f"{checkpoint.path}: operator {operator_id} is {operator.name}, not a join of two streams.",
            fix=f"its joins are the operators {joins}" if joins else "the query joins no two streams",
            path=str(checkpoint.path),
        )
    version = (
        checkpoint.batches[-1].conf.get("spark.sql.streaming.join.stateFormatVersion", "2")
        if checkpoint.batches
        else "2"
    )
    if version not in _FORMATS_WITH_INDEX:
        raise CheckpointError(
            f"{checkpoint.path}: the join keeps its state in format {version}, which this explanation cannot read.",
            fix="Spark calls that format unfinished: rebuild the query in format 2 or 3, or read the stores",
            path=str(checkpoint.path),
        )


def _side(reader: CheckpointReader, side: JoinSide, key: Sequence[Any], operator: int, first: int) -> SideOfKey:
    changes = _of_key(reader.changes(first, side=side, operator=operator), key, reader.path)
    state = _of_key(reader.read(rows_store(side), operator=operator), key, reader.path).limit(_MOST_ROWS)
    # Both in one go: a row of the state is no change of a batch.
    held = state.selectExpr("CAST(NULL AS BIGINT) AS batch_id", "CAST(NULL AS STRING) AS change_type", "value")
    with reader.errors():
        rows_and_changes = held.unionByName(changes.select("batch_id", "change_type", "value")).collect()
    here = [row for row in rows_and_changes if row["change_type"] is None]
    history = [row for row in rows_and_changes if row["change_type"] is not None]
    rows = tuple(row["value"].asDict(recursive=True) for row in here)
    seen = [*rows, *(row["value"].asDict() for row in history if row["value"] is not None)]
    flags = [row["matched"] for row in seen if "matched" in row]
    purged = tuple(sorted({row["batch_id"] for row in history if row["change_type"] == "delete"}))
    if rows:
        fate = KeyVerdict.WAITING
    elif purged:
        fate = KeyVerdict.EXPIRED
    else:
        fate = KeyVerdict.NEVER_STORED if first == 0 else KeyVerdict.UNDECIDABLE
    arrived = tuple(sorted({row["batch_id"] for row in history if row["change_type"] != "delete"}))
    return SideOfKey(side, fate, rows, any(flags) if flags else None, arrived, purged)


def _key_fields(frame: DataFrame) -> list[StructField]:
    # The last field of the key is Spark's own: it counts the rows of one key.
    return frame.select("key.*").drop("index").schema.fields


def _of_key(frame: DataFrame, key: Sequence[Any], path: str) -> DataFrame:
    fields = _key_fields(frame)
    if len(key) != len(fields):
        types = ", ".join(field.dataType.simpleString() for field in fields)
        raise CheckpointError(
            f"{path}: the join has {len(fields)} equality conditions, and the key has {len(key)} values.",
            fix=f"give one value for each condition, in their order; their types are {types}",
            path=path,
        )
    for field, value in zip(fields, key, strict=True):
        frame = frame.where(F.col("key").getField(field.name).eqNullSafe(F.lit(value).cast(field.dataType)))
    return frame


def _missing_evidence(first: int) -> str:
    gone = "batch 0" if first == 1 else f"batches 0 to {first - 1}"
    return (
        f"What {gone} did to the state is not looked at or not kept any more. {_RETENTION} above the number of the "
        "query's batches would have kept it, and so does a stream node: its table meta_batches and its inputs outlive "
        "the checkpoint's own retention"
    )


def _side_text(side: SideOfKey, checkpoint: Checkpoint, first: int) -> str:
    if side.fate is KeyVerdict.WAITING:
        matched = {True: "matched", False: "not matched", None: "in the state"}[side.matched]
        return f"{side.side}: {counted(len(side.rows), 'row')} in the state, {matched}"
    if side.fate is KeyVerdict.EXPIRED:
        last = side.purged_in[-1]
        batch = checkpoint.batch(last)
        watermark = f", at watermark {batch.watermark.isoformat()}" if batch and batch.watermark else ""
        matched = ", matched before" if side.matched else ""
        return f"{side.side}: purged in batch {last}{watermark}{matched}"
    if side.fate is KeyVerdict.NEVER_STORED:
        return f"{side.side}: never stored"
    return f"{side.side}: not in the state, nor in the changes since batch {first}"


def _conclusion(left: SideOfKey, right: SideOfKey) -> tuple[KeyVerdict, str]:
    fates = (left.fate, right.fate)
    if left.matched or right.matched:
        return KeyVerdict.MATCHED, "The pair was found and its row was given: look behind the join, in the sink."
    if KeyVerdict.UNDECIDABLE in fates:
        return _undecidable(left, right)
    if KeyVerdict.NEVER_STORED not in fates:
        return _both_stored(left, right)
    if fates == (KeyVerdict.NEVER_STORED, KeyVerdict.NEVER_STORED):
        return KeyVerdict.NEVER_STORED, f"Neither side was ever stored: each {_NEVER_STORED}."
    stored, other = (right, left) if left.fate is KeyVerdict.NEVER_STORED else (left, right)
    if stored.fate is KeyVerdict.WAITING:
        return KeyVerdict.WAITING, (
            f"The {stored.side} row waits for its partner until the watermark passes it; an outer join gives it then. "
            f"The {other.side} row {_NEVER_STORED}."
        )
    return KeyVerdict.EXPIRED, (
        f"The {stored.side} row found no partner until the watermark passed it; an outer join gave it alone. "
        f"The {other.side} row {_NEVER_STORED}."
    )


_NEVER_STORED = (
    "is not in the input, is filtered before the join, has a NULL in its key, was compared and not stored since the "
    "watermark had passed its partners, or came so late that it was dropped, which only numRowsDroppedByWatermark of "
    "the query's progress counts"
)


def _both_stored(left: SideOfKey, right: SideOfKey) -> tuple[KeyVerdict, str]:
    if (left.fate, right.fate) == (KeyVerdict.WAITING, KeyVerdict.WAITING):
        return KeyVerdict.OUT_OF_WINDOW, (
            "Both are here and do not match: a condition beside the key, such as the range of time, is not met."
        )
    for gone, other in ((left, right), (right, left)):
        if gone.fate is KeyVerdict.EXPIRED and other.arrived_in and gone.purged_in[-1] <= other.arrived_in[0]:
            return KeyVerdict.APART, (
                f"The watermark passed the {gone.side} row before the {other.side} row was stored; an outer join gave "
                f"the {gone.side} row alone."
            )
    if left.matched is None and right.matched is None:
        return KeyVerdict.UNDECIDABLE, (
            "Both were here. Whether they matched, and when they arrived, is in batches that are not kept any more."
        )
    return KeyVerdict.OUT_OF_WINDOW, (
        "Both were here, and neither found a partner: another condition, such as the range of time, was not met."
    )


def _undecidable(left: SideOfKey, right: SideOfKey) -> tuple[KeyVerdict, str]:
    known_side = next((side for side in (left, right) if side.fate is not KeyVerdict.UNDECIDABLE), None)
    if known_side is None:
        return KeyVerdict.UNDECIDABLE, (
            "It is not known whether either side ever came: it may have come and gone before the batches that are kept."
        )
    other_side = right if known_side is left else left
    unknown = f"it is not known whether the {other_side.side} row never came, or came and was purged before"
    if known_side.fate is KeyVerdict.WAITING:
        return KeyVerdict.WAITING, (
            f"The {known_side.side} row has found no partner so far and waits until the watermark passes it; {unknown}."
        )
    return KeyVerdict.UNDECIDABLE, f"The {known_side.side} row is gone; {unknown}."
