"""Orders and payments that arrive file by file: the sample of a join of two streams.

The same numbers always give the same bytes. Order ``n`` is made ``n`` seconds after :data:`START`, and file ``k`` of
both inputs has the rows of one stretch of numbers. Most payments are made half a minute after their order. By the last
digit of ``n``, payment ``n``

* 0: names ``missing-<n>``, an order that there is not
* 1: names the order ``n + 5``
* 2: names the order ``n - 100``
* 3: is made five minutes early, so it comes too late, except in the first two files: nothing is late before the third
  batch
* 4: is made eight minutes late, outside the window of the join

and by the last two digits, where the last is 5,

* 25: names its order in capitals; 45: with a blank behind it
* 55: the order comes twice, once more in the next file; 65: the payment does
* 75: the payment names no order (NULL)
* 85: the order is a test, which the query leaves out
* 95: the order comes four files late
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2024, 1, 1, 10)
"""When order 0 would be made, in UTC."""

PAID_AFTER = timedelta(seconds=30)
FILES_LATE = 4
"""How many files late a late order comes."""

_CUSTOMERS = 20


@dataclass(frozen=True)
class OrdersAndPayments:
    """The rows of one file of orders and of the file of payments that arrives with it."""

    orders: tuple[dict[str, Any], ...]
    payments: tuple[dict[str, Any], ...]


def batches(orders: int = 1_100, in_file: int = 100, every: float = 1.0) -> Iterator[OrdersAndPayments]:
    """The files of both inputs, in the order they arrive.

    Args:
        in_file: the number of orders that are made in the time of one file.
        every: seconds from one order to the next.
    """
    late: dict[int, list[dict[str, Any]]] = defaultdict(list)
    again: dict[int, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = defaultdict(lambda: ([], []))
    files = -(-orders // in_file)
    for file in range(files):
        made: list[dict[str, Any]] = []
        paid: list[dict[str, Any]] = []
        for n in range(file * in_file + 1, min((file + 1) * in_file, orders) + 1):
            order, payment = _order(n, every), _payment(n, every)
            to = late[file + FILES_LATE] if n % 100 == 95 and file + FILES_LATE < files else made
            to.append(order)
            paid.append(payment)
            if n % 100 == 55:
                again[file + 1][0].append(order)
            if n % 100 == 65:
                again[file + 1][1].append(payment)
        yield OrdersAndPayments((*made, *again[file][0], *late[file]), (*paid, *again[file][1]))


def json_files(orders: int = 1_100, in_file: int = 100, every: float = 1.0) -> Iterator[tuple[str, str]]:
    """Names and contents of the files: ``orders/0000.json``, ``payments/0000.json``, and so on, in JSON lines."""
    for number, batch in enumerate(batches(orders, in_file, every)):
        for name, rows in (("orders", batch.orders), ("payments", batch.payments)):
            yield f"{name}/{number:04d}.json", "".join(f"{json.dumps(row)}\n" for row in rows)


def write(folder: Path, orders: int = 1_100, in_file: int = 100, every: float = 1.0) -> None:
    """Write the files below ``folder``."""
    written = []
    for name, text in json_files(orders, in_file, every):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    in_order(written)


def in_order(files: Iterable[Path]) -> None:
    """Set the times of files so that each was changed a tenth of a second after the one before it: streams read files
    in the order of their times."""
    ordered = list(files)
    now = time.time()
    for number, path in enumerate(ordered, start=1):
        then = now - (len(ordered) - number) / 10
        os.utime(path, (then, then))


def _order(n: int, every: float) -> dict[str, Any]:
    return {
        "order_id": f"ord-{n}",
        "customer": f"customer-{n % _CUSTOMERS}",
        "amount": round(5 + n % 90 + 0.5, 2),
        "status": "test" if n % 100 == 85 else "placed",
        "ordered_at": _text(_ordered_at(n, every)),
    }


def _payment(n: int, every: float) -> dict[str, Any]:
    digit = n % 10
    paid_at = _ordered_at(n, every) + PAID_AFTER
    if digit == 3:
        paid_at = _ordered_at(n, every) - timedelta(minutes=5)
    elif digit == 4:
        paid_at = _ordered_at(n, every) + timedelta(minutes=8)
    return {
        "payment_id": f"pay-{n}",
        "order_id": _paid_order(n),
        "amount": round(5 + n % 90 + 0.5, 2),
        "paid_at": _text(paid_at),
    }


def _paid_order(n: int) -> str | None:
    by_digit = {0: f"missing-{n}", 1: f"ord-{n + 5}", 2: f"ord-{n - 100}"}
    by_two_digits = {25: f"ORD-{n}", 45: f"ord-{n} ", 75: None}
    return by_digit.get(n % 10, by_two_digits.get(n % 100, f"ord-{n}"))


def _ordered_at(n: int, every: float) -> datetime:
    return START + timedelta(seconds=n * every)


def _text(time: datetime) -> str:
    return f"{time.isoformat()}Z"
