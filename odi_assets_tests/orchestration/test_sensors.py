"""The new-data sensor: HWMs and past runs decide, never its cursor."""

from __future__ import annotations

import json
import textwrap
import threading
import time
import uuid
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import AutomationConfig
from odi_assets.nodes.history.attempts import record
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.orchestration.automation import source_lag
from odi_assets.orchestration.automation.attempts import due_tags
from odi_assets.orchestration.automation.sensors import POSITION_TAG, evaluate
from odi_assets.orchestration.automation.source_lag import Watch
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.run import run_pipeline
from odi_assets.orchestration.runs.in_flight import PROCESS_TAG, whole_run_to_begin
from odi_assets.orchestration.runs.reconcile import reconcile
from odi_assets.sources.files.source import LandingFiles
from odi_assets.state.records import RunStatus
from odi_assets.util.process import process_name
from odi_assets_tests.orchestration.small_project import NODES, PROJECT_FILE, land, make_project

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
    with warnings.catch_warnings():
        # Dagster's, of tags that it will not take any more.
        warnings.simplefilter("error")
        dg.RunRequest(tags={**request.tags, **due_tags({NodeKey("shop", "n" * 200): "position"})})


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

    def test_a_run_of_another_environment_does_not_count(self, tmp_path: Path, instance: dg.DagsterInstance) -> None:
        text = PROJECT_FILE + "environments: {prod: {connections: {lake: {base_path: prod_lake}}}}\n"
        project = make_project(tmp_path, "2024-01-01", text=text)
        prod = Project.load(project.path, "prod")
        job = build_definitions(prod).resolve_job_def("shop")
        run = instance.create_run_for_job(job, tags=job.run_tags)
        assert run.run_id in _skipped(prod, instance)
        assert _nodes(_requested(project, instance)) == set(NODES)
        assert whole_run_to_begin(prod, instance, prod.graph.order("shop")) is not None
        assert whole_run_to_begin(project, instance, project.graph.order("shop")) is None

    def test_a_position_that_another_environment_gave_up_is_requested(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        text = PROJECT_FILE + "environments: {prod: {connections: {lake: {base_path: prod_lake}}}}\n"
        project = make_project(tmp_path, "2024-01-01", text=text)
        prod = Project.load(project.path, "prod")
        run = _add_run(instance, dg.DagsterRunStatus.NOT_STARTED, dict(_requested(prod, instance).tags))
        instance.report_run_canceled(run)
        assert "was cancelled" in _skipped(prod, instance)
        assert _requested(project, instance)

    def test_a_run_whose_process_was_killed_does_not_count(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        gone = process_name(1).rpartition("/")[0] + "/0"
        run = _add_run(instance, dg.DagsterRunStatus.STARTED, {PROCESS_TAG: gone})
        assert _requested(project, instance)
        found = instance.get_run_by_id(run.run_id)
        assert found is not None
        assert found.status is dg.DagsterRunStatus.FAILURE


class TestWhichNodesAreRequested:
    def test_all_are_where_nothing_was_run(self, project: Project, instance: dg.DagsterInstance) -> None:
        # `shops` is not watched, but another node reads its table, which is not there yet.
        assert _nodes(_requested(project, instance)) == set(NODES)

    @pytest.mark.usefixtures("spark")
    def test_those_that_are_due_and_those_below_them(self, tmp_path: Path, instance: dg.DagsterInstance) -> None:
        text = PROJECT_FILE + textwrap.indent(textwrap.dedent(LOGS), " " * 6)
        project = make_project(tmp_path, "2024-01-01", text=text)
        (tmp_path / "landing" / "logs").mkdir()
        (tmp_path / "landing" / "logs" / "1.csv").write_text("1\n", encoding="utf-8")
        assert run_pipeline(project, "shop", instance=instance).success
        (tmp_path / "landing" / "logs" / "2.csv").write_text("2\n", encoding="utf-8")
        assert _nodes(_requested(project, instance)) == {"logs", "log_count"}
        land(project.root, "2024-01-03")
        found = _requested(project, instance)
        assert _nodes(found) == {"logs", "log_count", "raw_sales", "sales", "sales_by_day", "revenue"}
        assert {tag for tag in found.tags if tag.startswith("odi.due/")} == {"odi.due/logs", "odi.due/raw_sales"}
        definitions = build_definitions(project)
        job = definitions.resolve_job_def("shop").get_subset(asset_selection=set(found.asset_selection or ()))
        assert job.execute_in_process(instance=instance, tags=dict(found.tags)).success
        assert "Nothing new" in _skipped(project, instance)


LOGS = """
- name: logs
  read: {connection: landing, format: csv, path: logs/*.csv, schema: "id BIGINT", incremental: files}
  write: {connection: lake, path: logs, mode: append}
- name: log_count
  inputs: {logs: {node: logs, incremental: version}}
  transform: {sql: "SELECT count(*) AS n FROM logs"}
  write: {connection: lake, path: log_count, mode: overwrite}
"""


class TestASourceThatHangs:
    @pytest.fixture
    def hanging(self, tmp_path: Path) -> Project:
        """The small project; nobody answers where one of its sources is."""
        return make_project(tmp_path, "2024-01-01", text=PROJECT_FILE + "automation: {look_timeout: 1s}\n")

    @pytest.mark.slow
    def test_costs_its_deadline_and_is_named(
        self, hanging: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gate, real = threading.Event(), LandingFiles.position
        monkeypatch.setattr(LandingFiles, "position", lambda source: (gate.wait(30), real(source))[1])
        watch, started = Watch(hanging, "shop"), time.monotonic()
        context = dg.build_sensor_context(instance=instance)
        evaluate(context, hanging, "shop", watch=watch)
        assert time.monotonic() - started < 5
        found = json.loads(context.cursor or "")
        assert "did not answer within 1 s" in found["errors"]["shop.raw_sales"]
        assert list(found["ahead"]) == ["shop.sales", "shop.sales_by_day", "shop.revenue"]
        # It is not asked again while it hangs, and its check says so once.
        evaluate(dg.build_sensor_context(instance=instance, cursor=context.cursor), hanging, "shop", watch=watch)
        (said,) = _checks(instance, "raw_sales")
        assert (said.passed, said.severity) == (False, dg.AssetCheckSeverity.WARN)
        gate.set()
        time.sleep(0.2)
        evaluate(dg.build_sensor_context(instance=instance, cursor=context.cursor), hanging, "shop", watch=watch)
        assert [check.passed for check in _checks(instance, "raw_sales")] == [False, True]


def _checks(instance: dg.DagsterInstance, node: str) -> list[dg.AssetCheckEvaluation]:
    """What was said of a node's check outside of runs, oldest first."""
    key = dg.AssetCheckKey(dg.AssetKey(["shop", node]), "up_to_date")
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    found = [record.evaluation for record in reversed(records)]
    return [evaluation for evaluation in found if evaluation is not None]


class TestWhatIsRemembered:
    @pytest.mark.usefixtures("spark")
    def test_a_node_is_planned_only_if_something_changed(
        self, project: Project, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        planned: list[str] = []

        def counted(*arguments: Any) -> Any:
            planned.append(str(arguments[2]))
            return plan_node(*arguments)

        monkeypatch.setattr(source_lag, "plan_node", counted)
        assert run_pipeline(project, "shop", instance=instance).success
        context = dg.build_sensor_context(instance=instance)
        evaluate(context, project, "shop", watch=Watch(project, "shop"))
        assert len(planned) == 4
        # Another process has the cursor.
        evaluate(dg.build_sensor_context(instance=instance, cursor=context.cursor), project, "shop")
        assert len(planned) == 4
        land(project.root, "2024-01-03")
        assert isinstance(_tick(project, instance, cursor=context.cursor), dg.RunRequest)
        assert planned[4:] == ["shop.raw_sales"]
        # What was found for another project file counts for nothing.
        project.path.write_text(project.path.read_text() + "\n")
        _tick(Project.load(project.path), instance, cursor=context.cursor)
        assert len(planned) == 9

    def test_files_that_settle_are_seen_although_nothing_changes(self, tmp_path: Path) -> None:
        text = PROJECT_FILE.replace("incremental: files", "incremental: {mode: files, settle: 1s}")
        project = make_project(tmp_path, text=text)
        land(project.root, "2024-01-01")
        watch = Watch(project, "shop")
        assert NodeKey("shop", "raw_sales") in watch.look(10).current
        time.sleep(1.2)
        assert NodeKey("shop", "raw_sales") in watch.look(10).ahead

    @pytest.mark.parametrize("cursor", ["", "not JSON", "[1]", '{"seen": {"shop.gone": "x"}}'])
    def test_a_cursor_of_somebody_else_does_no_harm(
        self, project: Project, instance: dg.DagsterInstance, cursor: str
    ) -> None:
        assert isinstance(_tick(project, instance, cursor=cursor), dg.RunRequest)


def test_the_next_tick_begins_with_those_for_which_there_was_no_time(project: Project) -> None:
    watch = Watch(project, "shop")
    first = watch.look(-1)
    assert set(first.unseen) | set(first.ahead) == set(watch.nodes)
    assert not watch.look(10).unseen


class TestAfterAFailedRun:
    def test_no_more_than_max_attempts_are_requested_and_that_is_said_once(
        self, tmp_path: Path, instance: dg.DagsterInstance
    ) -> None:
        text = PROJECT_FILE + "automation: {max_attempts: 2, first_pause: 1s, longest_pause: 1s}\n"
        project = make_project(tmp_path, "2024-01-01", text=text)
        for _ in range(2):
            request = _requested(project, instance, later=10)
            _add_run(instance, dg.DagsterRunStatus.FAILURE, dict(request.tags))
        context = dg.build_sensor_context(instance=instance)
        for _ in range(2):
            context = dg.build_sensor_context(instance=instance, cursor=context.cursor)
            answer = evaluate(context, project, "shop", now=time.time() + 10**6)
            assert isinstance(answer, dg.SkipReason)
            assert "2 runs for this did not take it in; no more are requested" in str(answer.skip_message)
        (said,) = _checks(instance, "raw_sales")
        assert (said.passed, said.severity) == (False, dg.AssetCheckSeverity.ERROR)
        land(project.root, "2024-01-02")
        assert "raw_sales" in _nodes(_requested(project, instance))

    def test_a_position_whose_run_was_cancelled_is_not_requested_again(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        request = _requested(project, instance)
        run = _add_run(instance, dg.DagsterRunStatus.NOT_STARTED, dict(request.tags))
        instance.report_run_canceled(run)
        assert f"run {run.run_id} for this was cancelled" in _skipped(project, instance, later=10**6).lower()
        land(project.root, "2024-01-03")
        assert "raw_sales" in _nodes(_requested(project, instance))

    def test_a_run_in_which_the_node_was_skipped_does_not_count(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        request = _requested(project, instance)
        run = _add_run(instance, dg.DagsterRunStatus.FAILURE, dict(request.tags))
        skipped = NodeResult(NodeKey("shop", "raw_sales"), RunStatus.SKIPPED, 0.0, "")
        record(project, project.open_state(), skipped, RunInfo(run.run_id))
        failed = NodeResult(NodeKey("shop", "shops"), RunStatus.FAILURE, 0.0, "")
        record(project, project.open_state(), failed, RunInfo(run.run_id))
        assert "raw_sales" in _nodes(_requested(project, instance))

    def test_a_run_that_ended_before_any_node_began_counts_for_all_of_them(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        request = _requested(project, instance)
        _add_run(instance, dg.DagsterRunStatus.FAILURE, dict(request.tags))
        assert {row.status for row in reconcile(project, instance)} == {RunStatus.SKIPPED}
        assert "1 run for this did not take it in; the next one is requested in" in _skipped(project, instance)

    def test_nodes_that_only_follow_the_first_run_of_a_broken_one_wait_with_it(
        self, project: Project, instance: dg.DagsterInstance
    ) -> None:
        request = _requested(project, instance)
        run = _add_run(instance, dg.DagsterRunStatus.FAILURE, dict(request.tags))
        # Else they would be requested, and the broken one with them, at each tick.
        for node in ("sales", "sales_by_day", "revenue"):
            skipped = NodeResult(NodeKey("shop", node), RunStatus.SKIPPED, 0.0, "")
            record(project, project.open_state(), skipped, RunInfo(run.run_id))
        assert "the next one is requested in" in _skipped(project, instance)

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


@pytest.mark.slow
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


WHOLE = """
      - name: totals
        inputs: [sales]
        transform: {function: "totals:of"}
        write: {connection: lake, path: totals, mode: overwrite}
"""
TOTALS = """
from pathlib import Path

def of(sales):
    if Path(__file__).with_name("fail").exists():
        raise ValueError("for now")
    return sales.groupBy("shop").count()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_node_that_reads_another_whole_is_requested_again_once_it_was_left_behind(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    (tmp_path / "totals.py").write_text(TOTALS, encoding="utf-8")
    project = make_project(tmp_path, "2024-01-01", text=PROJECT_FILE + WHOLE)
    assert run_pipeline(project, "shop", instance=instance).success
    land(tmp_path, "2024-01-02")
    (tmp_path / "fail").touch()
    for tries in range(1, 3):
        nodes = None if tries == 1 else ["totals"]
        assert not run_pipeline(project, "shop", nodes=nodes, instance=instance).success
        said = _skipped(project, instance)
        assert "totals: shop.sales moved on, and its last run ended as FAILURE. " in said
        assert f"{tries} run" in said
        assert _nodes(_requested(project, instance, later=LONGEST_WAIT + 5)) == {"totals"}
    (last, *_) = project.open_state().list_runs(limit=1)
    backfill = [replace(last, run_id=f"backfill-{number}", partition_key=str(number)) for number in range(100)]
    project.open_state().record_runs(backfill)
    assert _nodes(_requested(project, instance, later=LONGEST_WAIT + 5)) == {"totals"}, "whatever lies between"
    (tmp_path / "fail").unlink()
    assert run_pipeline(project, "shop", nodes=["totals"], instance=instance).success
    assert "Nothing new" in _skipped(project, instance)
    failed = NodeResult(NodeKey("shop", "totals"), RunStatus.FAILURE, 0.0, "")
    record(project, project.open_state(), failed, RunInfo("by hand"))
    assert "Nothing new" in _skipped(project, instance), "what it reads is as it was"
