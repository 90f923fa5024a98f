"""An audit names exactly the ranges in which a table differs from its source, and its commands make them agree."""

from __future__ import annotations

import random
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from odi_assets.errors import ConfigError, SourceError
from odi_assets.nodes.audit.found import differences
from odi_assets_tests.matrix import cases
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

CSV = (
    "connection: landing, format: csv, path: in/*, options: {header: 'true', nullValue: 'NULL'}, "
    "schema: 'id BIGINT, at TIMESTAMP, v STRING, day DATE', incremental: "
)
DELTA = "connection: lake, format: delta, path: source, incremental: "
READS = {
    "csv by a cursor": f"{CSV}{{mode: stateful, column: at}}",
    "csv by files": f"{CSV}files",
    "delta by a cursor": f"{DELTA}{{mode: stateful, column: at}}",
    "delta by versions": f"{DELTA}version",
}


def feed(box: Sandbox, rows: list[Row]) -> None:
    if (box.root / "lake" / "source").exists() or "format: delta" in (box.root / "odibi.yaml").read_text():
        ids, times, values = zip(*rows, strict=True)
        at = pa.array([one.replace(tzinfo=None) for one in times], pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
        days = pa.array([one.date() for one in times], pa.date32())
        table = pa.table({"id": pa.array(ids, pa.int64()), "at": at, "v": pa.array(values, pa.string()), "day": days})
        write_deltalake(str(box.root / "lake" / "source"), table, mode="append")
        return
    lines = [f"{number},{at:%Y-%m-%dT%H:%M:%SZ},{value or 'NULL'},{at:%Y-%m-%d}" for number, at, value in rows]
    box.land(f"in/{rows[0][0]}.csv", ["id,at,v,day", *lines])


def loaded(
    tmp_path: Path, spark: SparkSession, read: str, mode: str, chance: random.Random
) -> tuple[Sandbox, list[Row]]:
    """A node that has taken in two increments, the second one later than the first."""
    box = Sandbox(tmp_path, spark, node(READS[read], mode))
    rows: list[Row] = []
    for days in (range(DAYS - 2), range(DAYS - 2, DAYS)):
        new = random_rows(chance, len(rows) + 1, chance.randrange(4, 12), days)
        feed(box, new)
        box.run("events")
        rows += new
    return box, rows


@pytest.mark.parametrize(("read", "mode"), cases(READS, MODES, together=1))
def test_an_audit_names_what_differs_and_its_commands_repair_it(
    tmp_path: Path, spark: SparkSession, read: str, mode: str
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    box, rows = loaded(tmp_path, spark, read, mode, chance)
    whole = audited(box)
    assert (whole.differing, sum(one.difference.source_rows for one in whole.ranges)) == ((), len(rows))
    damage_table(box, chance, rows, chance.choices(DAMAGE, k=chance.randrange(1, 4)))
    wanted = differing_days(rows, stored(box))
    found = audited(box)
    if not found.by.startswith("hash"):
        assert {one.name for one in found.differing} == wanted, seed
    else:
        # Nothing orders the rows: they are compared by buckets of their keys, or of whole rows.
        assert bool(found.differing) == bool(wanted), seed
    by_range = [one.command for one in found.differing if "--from" in str(one.command)]
    assert len(by_range) == len(found.differing) or mode not in PARTITIONED
    follow(box, found)
    assert audited(box).differing == (), seed
    assert differing_days(rows, stored(box)) == set()


@pytest.mark.parametrize("mode", ["append_once", "upsert", "append"])
def test_a_row_that_came_below_the_mark_is_found_and_loaded(tmp_path: Path, spark: SparkSession, mode: str) -> None:
    box, rows = loaded(tmp_path, spark, "csv by a cursor", mode, random.Random(7))
    late = (999, FIRST + timedelta(days=1, hours=5), "late")
    feed(box, [late])
    assert box.run("events").rows_written in (0, None)
    (one,) = audited(box).differing
    assert (one.name, differences(one.difference)) == ("2024-03-02", "1 row missing")
    command = "--full-refresh" if mode == "append" else "--from 2024-03-02 --to 2024-03-03"
    assert one.command == f"odi run p --node events {command}"
    follow(box, audited(box))
    assert sorted(stored(box)) == sorted([*rows, late])


def test_what_is_above_the_mark_is_no_difference(tmp_path: Path, spark: SparkSession) -> None:
    box, _ = loaded(tmp_path, spark, "delta by a cursor", "append", random.Random(3))
    feed(box, [(999, FIRST + timedelta(days=30), "new")])
    found = audited(box)
    assert found.differing == ()
    assert any(note.startswith("not loaded yet of lake:source") for note in found.notes)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, spark: SparkSession) -> None:
    box, _ = loaded(tmp_path, spark, "csv by a cursor", "append", random.Random(3))
    box.land("in/broken.csv", ["id,at,v,day", "x,2024-03-02T08:00:00Z,a,2024-03-02"])
    with pytest.raises(SourceError, match=r"in/broken\.csv cannot be read"):
        audited(box)


def test_ranges_are_as_long_as_they_are_wanted(tmp_path: Path, spark: SparkSession) -> None:
    box, rows = loaded(tmp_path, spark, "delta by a cursor", "upsert", random.Random(3))
    DeltaTable(str(box.root / "lake" / "events")).delete("id = 1")
    (hour,), (month,) = audited(box, "hour").differing, audited(box, "month").differing
    at = rows[0][1]
    assert hour.name == f"{at:%Y-%m-%d %H}:00"
    assert hour.command == (
        f"odi run p --node events --from {at:%Y-%m-%dT%H}:00 --to {at + timedelta(hours=1):%Y-%m-%dT%H}:00".replace(
            "T00:00", ""
        )
    )
    assert (month.name, month.command) == ("2024-03", "odi run p --node events --from 2024-03-01 --to 2024-04-01")
    with pytest.raises(ConfigError, match="--by week is no length of time"):
        audited(box, "week")
    follow(box, audited(box, "hour"))
    assert audited(box).differing == ()


NUMBERS = """
- pipeline: p
  nodes:
  - name: events
    read: {connection: lake, format: delta, path: source, incremental: {mode: stateful, column: id}}
    TRANSFORM
    write: {connection: lake, path: events, WRITE}
"""


def numbered(tmp_path: Path, spark: SparkSession, write: str, sql: str | None = None) -> Sandbox:
    """A node that follows a number, and has read three rows."""
    transform = "" if sql is None else f'transform: {{sql: "{sql}"}}'
    box = Sandbox(tmp_path, spark, NUMBERS.replace("WRITE", write).replace("TRANSFORM", transform))
    place = str(box.root / "lake" / "source")
    write_deltalake(place, pa.table({"id": [1, 2, 2_000_001], "v": ["a", "b", "c"], "g": ["x", "x", "y"]}))
    box.run("events")
    return box


def test_a_cursor_of_numbers_is_cut_into_ranges_of_numbers(tmp_path: Path, spark: SparkSession) -> None:
    box = numbered(tmp_path, spark, "mode: append")
    assert [one.name for one in audited(box).ranges] == ["0 to 999999", "2000000 to 2999999"]
    DeltaTable(str(box.root / "lake" / "events")).delete("id = 2")
    (one,) = audited(box, "2").differing
    assert (one.name, one.command) == ("2 to 3", "odi run p --node events --full-refresh")
    follow(box, audited(box))
    assert audited(box).differing == ()


def test_columns_that_the_transform_makes_are_named_and_not_compared(tmp_path: Path, spark: SparkSession) -> None:
    sql = "SELECT id, v, upper(g) AS g, current_timestamp() AS seen FROM df WHERE id <> 2"
    box = numbered(tmp_path, spark, "mode: upsert, keys: [id]", sql)
    found = audited(box)
    assert (found.compared, found.differing) == (("id", "v"), ())
    assert "the transform makes `g`, `seen`: their values are not compared" in found.notes
    DeltaTable(str(box.root / "lake" / "events")).update(predicate="id = 1", updates={"v": "'z'"})
    (one,) = audited(box).differing
    assert differences(one.difference) == "other values"


def test_of_a_transform_that_aggregates_only_the_keys_are_compared(tmp_path: Path, spark: SparkSession) -> None:
    sql = "SELECT g, count(*) AS n, max(id) AS id FROM df GROUP BY g"
    box = numbered(tmp_path, spark, "mode: append", sql)
    place = str(box.root / "lake" / "source")
    write_deltalake(place, pa.table({"id": [3_000_000], "v": ["d"], "g": ["x"]}), mode="append")
    box.run("events")
    found = audited(box)
    assert (found.compared, found.differing) == (("g",), ())
    assert "it joins or aggregates rows: only which g there are is compared" in found.notes
    DeltaTable(str(box.root / "lake" / "events")).delete("g = 'y'")
    (one,) = audited(box).differing
    assert (differences(one.difference), one.command) == ("1 row missing", "odi run p --node events --full-refresh")


def test_of_the_rows_of_a_key_the_newest_is_compared(tmp_path: Path, spark: SparkSession) -> None:
    box = numbered(tmp_path, spark, "mode: upsert, keys: [g]", "SELECT * FROM df WHERE id <> 1")
    place = str(box.root / "lake" / "source")
    write_deltalake(place, pa.table({"id": [3_000_000], "v": ["d"], "g": ["x"]}), mode="append")
    box.run("events")
    assert audited(box).differing == ()
    DeltaTable(str(box.root / "lake" / "events")).update(predicate="g = 'x'", updates={"v": "'b'"})
    (one,) = audited(box).differing
    assert (one.name, differences(one.difference)) == ("3000000 to 3999999", "other values")


PARTITIONED_BY = """
- pipeline: p
  nodes:
  - name: events
    read: {connection: lake, format: delta, path: source, incremental: version}
    write: {connection: lake, path: events, mode: append, partition_by: [g]}
"""


@pytest.mark.parametrize(
    "values",
    [pa.array(["--5", "²", "10", "9", None]), pa.array([date(9999, 12, 31), date(1, 1, 1), date(2024, 3, 1)])],
    ids=["texts that are nearly numbers", "the first and the last day"],
)
def test_partitions_of_any_value_are_compared_and_repaired(
    tmp_path: Path, spark: SparkSession, values: pa.Array
) -> None:
    box = Sandbox(tmp_path, spark, PARTITIONED_BY)
    write_deltalake(str(box.root / "lake" / "source"), pa.table({"id": range(len(values)), "g": values}))
    box.run("events")
    assert audited(box).differing == ()
    DeltaTable(str(box.root / "lake" / "events")).delete("id <> 2")
    found = audited(box)
    assert len(found.differing) == len(values) - 1
    assert {one.command for one in found.differing} == {"odi run p --node events --full-refresh"}
    follow(box, found)
    assert audited(box).differing == ()


def test_a_node_without_a_table_and_a_stream_say_what_to_do(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, node(READS["csv by files"], "append"))
    with pytest.raises(ConfigError, match=r"p\.events has no table yet"):
        audited(box)
