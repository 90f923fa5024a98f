"""The check of a node warns of rows that arrived below its high-water mark."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from odi_assets.orchestration.definitions import build_definitions
from odi_assets_tests.orchestration.small_project import land, make_project

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
          path: sales/*.csv
          schema: "id BIGINT, day DATE, shop STRING, amount DOUBLE"
          options: {header: true}
          incremental: {mode: stateful, column: day}
        write: {connection: lake, path: sales, mode: append}
"""


@pytest.mark.usefixtures("spark")
def test_rows_that_arrive_below_the_mark_are_a_warning_of_the_check(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    project = make_project(tmp_path / "project", "2024-01-02", text=PROJECT)
    key = dg.AssetCheckKey(dg.AssetKey(["shop", "sales"]), "up_to_date")

    def check() -> dg.AssetCheckEvaluation:
        job = build_definitions(project).resolve_job_def("shop")
        assert job.execute_in_process(instance=instance).success
        found = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key].evaluation
        assert found is not None
        return found

    assert check().passed
    land(project.root, "2024-01-01")
    land(project.root, "2024-01-03")
    late = check()
    assert (late.passed, late.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "3 rows arrived at or below the HWM" in str(late.metadata["rows_left"].value)
