"""The new-data sensor: HWMs and past runs decide, never its cursor."""

from __future__ import annotations

import json
import time
import uuid

import dagster as dg
import pytest

from odi_assets.config.models import AutomationConfig
from odi_assets.nodes.project import Project
from odi_assets.orchestration.automation.sensors import POSITION_TAG, evaluate
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.run import run_pipeline
from odi_assets.orchestration.runs.in_flight import PROCESS_TAG
from odi_assets.util.process import process_name
from odi_assets_tests.orchestration.small_project import NODES, land

_AUTOMATION = AutomationConfig()
FIRST_WAIT, LONGEST_WAIT = _AUTOMATION.first_pause.total_seconds(), _AUTOMATION.longest_pause.total_seconds()


def _tick(
    project: Project, instance: dg.DagsterInstance, *, later: float = 0.0, cursor: str | None = None
) -> dg.RunRequest | str:
    context = dg.build_sensor_context(instance=instance, cursor=cursor)
    answer = evaluate(context, project, "shop", now=time.time() + later)
    return answer if isinstance(answer, dg.RunRequest) else str(answer.skip_message)


def _requested(project: Project, instance: dg.DagsterInstance, *, later: float = 0.0) -> dg.RunRequest:
    answer = _tick(project, instance, later=later)
    assert isinstance(answer, dg.RunRequest), answer
    return answer


def _skipped(project: Project, instance: dg.DagsterInstance, *, later: float = 0.0) -> str:
    answer = _tick(project, instance, later=later)
    assert isinstance(answer, str), answer
    return answer


def _add_run(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus, tags: dict[str, str] | None = None, job: str = "shop"
) -> dg.DagsterRun:
    run = dg.DagsterRun(job_name=job, run_id=str(uuid.uuid4()), status=dg.DagsterRunStatus.NOT_STARTED, tags=tags or {})
    instance.add_run(run)
    if status is dg.DagsterRunStatus.FAILURE:
        instance.report_run_failed(run, "failed by a test")
    elif status is dg.DagsterRunStatus.STARTED:
        instance.report_dagster_event(
            dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, job_name=job), run_id=run.run_id
        )
    return run


def _pick(instance: dg.DagsterInstance, *nodes: str, tags: dict[str, str] | None = None) -> dg.DagsterRun:
    """A run of assets that were picked in the UI."""
    run = dg.DagsterRun(
        job_name="__ASSET_JOB",
        run_id=str(uuid.uuid4()),
        asset_selection=frozenset(dg.AssetKey(["shop", node]) for node in nodes),
        status=dg.DagsterRunStatus.NOT_STARTED,
        tags=tags or {},
    )
    return instance.add_run(run)


def _nodes(request: dg.RunRequest) -> set[str]:
    return {key.path[-1] for key in request.asset_selection or ()}


def test_a_run_is_requested_while_nothing_has_been_loaded(project: Project, instance: dg.DagsterInstance) -> None:
    request = _requested(project, instance)
    assert request.run_key is None, "Dagster would never request a run of a key whose run failed again"
    assert request.tags[POSITION_TAG]


def test_the_sensor_of_the_definitions_requests_runs_of_the_pipelines_job(
    project: Project, instance: dg.DagsterInstance
) -> None:
    definitions = build_definitions(project)
    sensor = definitions.resolve_sensor_def("shop_new_data")
    repository = definitions.get_repository_def()
    with dg.build_sensor_context(instance=instance, repository_def=repository) as context:
        tick = sensor.evaluate_tick(context)
    assert [request.job_name or sensor.job_name for request in tick.run_requests or ()] == ["shop"]


@pytest.mark.usefixtures("spark")
class TestAfterALoad:
    @pytest.fixture(autouse=True)
    def _load(self, project: Project, instance: dg.DagsterInstance) -> None:
        assert run_pipeline(project, "shop", instance=instance).success

    def test_nothing_is_requested_and_the_tick_says_how_far_it_looked(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        reason = _skipped(project, instance)
        assert "Nothing new" in reason
        assert "2024-01-02.csv" in reason

    def test_a_new_file_requests_a_run(self, project: Project, instance: dg.DagsterInstance) -> None:
        land(project.root, "2024-01-03")
        assert _requested(project, instance)

    def test_a_node_that_is_behind_its_upstream_requests_a_run(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        land(project.root, "2024-01-03")
        assert run_pipeline(project, "shop", nodes=["raw_sales"], instance=instance).success
        assert _requested(project, instance)

    def test_the_cursor_decides_nothing(self, project: Project, instance: dg.DagsterInstance) -> None:
        land(project.root, "2024-01-03")
        context = dg.build_sensor_context(instance=instance)
        evaluate(context, project, "shop")
        assert context.cursor is not None
        assert json.loads(context.cursor)["ahead"]
        assert isinstance(_tick(project, instance, cursor=context.cursor), dg.RunRequest)


class TestWhileARunIsInFlight:
    @pytest.mark.parametrize("status", [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTED])
    def test_none_is_requested(
        self, project: Project, instance: dg.DagsterInstance, status: dg.DagsterRunStatus
    ) -> None:
        run = _add_run(instance, status)
        assert run.run_id in _skipped(project, instance)

    def test_runs_of_other_jobs_do_not_matter(self, project: Project, instance: dg.DagsterInstance) -> None:
        _add_run(instance, dg.DagsterRunStatus.STARTED, job="another")
        assert _requested(project, instance)

    def test_assets_of_the_pipeline_that_were_picked_in_the_ui_count(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        run = _pick(instance, *NODES)
        assert run.run_id in _skipped(project, instance)

    def test_only_the_nodes_it_holds_are_left_out_with_those_below_them(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        _pick(instance, "sales")
        assert _nodes(_requested(project, instance)) == {"raw_sales"}

    def test_a_run_of_a_job_of_somebody_else_counts_by_the_assets_it_holds(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        own = dg.define_asset_job("nightly", selection=[dg.AssetKey(["shop", node]) for node in NODES])
        definitions = dg.Definitions.merge(build_definitions(project), dg.Definitions(jobs=[own]))
        run = instance.create_run_for_job(definitions.resolve_job_def("nightly"))
        assert run.asset_selection is None
        assert run.run_id in _skipped(project, instance)

    @pytest.mark.parametrize(
        "tags",
        [
            {"dagster/partition": "2024-01-01"},
            {"dagster/asset_partition_range_start": "2024-01-01", "dagster/asset_partition_range_end": "2024-01-02"},
            {"odi/from": "2024-01-01", "odi/to": "2024-01-02"},
        ],
    )
    def test_backfills_do_not_count(self, project: Project, instance: dg.DagsterInstance, tags: dict[str, str]) -> None:
        _pick(instance, "sales_by_day", "revenue", tags=tags)
        assert _nodes(_requested(project, instance)) == set(NODES)

    def test_a_run_whose_process_was_killed_does_not_count(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        gone = process_name(1).rpartition("/")[0] + "/0"
        run = _add_run(instance, dg.DagsterRunStatus.STARTED, {PROCESS_TAG: gone})
        assert _requested(project, instance)
        found = instance.get_run_by_id(run.run_id)
        assert found is not None
        assert found.status is dg.DagsterRunStatus.FAILURE


class TestAfterAFailedRun:
    def test_the_same_position_is_requested_again_after_a_wait_that_grows(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        wait = FIRST_WAIT
        for tries in range(1, 10):
            request = _requested(project, instance, later=LONGEST_WAIT + 5)
            _add_run(instance, dg.DagsterRunStatus.FAILURE, dict(request.tags))
            assert f"{tries} run" in _skipped(project, instance, later=wait - 10)
            assert _requested(project, instance, later=wait + 10)
            wait = min(wait * 2, LONGEST_WAIT)

    def test_a_new_position_is_requested_at_once(self, project: Project, instance: dg.DagsterInstance) -> None:
        request = _requested(project, instance)
        _add_run(instance, dg.DagsterRunStatus.FAILURE, dict(request.tags))
        assert _skipped(project, instance)
        land(project.root, "2024-01-03")
        assert _requested(project, instance).tags[POSITION_TAG] != request.tags[POSITION_TAG]


def test_a_source_that_cannot_be_looked_at_is_reported_and_does_not_stop_the_others(
    project: Project, instance: dg.DagsterInstance
) -> None:
    log = project.root / "lake" / "raw_sales" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("not a commit", encoding="utf-8")
    context = dg.build_sensor_context(instance=instance)
    assert isinstance(evaluate(context, project, "shop"), dg.RunRequest)
    assert context.cursor is not None
    assert list(json.loads(context.cursor)["errors"]) == ["shop.raw_sales", "shop.sales"]


def test_a_scheduled_run_is_not_bounded_although_the_job_holds_a_partitioned_asset(
    project: Project, instance: dg.DagsterInstance
) -> None:
    definitions = build_definitions(project)
    schedule = definitions.resolve_schedule_def("shop_schedule")
    with dg.build_schedule_context(instance=instance, repository_def=definitions.get_repository_def()) as context:
        tick = schedule.evaluate_tick(context)
    (request,) = tick.run_requests or ()
    assert request.partition_key is None
    assert request.tags["dagster/schedule_name"] == "shop_schedule"
