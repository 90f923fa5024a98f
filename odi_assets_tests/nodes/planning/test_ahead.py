"""Marks never run ahead of the clock: rows dated in the future stop the run, or are loaded once their time has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.errors import IncrementError
from odi_assets.sources.snapshot import SourceSnapshot
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

Make = Callable[..., Sandbox]
Feed = Callable[[Sandbox, list[tuple[int, datetime]]], None]
NOW = datetime(2024, 3, 10, 12, tzinfo=UTC)

NODE = """
- pipeline: p
  nodes:
  - name: events
    read: {READ, incremental: {mode: stateful, column: at, MORE}}
    write: {connection: lake, path: events, WRITE}
"""


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOW


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    found = Clock()
    monkeypatch.setattr(SourceSnapshot, "now", lambda *_: found.now)
    return found


@pytest.fixture
def make(tmp_path: Path, spark: SparkSession, clock: Clock) -> Make:
    assert clock.now == NOW

    def box(read: str, more: str = "boundary: open", write: str = "mode: append, keys: [id]") -> Sandbox:
        text = NODE.replace("READ", read).replace("MORE", more).replace("WRITE", write)
        return Sandbox(tmp_path, spark, text)

    return box


def csv(shape: str) -> Feed:
    def feed(box: Sandbox, rows: list[tuple[int, datetime]]) -> None:
        lines = [f"{number},{at.strftime(shape)}" for number, at in rows]
        box.land(f"in/part + {rows[0][0]} ü.csv", ["id,at", *lines])

    return feed


def arrow(kind: pa.DataType, rows: list[tuple[int, datetime]]) -> pa.Table:
    def value(at: datetime) -> Any:
        return at.date() if pa.types.is_date(kind) else at if kind.tz else at.replace(tzinfo=None)

    return pa.table({"id": [number for number, _ in rows], "at": pa.array([value(at) for _, at in rows], kind)})


def parquet(kind: pa.DataType) -> Feed:
    def feed(box: Sandbox, rows: list[tuple[int, datetime]]) -> None:
        path = box.root / "landing" / "in" / f"part + {rows[0][0]} ü.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(arrow(kind, rows), path)

    return feed


def delta(kind: pa.DataType) -> Feed:
    def feed(box: Sandbox, rows: list[tuple[int, datetime]]) -> None:
        write_deltalake(str(box.root / "lake" / "source"), arrow(kind, rows), mode="append")

    return feed


CSV = "connection: landing, format: csv, path: in/*, options: {header: 'true'}, schema: "
DELTA, PARQUET = "connection: lake, format: delta, path: source", "connection: landing, format: parquet, path: in/*"
INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")

SOURCES: dict[str, tuple[str, str, Feed]] = {
    "csv of times": (f"{CSV}'id BIGINT, at TIMESTAMP'", "boundary: open", csv("%Y-%m-%dT%H:%M:%SZ")),
    "csv of dates": (f"{CSV}'id BIGINT, at DATE'", "boundary: open", csv("%Y-%m-%d")),
    "csv of dates as text": (f"{CSV}'id BIGINT, at STRING'", "date_format: eu", csv("%d/%m/%Y %H:%M")),
    "parquet of times": (PARQUET, "boundary: open", parquet(INSTANT)),
    "parquet of local times": (PARQUET, "boundary: closed", parquet(LOCAL)),
    "delta of times": (DELTA, "boundary: open", delta(INSTANT)),
    "delta of local times": (DELTA, "boundary: closed", delta(LOCAL)),
    "delta of dates": (DELTA, "boundary: open", delta(pa.date32())),
}
each_source = pytest.mark.parametrize(("read", "more", "feed"), SOURCES.values(), ids=SOURCES.keys())


def ids(box: Sandbox) -> list[int]:
    return [row[0] for row in box.rows("events")]


@each_source
def test_a_row_of_the_future_stops_the_run_is_named_and_nothing_is_committed(
    make: Make, read: str, more: str, feed: Feed
) -> None:
    box = make(read, more)
    feed(box, [(1, NOW - timedelta(days=2)), (2, NOW - timedelta(days=1))])
    box.run("events")
    before = box.hwm("events"), box.table("events").version
    feed(box, [(3, NOW), (4, NOW + timedelta(days=70_000)), (5, NOW + timedelta(days=2))])
    with pytest.raises(IncrementError, match=r"2 rows of .* have a `at` after 2024-03-11") as caught:
        box.run("events")
    text = str(caught.value)
    assert "id 4, at " in text
    assert "id 5, at " in text
    assert ("part + 3 ü." in text) == ("landing" in read)
    assert (box.hwm("events"), box.table("events").version) == before
    # A first load and a full refresh set a mark too.
    with pytest.raises(IncrementError, match="2 rows of"):
        box.run("events", full_refresh=True)
    assert box.table("events").version == before[1]


@each_source
def test_held_rows_are_counted_and_loaded_once_when_their_time_has_come(
    make: Make, clock: Clock, read: str, more: str, feed: Feed
) -> None:
    box = make(read, f"{more}, on_ahead: hold")
    feed(box, [(1, NOW - timedelta(days=2)), (5, NOW + timedelta(days=3)), (6, NOW + timedelta(days=5))])
    first = box.run("events")
    assert (first.rows_written, first.metrics["rows_held"]) == (1, 2)
    assert first.increment.endswith("2 rows ahead of the clock left for later")
    again = box.run("events")
    assert (again.status, again.metrics["rows_held"]) == (RunStatus.NO_DATA, 2)
    # What comes in between is above the mark, although the held rows were there first.
    feed(box, [(2, NOW - timedelta(days=1)), (3, NOW)])
    assert box.run("events").metrics["rows_held"] == 2
    assert ids(box) == [1, 2, 3]
    clock.now = NOW + timedelta(days=3)
    third = box.run("events")
    assert (third.rows_written, third.metrics["rows_held"], ids(box)) == (1, 1, [1, 2, 3, 5])
    clock.now = NOW + timedelta(days=9)
    assert "rows_held" not in box.run("events").metrics
    assert box.run("events").status is RunStatus.NO_DATA
    assert ids(box) == [1, 2, 3, 5, 6]


@each_source
def test_the_guard_can_be_put_further_away_or_off(make: Make, read: str, more: str, feed: Feed) -> None:
    box = make(read, f"{more}, max_ahead: none")
    feed(box, [(1, NOW), (2, NOW + timedelta(days=900))])
    assert box.run("events").rows_written == 2
    assert box.run("events").status is RunStatus.NO_DATA
    # Without it, the mark is ahead of the clock; with it, that is not passed over.
    stopping = make(read, more)
    with pytest.raises(IncrementError, match=r"the HWM of .* is ahead of now by more than 1 day"):
        stopping.plan("events")
    assert make(read, f"{more}, max_ahead: 1000d").run("events").status is RunStatus.NO_DATA


def test_a_day_of_slack_admits_the_wall_clocks_of_all_zones(make: Make) -> None:
    box = make(DELTA)
    delta(LOCAL)(box, [(1, NOW + timedelta(hours=14))])
    assert box.run("events").rows_written == 1


def test_a_plan_says_that_the_run_will_stop_or_what_it_will_leave(make: Make) -> None:
    box = make(DELTA)
    delta(INSTANT)(box, [(1, NOW), (2, NOW + timedelta(days=2))])
    assert box.plan("events").summary.endswith("what is after 2024-03-11 12:00:00+00:00 stops the run")
    assert make(DELTA, "on_ahead: hold").plan("events").summary.endswith("is left for later")


@pytest.mark.parametrize("write", ["mode: upsert, keys: [id]", "mode: append_once, keys: [id]", "mode: overwrite"])
def test_other_write_modes_are_guarded_alike(make: Make, clock: Clock, write: str) -> None:
    box = make(DELTA, "on_ahead: hold, watermark_lag: 1d", write)
    delta(pa.date32())(box, [(1, NOW), (2, NOW + timedelta(days=2))])
    assert (box.run("events").metrics["rows_held"], ids(box)) == (1, [1])
    clock.now = NOW + timedelta(days=2)
    box.run("events")
    assert ids(box) == [1, 2]
    assert box.hwm("events") == date(2024, 3, 12)


def test_partitions_that_are_computed_whole_hold_no_row_of_the_future(make: Make, clock: Clock) -> None:
    box = make(DELTA, "on_ahead: hold", "mode: partition_overwrite, partition_by: [day]")
    at = pa.array([NOW, NOW + timedelta(days=2)], INSTANT)
    table = pa.table({"id": [1, 2], "at": at, "day": ["a", "a"]})
    write_deltalake(str(box.root / "lake" / "source"), table)
    box.run("events")
    assert ids(box) == [1]
    clock.now = NOW + timedelta(days=2)
    box.run("events")
    assert ids(box) == [1, 2]


def test_numbers_and_text_have_no_clock(make: Make) -> None:
    box = make(DELTA)
    table = pa.table({"id": [1, 2], "at": pa.array([4_102_444_800, 1], pa.int64())})
    write_deltalake(str(box.root / "lake" / "source"), table)
    assert box.run("events").rows_written == 2
