"""Rows of databases that are dated in the future, by the clock of the database."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from odi_assets.errors import IncrementError
from odi_assets.sources.sql import position
from odi_assets.sources.sql.statements import Relation
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.sql.conftest import Make, both
from odi_assets_tests.sources.sql.servers import Server

NOW = datetime(2024, 3, 10, 12, tzinfo=UTC)


class Clock:
    """The clock of a database, as a test moves it."""

    def __init__(self) -> None:
        self.now = NOW


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(Relation, "now", lambda *_: found.now)
    return found


@pytest.fixture(params=["plain driver", "Spark alone"])
def asked_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who asks the database where its cursors stand."""
    if request.param == "Spark alone":
        monkeypatch.setattr(position, "driver_of", lambda _: None)
    return str(request.param)


def filled(server: Server, *rows: tuple[int, timedelta | None, timedelta | None], key: str = "PRIMARY KEY") -> None:
    """A table of ids, each with two times, counted from now."""
    instant, local = server.types["instant"], server.types["local"]
    server.execute(
        "DROP TABLE IF EXISTS events",
        f"CREATE TABLE events (id bigint {key}, at {instant} NULL, made {local} NULL)",
    )
    add(server, *rows)


def add(server: Server, *rows: tuple[int, timedelta | None, timedelta | None]) -> None:
    for number, at, made in rows:
        instant = (
            f"TIMESTAMP {text(at)} AT TIME ZONE 'UTC'"
            if server.type == "postgres"
            else f"CONVERT_TZ({text(at)}, '+00:00', @@session.time_zone)"
        )
        server.execute(f"INSERT INTO events VALUES ({number}, {'NULL' if at is None else instant}, {text(made)})")


def text(offset: timedelta | None) -> str:
    return "NULL" if offset is None else f"'{NOW + offset:%Y-%m-%d %H:%M:%S}'"


def days(count: float) -> timedelta:
    return timedelta(days=count)


def ids(box: Sandbox) -> list[int]:
    return [row[0] for row in box.rows("events")]


@both
@pytest.mark.parametrize("column", ["at", "made"])
def test_a_row_of_the_future_stops_the_run_or_is_held(
    make: Make, server: Server, clock: Clock, asked_by: str, column: str
) -> None:
    filled(server, (1, days(-1), days(-1)), (5, days(3), days(3)))
    stateful = f"table: events, incremental: {{mode: stateful, column: {column}"
    stopping = make(f"{stateful}}}", "mode: append, keys: [id]")
    message = f"1 row of .* has a `{column}` after 2024-03-11 12:00:00"
    with pytest.raises(IncrementError, match=message) as caught:
        stopping.run("events")
    (read,) = stopping.plan("events").reads
    assert asked_by == "Spark alone" or re.search(message, str(read.stop))
    assert f"id 5, {column} 2024-03-13 12:00:00" in str(caught.value)
    assert not stopping.table("events").exists
    box = make(f"{stateful}, on_ahead: hold}}")
    first = box.run("events")
    assert (first.rows_written, first.metrics["rows_held"]) == (1, 1)
    assert box.run("events").status is RunStatus.NO_DATA
    add(server, (2, days(0), days(0)))
    clock.now = NOW + days(3)
    assert box.run("events").rows_written == 2
    assert box.run("events").status is RunStatus.NO_DATA
    assert ids(box) == [1, 2, 5]


@both
def test_each_of_several_cursors_is_guarded(make: Make, server: Server, clock: Clock, asked_by: str) -> None:
    filled(server, (1, days(-1), None), (2, None, days(-1)), (5, days(3), None), (6, None, days(4)))
    cursors = "table: events, incremental: {mode: cursors, columns: [at, made], snapshot: {rows: 2}"
    stopping = make(f"{cursors}}}")
    with pytest.raises(IncrementError, match=r"2 rows of .* have a `at, made` after 2024-03-11 12:00:00"):
        stopping.run("events")
    assert not stopping.table("events").exists
    box = make(f"{cursors}, on_ahead: hold}}")
    first = box.run("events")
    assert (first.rows_written, first.metrics["rows_held"], ids(box)) == (2, 2, [1, 2])
    # Rows that the first cursor decides are loaded by it, and do not move the other one ahead of the clock.
    add(server, (3, days(0), days(900)))
    second = box.run("events")
    assert (second.rows_written, second.metrics["rows_held"]) == (1, 2)
    (read,) = make(f"{cursors}}}").plan("events").reads
    assert asked_by == "Spark alone" or "3 rows of" in str(read.stop)
    make(f"{cursors}, on_ahead: hold}}")
    add(server, (4, None, days(0)))
    clock.now = NOW + days(3)
    third = box.run("events")
    assert (third.rows_written, "rows_held" in third.metrics, ids(box)) == (3, False, [1, 2, 3, 4, 5, 6])
    assert box.run("events").status is RunStatus.NO_DATA
    filled(server, (1, days(3), None))
    clock.now = NOW
    with pytest.raises(IncrementError, match=r"the HWM of .* is ahead of now by more than 1 day"):
        box.run("events")


@both
@pytest.mark.usefixtures("asked_by")
def test_a_table_with_rows_of_the_future_alone_has_nothing_to_read_yet(
    make: Make, server: Server, clock: Clock
) -> None:
    filled(server, (5, days(3), None))
    box = make("table: events, incremental: {mode: cursors, columns: [at], on_ahead: hold}")
    first = box.run("events")
    assert (ids(box) if box.table("events").exists else [], first.metrics["rows_held"]) == ([], 1)
    clock.now = NOW + days(3)
    box.run("events")
    assert ids(box) == [5]


@both
def test_the_clock_is_that_of_the_database(make: Make, server: Server) -> None:
    filled(server)
    server.execute("INSERT INTO events VALUES (1, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)")
    box = make("table: events, incremental: {mode: stateful, column: at, max_ahead: 1h}")
    (read,) = box.plan("events").reads
    assert abs(read.snapshot.now() - datetime.now(UTC)) < timedelta(minutes=1)
    assert abs(read.snapshot.relation.now(read.snapshot.reader(box.spark).texts) - datetime.now(UTC)) < timedelta(
        minutes=1
    )
    assert box.run("events").rows_written == 1
