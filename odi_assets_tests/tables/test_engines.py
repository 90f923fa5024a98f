"""Which engine a table has, and what holds whichever engine wrote it: one log, one fence, one set of rows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from deltalake import DeltaTable, TableFeatures
from pyspark.sql import SparkSession

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.changes import changes
from odi_assets.delta.commit import Stamp
from odi_assets.delta.errors import UnsupportedFeatureError
from odi_assets.delta.maintenance.maintain import MaintenanceOptions
from odi_assets.errors import ConfigError, FencedError
from odi_assets.tables.engine import WriteSpec, engine_of
from odi_assets_tests.cli.shop import PROJECT, deliver, environment, make_shop, odi
from odi_assets_tests.tables.packages import register_engine
from odi_assets_tests.tables.support import APP, Write, frame, rows_of

UPSERT: dict[str, Any] = {"mode": WriteMode.UPSERT, "keys": ("id",)}
KIND = "id BIGINT, name STRING"


def next_stamp(table: Location) -> Stamp:
    return Stamp.next_on(engine_of(table).open(table), APP, {"run_id": "run"})


@pytest.mark.every_engine
def test_changed_rows_are_those_that_commits_added_or_changed_as_they_are_now(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(number, "old") for number in range(5)])
    write([(1, "new"), (7, "new")], **UPSERT)
    write([(7, "newest"), (8, "newest")], **UPSERT)
    engine, handle = engine_of(table), engine_of(table).open(table)
    gained = changes(handle, 0, 2)
    found = engine.changed_rows(spark, handle, gained).collect()
    assert sorted(map(tuple, found)) == [(1, "new"), (7, "newest"), (8, "newest")]
    affected = {tuple(row) for rows in engine.affected_rows(spark, handle, gained) for row in rows.collect()}
    assert {(1, "old"), (1, "new"), (7, "newest"), (8, "newest")} <= affected


@pytest.mark.every_engine
def test_a_table_goes_back_to_a_version_in_a_fenced_commit(spark: SparkSession, table: Location, write: Write) -> None:
    write([(1, "a")])
    write([(2, "b")])
    engine, handle = engine_of(table), engine_of(table).open(table)
    assert engine.restore(handle, 0, next_stamp(table), [("other", 5)]) == 2
    assert rows_of(spark, table) == [(1, "a")]
    now = engine.open(table)
    assert (now.transaction_number(APP), now.transaction_number("other")) == (3, 5)
    with pytest.raises(FencedError):
        engine.write(frame(spark, [(3, "c")], KIND), handle, WriteSpec(WriteMode.APPEND), Stamp(APP, 3))


@pytest.mark.every_engine
def test_maintenance_makes_one_file_of_many_and_keeps_the_rows(
    spark: SparkSession, table: Location, write: Write
) -> None:
    for number in range(4):
        write([(number, "a")])
    done = engine_of(table).maintain(table, MaintenanceOptions(), {})
    assert (done.compaction.files_added, done.after.files) == (1, 1)
    assert rows_of(spark, table) == [(number, "a") for number in range(4)]


@pytest.mark.every_engine
def test_a_write_that_others_came_before_starts_over_on_what_they_left(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a"), (2, "b")])
    engine, handle, stamp = engine_of(table), engine_of(table).open(table), next_stamp(table)
    another = Stamp("another", 1, {"run_id": "another"})
    engine.write(frame(spark, [(2, "B"), (3, "c")], KIND), engine.open(table), WriteSpec(**UPSERT), another)
    engine.write(frame(spark, [(1, "A"), (3, "C")], KIND), handle, WriteSpec(**UPSERT), stamp)
    assert rows_of(spark, table) == [(1, "A"), (2, "B"), (3, "C")]


@pytest.mark.every_engine
def test_the_rows_of_a_batch_are_computed_once_in_every_mode(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a"), (2, "b")])
    drawn = spark.range(1).selectExpr("1L AS id", "uuid() AS name")
    for spec in (WriteSpec(**UPSERT), WriteSpec(WriteMode.APPEND)):
        engine_of(table).write_once(drawn, engine_of(table).open(table), spec, next_stamp(table), is_small=True)
    assert [row[0] for row in rows_of(spark, table)] == [1, 1, 2]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_table_may_go_from_one_engine_to_another_at_any_version(
    spark: SparkSession, table: Location, write: Write
) -> None:
    embedded = replace(table, table_engine="embedded")
    spec = {**UPSERT, "partition_by": ("name",)}
    write([(1, "a"), (2, "b"), (3, None)], **spec)
    for owner, rows in ((embedded, [(2, "c/d"), (4, "a")]), (table, [(1, "c/d"), (4, None)])):
        engine = engine_of(owner)
        engine.write(frame(spark, rows, KIND), engine.open(owner), WriteSpec(**spec), next_stamp(owner))
    expected = [(1, "c/d"), (2, "c/d"), (3, None), (4, None)]
    assert rows_of(spark, table) == rows_of(spark, embedded) == expected
    assert [stamp.number for stamp in engine_of(table).open(table).stamps()] == [3, 2, 1]
    assert changes(engine_of(table).open(table), 0, 2).kind == "rows"


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_an_engine_refuses_a_table_with_a_feature_that_it_does_not_take_and_another_writes_it(
    spark: SparkSession, table: Location, write: Write
) -> None:
    write([(1, "a")])
    DeltaTable(table.uri).alter.add_feature(TableFeatures.CheckConstraints, allow_protocol_versions_increase=True)
    with pytest.raises(UnsupportedFeatureError, match="checkConstraints, and cannot be written by the memory engine"):
        write([(2, "b")])
    engine_of(replace(table, table_engine="embedded")).write(
        frame(spark, [(2, "b")], KIND), engine_of(table).open(table), WriteSpec(WriteMode.APPEND), next_stamp(table)
    )
    assert rows_of(spark, table) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (None, "there is no table engine `odd`"),
        ("no_such_package.engine:Engine", "cannot be loaded from `no_such_package.engine:Engine`"),
        ("odi_assets.tables.engine:WriteSpec", "is no table engine"),
    ],
)
def test_an_engine_that_cannot_be_had_is_an_error_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str | None, message: str
) -> None:
    if place is not None:
        register_engine("odd", place, tmp_path / "site")
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises(ConfigError, match=message):
        engine_of(Location("/lake/table", table_engine="odd"))


def test_a_package_cannot_take_the_name_of_the_embedded_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register_engine("embedded", "no_such_package:Engine", tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert type(engine_of(Location("/lake/table"))).__name__ == "EmbeddedEngine"


def lake_of_memory(root: Path) -> tuple[Path, dict[str, str]]:
    """The shop with a lake whose tables an engine of another package writes, and the environment that has it."""
    site = root / "site"
    register_engine("memory", "an_engine_of_ours:MemoryEngine", site)
    copyfile(Path(__file__).with_name("memory_engine.py"), site / "an_engine_of_ours.py")
    lake = "lake: {type: local, base_path: lake, table_engine: memory}"
    text = "requires: [engine-memory]\n" + PROJECT.replace("lake: {type: local, base_path: lake}", lake)
    path = os.pathsep.join(map(str, (Path(__file__).parents[2], site)))
    return make_shop(root / "shop", text), environment(PYTHONPATH=path)


@pytest.mark.usefixtures("jvm")
def test_nodes_run_on_the_engine_of_a_package_of_its_own(tmp_path: Path) -> None:
    file, env = lake_of_memory(tmp_path)
    root = file.parent
    for orders in (None, ["3,ann,7"]):
        if orders is not None:
            deliver(root, "orders-2.csv", orders)
        done = odi("run", "shop", cwd=root, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
    assert odi("doctor", cwd=root, env=env).returncode == 0
    orders, spending = (DeltaTable(str(root / "lake" / name)) for name in ("orders", "spending"))
    assert sorted(orders.scan(columns=["id"]).read_all()["id"].to_pylist()) == [1, 2, 3]
    assert {row["customer"]: row["amount"] for row in _rows(spending)} == {"ann": 17, "bob": 5}
    # Spark's own writer gives its files other names.
    assert {Path(uri).name for uri in orders.file_uris()} == {"part-0.parquet"}


def _rows(table: DeltaTable) -> list[dict[str, Any]]:
    found = table.scan().read_all()
    return [dict(zip(found.column_names, values, strict=True)) for values in zip(*_columns(found), strict=True)]


def _columns(table: Any) -> list[list[Any]]:
    return [table[name].to_pylist() for name in table.column_names]


@pytest.mark.slow
def test_a_project_whose_table_engine_nobody_registered_is_refused_at_load(tmp_path: Path) -> None:
    file, env = lake_of_memory(tmp_path)
    assert odi("config", "check", cwd=file.parent, env=env).returncode == 0
    file.write_text(file.read_text(encoding="utf-8").replace("table_engine: memory", "table_engine: memroy"), "utf-8")
    done = odi("config", "check", cwd=file.parent, env=env)
    assert done.returncode != 0
    assert (
        "connections.lake.table_engine: is no table engine that is installed here; there are: embedded, memory"
        in done.stdout
    )
