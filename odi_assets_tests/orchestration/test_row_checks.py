"""Checks of a node's rows are asset checks of its asset."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
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
      - name: sales
        read:
          connection: landing
          format: csv
          path: extra/*.csv
          schema: "id BIGINT, amount DOUBLE, day DATE"
          incremental: files
%s
        write: {connection: lake, path: sales, mode: append}
        checks:
        - not_null: id
        - {range: {column: amount, min: 0}, severity: warn}
        - row_count: {max: 5}
%s
      - name: copies
        inputs: [sales]
        write: {connection: lake, path: copies}
"""
SALES = dg.AssetKey(["shop", "sales"])


def shop(root: Path, *, partition: str = "", quarantine: str = "") -> Project:
    return make_project(root / "project", text=PROJECT % (partition, quarantine))


def deliver(project: Project, name: str, *lines: str) -> None:
    folder = project.root / "landing" / "extra"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.csv").write_text("".join(f"{line}\n" for line in lines))


def run(project: Project, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    return (
        build_definitions(project).resolve_job_def("shop").execute_in_process(instance=instance, raise_on_error=False)
    )


def checks(instance: dg.DagsterInstance) -> dict[str, tuple[bool, str]]:
    keys = [dg.AssetCheckKey(SALES, name) for name in ("not_null_id", "range_amount", "row_count")]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    evaluations = {key.name: one.evaluation for key, one in found.items()}
    return {name: (one.passed, one.severity.value) for name, one in evaluations.items() if one is not None}


def test_a_step_reports_its_checks_and_keeps_their_results_where_nothing_is_new(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    project = shop(tmp_path)
    deliver(project, "1", "1,5.0,2024-01-01", "2,-1.0,2024-01-01")
    assert run(project, instance).success
    expected = {"not_null_id": (True, "WARN"), "range_amount": (False, "WARN"), "row_count": (True, "WARN")}
    assert checks(instance) == expected
    again = run(project, instance)
    assert again.success
    assert checks(instance) == expected
    assert "shop__copies" in {event.step_key for event in again.all_events if event.is_step_success}


@pytest.mark.parametrize("partition", ["", "        partition: {column: day, every: day, start: 2024-01-01}"])
def test_a_blocked_increment_fails_its_step_with_the_check_that_stopped_it(
    partition: str, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    project = shop(tmp_path, partition=partition)
    deliver(project, "1", "1,5.0,2024-01-01", ",1.0,2024-01-01")
    failed = run(project, instance)
    assert not failed.success
    (failure,) = failed.get_step_failure_events()
    text = (
        failure.step_failure_data.user_failure_data.description if failure.step_failure_data.user_failure_data else ""
    )
    assert text.splitlines()[0] == "shop.sales: its increment fails 1 check, and nothing was committed:"
    assert text.splitlines()[1].startswith("→ correct the rows where they come from")
    assert checks(instance)["not_null_id"] == (False, "ERROR")
    assert not [event for event in failed.all_events if event.is_step_start and event.step_key == "shop__copies"]


def test_rows_that_go_to_the_quarantine_are_a_warning_and_the_nodes_below_run(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    project = shop(tmp_path, quarantine="        quarantine: sales_bad")
    deliver(project, "1", "1,5.0,2024-01-01", ",1.0,2024-01-01")
    assert run(project, instance).success
    assert checks(instance)["not_null_id"] == (False, "WARN")


def test_checks_that_stop_an_increment_are_blocking(tmp_path: Path) -> None:
    for quarantine, expected in (("", {"not_null_id", "row_count"}), ("        quarantine: bad", {"row_count"})):
        made = build_definitions(shop(tmp_path / (quarantine.strip() or "none"), quarantine=quarantine))
        specs = made.resolve_asset_graph().get(SALES).check_keys
        layer = made.resolve_asset_graph()
        assert {key.name for key in specs if layer.get_check_spec(key).blocking} == expected
