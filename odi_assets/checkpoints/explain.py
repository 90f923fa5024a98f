"""Explains from a checkpoint alone why a stream-stream join has not returned a row of a key.

A checkpoint knows what its state holds, and what the retained batches put into it and removed. It does not know the
input: a row that came too late, or was filtered, was never stored and leaves no trace. Where retention took the
    evidence
away, the answer is "undecidable", and says which evidence is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from odi_assets.checkpoints.files import first_changes
from odi_assets.checkpoints.inspect import Checkpoint, rows_store
from odi_assets.checkpoints.reader import CheckpointReader, JoinSide
from odi_assets.errors import CheckpointError
from odi_assets.spark.lazy import F
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FORMATS_WITH_INDEX = ("1", "2", "3")
_MOST_ROWS = 100
_RETENTION = "spark.sql.streaming.minBatchesToRetain"


class KeyFate(StrEnum):
    """What became of a key on one side of a join."""

    WAITING = "waiting"
    """The state holds rows of it."""
    PURGED = "purged"
    """A retained batch removed its last row: the watermark passed it."""
    NEVER_STORED = "never_stored"
    """No batch ever stored a row of it, and all batches are retained. It never arrived, was filtered, has a NULL in its
    key, came later than the watermark, or was already behind it when it was joined."""
    UNDECIDABLE = "undecidable"
    """No retained batch stored or removed it. It may have come and gone in a batch that is no longer retained."""


class KeyVerdict(StrEnum):
    """Why the joined row of a key is missing."""

    MATCHED = "matched"
    """It is not: the pair was found and its row was given to the sink."""
    NOT_MET = "not_met"
    """Both sides were there together, and another condition of the join is false."""
    APART = "apart"
    """Both sides were stored, one after the other was purged."""
    WAITING = "waiting"
    """One side waits, and no partner has come so far."""
    EXPIRED = "expired"
    """One side was purged without a partner."""
    NEVER_STORED = "never_stored"
    """Neither side was ever stored."""
    UNDECIDABLE = "undecidable"
    """The evidence that decides it is gone."""


@dataclass(frozen=True)
class SideOfKey:
    """One side of a join for one key.

    ``rows`` are the rows in the state, at most 100. ``matched`` says whether any of its rows that the evidence shows
    found a partner; None if there is none, or the state does not say (format 1). ``arrived_in`` and ``purged_in`` are
    the retained batches that stored or removed rows of it; a purged key without the former arrived before them.
    """

    side: JoinSide
    fate: KeyFate
    rows: tuple[Mapping[str, Any], ...]
    matched: bool | None
    arrived_in: tuple[int, ...]
    purged_in: tuple[int, ...]


@dataclass(frozen=True)
class KeyReport:
    """What happened to a key.

    Attributes:
        first_batch: the first batch whose changes were examined.
        last_batch: the last one.
        watermark: the watermark after it.
        reason: a sentence for people.
        missing_evidence: what is gone that would decide it, and what would have kept it; None if nothing is.
    """

    key: Mapping[str, Any]
    verdict: KeyVerdict
    left: SideOfKey
    right: SideOfKey
    first_batch: int
    last_batch: int
    watermark: datetime | None
    reason: str
    missing_evidence: str | None


def explain_key(
    reader: CheckpointReader, key: Mapping[str, Any], *, operator: int = 0, since_batch: int | None = None
) -> KeyReport:
    """What a stream-stream join did with a key: whether it waits on either side, was purged, or was never stored.

    Args:
        reader: of a checkpoint on this machine.
        key: the values of the join's equality conditions, in their order. The state stores no column names, so these
            are only for the report, unless they are the state's own: field0, field1 …
        operator: the stateful operator that is the join.
        since_batch: first batch of the history to examine; the oldest whose changes are kept if None.

    Raises:
        CheckpointError: there is no checkpoint, no join, no history of it, or the key has other fields.
    """
    known = reader.inspect()
    _require_join(known, operator)
    last = known.committed_batch()
    stores = [rows_store(side) for side in _SIDES]
    oldest = first_changes(known, known.operator(operator), stores)
    first = oldest if since_batch is None else known.committed_batch(since_batch)
    left, right = (_side(reader, side, key, operator, first) for side in _SIDES)
    verdict, conclusion = _conclusion(left, right)
    missing = _missing_evidence(first) if KeyFate.UNDECIDABLE in (left.fate, right.fate) else None
    reason = f"{_side_text(left, known, first)}; {_side_text(right, known, first)}. {conclusion}"
    return KeyReport(dict(key), verdict, left, right, first, last, known.watermark, reason, missing)


_SIDES: tuple[JoinSide, JoinSide] = ("left", "right")


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
            fix="Spark calls that format unfinished: rebuild the query in format 2 or 3, or read the stores",
            path=str(known.path),
        )


def _side(reader: CheckpointReader, side: JoinSide, key: Mapping[str, Any], operator: int, first: int) -> SideOfKey:
    changes = _of_key(reader.changes(first, side=side, operator=operator), key, reader.path)
    state = _of_key(reader.read(rows_store(side), operator=operator), key, reader.path).limit(_MOST_ROWS)
    # Both in one go: a row of the state is no change of a batch.
    held = state.selectExpr("CAST(NULL AS BIGINT) AS batch_id", "CAST(NULL AS STRING) AS change_type", "value")
    with reader.errors():
        found = held.unionByName(changes.select("batch_id", "change_type", "value")).collect()
    here = [row for row in found if row["change_type"] is None]
    history = [row for row in found if row["change_type"] is not None]
    rows = tuple(row["value"].asDict(recursive=True) for row in here)
    seen = [*rows, *(row["value"].asDict() for row in history if row["value"] is not None)]
    flags = [row["matched"] for row in seen if "matched" in row]
    purged = tuple(sorted({row["batch_id"] for row in history if row["change_type"] == "delete"}))
    if rows:
        fate = KeyFate.WAITING
    elif purged:
        fate = KeyFate.PURGED
    else:
        fate = KeyFate.NEVER_STORED if first == 0 else KeyFate.UNDECIDABLE
    arrived = tuple(sorted({row["batch_id"] for row in history if row["change_type"] != "delete"}))
    return SideOfKey(side, fate, rows, any(flags) if flags else None, arrived, purged)


def _of_key(frame: DataFrame, key: Mapping[str, Any], path: str) -> DataFrame:
    # The last field of the key is Spark's own: it counts the rows of one key.
    fields = frame.select("key.*").drop("index").schema.fields
    names = [field.name for field in fields]
    values = [key[name] for name in names] if set(key) == set(names) else list(key.values())
    if len(values) != len(names):
        types = ", ".join(field.dataType.simpleString() for field in fields)
        raise CheckpointError(
            f"{path}: the join has {len(names)} equality conditions, and the key has {len(values)} values.",
            fix=f"give one value for each condition, in their order; their types are {types}",
            path=path,
        )
    for field, value in zip(fields, values, strict=True):
        frame = frame.where(F.col("key").getField(field.name).eqNullSafe(F.lit(value).cast(field.dataType)))
    return frame


def _missing_evidence(first: int) -> str:
    gone = "batch 0" if first == 1 else f"batches 0 to {first - 1}"
    return (
        f"What {gone} did to the state is not looked at or not kept any more. {_RETENTION} above the number of the "
        "query's batches would have kept it, and so does a stream node: its table meta_batches and its inputs outlive "
        "the checkpoint's own retention"
    )


def _side_text(side: SideOfKey, known: Checkpoint, first: int) -> str:
    if side.fate is KeyFate.WAITING:
        matched = {True: "matched", False: "not matched", None: "in the state"}[side.matched]
        return f"{side.side}: {counted(len(side.rows), 'row')} in the state, {matched}"
    if side.fate is KeyFate.PURGED:
        last = side.purged_in[-1]
        batch = known.batch(last)
        watermark = f", at watermark {batch.watermark.isoformat()}" if batch and batch.watermark else ""
        matched = ", matched before" if side.matched else ""
        return f"{side.side}: purged in batch {last}{watermark}{matched}"
    if side.fate is KeyFate.NEVER_STORED:
        return f"{side.side}: never stored"
    return f"{side.side}: not in the state, nor in the changes since batch {first}"


def _conclusion(left: SideOfKey, right: SideOfKey) -> tuple[KeyVerdict, str]:
    fates = (left.fate, right.fate)
    if left.matched or right.matched:
        return KeyVerdict.MATCHED, "The pair was found and its row was given: look behind the join, in the sink."
    if KeyFate.UNDECIDABLE in fates:
        return _undecidable(left, right)
    if KeyFate.NEVER_STORED not in fates:
        return _both_stored(left, right)
    if fates == (KeyFate.NEVER_STORED, KeyFate.NEVER_STORED):
        return KeyVerdict.NEVER_STORED, f"Neither side was ever stored: each {_NEVER_STORED}."
    stored, other = (right, left) if left.fate is KeyFate.NEVER_STORED else (left, right)
    if stored.fate is KeyFate.WAITING:
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
    if (left.fate, right.fate) == (KeyFate.WAITING, KeyFate.WAITING):
        return KeyVerdict.NOT_MET, (
            "Both are here and do not match: a condition beside the key, such as the range of time, is not met."
        )
    for gone, other in ((left, right), (right, left)):
        if gone.fate is KeyFate.PURGED and other.arrived_in and gone.purged_in[-1] <= other.arrived_in[0]:
            return KeyVerdict.APART, (
                f"The watermark passed the {gone.side} row before the {other.side} row was stored; an outer join gave "
                f"the {gone.side} row alone."
            )
    if left.matched is None and right.matched is None:
        return KeyVerdict.UNDECIDABLE, (
            "Both were here. Whether they matched, and when they arrived, is in batches that are not kept any more."
        )
    return KeyVerdict.NOT_MET, (
        "Both were here, and neither found a partner: another condition, such as the range of time, was not met."
    )


def _undecidable(left: SideOfKey, right: SideOfKey) -> tuple[KeyVerdict, str]:
    known = next((side for side in (left, right) if side.fate is not KeyFate.UNDECIDABLE), None)
    if known is None:
        return KeyVerdict.UNDECIDABLE, (
            "It is not known whether either side ever came: it may have come and gone before the batches that are kept."
        )
    other = right if known is left else left
    unknown = f"it is not known whether the {other.side} row never came, or came and was purged before"
    if known.fate is KeyFate.WAITING:
        return KeyVerdict.WAITING, (
            f"The {known.side} row has found no partner so far and waits until the watermark passes it; {unknown}."
        )
    return KeyVerdict.UNDECIDABLE, f"The {known.side} row is gone; {unknown}."
