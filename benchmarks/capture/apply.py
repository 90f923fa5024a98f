"""What an apply node costs: changes of a change log into its table, against an upsert of as many keys from files."""

from __future__ import annotations

from typing import Any

import psycopg

from benchmarks.capture import postgres
from benchmarks.exactly_once.lab import Lab, Pipeline, lab
from benchmarks.harness import Options, Row, timed_row

_ROWS, _KEYS, _TIMES = 1_500_000, 20_000, 5
"""Rows of the table; keys that change in a round, and how often each."""
_APART = _ROWS // _KEYS
_WARM, _ROUNDS = 2, 7
_BAR = 1.3
_CREATE = """
CREATE TABLE orders (
  id int PRIMARY KEY, customer int, name text, price numeric(16,6), ordered_at timestamptz, gift boolean)
"""
_FILL = """
INSERT INTO orders SELECT g, g % 1000, md5(g::text), g * 1.5, to_timestamp(1700000000 + g), g % 2 = 0
FROM generate_series(1, {rows}) g
"""
_NODES = """
- name: changes
  read: {connection: db, format: cdc, tables: [public.orders]}
  write: {connection: lake, path: changes}
- name: applied
  apply: {changes: changes, table: public.orders}
  write: {connection: lake, path: applied}
- name: upserted
  read:
    connection: landing
    format: parquet
    path: orders
    schema: "id INT, customer INT, name STRING, price DECIMAL(16,6), ordered_at TIMESTAMP, gift BOOLEAN"
    incremental: files
  write: {connection: lake, path: upserted, mode: upsert, keys: [id]}
"""


def apply(options: Options) -> list[Row]:
    """Each key changes several times in a round. The upsert gets what the changes come to: the last row of each."""
    with lab(options) as opened, postgres.started() as server, postgres.opened(server) as database:
        log = ", log: {slot: odi_apply, create: true}}\n"
        ours = opened.pipeline(_NODES, connections=server.connection.rstrip().removesuffix("}") + log)
        options.say(f"three tables of {_ROWS:,} rows")
        database.execute(_CREATE)
        database.execute(_FILL.format(rows=_ROWS))
        _land(opened, ours, 1, 1, 0)
        for node in ("changes", "applied", "upserted"):
            ours.run(opened.spark, node)
        options.say(f"{_ROUNDS} rounds of {_KEYS * _TIMES:,} changes of {_KEYS:,} keys, each in turn")
        took: dict[str, list[float]] = {"applied": [], "upserted": []}
        for number in range(1, _WARM + _ROUNDS + 1):
            _change(database, number)
            ours.run(opened.spark, "changes")
            _land(opened, ours, number, _APART, number)
            for node in list(took) if number % 2 else list(took)[::-1]:
                seconds = ours.seconds(opened.spark, node)
                if number > _WARM:
                    took[node].append(seconds)
        _require_equal(opened, ours)
    name = f"apply of {_KEYS * _TIMES:,} changes of {_KEYS:,} keys into {_ROWS:,} rows, seconds"
    return [timed_row(name, took["applied"], took["upserted"], f"an upsert of {_KEYS:,} rows from files", _BAR)]


def _change(database: psycopg.Connection[Any], number: int) -> None:
    for time in range(1, _TIMES + 1):
        price = f"id * 1.5 + {number * 10 + time}"
        database.execute(f"UPDATE orders SET price = {price} WHERE id % {_APART} = {number}")


def _land(opened: Lab, ours: Pipeline, first: int, apart: int, number: int) -> None:
    """A file of each ``apart``-th row from ``first`` on, as the database has it after round ``number``."""
    added = number * 10 + _TIMES if number else 0
    rows = opened.spark.range(first, _ROWS + 1, apart).selectExpr(
        "CAST(id AS INT) AS id",
        "CAST(id % 1000 AS INT) AS customer",
        "md5(CAST(id AS STRING)) AS name",
        f"CAST(id * 1.5 + {added} AS DECIMAL(16,6)) AS price",
        "timestamp_seconds(1700000000 + id) AS ordered_at",
        "id % 2 = 0 AS gift",
    )
    ours.land(opened.files(rows, 1))


def _require_equal(opened: Lab, ours: Pipeline) -> None:
    from odi_assets.delta.table import TableHandle
    from odi_assets.tables.engine import engine_of

    handles = [TableHandle.open(ours.target(node)) for node in ("applied", "upserted")]
    one, other = (engine_of(handle).read(opened.spark, handle) for handle in handles)
    columns = sorted(other.columns)
    if one.select(columns).exceptAll(other.select(columns)).take(1) or one.count() != other.count():
        raise RuntimeError("the two tables differ")
