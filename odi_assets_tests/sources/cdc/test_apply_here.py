"""Small parts of a change log are applied without Spark, and come to the rows that Spark makes of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.execution import apply_here
from odi_assets.nodes.result import NodeResult
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets_tests.cli.shop import environment, odi
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.conftest import Capture, held, rows_of

Database = psycopg.Connection[Any]
BY_SPARK = """
  - {name: by_spark, apply: {changes: changes, table: public.orders}, write: {connection: lake, path: by_spark}}
  - {name: history, apply: {changes: changes, table: public.orders, history: true}, write: {connection: lake, path: h}}
  - {name: spark_h, apply: {changes: changes, table: public.orders, history: true}, write: {connection: lake, path: s}}
"""
KINDS = {
    "bigint": "g * 1000000007",
    "smallint": "g % 100 - 50",
    "real": "g / 7.0",
    "double precision": "-g / 3.0e200",
    "numeric(16,6)": "g * 1.5",
    "numeric": "g * -0.25",
    "text": "CASE WHEN g % 3 = 0 THEN '' ELSE E'a\\tb\\\\ \\n€' || g END",
    "timestamptz": "to_timestamp(1700000000.123456 + g)",
    "timestamp(0)": "timestamp '1582-10-01' + g * interval '1 day'",
    "date": "date '1000-01-01' + 7 * g::int",
    "boolean": "g % 2 = 0",
    "bytea": "decode(md5(g::text), 'hex')",
    "jsonb": "jsonb_build_object('g', g)",
}


class SparkWasAsked(Exception):
    """A run that was to need no Spark asked for it."""


def applied_without_spark(box: Sandbox, node: str = "orders") -> NodeResult:
    def open_spark() -> SparkSession:
        raise SparkWasAsked

    history = RunHistory(box.project, box.state, f"{node} {box.table(node).version}")
    return run_node(NodeRun(history, NodeKey("p", node), open_spark))


@pytest.fixture
def kinds(database: Database) -> Database:
    """A table with a column of each kind, of which a row has all values, or none."""
    columns = [f"c{place} {kind}" for place, kind in enumerate(KINDS)]
    database.execute(f"CREATE TABLE orders (id int, at date, {', '.join(columns)}, PRIMARY KEY (at, id))")
    insert(database, 1, 60)
    database.execute("INSERT INTO orders VALUES (7, '2024-01-01')")
    return database


def insert(database: Database, first: int, last: int) -> None:
    database.execute(
        f"INSERT INTO orders SELECT g, date '2024-02-01' + g::int % 3, {', '.join(KINDS.values())} "
        f"FROM generate_series({first}::bigint, {last}) g"
    )


def change(database: Database) -> None:
    """Rows are changed several times, deleted, made again, and get other keys."""
    database.execute("UPDATE orders SET c4 = c4 + 1, c6 = 'one' WHERE id % 4 = 0")
    database.execute("UPDATE orders SET c6 = NULL WHERE id % 8 = 0")
    database.execute("DELETE FROM orders WHERE id % 10 = 0")
    insert(database, 100, 110)
    database.execute("DELETE FROM orders WHERE id = 103")
    database.execute("UPDATE orders SET id = id + 1000 WHERE id % 7 = 0")
    insert(database, 14, 14)
    insert(database, 20, 20)


def test_changes_of_all_kinds_of_values_come_to_the_same_rows_with_and_without_spark(
    capture: Capture, kinds: Database
) -> None:
    box = capture("orders", more=BY_SPARK)
    for number in range(2):
        if number:
            change(kinds)
        box.run("changes")
        for one, other in (("history", "spark_h"), ("orders", "by_spark")):
            here, there = applied_without_spark(box, one), box.finish(box.plan(other))
            for name in ("rows_read", "rows_written", "rows_total", "columns"):
                assert getattr(here, name) == getattr(there, name)
            for name in ("rows_updated", "rows_deleted"):
                assert here.metrics.get(name) == there.metrics.get(name)
            assert box.rows(one) == box.rows(other)
            assert box.table(one).schema_json == box.table(other).schema_json
    assert here.metrics["rows_deleted"] > 0


def test_a_log_that_was_compacted_is_applied_without_spark_too(capture: Capture, kinds: Database) -> None:
    box = capture("orders")
    box.run("changes")
    change(kinds)
    box.run("changes")
    box.table("changes").table.optimize.compact()
    applied_without_spark(box)
    names = ("c6", "c11")
    found = {
        (row["at"], row["id"]): [row[name] for name in names]
        for row in box.table("orders").table.to_pyarrow_table().to_pylist()
    }
    wanted = kinds.execute(f"SELECT at, id, {', '.join(names)} FROM orders").fetchall()
    assert found == {(at, number): values for at, number, *values in wanted}


def test_a_run_that_captures_and_applies_a_little_starts_no_java(
    capture: Capture, orders: Database, tmp_path: Path
) -> None:
    box = capture("orders")
    java, ran = tmp_path / "bin" / "java", tmp_path / "ran"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n: > '{ran}'\nexit 1\n")
    java.chmod(0o755)
    env = environment(PATH=f"{java.parent}:{os.environ['PATH']}", JAVA_HOME="")
    for _ in range(2):
        done = odi("run", "p", cwd=box.root, env=env)
        assert done.returncode == 0, done.stderr
        assert held(box, "orders") == rows_of(orders, "orders")
        orders.execute("UPDATE orders SET state = 'paid', note = 'short' WHERE id < 4")
        orders.execute("DELETE FROM orders WHERE id = 2")
    assert not ran.exists()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE orders SET state = 'paid' WHERE id = 1",
        "TRUNCATE orders",
        "ALTER TABLE orders ADD amount numeric DEFAULT 1",
        "UPDATE orders SET note = 'short', born = '0044-03-15 BC' WHERE id = 1",
    ],
    ids=["a large value that did not change", "emptied", "another shape", "a value that no type holds"],
)
def test_what_arrow_might_do_otherwise_is_left_to_spark(capture: Capture, orders: Database, statement: str) -> None:
    orders.execute("ALTER TABLE orders ADD born date")
    box = capture("orders")
    box.run("changes")
    applied_without_spark(box)
    orders.execute(statement)
    orders.execute("UPDATE orders SET state = 'sent', note = 'x' WHERE id = 2")
    box.run("changes")
    with pytest.raises(SparkWasAsked):
        applied_without_spark(box)


def test_only_the_last_row_of_a_key_needs_its_large_values(capture: Capture, orders: Database) -> None:
    box = capture("orders")
    box.run("changes")
    applied_without_spark(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id < 4")
    orders.execute("UPDATE orders SET id = 40 WHERE id = 3")
    orders.execute("UPDATE orders SET note = 'short' WHERE id < 3 OR id = 40")
    orders.execute("DELETE FROM orders WHERE id = 2")
    box.run("changes")
    applied_without_spark(box)
    assert held(box, "orders") == rows_of(orders, "orders")


def test_a_part_of_a_log_that_is_large_is_applied_by_spark(
    capture: Capture, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = capture("orders")
    box.run("changes")
    monkeypatch.setattr(apply_here, "MOST_BYTES", 10_000)
    with pytest.raises(SparkWasAsked):
        applied_without_spark(box)
    box.run("orders")
    assert held(box, "orders") == rows_of(orders, "orders")
