"""Assets that are no nodes, in runs that are executed again: no row is appended twice.

Dagster reads the annotations of assets as they stand, so they are not postponed here.
"""

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions

MANAGER = "delta_io_manager"
DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-10")
APPENDING = ("plain", "one", "two", "below")


def rows(project: Project, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(DeltaTable(str(project.root / "lake" / path)).scan()).to_pylist()
    return sorted(found, key=str)


def job_that_fails_after_its_outputs() -> dg.JobDefinition:
    """A job of assets that fail once each where the file ``faults`` of the project names them."""
    project = Project.load()
    one_row, faults = pa.table({"id": [1]}), project.root / "faults"
    appended: dict[str, Any] = {"io_manager_key": MANAGER, "metadata": {"mode": "append"}}
    daily: dict[str, Any] = {"partitions_def": DAILY, "backfill_policy": dg.BackfillPolicy.single_run()}

    def fails(name: str) -> None:
        left = faults.read_text().split()
        if name in left:
            faults.write_text(" ".join(other for other in left if other != name))
            raise ValueError(name)

    @dg.asset(**appended)
    def plain() -> Any:
        return one_row

    @dg.asset(io_manager_key=MANAGER)
    def whole() -> Any:
        return one_row

    @dg.asset(io_manager_key=MANAGER, ins={"plain": dg.AssetIn(metadata={"incremental": True})})
    def gained(plain: pa.Table) -> Any:
        return plain

    @dg.multi_asset(
        outs={name: dg.AssetOut(**appended) for name in ("one", "two")}, retry_policy=dg.RetryPolicy(max_retries=1)
    )
    def both() -> Any:
        yield dg.Output(one_row, "one")
        fails("retry")
        yield dg.Output(one_row, "two")

    @dg.asset(**appended, **daily, check_specs=[dg.AssetCheckSpec("checked", asset="late")])
    def late() -> Any:
        yield dg.Output(pa.table({"day": ["2024-01-01", "2024-01-02"], "id": [1, 1]}))
        fails("late")
        yield dg.AssetCheckResult(passed=True, check_name="checked")

    @dg.asset(**appended, deps=[plain, whole, gained])
    def below() -> Any:
        fails("below")
        return one_row

    assets = [plain, whole, gained, both, late, below]
    first, last = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
    job = dg.define_asset_job(
        "failing",
        selection=[key for asset in assets for key in asset.keys],
        executor_def=dg.in_process_executor,
        tags={first: "2024-01-01", last: "2024-01-02"},
    )
    own = dg.Definitions(assets=assets, jobs=[job])
    return dg.Definitions.merge(build_definitions(project), own).resolve_job_def("failing")


@pytest.mark.slow
def test_a_run_that_failed_after_dagster_recorded_the_commit_appends_no_row_twice(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is executed again from the failure; and the next run, with all of its steps."""
    monkeypatch.setenv("ODI_PROJECT", str(project.path))
    job, faults = dg.reconstructable(job_that_fails_after_its_outputs), project.root / "faults"
    for runs in (1, 2):
        faults.write_text("retry late below")
        failed = dg.execute_job(job, instance=instance)
        assert (failed.success, faults.read_text()) == (False, "")
        again = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
        if runs == 2:
            again = dg.ReexecutionOptions(parent_run_id=failed.run_id)
        assert dg.execute_job(job, instance=instance, reexecution_options=again).success
        assert {name: rows(project, name) for name in APPENDING} == dict.fromkeys(APPENDING, [{"id": 1}] * runs)
        days = [{"day": f"2024-01-0{day}", "id": 1} for day in (1, 2) for _ in range(runs)]
        assert sorted(rows(project, "late"), key=str) == sorted(days, key=str)
        # What an increment gave stays. What replaces a table is written again where all steps are.
        assert rows(project, "gained") == [{"id": 1}]
        assert DeltaTable(str(project.root / "lake" / "whole")).version() == (0 if runs == 1 else 2)
