"""Partitions of nodes that are values, listed or as they come, and of times and values: runs of one and of ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.run import run_pipeline
from odi_assets_tests.orchestration.small_project import make_project

pytestmark = pytest.mark.usefixtures("spark")
PROJECT = """
project: shop_analytics
connections:
  landing: {type: local, base_path: ./landing}
  lake: {type: local, base_path: ./lake}
system: {connection: lake, path: _odibi_system}
pipelines:
  - pipeline: shop
    nodes:
      - name: raw
        read:
          {connection: landing, format: csv, path: extra/*.csv, schema: "id BIGINT, day DATE, region STRING",
           incremental: files}
        write: {connection: lake, path: raw}
      - name: sales
        inputs: {raw: {node: raw, incremental: version}}
        partition: PARTITION
        write: {connection: lake, path: sales, mode: partition_overwrite}
"""
STATIC = "{column: region, values: [us, eu, asia]}"
TWO = "{column: day, start: 2024-01-01, end: 2024-02-01, and: {column: region, values: [us, eu, asia]}}"
DYNAMIC = "{column: region, values: dynamic}"
BOTH = "{column: day, start: 2024-01-01, end: 2024-02-01, and: {column: region, values: dynamic}}"
FIRST = ["1,2024-01-01,us", "2,2024-01-01,eu", "3,2024-01-02,eu", "4,2024-01-02,asia", "5,2024-01-02,us"]
SALES = dg.AssetKey(["shop", "sales"])
RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


def shop(root: Path, partition: str, text: str = PROJECT) -> Project:
    project = make_project(root / "project", text=text.replace("PARTITION", partition))
    land(project, "a.csv", FIRST)
    return project


def land(project: Project, name: str, lines: list[str]) -> None:
    folder = project.root / "landing" / "extra"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n", "utf-8")


def ids(project: Project) -> list[int]:
    return sorted(DeltaTable(str(project.root / "lake" / "sales")).to_pyarrow_table()["id"].to_pylist())


def events(instance: dg.DagsterInstance, since: int = 0) -> dict[str | None, tuple[int, int]]:
    """By partition, the rows that each event says were written, and that the partition has."""
    records = instance.fetch_materializations(SALES, limit=100, ascending=True).records[since:]
    found: dict[str | None, tuple[int, int]] = {}
    for record in records:
        made = record.asset_materialization
        assert made is not None
        assert made.partition not in found
        values = {name: value.value for name, value in made.metadata.items()}
        found[made.partition] = (values["rows_written"], values["dagster/partition_row_count"])
    return found


def backfill(project: Project, instance: dg.DagsterInstance, first: str, last: str | None = None) -> bool:
    job = build_definitions(project).resolve_implicit_global_asset_job_def()
    how: dict[str, Any] = (
        {"partition_key": first} if last is None else {"tags": dict(zip(RANGE, (first, last), strict=True))}
    )
    return job.execute_in_process(instance=instance, asset_selection=[SALES], raise_on_error=False, **how).success


CASES: dict[str, tuple[str, dict[str, int], tuple[str, list[int]], tuple[str, str, list[int], dict[str, int]]]] = {
    "values": (
        STATIC,
        {"us": 2, "eu": 2, "asia": 1},
        ("eu", [2, 3]),
        ("us", "eu", [1, 2, 3, 5], {"us": 2, "eu": 2}),
    ),
    "times and values": (
        TWO,
        {"2024-01-01|us": 1, "2024-01-01|eu": 1, "2024-01-02|eu": 1, "2024-01-02|asia": 1, "2024-01-02|us": 1},
        ("2024-01-02|eu", [3]),
        (
            "2024-01-01|us",
            "2024-01-02|eu",
            [1, 2, 3, 5],
            {"2024-01-01|us": 1, "2024-01-01|eu": 1, "2024-01-02|us": 1, "2024-01-02|eu": 1},
        ),
    ),
    "values as they come": (
        DYNAMIC,
        {"us": 2, "eu": 2, "asia": 1},
        ("eu", [2, 3]),
        ("asia", "eu", [2, 3, 4], {"asia": 1, "eu": 2}),
    ),
    "times and values as they come": (
        BOTH,
        {"2024-01-01|us": 1, "2024-01-01|eu": 1, "2024-01-02|eu": 1, "2024-01-02|asia": 1, "2024-01-02|us": 1},
        ("2024-01-02|eu", [3]),
        (
            "2024-01-01|asia",
            "2024-01-02|eu",
            [2, 3, 4],
            {"2024-01-01|asia": 0, "2024-01-01|eu": 1, "2024-01-02|asia": 1, "2024-01-02|eu": 1},
        ),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_run_of_partitions_replaces_their_rows_and_leaves_those_of_neighbours(
    tmp_path: Path, instance: dg.DagsterInstance, case: Any
) -> None:
    partition, increment, (one, of_one), (first, last, of_range, written) = case
    project = shop(tmp_path, partition)
    assert run_pipeline(project, "shop", instance=instance).success
    assert events(instance) == {key: (rows, rows) for key, rows in increment.items()}
    hwm = project.open_state().get_hwm("shop.sales")
    lost = DeltaTable(str(project.root / "lake" / "sales"))
    lost.delete()
    since = len(increment)
    assert backfill(project, instance, one)
    assert ids(project) == of_one
    assert events(instance, since) == {one: (len(of_one), len(of_one))}
    assert backfill(project, instance, first, last)
    assert ids(project) == sorted({*of_one, *of_range})
    assert events(instance, since + 1) == {key: (rows, rows) for key, rows in written.items()}
    assert project.open_state().get_hwm("shop.sales") == hwm
    # A row that left a partition is gone after a run of it, and not after a run of its neighbour.
    land(project, "b.csv", ["6,2024-01-01,us"])
    assert run_pipeline(project, "shop", instance=instance).success
    assert 6 in ids(project)


def test_runs_add_the_partitions_that_they_meet_and_a_new_instance_learns_them_all(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    project = shop(tmp_path, DYNAMIC)
    assert instance.get_dynamic_partitions("shop/sales") == []
    assert run_pipeline(project, "shop", instance=instance).success
    assert sorted(instance.get_dynamic_partitions("shop/sales")) == ["asia", "eu", "us"]
    land(project, "b.csv", ["6,2024-01-03,africa", "7,2024-01-03,", "8,2024-01-03,a...b"])
    assert run_pipeline(project, "shop", instance=instance).success
    assert sorted(instance.get_dynamic_partitions("shop/sales")) == ["africa", "asia", "eu", "us"]
    assert ids(project) == [1, 2, 3, 4, 5, 6, 7, 8]
    with dg.DagsterInstance.ephemeral() as other:
        assert run_pipeline(project, "shop", instance=other).success
        assert sorted(other.get_dynamic_partitions("shop/sales")) == ["africa", "asia", "eu", "us"]
