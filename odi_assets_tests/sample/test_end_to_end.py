"""The sample as a newcomer runs it: the tables hold what the files hold, in two parts, killed in between, run again.

What they should hold is counted with the ``csv`` module alone.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import NodeResult
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets.sample.landing import arrive, hold
from odi_assets.state.records import RunStatus
from odi_assets_tests.tables.support import read_table


def delivered(folder: Path) -> list[dict[str, str]]:
    """Every flight of the landed files."""
    rows: list[dict[str, str]] = []
    for file in sorted((folder / "data" / "landing" / "flights").glob("*.csv")):
        with file.open(encoding="utf-8", newline="") as stream:
            rows += csv.DictReader(stream)
    return rows


def run_all(folder: Path, spark: SparkSession, run_id: str) -> dict[str, NodeResult]:
    project = Project.load(folder / "odibi.yaml")
    history = RunHistory(project, project.open_state(), run_id)
    keys = project.pipeline_nodes("flights")
    return {key.node: run_node(NodeRun(history, key, lambda: spark)) for key in keys}


def table(folder: Path, spark: SparkSession, node: str) -> DataFrame:
    project = Project.load(folder / "odibi.yaml")
    return read_table(spark, TableHandle.open(project.target(NodeKey("flights", node))))


def sums(rows: list[dict[str, str]]) -> dict[str, int]:
    return {name: sum(int(row[name]) for row in rows if row[name]) for name in ("dep_delay", "arr_delay", "distance")}


def require_tables_to_hold(folder: Path, spark: SparkSession) -> None:
    """Every table against the landed files."""
    source = delivered(folder)
    per_day = Counter(f"{row['year']}-{int(row['month']):02d}-{int(row['day']):02d}" for row in source)
    weather = sum(
        len(file.read_text(encoding="utf-8").splitlines()) for file in (folder / "data/landing/weather").glob("*.jsonl")
    )
    assert table(folder, spark, "raw_flights").count() == len(source)
    assert table(folder, spark, "raw_weather").count() == weather
    for node in ("flights", "flights_enriched"):
        rows = table(folder, spark, node).select(
            "time_hour", "carrier", "flight", "local_date", "dep_delay", "arr_delay", "distance"
        )
        collected: list[Any] = rows.collect()
        assert Counter(str(row["local_date"]) for row in collected) == per_day
        assert len({(row["time_hour"], row["carrier"], row["flight"]) for row in collected}) == len(source)
        for name, total in sums(source).items():
            assert sum(row[name] for row in collected if row[name] is not None) == total, (node, name)
    delays = table(folder, spark, "delays")
    assert delays.groupBy("local_date", "carrier").count().where("count > 1").count() == 0
    by_day_and_carrier = Counter((f"2013-{int(r['month']):02d}-{int(r['day']):02d}", r["carrier"]) for r in source)
    assert {(str(r["local_date"]), r["carrier"]): r["flights"] for r in delays.collect()} == by_day_and_carrier


def test_two_parts_of_january_end_in_tables_that_hold_the_files_and_a_third_run_reads_nothing(
    project: Path, spark: SparkSession
) -> None:
    hold(project, 15)
    first = run_all(project, spark, "first")
    require_tables_to_hold(project, spark)
    arrive(project, 16)
    second = run_all(project, spark, "second")
    require_tables_to_hold(project, spark)
    assert first["raw_flights"].rows_written + second["raw_flights"].rows_written == 27_004
    assert second["flights"].rows_read == second["raw_flights"].rows_written
    assert {second[name].status for name in ("airlines", "airports", "planes")} == {RunStatus.NO_DATA}
    third = run_all(project, spark, "third")
    assert {result.status for result in third.values()} == {RunStatus.NO_DATA}
    assert len(Project.load(project / "odibi.yaml").open_state().list_runs(pipeline="flights")) == 24


def test_weather_that_comes_late_is_joined_to_the_flights_that_were_loaded_before(
    project: Path, spark: SparkSession
) -> None:
    hold(project, 2)
    late = project / "data/landing/weather/2013-01-02.jsonl"
    lines = late.read_text(encoding="utf-8")
    late.unlink()
    run_all(project, spark, "first")
    assert flights_with_weather(project, spark) == 0
    late.write_text(lines, encoding="utf-8")
    again = run_all(project, spark, "second")
    assert again["flights_enriched"].partitions == ("2013-01-02",)
    assert flights_with_weather(project, spark) > 800
    require_tables_to_hold(project, spark)


def flights_with_weather(folder: Path, spark: SparkSession) -> int:
    return table(folder, spark, "flights_enriched").where("local_date = '2013-01-02' AND temp IS NOT NULL").count()


def test_a_run_that_is_killed_between_two_nodes_and_run_again_ends_in_the_same_tables(
    project: Path, spark: SparkSession
) -> None:
    hold(project, 3)
    environment = {key: value for key, value in os.environ.items() if key not in {"DAGSTER_HOME", "ODI_PROJECT"}}
    with subprocess.Popen(
        [sys.executable, "-m", "odi_assets.cli", "run", "flights"],
        cwd=project,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stderr is not None
        seen = []
        for line in child.stderr:
            seen.append(line)
            if line.startswith("[4/8]"):
                break
        os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL, "".join(seen)
    run_all(project, spark, "after the kill")
    require_tables_to_hold(project, spark)
    assert {result.status for result in run_all(project, spark, "once more").values()} == {RunStatus.NO_DATA}
