"""Tables of real PostgreSQL and MariaDB servers: every row once, and each value as it is stored."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, IncrementError
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import Node
from odi_assets.sources.marks import CursorMark
from odi_assets.sources.reads import UnresolvedRead
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.sql.conftest import Make, both
from odi_assets_tests.sources.sql.servers import Server

STATEFUL = "table: events, incremental: {mode: stateful, column: at}"


def stateful(more: str) -> str:
    return STATEFUL.replace("column: at", f"column: at, {more}")


def table(server: Server, kind: str, name: str = "events") -> None:
    """An empty table of ids and cursors."""
    server.execute(f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} (id bigint, at {server.types[kind]})")


def ids(box: Sandbox) -> list[int]:
    return sorted(row[0] for row in box.rows("events"))


@both
def test_a_table_and_a_query_are_read_whole(make: Make, server: Server) -> None:
    table(server, "int")
    server.insert("events", (1, 10), (2, None), (3, 30))
    box = make()
    result = box.run("events")
    assert (result.rows_written, ids(box)) == (3, [1, 2, 3])
    box = make('query: "SELECT id FROM events WHERE at > 10 -- but\\nAND id %3 = 0 -- the last;"', "mode: overwrite")
    box.run("events")
    assert box.rows("events") == [(3,)]


def test_partitions_of_a_column_that_the_table_lacks_are_refused_when_they_are_planned(
    make: Make, server: Server
) -> None:
    table(server, "instant")
    server.insert("events", (1, HIGH["instant"][0]))
    made = 'mode: partition_overwrite, partition_by: [day]}\n    transform: {sql: "SELECT date(at) AS day, id FROM df"'
    with pytest.raises(ConfigError, match=r"by partitions of `day`, and .* has no such column"):
        make(STATEFUL, made).plan("events")


HIGH = {
    "int": (2**62, 2**62 + 1, 2**63 - 1),
    "decimal": (
        Decimal("-0.5"),
        Decimal("1234567890123456789012345678.0000000001"),
        Decimal("1234567890123456789012345678.0000000002"),
    ),
    "text": ("a'\"\\ %s", "B\\' ünï", "b "),
    "bytes": (b"\x00'\\", b"\x80", b"\xff\x00"),
    "date": (date(1, 1, 1), date(1582, 10, 10), date(2024, 2, 29)),
    "float": (-1.5e300, 0.1, 0.30000000000000004),
    "local": (datetime(1500, 1, 1), datetime(2024, 3, 10, 2, 30, 0, 1), datetime(2024, 3, 10, 2, 30, 0, 2)),
    "instant": (
        datetime(1971, 1, 1, tzinfo=UTC),
        datetime(2024, 11, 3, 5, 30, 0, 999_999, tzinfo=UTC),
        datetime(2024, 11, 3, 6, 30, 0, 999_998, tzinfo=UTC),
    ),
}


def in_order(kind: str) -> tuple[Any, ...]:
    """Three values, the least first."""
    values = HIGH[kind]
    return tuple(sorted(values, key=str.encode)) if kind == "text" else values


@both
@pytest.mark.parametrize("kind", HIGH)
def test_a_cursor_of_each_type_is_followed_to_its_last_digit(make: Make, server: Server, kind: str) -> None:
    table(server, kind)
    first, second, third = in_order(kind)
    server.insert("events", (1, first), (2, second))
    box = make(STATEFUL)
    result = box.run("events")
    assert (result.rows_written, result.hwm_after) == (2, NodeMark(second))
    assert box.plan("events").nothing_new
    server.insert("events", (3, third), (4, first))
    assert box.run("events").rows_written == 1
    assert box.hwm("events") == third
    assert ids(box) == [1, 2, 3]


def of_all_kinds(server: Server) -> None:
    """A table with a column of each kind, which is NULL in each fourth row."""
    columns = ", ".join(f"at_{kind} {server.types[kind]}" for kind in HIGH)
    server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events (id bigint, {columns})")
    values = {kind: [*in_order(kind), None] for kind in HIGH}
    server.insert("events", *((number, *(values[kind][number % 4] for kind in HIGH)) for number in range(23)))


@both
def test_spark_finds_the_same_bounds_and_rows_as_a_plain_driver(
    make: Make, server: Server, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_all_kinds(server)
    for kind in HIGH:
        box = make(stateful("on_null: exclude").replace("column: at", f"column: at_{kind}"))
        (source,) = Node.of(box.project, NodeKey("p", "events")).sources
        plain = source.plan(None)
        with monkeypatch.context() as without:
            without.setattr("odi_assets.sources.sql.position.driver_of", lambda _: None)
            found = source.plan(None)
            assert isinstance(found, UnresolvedRead)
            resolved = found.resolve(spark)
        assert resolved.after == plain.after == CursorMark(in_order(kind)[2]), kind
        assert resolved.excluded == plain.excluded == 5
        assert resolved.load(spark).count() == 18, kind


@both
def test_pieces_hold_each_row_once(make: Make, server: Server, spark: SparkSession) -> None:
    of_all_kinds(server)
    for kind in HIGH:
        box = make(f"table: events, partition_column: at_{kind}, pieces: 4")
        (source,) = Node.of(box.project, NodeKey("p", "events")).sources
        rows = source.whole().load(spark)
        assert rows.rdd.getNumPartitions() > 1, kind
        assert sorted(row.id for row in rows.select("id").collect()) == list(range(23)), kind


@both
def test_rows_tied_with_the_mark_are_read_by_a_closed_boundary(make: Make, server: Server) -> None:
    table(server, "local")
    moment = datetime(2024, 3, 10, 2, 30, 0, 123456)
    server.insert("events", (1, moment), (2, moment), (2, moment))
    box = make(stateful("boundary: closed"))
    assert box.run("events").rows_written == 3
    server.insert("events", (2, moment), (3, moment))
    assert box.run("events").rows_written == 2
    assert box.run("events").status is RunStatus.NO_DATA
    assert ids(box) == [1, 2, 2, 2, 3]
    box = make(stateful("boundary: closed"), "mode: append, keys: [id]")
    server.insert("events", (4, moment))
    assert box.run("events").rows_written == 1


@both
def test_rows_without_a_cursor_stop_the_run_or_are_loaded_once_or_left_out(make: Make, server: Server) -> None:
    table(server, "instant")
    server.insert("events", (1, datetime(2024, 1, 1, tzinfo=UTC)), (2, None))
    with pytest.raises(IncrementError, match="1 rows of db:events have NULL in the cursor column `at`"):
        make(STATEFUL).run("events")
    box = make(stateful("on_null: exclude"))
    assert box.run("events").rows_written == 1
    box = make(stateful("on_null: include"), "mode: append, keys: [id]")
    server.insert("events", (3, None))
    assert box.run("events").rows_written == 2
    assert ids(box) == [1, 2, 3]
    assert box.run("events").status is RunStatus.NO_DATA


@pytest.mark.parametrize("kind", ["float8", "real"])
@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_not_finite_is_no_cursor(make: Make, server: Server, kind: str, odd: str) -> None:
    server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events (id bigint, at {kind})")
    server.insert("events", (1, 1.5), (2, odd))
    box = make(stateful("on_null: include"), "mode: append, keys: [id]")
    assert (box.run("events").rows_written, ids(box)) == (2, [1, 2])
    server.insert("events", (3, odd), (4, 2.5))
    result = box.run("events")
    assert (result.rows_written, result.hwm_after, ids(box)) == (2, NodeMark(2.5), [1, 2, 3, 4])
    with pytest.raises(IncrementError, match="2 rows of db:events have NULL, NaN or infinity in the cursor column"):
        make(STATEFUL).run("events", full_refresh=True)


@pytest.mark.parametrize("mode", ["stateful", "cursors"])
@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz", "numeric"])
def test_a_value_below_all_that_no_mark_holds_stops_the_run_that_would_pass_over_it(
    make: Make, server: Server, kind: str, mode: str
) -> None:
    low, high = ("1.5", "2.5") if kind == "numeric" else ("2024-01-01", "2024-01-02")
    server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events (id bigint PRIMARY KEY, at {kind})")
    server.execute(f"INSERT INTO events VALUES (1, '{low}')")
    text = STATEFUL if mode == "stateful" else STATEFUL.replace("stateful, column: at", "cursors, columns: [at]")
    box = make(text)
    assert box.run("events").rows_written == 1
    server.execute(f"INSERT INTO events VALUES (2, '-infinity'), (3, '{high}')")
    with pytest.raises(IncrementError, match="the least `at` of db:events is -infinity, and no HWM holds a value"):
        box.run("events")
    server.execute(f"UPDATE events SET at = '{high}' WHERE id = 2")
    assert (box.run("events").rows_written, ids(box)) == (2, [1, 2, 3])


@both
def test_a_fallback_column_is_the_cursor_where_the_first_is_null(make: Make, server: Server) -> None:
    server.execute(
        "DROP TABLE IF EXISTS events",
        f"CREATE TABLE events (id bigint, at {server.types['date']}, made {server.types['date']})",
    )
    server.insert("events", (1, date(2024, 1, 1), None), (2, None, date(2024, 1, 3)))
    box = make(stateful("fallback_column: made"))
    assert box.run("events").hwm_after == NodeMark(date(2024, 1, 3))
    server.insert("events", (3, None, date(2024, 1, 2)), (4, date(2024, 1, 4), date(2024, 1, 1)))
    assert box.run("events").rows_written == 1
    assert ids(box) == [1, 2, 4]


@both
def test_a_lag_reads_late_rows_again_and_a_first_value_begins_there(make: Make, server: Server) -> None:
    table(server, "instant")
    hours = [datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in range(10)]
    server.insert("events", (1, hours[1]), (5, hours[5]))
    box = make(stateful("watermark_lag: 2h, initial_value: '2024-01-01T03:00:00Z'"), "mode: append_once, keys: [id]")
    assert box.run("events").rows_written == 1
    server.insert("events", (2, hours[2]), (4, hours[4]))
    assert box.run("events").rows_written == 1
    assert ids(box) == [4, 5]
    assert box.hwm("events") == hours[5]


@both
def test_a_range_and_a_rolling_window_are_read_in_utc(make: Make, server: Server) -> None:
    for kind in ("instant", "local", "date"):
        table(server, kind)
        days = [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3)]
        values = (
            days
            if kind == "date"
            else [datetime(d.year, d.month, d.day, tzinfo=UTC if kind == "instant" else None) for d in days]
        )
        server.insert("events", *enumerate(values, 1))
        box = make(STATEFUL, "mode: upsert, keys: [id]")
        box.run("events", start="2024-01-02", end="2024-01-03")
        assert ids(box) == [2], kind
        box.run("events", full_refresh=True)
        assert ids(box) == [1, 2, 3]
        box = make("table: events, incremental: {mode: rolling_window, column: at, lookback: 2}", "mode: overwrite")
        now = datetime.now(UTC)
        value = now.date() if kind == "date" else now if kind == "instant" else now.replace(tzinfo=None)
        server.insert("events", (9, value))
        box.run("events")
        assert ids(box) == [9]
        shutil.rmtree(box.root / "lake")


@pytest.mark.parametrize("server", ["mariadb", "mysql"], indirect=True)
@pytest.mark.parametrize("increment", ["", ", incremental: {mode: cursors, columns: [at], snapshot: {rows: 2}}"])
def test_invisible_columns_are_read(make: Make, server: Server, increment: str) -> None:
    server.execute(
        "DROP TABLE IF EXISTS events",
        "CREATE TABLE events (id bigint DEFAULT 0 INVISIBLE PRIMARY KEY, at bigint, `a secret` varchar(9) INVISIBLE)",
        "INSERT INTO events (id, at, `a secret`) VALUES (1, 1, 'a'), (2, 2, NULL), (3, 3, 'c')",
    )
    box = make(f"table: events{increment}", "mode: upsert, keys: [id]")
    box.run("events")
    rows = box.table("events").table.to_pyarrow_table().select(["id", "at", "a secret"]).sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in rows] == [(1, 1, "a"), (2, 2, None), (3, 3, "c")]
