"""Compaction, checkpoint and vacuum: no row changes, no writer is disturbed, and what may be gone back to is told."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.changes import changes
from odi_assets.delta.commit import Stamp
from odi_assets.delta.maintenance import compaction
from odi_assets.delta.maintenance.compaction import compact
from odi_assets.delta.maintenance.maintain import MEGABYTE, MaintenanceOptions, maintain
from odi_assets.tables.engine import WriteSpec
from odi_assets_tests.tables.support import APP, ENGINE, Write, rows_of

DEFAULTS = MaintenanceOptions()
AT_ONCE = MaintenanceOptions(retain_hours=0)
TYPES = (
    "SELECT CAST({n} AS BIGINT) AS id, CAST({n} / 3 AS DOUBLE) AS d, CAST({n} AS DECIMAL(20,4)) AS m, 'ü' AS s, "
    "DATE'2013-01-01' AS day, TIMESTAMP'2013-01-01 05:00:00.123456' AS t, TIMESTAMP_NTZ'2013-01-01 05:00:00' AS n, "
    "CAST('x' AS BINARY) AS b, {n} > 1 AS f, named_struct('x', {n}, 'y', array(1, NULL)) AS st, map('k', {n}) AS mp, "
    "'a b/c:%' AS p"
)


def small_files(write: Write, count: int = 3, **spec: Any) -> None:
    for number in range(count):
        write([(number, f"n{number % 2}")], **spec)


def test_small_files_become_one_and_every_value_stays(spark: SparkSession, table: Location, write: Write) -> None:
    for number in (1, 2, 3):
        write(spark.sql(TYPES.format(n=number)), partition_by=("p",))
    before = rows_of(spark, table)
    result = maintain(table, DEFAULTS, {})
    assert (result.before.files, result.after.files, result.compaction.files_added) == (3, 1, 1)
    assert rows_of(spark, table) == before
    assert ENGINE.open(table).rows == 3
    write(spark.sql(TYPES.format(n=2)), mode=WriteMode.UPSERT, keys=("id",), partition_by=("p",))
    assert rows_of(spark, table) == before


def test_compaction_changes_nothing_for_readers_of_the_log(table: Location, write: Write) -> None:
    small_files(write)
    version = ENGINE.open(table).version or 0
    maintain(table, DEFAULTS, {})
    now = ENGINE.open(table)
    assert changes(now, version, now.version or 0).kind == "none"


def test_partitions_stay_apart_and_files_from_before_a_new_column_fill_it_with_null(
    spark: SparkSession, table: Location, write: Write
) -> None:
    small_files(write, 4, partition_by=("name",))
    write([(9, "n1", 7)], "id BIGINT, name STRING, x INT", partition_by=("name",), schema_policy="evolve")
    before = rows_of(spark, table)
    maintain(table, DEFAULTS, {})
    assert len(ENGINE.open(table).live_files) == 2
    assert rows_of(spark, table) == before


def test_bounds_that_not_a_number_made_unknown_stay_unknown(spark: SparkSession, table: Location, write: Write) -> None:
    how: dict[str, Any] = {"mode": WriteMode.UPSERT, "keys": ("k",)}
    for number, value in enumerate(("1.5", "'NaN'")):
        write(spark.sql(f"SELECT CAST({value} AS DOUBLE) AS k, {number} AS n"), **how)
    maintain(table, DEFAULTS, {})
    result = write(spark.sql("SELECT CAST('NaN' AS DOUBLE) AS k, 9 AS n"), **how)
    assert (result.rows_updated, result.rows_total) == (1, 2)


def test_a_table_of_large_files_is_left_alone(table: Location, write: Write) -> None:
    small_files(write)
    result = compact(table, small_bytes=1, target_bytes=MEGABYTE, facts={})
    assert (result.files_removed, result.version, ENGINE.open(table).version) == (0, None, 2)


@pytest.mark.parametrize(
    "mode", [WriteMode.APPEND, WriteMode.UPSERT, WriteMode.OVERWRITE, WriteMode.PARTITION_OVERWRITE]
)
def test_a_write_planned_before_a_compaction_neither_loses_nor_doubles_a_row(
    spark: SparkSession, table: Location, write: Write, mode: WriteMode
) -> None:
    partition_by = ("name",) if mode is WriteMode.PARTITION_OVERWRITE else ()
    small_files(write, 4, partition_by=partition_by)
    stale = ENGINE.open(table)
    compact(table, MEGABYTE, MEGABYTE, {})
    frame = spark.createDataFrame([(1, "n1"), (7, "n1")], "id BIGINT, name STRING")
    spec = WriteSpec(mode, ("id",) if mode is WriteMode.UPSERT else (), partition_by)
    ENGINE.write(frame, stale, spec, Stamp(APP, 5))
    kept: list[tuple[int, str]] = {
        WriteMode.APPEND: [(0, "n0"), (1, "n1"), (1, "n1"), (2, "n0"), (3, "n1"), (7, "n1")],
        WriteMode.OVERWRITE: [(1, "n1"), (7, "n1")],
        WriteMode.UPSERT: [(0, "n0"), (1, "n1"), (2, "n0"), (3, "n1"), (7, "n1")],
        WriteMode.PARTITION_OVERWRITE: [(0, "n0"), (1, "n1"), (2, "n0"), (7, "n1")],
    }[mode]
    assert rows_of(spark, table) == kept


@pytest.mark.parametrize("rival", ["append", "upsert", "compaction"])
def test_a_compaction_that_meets_another_writer_loses_and_doubles_nothing(
    spark: SparkSession, table: Location, write: Write, monkeypatch: pytest.MonkeyPatch, rival: str
) -> None:
    small_files(write)
    real, met = compaction.commit, []

    def commit_after_a_rival(*arguments: Any) -> int:
        if not met:
            met.append(rival)
            if rival == "append":
                write([(5, "n5")])
            elif rival == "upsert":
                write([(1, "N1")], mode=WriteMode.UPSERT, keys=("id",))
            else:
                compact(table, MEGABYTE, MEGABYTE, {})
        return real(*arguments)

    monkeypatch.setattr(compaction, "commit", commit_after_a_rival)
    compact(table, MEGABYTE, MEGABYTE, {})
    rows = {0: "n0", 1: "N1" if rival == "upsert" else "n1", 2: "n0"} | ({5: "n5"} if rival == "append" else {})
    assert rows_of(spark, table) == sorted(rows.items())


def test_orphans_of_killed_runs_go_and_files_of_a_write_in_flight_stay(table: Location, write: Write) -> None:
    small_files(write)
    for name, age_hours in (("dead", 200), ("alive", 2)):
        file = Path(table.uri, f"odi_write={name}", "part-0.parquet")
        file.parent.mkdir()
        file.write_bytes(b"PAR1")
        os.utime(file, (time.time() - age_hours * 3600,) * 2)
    dry = maintain(table, MaintenanceOptions(dry_run=True), {})
    assert (dry.vacuumed, dry.vacuumed_bytes, dry.young_orphans) == (("odi_write=dead/part-0.parquet",), 4, 1)
    assert maintain(table, DEFAULTS, {}).vacuumed == ("odi_write=dead/part-0.parquet",)
    result = maintain(table, AT_ONCE, {})
    assert (len(result.vacuumed), result.young_orphans) == (3, 1)
    left = {path.parent.name for path in Path(table.uri).glob("odi_write=*/*.parquet")}
    assert "odi_write=alive" in left
    assert "odi_write=dead" not in left


def test_a_dry_run_changes_nothing(table: Location, write: Write) -> None:
    small_files(write)
    files = sorted(str(path) for path in Path(table.uri).rglob("*"))
    result = maintain(table, MaintenanceOptions(retain_hours=0, dry_run=True), {})
    assert (result.compaction.files_removed, result.compaction.files_added) == (3, 1)
    assert sorted(str(path) for path in Path(table.uri).rglob("*")) == files


def test_it_tells_the_oldest_version_that_can_be_gone_back_to(
    spark: SparkSession, table: Location, write: Write
) -> None:
    small_files(write)
    kept = maintain(table, DEFAULTS, {})
    assert kept.rewindable_from == 0
    assert rows_of(spark, table, version=1) == [(0, "n0"), (1, "n1")]
    compacted = kept.compaction.version
    gone = maintain(table, AT_ONCE, {})
    assert gone.rewindable_from == compacted
    assert rows_of(spark, table, version=compacted) == rows_of(spark, table)
