"""Stateful increments on real Spark: every row once, whatever is tied, late, without a cursor or written as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from odi_assets.errors import IncrementError
from odi_assets.nodes.mark import NodeMark
from odi_assets.sources.cursor.columns import window_condition
from odi_assets.sources.cursor.window import Window
from odi_assets.state.records import RunStatus
from odi_assets_tests.matrix import cases
from odi_assets_tests.nodes.support import Sandbox

Make = Callable[..., Sandbox]

NODE = """
- pipeline: p
  nodes:
  - name: events
    read: {connection: lake, format: delta, path: source, incremental: {mode: stateful, column: at, MORE}}
    write: {connection: lake, path: events, WRITE}
"""


@pytest.fixture
def make(tmp_path: Path, spark: SparkSession) -> Make:
    def box(more: str = "boundary: open", write: str = "mode: append", text: str = NODE) -> Sandbox:
        return Sandbox(tmp_path, spark, text.replace("MORE", more).replace("WRITE", write))

    return box


def feed(box: Sandbox, rows: Sequence[tuple[Any, ...]], kind: pa.DataType | None = None) -> None:
    """Append rows of an id and a cursor to the source."""
    columns = [[row[0] for row in rows], [row[1] for row in rows]]
    table = pa.table({"id": pa.array(columns[0], pa.int64()), "at": pa.array(columns[1], kind or pa.int64())})
    write_deltalake(str(box.root / "lake" / "source"), table, mode="append")


def ids(box: Sandbox) -> list[int]:
    return [row[0] for row in box.rows("events")]


@pytest.mark.contract
def test_a_closed_boundary_loads_tied_rows_that_come_later_by_their_hash(make: Make) -> None:
    box = make("boundary: closed")
    feed(box, [(1, 10), (2, 20), (2, 20)])
    assert box.run("events").rows_written == 3
    assert box.plan("events").nothing_new
    feed(box, [(2, 20), (3, 20)])
    result = box.run("events")
    assert (result.rows_written, result.hwm_after) == (2, NodeMark(20))
    feed(box, [(0, 5)])
    assert box.run("events").status is RunStatus.NO_DATA
    feed(box, [(4, 20), (5, 30)])
    assert box.run("events").rows_written == 2
    assert ids(box) == [1, 2, 2, 2, 3, 4, 5]


def test_tied_rows_are_known_when_the_source_gains_a_column_and_by_each_nested_value(make: Make) -> None:
    box = make("boundary: closed", "mode: append, schema: evolve")
    source = str(box.root / "lake" / "source")
    pair = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    write_deltalake(source, pa.table({"at": [1], "pair": pa.array([{"a": 1, "b": None}], pair)}))
    box.run("events")
    write_deltalake(
        source,
        pa.table({"at": [1, 1], "pair": pa.array([{"a": None, "b": 1}, None], pair), "more": [None, "x"]}),
        mode="append",
        schema_mode="merge",
    )
    assert box.run("events").rows_written == 2
    found = [(at, None if pair is None else tuple(pair), more) for at, pair, more in box.rows("events")]
    assert sorted(found, key=str) == [(1, (1, None), None), (1, (None, 1), None), (1, None, "x")]


def test_more_tied_rows_than_an_hwm_remembers_are_an_error_that_names_keys(make: Make) -> None:
    box = make("boundary: closed")
    feed(box, [(number, 1) for number in range(1_001)])
    with pytest.raises(IncrementError, match=r"more than 1,000 different rows[\s\S]*write\.keys"):
        box.run("events")
    assert not box.table("events").exists


def test_a_lag_reads_late_rows_and_keys_tell_which_are_loaded(make: Make) -> None:
    box = make("watermark_lag: 10, boundary: closed", "mode: append, keys: [id]")
    feed(box, [(1, 85), (2, 100)])
    box.run("events")
    feed(box, [(3, 95), (4, 89), (5, 100), (2, 101)])
    result = box.run("events")
    assert (result.rows_written, result.hwm_after) == (3, NodeMark(101))
    assert [tuple(row) for row in box.rows("events")] == [(1, 85), (2, 100), (2, 101), (3, 95), (5, 100)]
    feed(box, [(6, 50)])
    assert box.run("events").status is RunStatus.NO_DATA
    assert box.hwm("events") == 101


def test_rows_read_again_are_known_where_a_transform_stores_their_cursor_as_something_else(make: Make) -> None:
    sql = "SELECT id, at div 1000 AS at FROM df"
    box = make("watermark_lag: 10", f"mode: append, keys: [id]}}\n    transform: {{sql: '{sql}'")
    feed(box, [(1, 5000), (2, 5005)])
    box.run("events")
    feed(box, [(3, 5006), (4, 4999)])
    assert box.run("events").rows_written == 2
    assert ids(box) == [1, 2, 3, 4]


def test_rows_without_a_cursor_are_loaded_once_or_dropped_and_counted(make: Make, tmp_path: Path) -> None:
    box = make("on_null: include", "mode: append, keys: [id]")
    feed(box, [(2, None)])
    assert box.run("events").rows_written == 1
    feed(box, [(1, 10)])
    assert box.run("events").rows_written == 2
    feed(box, [(3, None)])
    result = box.run("events")
    assert (result.rows_written, result.hwm_after) == (1, NodeMark(10))
    assert ids(box) == [1, 2, 3]
    text = (tmp_path / "odibi.yaml").read_text().replace("include", "exclude")
    (tmp_path / "odibi.yaml").write_text(text)
    box.project = type(box.project).load(tmp_path / "odibi.yaml")
    feed(box, [(4, 11)])
    result = box.run("events")
    assert (result.rows_written, result.metrics["rows_without_cursor"]) == (1, 2)
    assert "2 rows without a cursor left out" in result.increment


FROM_FILES = NODE.replace("lake, format: delta, path: source", "landing, format: parquet, path: 'in/*.parquet'")


@pytest.mark.parametrize(
    ("odd", "kind", "text"),
    cases([float("nan"), float("inf"), float("-inf")], [pa.float64(), pa.float32()], [NODE, FROM_FILES]),
)
def test_a_number_that_is_not_finite_is_no_cursor_whenever_it_comes(
    make: Make, odd: float, kind: pa.DataType, text: str
) -> None:
    """Spark sorts -Infinity below all numbers: a first run loaded it, and no later one did."""

    def land(number: int, *rows: tuple[int, float]) -> None:
        feed(box, rows, kind)
        (box.root / "landing" / "in").mkdir(exist_ok=True, parents=True)
        columns = {"id": pa.array([row[0] for row in rows], pa.int64()), "at": pa.array([row[1] for row in rows], kind)}
        pq.write_table(pa.table(columns), box.root / "landing" / "in" / f"{number}.parquet")

    box = make("on_null: include", "mode: append, keys: [id]", text)
    land(1, (1, 1.5), (2, odd))
    assert (box.run("events").rows_written, ids(box)) == (2, [1, 2])
    land(2, (3, 2.5), (4, odd))
    result = box.run("events")
    assert (result.rows_written, result.hwm_after, ids(box)) == (2, NodeMark(2.5), [1, 2, 3, 4])
    land(3, (5, odd))
    assert (box.run("events").rows_written, ids(box)) == (1, [1, 2, 3, 4, 5])
    path = box.root / "odibi.yaml"
    path.write_text(path.read_text().replace("include", "exclude"))
    box.project = type(box.project).load(path)
    land(4, (6, odd), (7, 3.5))
    result = box.run("events")
    assert (result.rows_written, result.metrics["rows_without_cursor"]) == (1, 4)
    path.write_text(path.read_text().replace("exclude", "raise"))
    box.project = type(box.project).load(path)
    land(5, (8, odd))
    with pytest.raises(IncrementError, match=r"5 rows of .* have NULL, NaN or infinity in the cursor column `at`"):
        box.run("events")


def test_a_mark_of_minus_infinity_goes_on(make: Make) -> None:
    box = make("on_null: exclude")
    feed(box, [(1, 1.5)], pa.float64())
    box.run("events")
    box.state.reset_hwm("p.events", float("-inf"))
    feed(box, [(2, 2.5), (3, float("-inf"))], pa.float64())
    result = box.run("events")
    assert (result.rows_written, result.hwm_after) == (2, NodeMark(2.5))


def test_a_first_run_begins_at_the_initial_value_and_so_does_a_full_refresh(make: Make) -> None:
    box = make("initial_value: 10, watermark_lag: 100", "mode: append, keys: [id]")
    feed(box, [(1, 9), (2, 10), (3, 11)])
    assert box.run("events").rows_written == 2
    feed(box, [(4, 9), (5, 10)])
    assert box.run("events").rows_written == 1
    assert box.run("events", full_refresh=True).rows_written == 3
    assert ids(box) == [2, 3, 5]


@pytest.mark.parametrize(
    ("write", "lag"), [("mode: append", ""), ("mode: upsert, keys: [id]", ""), ("mode: upsert, keys: [id]", "10")]
)
@pytest.mark.parametrize("later", [5, 100, 3])
def test_an_initial_value_that_comes_under_a_mark_skips_no_row(make: Make, write: str, lag: str, later: int) -> None:
    more = f", watermark_lag: {lag}" if lag else ""
    box = make(f"boundary: open{more}", write)
    feed(box, [(1, 5)])
    box.run("events")
    box = make(f"initial_value: {later}{more}", write)
    feed(box, [(2, 6)])
    assert box.run("events").rows_written >= 1
    feed(box, [(3, 150)])
    box.run("events")
    box = make(f"boundary: open{more}", write)
    assert box.run("events").status is RunStatus.NO_DATA or lag
    assert ids(box) == [1, 2, 3]


def test_an_initial_value_that_changes_counts_again_from_the_next_full_refresh_on(make: Make) -> None:
    write = "mode: append, keys: [id]"
    box = make("initial_value: 10, watermark_lag: 100", write)
    feed(box, [(1, 9), (2, 10), (3, 11)])
    box.run("events")
    for started in ("initial_value: 3, ", "initial_value: 20, ", ""):
        box = make(f"{started}watermark_lag: 100", write)
        feed(box, [(4, 4), (5, 15)])
        box.run("events")
        assert ids(box) == [2, 3, 5], "the first run left out what lies below 10, and a lag brings none of it"
    box = make("initial_value: 11, watermark_lag: 100", write)
    box.run("events", full_refresh=True, accept_loss=True)
    feed(box, [(6, 10), (7, 12)])
    box.run("events")
    assert set(ids(box)) == {3, 5, 7}


@pytest.mark.parametrize("started", ["boundary: open", "initial_value: 4"])
def test_partitions_that_are_computed_from_all_of_their_rows_keep_those_below_a_later_initial_value(
    make: Make, started: str
) -> None:
    def come(*rows: tuple[int, int]) -> None:
        ids, times = zip(*rows, strict=True)
        parts = [number % 2 for number in ids]
        write_deltalake(str(box.root / "lake/source"), pa.table({"id": ids, "at": times, "part": parts}), mode="append")
        box.run("events")

    write = "mode: partition_overwrite, partition_by: [part]"
    box = make(started, write)
    come((1, 5), (2, 6), (7, 3))
    before = ids(box)
    assert before == ([1, 2] if "4" in started else [1, 2, 7])
    box = make("initial_value: 100", write)
    come((3, 150))
    come((4, 160))
    assert ids(box) == [*before[:2], 3, 4, *before[2:]]


def test_an_initial_value_above_a_mark_that_was_set_by_hand_counts_for_full_refreshes_alone(make: Make) -> None:
    box = make()
    feed(box, [(1, 60)])
    box.run("events")
    box.state.set_hwm("p.events", 70)
    box = make("initial_value: 100")
    feed(box, [(2, 80), (3, 150)])
    box.run("events")
    assert ids(box) == [1, 2, 3]


def test_an_initial_value_that_is_none_of_the_column_is_an_error(make: Make) -> None:
    box = make("initial_value: 2024-01-01")
    feed(box, [(1, 9)])
    with pytest.raises(IncrementError, match=r"'2024-01-01' is no value of the cursor `at` of lake:source.*long"):
        box.plan("events")


def test_rows_that_arrive_between_plan_and_read_belong_to_the_next_increment(make: Make) -> None:
    box = make()
    feed(box, [(1, 10)])
    plan = box.plan("events")
    feed(box, [(2, 10), (3, 11)])
    assert box.finish(plan).rows_written == 1
    assert box.run("events").rows_written == 1
    assert ids(box) == [1, 3]


SECOND = datetime(2024, 3, 31, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [1.5, float("nan"), 2.5, float("inf"), 3.5]),
        (pa.decimal128(38, 10), [Decimal(f"1234567890123456789012345678.{n:010d}") for n in (1, 2, 3)]),
        (pa.string(), ["a", "z" * 200, "z" * 200 + "é"]),
        (pa.binary(), [b"\x00\x01", b"\x7f", b"\xff"]),
        (pa.date32(), [date(1890, 1, 1), date(2024, 2, 29), date(2024, 3, 1)]),
        (pa.timestamp("us", "UTC"), [SECOND, SECOND.replace(microsecond=1), SECOND.replace(hour=2)]),
        (pa.timestamp("us"), [datetime(2024, 3, 31, 2, 30), datetime(2024, 10, 27, 2, 30, 0, 1), datetime(2025, 1, 1)]),
    ],
    ids=str,
)
def test_a_cursor_of_any_type_orders_rows_in_any_zone(
    make: Make, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, values: list[Any]
) -> None:
    import time

    box = make("on_null: exclude")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        for number, value in enumerate(values):
            feed(box, [(number, value)], kind)
            if number != 1:
                box.run("events")
        assert box.run("events").status is RunStatus.NO_DATA
    finally:
        monkeypatch.undo()
        time.tzset()
    assert box.hwm("events") == values[-1]
    skipped = {n for n, value in enumerate(values) if isinstance(value, float) and value in (float("inf"),)}
    skipped |= {n for n, value in enumerate(values) if isinstance(value, float) and value != value}
    assert ids(box) == [n for n in range(len(values)) if n not in skipped]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us", "UTC")], ids=str)
def test_days_that_no_calendar_of_the_time_had_are_read_like_others(make: Make, kind: pa.DataType) -> None:
    box = make()
    days = [date(1582, 10, day) for day in (4, 7, 12, 15)]
    cursors = days if pa.types.is_date(kind) else [datetime(d.year, d.month, d.day, 6, tzinfo=UTC) for d in days]
    for number, cursor in enumerate(cursors):
        feed(box, [(number, cursor)], kind)
        assert box.run("events").rows_written == 1
    assert ids(box) == [0, 1, 2, 3]


def test_a_rolling_window_over_dates_begins_with_a_whole_day(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(date(2024, 2, 28),), (date(2024, 2, 29),), (date(2024, 3, 1),)], "day DATE")
    window = Window("day", lower=datetime(2024, 2, 29, 5, tzinfo=UTC), lower_inclusive=True)
    assert rows.where(window_condition(rows, window)).count() == 2


def test_a_cursor_whose_type_changed_is_an_error_that_names_both(make: Make) -> None:
    box = make()
    feed(box, [(1, datetime(2024, 1, 1, tzinfo=UTC))], pa.timestamp("us", "UTC"))
    box.run("events")
    entry = box.state.get_entry("p.events")
    assert entry is not None
    box.state.compare_and_set("p.events", date(2024, 1, 1), expected_revision=entry.revision)
    with pytest.raises(IncrementError, match=r"is timestamp now \(datetime with a zone\), and its HWM .* is date"):
        box.plan("events")


def test_bounds_cut_to_milliseconds_hide_no_row(make: Make) -> None:
    box = make()
    table = str(box.root / "lake" / "source")
    feed(box, [(1, datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC))], pa.timestamp("us", "UTC"))
    log = Path(table) / "_delta_log" / "00000000000000000000.json"
    log.write_text(log.read_text().replace(".123456", ".123"))
    assert DeltaTable(table).get_add_actions(flatten=True)["max.at"][0].as_py().microsecond == 123_000
    assert box.run("events").rows_written == 1
    assert box.hwm("events").microsecond == 123_456


TEXT = """
- pipeline: p
  nodes:
  - name: events
    read:
      {connection: landing, format: csv, path: e.csv, schema: "id BIGINT, at STRING", options: {header: "true"},
       incremental: {mode: stateful, column: at, MORE}}
    write: {connection: lake, path: events, WRITE}
"""


@pytest.mark.parametrize(
    ("date_format", "first", "later", "hwm"),
    [
        ("oracle", ["31-DEC-99 23:59:59.5", "01-JAN-24"], "2-FEB-24 07:11:01.123456", "2024-02-02T07:11:01.123456"),
        ("sql_server", ["2023-12-31", "2024-01-02 03:04:05"], "2024-01-02 03:04:05.5", "2024-01-02T03:04:05.5"),
        ("us", ["12/31/2023", "02/01/2024 01:00:00"], "3/1/2024", "2024-03-01"),
        ("eu", ["31/12/2023", "02/01/2024 01:00:00"], "01/03/2024", "2024-03-01"),
        ("iso", ["2024-01-01T00:00:00", "2024-01-01T01:00:00"], "2024-01-01T03:00:01+02:00", "2024-01-01T01:00:01"),
    ],
)
def test_dates_written_as_text_are_compared_as_dates(
    make: Make, date_format: str, first: list[str], later: str, hwm: str
) -> None:
    box = make(f"date_format: {date_format}", text=TEXT)
    lines = ["id,at", *(f"{number},{value}" for number, value in enumerate(first))]
    box.land("e.csv", lines)
    box.run("events")
    box.land("e.csv", [*lines, f"9,{later}"])
    assert box.run("events").rows_written == 1
    assert box.hwm("events") == datetime.fromisoformat(hwm).replace(tzinfo=UTC)
    box.land("e.csv", [*lines, f"9,{later}", "10,30-30-30"])
    with pytest.raises(
        IncrementError, match=r"^1 row of landing:e\.csv has .* '30-30-30' in `at` of file:/.*/landing/e\.csv"
    ):
        box.run("events")
