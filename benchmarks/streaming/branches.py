"""Branches of a stream: runs under one `where` or another, rewinds to any version, redos, in random order.

What a version of the table stands for is known by arithmetic: the files that its batches have read, and the orders that
passed the `where` of the batch that read them. Batches of one number and the same files differ in nothing else.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.harness import Options, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets.nodes.recovery.table_versions import Choice

_PIPELINE = """
- pipeline: p
  nodes:
  - name: paid
    inputs:
      orders: {read: {connection: landing, format: json, path: orders, schema: "id INT, n INT"}}
      payments: {read: {connection: landing, format: json, path: payments, schema: "order_id INT"}}
    stream: {inputs: {orders: {where: "n > LIMIT"}}, state_partitions: 1}
    transform: {sql: SELECT id FROM orders JOIN payments ON id = order_id}
    write: {connection: lake, path: paid, mode: append}
"""
_LIMITS = (0, 5)
_LANDS = 0.3
_NEAR = 5
"""Versions to go back to, and files whose orders are paid: near ones, so that branches matter to later rows."""
_ORDERS = 3
"""In a file; a file of payments has as many, of any orders so far."""


@dataclass(frozen=True)
class _Past:
    """What the batches up to a version have read: files, the orders that passed, the payments."""

    files: frozenset[int] = frozenset()
    orders: frozenset[int] = frozenset()
    payments: tuple[int, ...] = ()

    @property
    def rows(self) -> list[tuple[int]]:
        return sorted(((one,) for one in self.payments if one in self.orders), key=str)


class Branches:
    """One node, and what each version of its table must hold."""

    def __init__(self, root: Path, spark: SparkSession, draw: random.Random) -> None:
        from odi_assets.config.graph import NodeKey
        from odi_assets_tests.nodes.support import Sandbox

        self.draw, self.limit, self.key = draw, _LIMITS[0], NodeKey("p", "paid")
        self.box = Sandbox(root, spark, _PIPELINE.replace("LIMIT", str(self.limit)))
        self.landed: dict[int, tuple[dict[int, int], list[int]]] = {}
        self.past: dict[int, _Past] = {}
        self.now, self.last_was_rewind = _Past(), False

    def step(self) -> str:
        """Do one thing; what is wrong afterwards, in words, or nothing."""
        before = sorted(self.past)[:-1]
        what = self.draw.choice(["run", "edit", "edit", *(["rewind"] * 3 if before else []), "redo"])
        if what == "rewind" and before:
            from odi_assets.nodes.recovery.table_versions import at_version

            said = self._go(at_version(version := self.draw.choice(before[-_NEAR:])))
            what = f"rewind to {version}"
        elif what == "redo" and self.last_was_rewind:
            from odi_assets.nodes.node import Node
            from odi_assets.nodes.recovery.table_versions import before_last_rewind

            said = self._go(before_last_rewind(Node.of(self.box.project, self.key)))
        else:
            self._run(other_limit=what == "edit")
            said = ""
        found = self.box.rows("paid")
        return said or ("" if found == self.now.rows else f"{what}: {found}, and not {self.now.rows}")

    def _run(self, *, other_limit: bool) -> None:
        from odi_assets.nodes.project import Project

        if other_limit:
            file, former = self.box.root / "odibi.yaml", self.limit
            self.limit = next(limit for limit in _LIMITS if limit != former)
            file.write_text(file.read_text().replace(f"n > {former}", f"n > {self.limit}"))
            self.box.project = Project.load(file)
        # After a rewind, the very files that the undone batch has read are the next batch of another branch.
        if len(self.landed) == len(self.now.files) or self.draw.random() < _LANDS:
            self._land()
        self.box.run("paid")
        new = [self.landed[number] for number in self.landed.keys() - self.now.files]
        self.now = _Past(
            frozenset(self.landed),
            self.now.orders | {order for orders, _ in new for order, n in orders.items() if n > self.limit},
            (*self.now.payments, *(one for _, payments in new for one in payments)),
        )
        self.last_was_rewind = False
        self.past[int(self.box.table("paid").version or 0)] = self.now

    def _land(self) -> None:
        number = len(self.landed)
        orders = {number * _ORDERS + place: self.draw.randrange(10) for place in range(_ORDERS)}
        known = [*range((number + 1) * _ORDERS)][-_NEAR * _ORDERS :]
        payments = [self.draw.choice(known) for _ in range(_ORDERS)]
        self.landed[number] = orders, payments
        self.box.land(f"orders/{number}.json", [json.dumps({"id": one, "n": n}) for one, n in orders.items()])
        self.box.land(f"payments/{number}.json", [json.dumps({"order_id": one}) for one in payments])

    def _go(self, choice: Choice) -> str:
        from odi_assets.errors import OdiError
        from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind

        to = choice(self.box.table("paid"))
        try:
            apply_rewind(
                self.box.project, self.box.state, plan_rewind(self.box.project, self.box.state, self.key, choice)
            )
        except OdiError as error:
            return f"to version {to}: {error}"
        self.now, self.last_was_rewind = self.past[to], True
        self.past[int(self.box.table("paid").version or 0)] = self.now
        return ""


def walked(spark: SparkSession, folder: Path, steps: int, seed: int) -> list[str]:
    """What is wrong after each of so many steps."""
    folder.mkdir()
    life = Branches(folder, spark, random.Random(seed))
    return [f"--seed {seed}, step {number}: {wrong}" for number in range(steps) if (wrong := life.step())]


def branches(options: Options) -> list[Row]:
    """Walks of 25 steps each, one for each seed."""
    from odi_assets.config.models import SparkConfig
    from odi_assets.spark.session import open_session

    handle, found, each = open_session(SparkConfig(master="local[1]")), list[str](), 25
    try:
        with TemporaryDirectory(prefix="odi-benchmark-") as folder:
            for number in range(max(1, options.steps // each)):
                lines = walked(handle.spark, Path(folder) / str(number), each, options.seed + number)
                options.say("\n".join(lines) or f"--seed {options.seed + number}: {each} steps, as they should be")
                found += lines
    finally:
        handle.stop()
    return [Row("branches of a stream: steps after which rows are others", len(found), None, "", None, "0", not found)]
