"""Dagster's retries, and two runs at once: what was committed is never committed again."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from odi_assets.config.graph import NodeKey
from odi_assets.errors import StateError
from odi_assets.nodes import run_node
from odi_assets.nodes.execution import materialize
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import RunSummary
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.naming import asset_key
from odi_assets.orchestration.run import run_pipeline

pytestmark = pytest.mark.usefixtures("spark")
RAW = NodeKey("shop", "raw_sales")
BELOW = ("raw_sales", "sales")


def job() -> dg.JobDefinition:
    """The job of the project that ``$ODI_PROJECT`` names: Dagster builds it anew for each run of it."""
    return build_definitions(Project.load()).resolve_job_def("shop")


@pytest.fixture
def failing_after_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """State fails right after the first commit of raw_sales."""
    real, failed = materialize.advance, []

    def advance(plan: Any, *arguments: Any) -> None:
        if plan.node.key == RAW and not failed:
            failed.append(True)
            raise StateError("the state store went away")
        real(plan, *arguments)

    monkeypatch.setattr(materialize, "advance", advance)


def loaded(project: Project) -> list[int]:
    return sorted(DeltaTable(str(project.root / "lake" / "raw_sales")).to_pyarrow_table()["id"].to_pylist())


def rows_of_history(project: Project) -> list[tuple[str, int]]:
    runs = project.open_state().list_runs(pipeline="shop", node="raw_sales")
    return [(row.status.value, row.attempt) for row in reversed(runs)]


@pytest.mark.usefixtures("failing_after_its_commit")
def test_a_step_that_dagster_retries_after_its_commit_duplicates_nothing(
    project: Project, instance: dg.DagsterInstance
) -> None:
    nodes = build_definitions(project)
    retrying = dg.define_asset_job(
        "retrying",
        selection=[asset_key(NodeKey("shop", node)) for node in BELOW],
        op_retry_policy=dg.RetryPolicy(max_retries=1),
        executor_def=dg.in_process_executor,
    )
    found = dg.Definitions.merge(nodes, dg.Definitions(jobs=[retrying])).resolve_job_def("retrying")
    outcome = found.execute_in_process(instance=instance, raise_on_error=False)
    assert outcome.success
    assert loaded(project) == [1, 2, 3, 4, 5]
    assert rows_of_history(project) == [("FAILURE", 1), ("SUCCESS", 2)]
    (told,) = outcome.asset_materializations_for_node("shop__raw_sales")
    assert (told.metadata["rows_written"].value, told.metadata["delta_version"].value) == (5, 0)
    assert project.open_state().get_hwm("shop.raw_sales") is not None
    assert DeltaTable(str(project.root / "lake" / "sales")).to_pyarrow_table().num_rows == 5


@pytest.mark.usefixtures("failing_after_its_commit")
def test_a_failed_run_that_dagster_executes_again_from_the_failure_duplicates_nothing(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODI_PROJECT", str(project.path))
    again = dg.reconstructable(job)
    failed = dg.execute_job(again, instance=instance, raise_on_error=False)
    assert not failed.success
    options = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
    assert dg.execute_job(again, instance=instance, reexecution_options=options, raise_on_error=False).success
    assert loaded(project) == [1, 2, 3, 4, 5]
    assert [status for status, _ in rows_of_history(project)] == ["FAILURE", "NO_DATA"]
    assert DeltaTable(str(project.root / "lake" / "revenue")).to_pyarrow_table().num_rows == 2


def test_of_two_runs_at_once_the_one_that_comes_second_names_the_first(
    project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, winners = run_node.commit, []

    def overtaken(*arguments: Any, **named: Any) -> Any:
        if not winners:
            winners.append(None)
            winners[0] = run_pipeline(project, "shop", nodes=["raw_sales"], instance=instance)
        return real(*arguments, **named)

    monkeypatch.setattr(run_node, "commit", overtaken)
    second = run_pipeline(project, "shop", nodes=["raw_sales"], instance=instance)
    first: RunSummary | None = winners[0]
    assert first is not None
    assert (first.success, second.success) == (True, False)
    (result,) = second.results
    assert f"FencedError: run {second.run_id} lost fence 1" in str(result.error)
    assert f"run {first.run_id} committed it first; nothing was written" in str(result.error)
    assert loaded(project) == [1, 2, 3, 4, 5]
