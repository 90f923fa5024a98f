"""What becomes of every row and key of the sample's orders and payments: a model of its own, written row by row.

It knows nothing of the code that explains: it follows the rules of lateness and removal in plain loops over the rows
that the generator makes. One batch reads one file of each input.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odi_assets.sample.orders_payments import OrdersAndPayments

if TYPE_CHECKING:
    from odi_assets.explain.verdicts import KeyExplanation

DELAY = timedelta(minutes=2)
RANGE = timedelta(minutes=5)
ORDERS, PAYMENTS = 0, 1


@dataclass
class TrueRow:
    """A row and its fate; ``batch`` is the one that read, dropped or removed it."""

    time: datetime
    read_in: int
    fate: str = "WAITING"
    batch: int | None = None


@dataclass
class TrueKey:
    """The rows of a key, by input, its verdict, and the batch of a match."""

    rows: tuple[list[TrueRow], list[TrueRow]] = field(default_factory=lambda: ([], []))
    verdict: str = "NO_COUNTERPART"
    batch: int | None = None


@dataclass(frozen=True)
class Truth:
    """By key its rows and verdict, and the watermark of each batch; the last batch may have read nothing."""

    keys: dict[str, TrueKey]
    watermarks: list[datetime | None]
    null_keys: int


def truth(batches: Iterable[OrdersAndPayments]) -> Truth:
    """Follow every row."""
    keys: dict[str, TrueKey] = defaultdict(TrueKey)
    greatest: list[datetime | None] = [None, None]
    watermarks: list[datetime | None] = [None]
    null_keys = 0
    for number, batch in enumerate(batches):
        before = watermarks[number - 1] if number else None
        for side, rows, column in ((ORDERS, batch.orders, "ordered_at"), (PAYMENTS, batch.payments, "paid_at")):
            for row in rows:
                if row["order_id"] is None:
                    null_keys += 1
                    continue
                found = TrueRow(_time(row[column]), number)
                keys[row["order_id"]].rows[side].append(found)
                if row.get("status") == "test":
                    found.fate, found.batch = "FILTERED", number
                    continue
                seen = greatest[side]
                greatest[side] = found.time if seen is None else max(seen, found.time)
                if before is not None and found.time <= before:
                    found.fate, found.batch = "DROPPED_LATE", number
        watermarks.append(_next(watermarks[-1], greatest))
    if watermarks[-1] == watermarks[-2]:
        watermarks.pop()
    for key in keys.values():
        _remove(key, watermarks)
        _judge(key)
    return Truth(dict(keys), watermarks, null_keys)


def disagreements(true: Truth, answers: Iterable[KeyExplanation]) -> list[str]:
    """What answers say otherwise than the truth, verdicts, batches and the fate of every row; empty if they agree.

    An answer that is UNDECIDABLE agrees with everything: whether it had to be, the caller knows.
    """
    found = []
    for one in answers:
        key = true.keys.get(one.key[0], TrueKey())
        if one.verdict == "UNDECIDABLE":
            continue
        told: tuple[list[TrueRow], list[TrueRow]] = ([], [])
        for row in one.rows:
            if row.time is not None and row.read_in is not None:
                told[("orders", "payments").index(row.input)].append(
                    TrueRow(row.time, row.read_in, row.fate, row.batch)
                )
        same = (one.verdict, one.batch) == (key.verdict, key.batch) and not one.disagreements
        if not same or any(map(_differ, told, key.rows)):
            found.append(f"{one.key[0]}: {key} and not {one}")
    return found


def wrongly_decided(true: Truth, answers: Iterable[KeyExplanation], all_retained: bool) -> list[str]:
    """What is wrong with answers that were made without ``meta_batches`` and without the table's log.

    Args:
        all_retained: the checkpoint still has all batches, so nothing may be undecidable. Else all that is known are
            the rows of inputs and table. So a key whose rows the join's condition allows, and that the table has not,
            was dropped as late, or met one that was: nobody can tell when, and only such keys may be undecidable.
    """
    found = []
    for one in answers:
        key = true.keys[one.key[0]]
        if one.verdict == "UNDECIDABLE":
            if all_retained or key.verdict != "COUNTERPART_LATE" or "meta_batches" not in one.lost[0]:
                found.append(f"{one.key[0]}: {key.verdict}, and undecidable: {one.sentence}")
        elif one.verdict != key.verdict or one.batch not in (None, key.batch):
            found.append(f"{one.key[0]}: {key} and not {one}")
    return found


def clean_log(table: Path) -> None:
    """Take away the commits of a Delta table but for a checkpoint, as the cleaning of its log does."""
    from deltalake import DeltaTable

    DeltaTable(table).create_checkpoint()
    last = json.loads((table / "_delta_log" / "_last_checkpoint").read_text(encoding="utf-8"))["version"]
    for file in (table / "_delta_log").glob("*.json"):
        if int(file.stem) <= last:
            file.unlink()


def _differ(told: list[TrueRow], true: list[TrueRow]) -> bool:
    def order(row: TrueRow) -> tuple[datetime, int]:
        return row.time, row.read_in

    return sorted(told, key=order) != sorted(true, key=order)


def _next(current: datetime | None, greatest: list[Any]) -> datetime | None:
    if None in greatest:
        return current
    reached: datetime = min(greatest) - DELAY
    return reached if current is None else max(current, reached)


def _remove(key: TrueKey, watermarks: list[datetime | None]) -> None:
    for row in (*key.rows[ORDERS], *key.rows[PAYMENTS]):
        if row.fate != "WAITING":
            continue
        for batch in range(row.read_in, len(watermarks)):
            watermark = watermarks[batch]
            if watermark is not None and row.time < watermark - RANGE:
                row.fate, row.batch = "EXPIRED", batch
                break


def _judge(key: TrueKey) -> None:
    pairs = [(order, payment) for order in key.rows[ORDERS] for payment in key.rows[PAYMENTS]]
    close = [pair for pair in pairs if abs(pair[0].time - pair[1].time) <= RANGE]
    joined = [max(a.read_in, b.read_in) for a, b in close if {a.fate, b.fate} <= {"WAITING", "EXPIRED"}]
    if joined:
        key.verdict, key.batch = "MATCHED", min(joined)
    elif any("FILTERED" not in (a.fate, b.fate) for a, b in close):
        key.verdict = "COUNTERPART_LATE"
    elif close:
        key.verdict = "COUNTERPART_FILTERED"
    elif pairs:
        key.verdict = "OUT_OF_WINDOW"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
