"""Rows that arrive at or below the mark are counted where the source shows them, and `watermark_lag` reads them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from odi_assets.errors import TableError
from odi_assets.nodes.result import rows_left
from odi_assets_tests.nodes.support import Sandbox

Make = Callable[..., Sandbox]

NODE = """
- pipeline: p
  nodes:
  - name: events
    read: {READ, incremental: {mode: stateful, column: at, MORE}}
    write: {connection: lake, path: events, mode: upsert, keys: [id]}
"""
DELTA = "connection: lake, format: delta, path: source"
CSV = "connection: landing, format: csv, path: in/*, options: {header: 'true'}, schema: 'id BIGINT, at BIGINT'"
PARQUET = "connection: landing, format: parquet, path: in/*"


@pytest.fixture
def make(tmp_path: Path, spark: SparkSession) -> Make:
    def box(read: str, more: str = "boundary: open") -> Sandbox:
        return Sandbox(tmp_path, spark, NODE.replace("READ", read).replace("MORE", more))

    return box


def frame(rows: list[tuple[int, int | None]]) -> pa.Table:
    ids, times = zip(*rows, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "at": pa.array(times, pa.int64())})


def feed(box: Sandbox, read: str, *rows: tuple[int, int | None]) -> None:
    if read == DELTA:
        write_deltalake(str(box.root / "lake" / "source"), frame(list(rows)), mode="append")
    elif read == CSV:
        box.land(f"in/{rows[0][0]}.csv", ["id,at", *(f"{number},{at}" for number, at in rows)])
    else:
        (box.root / "landing" / "in").mkdir(parents=True, exist_ok=True)
        pq.write_table(frame(list(rows)), box.root / "landing" / "in" / f"{rows[0][0]}.parquet")


def below(result: Any) -> tuple[int, int]:
    return result.metrics.get("rows_below_hwm", 0), result.metrics.get("rows_below_hwm_at_least", 0)


@pytest.mark.parametrize("read", [DELTA, CSV, PARQUET], ids=["delta", "csv", "parquet"])
def test_rows_that_arrive_below_the_mark_are_counted_in_the_run(make: Make, read: str) -> None:
    box = make(read)
    feed(box, read, (1, 10), (2, 20))
    assert below(box.run("events")) == (0, 0)
    # Two late rows come with a new one, in one file; then one comes alone; and one that is tied.
    feed(box, read, (3, 15), (4, 20), (5, 30))
    result = box.run("events")
    assert (result.rows_written, below(result)) == (1, (2, 0))
    assert result.increment.endswith("2 rows arrived at or below the HWM, not read")
    (text,) = rows_left(result.metrics)
    assert "`watermark_lag`" in text
    feed(box, read, (6, 12))
    alone = box.run("events")
    assert (alone.status.value, below(alone)) == ("NO_DATA", (1, 0))
    feed(box, read, (7, 40))
    assert box.run("events").rows_written == 1
    feed(box, read, (8, 50))
    assert below(box.run("events")) == (0, 0)
    assert [row[0] for row in box.rows("events")] == [1, 2, 5, 7, 8]


@pytest.mark.parametrize("read", [DELTA, CSV, PARQUET], ids=["delta", "csv", "parquet"])
def test_what_the_lag_reads_and_what_the_initial_value_leaves_out_is_not_late(make: Make, read: str) -> None:
    box = make(read, "watermark_lag: 10, initial_value: '5'")
    feed(box, read, (1, 10), (2, 30))
    box.run("events")
    feed(box, read, (3, 25), (4, 7), (5, 1), (6, 40))
    result = box.run("events")
    assert below(result) == (1, 0), "the fourth row alone"
    assert [row[0] for row in box.rows("events")] == [1, 2, 3, 6]


def test_a_plan_counts_what_the_statistics_of_files_tell(make: Make) -> None:
    box = make(DELTA)
    feed(box, DELTA, (1, 10), (2, 20))
    box.run("events")
    feed(box, DELTA, (3, 15), (4, 16))
    (read,) = box.plan("events").reads
    assert (read.late.rows, read.late.is_exact) == (2, True)
    assert box.plan("events").summary.endswith("2 rows arrived at or below the HWM, not read")
    feed(box, DELTA, (5, 15), (6, 30))
    (read,) = box.plan("events").reads
    assert (read.late.rows, read.late.is_exact) == (2, False), "the third file has to be read"
    assert "at least 2 rows" in box.plan("events").summary
    assert below(box.run("events")) == (3, 0)


def exact(*numbers: str) -> pa.Table:
    """Rows of one long DECIMAL, of which statistics know the nearest float."""
    ids = pa.array(range(len(numbers)), pa.int64())
    return pa.table({"id": ids, "at": pa.array(map(Decimal, numbers), pa.decimal128(20, 4))})


def test_a_decimal_beyond_the_digits_of_a_float_is_late_only_if_it_is(make: Make) -> None:
    box = make(DELTA)
    source = str(box.root / "lake" / "source")
    write_deltalake(source, exact("1000000000000000.0002"))
    box.run("events")
    write_deltalake(source, exact("1000000000000000.0003"), mode="append")
    assert "HWM, not read" not in box.plan("events").summary
    result = box.run("events")
    assert (result.rows_written, below(result)) == (1, (0, 0))
    write_deltalake(source, exact("1000000000000000.0001", "1000000000000000.0004"), mode="append")
    assert below(box.run("events")) == (1, 0)


def test_a_file_is_looked_into_for_a_row_whose_statistics_are_rounded_down(tmp_path: Path, spark: SparkSession) -> None:
    lag = NODE.replace("READ", DELTA).replace("MORE", "watermark_lag: 0.0001").replace("upsert", "append")
    box, source = Sandbox(tmp_path, spark, lag), str(tmp_path / "lake" / "source")
    for number, cursor in enumerate(("1000000000000000.0001", "1000000000000000.0003", "1000000000000000.0003")):
        if number == 2:
            # The statistics of what another tool compacts are floats.
            DeltaTable(str(tmp_path / "lake" / "events")).optimize.compact()
        row = exact(cursor).set_column(0, "id", pa.array([number], pa.int64()))
        write_deltalake(source, row, mode="append")
        box.run("events")
    assert [row[0] for row in box.rows("events")] == [0, 1, 2]


def test_rows_that_others_rewrote_are_counted_at_least(make: Make) -> None:
    box = make(DELTA)
    feed(box, DELTA, (1, 10), (2, 20))
    box.run("events")
    feed(box, DELTA, (3, 15))
    DeltaTable(str(box.root / "lake" / "source")).update(predicate="id = 1", updates={"at": "11"})
    assert below(box.run("events")) == (0, 1)


@pytest.mark.parametrize(
    ("then", "counted"), [("nothing", (3, 0)), ("more", (4, 0)), ("update", (0, 1)), ("vacuum", (0, 0))]
)
def test_rows_that_were_compacted_since_are_counted_as_long_as_their_files_are_there(
    make: Make, then: str, counted: tuple[int, int]
) -> None:
    box = make(DELTA)
    feed(box, DELTA, (1, 10), (2, 20))
    box.run("events")
    feed(box, DELTA, (3, 15), (4, 30))
    feed(box, DELTA, (5, 16), (6, 17))
    source = DeltaTable(str(box.root / "lake" / "source"))
    source.optimize.compact()
    if then == "more":
        feed(box, DELTA, (7, 18))
        source.update_incremental()
        source.optimize.compact()
    elif then == "update":
        source.update(predicate="id = 1", updates={"at": "11"})
        feed(box, DELTA, (7, 18))
    elif then == "vacuum":
        source.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    result = box.run("events")
    assert below(result) == counted
    assert ("rows_below_hwm_at_least" in result.metrics) is (then == "update")


def test_a_commit_that_cannot_be_looked_at_is_not_taken_for_one_that_was_cleaned_away(make: Make) -> None:
    box = make(DELTA, "boundary: open, on_change: ignore")
    for number in range(4):
        feed(box, DELTA, (number, 10 * number))
        if not number:
            box.run("events")
    source = DeltaTable(str(box.root / "lake" / "source"))
    source.create_checkpoint()
    commit = box.root / "lake" / "source" / "_delta_log" / f"{2:020d}.json"
    commit.unlink()
    commit.mkdir()
    with pytest.raises(TableError, match=f"{2:020d}.json|Is a directory"):
        box.plan("events")


def test_a_file_that_was_rewritten_makes_the_count_a_least_one(make: Make) -> None:
    box = make(CSV)
    feed(box, CSV, (1, 10), (2, 20))
    box.run("events")
    feed(box, CSV, (1, 10), (2, 20), (9, 11))
    feed(box, CSV, (3, 15), (4, 30))
    assert below(box.run("events")) == (0, 1)


TIMES = CSV.replace("at BIGINT", "at TIMESTAMP")


@pytest.mark.parametrize("read", [DELTA, TIMES, PARQUET], ids=["delta", "csv", "parquet"])
def test_a_late_row_that_a_range_has_loaded_is_late_no_more(make: Make, read: str) -> None:
    box = make(read)

    def land(*rows: tuple[int, int]) -> None:
        at = pa.array([datetime(2024, 1, day, tzinfo=UTC) for _, day in rows], pa.timestamp("us", "UTC"))
        table = pa.table({"id": pa.array([number for number, _ in rows], pa.int64()), "at": at})
        name = f"{rows[0][0]}"
        if read == DELTA:
            write_deltalake(str(box.root / "lake" / "source"), table, mode="append")
        elif read == TIMES:
            box.land(f"in/{name}.csv", ["id,at", *(f"{number},2024-01-{day:02}T00:00:00Z" for number, day in rows)])
        else:
            (box.root / "landing" / "in").mkdir(parents=True, exist_ok=True)
            pq.write_table(table, box.root / "landing" / "in" / f"{name}.parquet")

    land((1, 10), (2, 20))
    box.run("events")
    land((3, 12), (4, 15))
    land((5, 13))
    box.run("events", start="2024-01-12", end="2024-01-14")
    assert [row[0] for row in box.rows("events")] == [1, 2, 3, 5]
    # The sixth row came after the range was loaded.
    land((6, 12))
    assert "3 rows" not in box.plan("events").summary
    assert below(box.run("events")) == (2, 0), "the fourth row and the sixth"
    assert [row[0] for row in box.rows("events")] == [1, 2, 3, 5]
