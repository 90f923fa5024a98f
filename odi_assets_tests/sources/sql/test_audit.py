"""Audits of tables of databases, and rows of theirs that come below the marks."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets_tests.nodes.audit.audits import (
    DAMAGE,
    DAYS,
    FIRST,
    MODES,
    PARTITIONED,
    Row,
    audited,
    damage_table,
    differing_days,
    follow,
    node,
    random_rows,
    stored,
)
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.sql.conftest import Make, both
from odi_assets_tests.sources.sql.servers import Server

BY = {"stateful": "{mode: stateful, column: at}", "cursors": "{mode: cursors, columns: [at], snapshot: {rows: 5}}"}


def feed(server: Server, rows: list[Row]) -> None:
    for number, at, value in rows:
        server.insert("events", (number, at, value, at.date()))


@both
@pytest.mark.parametrize(("mode", "by"), [(mode, "stateful") for mode in MODES] + [("append", "cursors")])
def test_an_audit_of_a_database_names_what_differs_and_its_commands_repair_it(
    tmp_path: Path, spark: SparkSession, server: Server, mode: str, by: str
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    local = server.types["local"]
    server.execute(
        "DROP TABLE IF EXISTS events",
        f"CREATE TABLE events (id bigint PRIMARY KEY, at {local}, v varchar(9), day date)",
    )
    text = node(f"connection: db, format: sql, table: events, incremental: {BY[by]}", mode)
    box = Sandbox(tmp_path, spark, text, server.connection)
    rows: list[Row] = []
    for days in (range(DAYS - 2), range(DAYS - 2, DAYS)):
        new = random_rows(chance, len(rows) + 1, 7, days)
        feed(server, new)
        box.run("events")
        rows += new
    assert audited(box).differing == ()
    damage_table(box, chance, rows, chance.choices(DAMAGE, k=2))
    late: Row = (500, FIRST + timedelta(days=1, hours=1), "late")
    feed(server, [late])
    rows.append(late)
    found = audited(box)
    assert {one.name for one in found.differing} == differing_days(rows, stored(box)), seed
    assert all("--from" in str(one.command) for one in found.differing) or mode not in PARTITIONED
    follow(box, found)
    assert audited(box).differing == (), seed
    assert differing_days(rows, stored(box)) == set()


@both
def test_rows_below_the_mark_are_counted_where_a_second_cursor_shows_them(make: Make, server: Server) -> None:
    server.execute("DROP TABLE IF EXISTS events", "CREATE TABLE events (id bigint PRIMARY KEY, at bigint, made bigint)")
    server.insert("events", (1, 10, 1), (2, 20, 2))
    box = make("table: events, incremental: {mode: cursors, columns: [at, made]}")
    assert "rows_below_hwm" not in box.run("events").metrics
    # Two rows below the first cursor are newer by the second one, and are not read.
    server.insert("events", (3, 15, 3), (4, 12, 4), (5, 30, 5), (6, None, 6))
    result = box.run("events")
    assert (result.rows_written, result.metrics["rows_below_hwm"]) == (2, 2)
    assert result.increment.endswith("2 rows arrived at or below the HWM, not read")
    server.insert("events", (7, 40, 7))
    assert "rows_below_hwm" not in box.run("events").metrics
