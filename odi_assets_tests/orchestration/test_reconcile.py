"""Runs that were killed, as Dagster's own record of them mends the run history."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events import StepSuccessData
from dagster._core.execution.plan.objects import StepFailureData

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.history import attempts
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.runs.instance import open_instance
from odi_assets.orchestration.runs.reconcile import RECONCILED_TAG, reconcile
from odi_assets.orchestration.runs.unreported import REPORTED_TAG
from odi_assets_tests.orchestration.small_project import NODES, PROJECT_FILE, make_project

KILLED = """
import os, signal, sys
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.run import run_pipeline

def listen(event):
    if event.kind == "started":
        os.kill(os.getpid(), signal.SIGKILL)

run_pipeline(Project.load(sys.argv[1]), "shop", on_event=listen)
"""

KILLED_BEFORE_ITS_EVENT = """
import os, signal, sys
from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets import io_manager
from odi_assets.orchestration.run import run_pipeline

io_manager.materialization_metadata = lambda result: os.kill(os.getpid(), signal.SIGKILL)
run_pipeline(Project.load(sys.argv[1]), "shop")
"""

KILLED_AMONG_ITS_EVENTS = """
import os, signal, sys
from itertools import islice
from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets import io_manager
from odi_assets.orchestration.run import run_pipeline

def first_ones(context, run, metadata_by_key, log=io_manager._log_partitions):
    log(context, run, dict(islice(metadata_by_key.items(), int(sys.argv[2]))))
    os.kill(os.getpid(), signal.SIGKILL)

io_manager._log_partitions = first_ones
run_pipeline(Project.load(sys.argv[1]), "shop")
"""

NEXT = """
import sys
from odi_assets.nodes.project import Project
from odi_assets.orchestration.run import run_pipeline

print(run_pipeline(Project.load(sys.argv[1]), "shop", nodes=["raw_sales"]).run_id)
"""


@pytest.fixture
def killed(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The small project, whose only run was killed when its first node had begun; Dagster has it on record."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    (project.root / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(project.path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert project.open_state().list_runs() == []
    return project


@pytest.mark.parametrize("noted", [True, False])
def test_a_run_that_was_killed_is_lost_in_history_once_and_failed_in_dagster(killed: Project, noted: bool) -> None:
    if not noted:
        shutil.rmtree(killed.root / attempts.FOLDER)
    with open_instance(killed.root) as instance:
        rows = reconcile(killed, instance)
        (row,) = (row for row in rows if row.node_name == "raw_sales")
        (run,) = instance.get_runs()
        assert (row.run_id, row.status.value) == (run.run_id, "LOST")
        assert (row.attempt, row.trigger) == (1, "cli")
        assert {other.node_name: (other.status.value, other.error) for other in rows if other is not row} == {
            node: ("SKIPPED", "the run ended before it began") for node in NODES if node != "raw_sales"
        }
        assert run.status is dg.DagsterRunStatus.FAILURE
        assert reconcile(killed, instance) == []
        (run,) = instance.get_runs()
        assert RECONCILED_TAG in run.tags
    stored = killed.open_state().list_runs()
    assert len(stored) == len(NODES)
    assert {(found.run_id, found.metrics["mended"]) for found in stored} == {(row.run_id, True)}


def test_what_a_killed_run_committed_is_reported_as_materialized_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    (project.root / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    ended = subprocess.run([sys.executable, "-c", KILLED_BEFORE_ITS_EVENT, str(project.path)], timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL
    table = TableHandle.open(project.target(NodeKey("shop", "raw_sales")))
    with open_instance(project.root) as instance:
        asset = dg.AssetKey(["shop", "raw_sales"])
        assert instance.get_latest_materialization_event(asset) is None
        (run,) = instance.get_runs()
        for _ in range(2):
            # The run does not get its tag, as if the process that reports were killed before that.
            with monkeypatch.context() as patched:
                patched.setattr(type(instance), "add_run_tags", lambda *_: None)
                reconcile(project, instance)
            (record,) = instance.fetch_materializations(asset, limit=5).records
            found = record.asset_materialization
            assert found is not None
            assert found.metadata["rows_written"].value == table.rows
            assert found.tags == {"dagster/data_version": str(table.version), REPORTED_TAG: run.run_id}


DAYS = "{column: day, every: day, start: 2024-01-01, end: 2024-02-01}"


@pytest.mark.parametrize("reported", [0, 1])
@pytest.mark.parametrize(
    ("partition", "rows"),
    [
        (DAYS, {"2024-01-01": 2, "2024-01-02": 1}),
        ("{column: city, values: dynamic}", {"Oslo": 1, "Rome": 2}),
        (
            "{column: day, every: day, start: 2024-01-01, also: {column: city, values: dynamic}}",
            {"Oslo|2024-01-01": 1, "Rome|2024-01-01": 1, "Rome|2024-01-02": 1},
        ),
    ],
)
def test_each_partition_that_a_killed_run_committed_is_reported_once(
    partition: str, rows: dict[str, int], reported: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    text = PROJECT_FILE.replace(DAYS, partition, 1).replace(
        "{sales: {node: sales, incremental: version}, ", "{sales: sales, "
    )
    project = make_project(tmp_path / "project", "2024-01-01", "2024-01-02", text=text)
    (project.root / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    command = [sys.executable, "-c", KILLED_AMONG_ITS_EVENTS, str(project.path), str(reported)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    asset = dg.AssetKey(["shop", "sales_by_day"])
    monkeypatch.setattr("odi_assets.orchestration.runs.unreported._PAGE", 1)
    with open_instance(project.root) as instance:
        assert len(instance.fetch_materializations(asset, limit=9).records) == reported
        for _ in range(2):
            with monkeypatch.context() as patched:
                patched.setattr(type(instance), "add_run_tags", lambda *_: None)
                reconcile(project, instance)
            events = [
                record.asset_materialization for record in instance.fetch_materializations(asset, limit=9).records
            ]
            written = [(event.partition, event.metadata["rows_written"].value) for event in events if event is not None]
            assert sorted(written) == sorted(rows.items())
        sizes = {event.metadata["dagster/partition_row_count"].value for event in events if event is not None}
        assert sizes == set(rows.values())
        assert asset in instance.get_asset_keys()
        if partition.startswith("{column: city"):
            assert set(instance.get_dynamic_partitions("shop/sales_by_day")) == set(rows)


def test_a_run_that_was_cancelled_while_it_waited_has_a_row_for_each_node_it_was_to_run(
    project: Project, instance: dg.DagsterInstance
) -> None:
    whole = build_definitions(project).resolve_job_def("shop")
    picked = build_definitions(project).resolve_job_def("__ASSET_JOB")
    shops = {dg.AssetKey(["shop", "shops"])}
    runs = [
        instance.create_run_for_job(whole, tags=whole.run_tags),
        instance.create_run_for_job(picked.get_subset(asset_selection=shops), asset_selection=shops),
    ]
    for run in runs:
        instance.report_run_canceled(run)
    rows = reconcile(project, instance)
    assert {(row.run_id, row.node_name, row.status.value) for row in rows} == {
        *((runs[0].run_id, node, "SKIPPED") for node in NODES),
        (runs[1].run_id, "shops", "SKIPPED"),
    }
    assert all(row.error == "the run was cancelled before it began" for row in rows)
    assert reconcile(project, instance) == []


def test_a_run_whose_process_went_while_it_was_being_cancelled_is_cancelled(killed: Project) -> None:
    with open_instance(killed.root) as instance:
        (run,) = instance.get_runs()
        instance.report_run_canceling(run)
        rows = reconcile(killed, instance)
        (run,) = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.CANCELED
    assert {row.node_name: row.status.value for row in rows} == {
        **dict.fromkeys(NODES, "SKIPPED"),
        "raw_sales": "CANCELLED",
    }


def test_the_next_run_mends_history_before_it_begins(killed: Project) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", NEXT, str(killed.path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    rows = killed.open_state().list_runs()
    own = [row.status.value for row in rows if row.node_name == "raw_sales"]
    assert own == ["SUCCESS", "LOST"]
    assert {row.status.value for row in rows if row.node_name != "raw_sales"} == {"SKIPPED"}
    assert rows[0].run_id == ended.stdout.split()[-1]
    assert not list(Path(killed.root / attempts.FOLDER).glob("*.json"))


def test_a_step_that_succeeded_without_a_commit_is_not_lost_where_its_row_is_in_another_store(killed: Project) -> None:
    with open_instance(killed.root) as instance:
        (run,) = instance.get_runs()
        reconcile(killed, instance, dry_run=True)
        instance.report_run_failed(run, "another node failed")
        shutil.rmtree(killed.root / attempts.FOLDER)
        succeeded = dg.DagsterEvent(
            dg.DagsterEventType.STEP_SUCCESS.value,
            run.job_name,
            step_key="shop__raw_sales",
            event_specific_data=StepSuccessData(duration_ms=1.0),
        )
        instance.report_dagster_event(succeeded, run.run_id)
        rows = reconcile(killed, instance)
    (row,) = (row for row in rows if row.status.value != "SKIPPED")
    assert (row.node_name, row.status.value, row.error) == ("raw_sales", "NO_DATA", None)


def test_the_nodes_below_a_step_whose_process_died_were_skipped_for_it(killed: Project) -> None:
    """The process may die before it says that its step starts. One that goes on from there has those steps alone."""
    with open_instance(killed.root) as instance:
        job = build_definitions(killed).resolve_job_def("shop")
        run = instance.create_run_for_job(job, tags=job.run_tags)
        instance.report_dagster_event(
            dg.DagsterEvent(
                dg.DagsterEventType.STEP_FAILURE.value,
                run.job_name,
                step_key="shop__sales",
                message="the process of the step was killed",
                event_specific_data=StepFailureData(error=None, user_failure_data=None),
            ),
            run.run_id,
        )
        instance.report_run_failed(run, "a step failed")
        again = instance.add_run(
            dg.DagsterRun("shop", str(uuid.uuid4()), tags=job.run_tags, step_keys_to_execute=["shop__sales_by_day"])
        )
        instance.report_run_failed(again, "its container did not start")
        rows = [row for row in reconcile(killed, instance) if row.run_id in (run.run_id, again.run_id)]
        assert reconcile(killed, instance) == []
    first = {row.node_name: (row.status.value, row.error) for row in rows if row.run_id == run.run_id}
    assert first["sales"] == ("FAILURE", "the process of the step was killed")
    below = {node for node, (_, error) in first.items() if error == "shop.sales failed"}
    assert below == {key.node for key in _below(killed, NodeKey("shop", "sales"))}
    assert {first[node] for node in NODES if node not in {*below, "sales"}} == {
        ("SKIPPED", "the run ended before it began")
    }
    assert [row.node_name for row in rows if row.run_id == again.run_id] == ["sales_by_day"]


def _below(project: Project, key: NodeKey) -> set[NodeKey]:
    near = set(project.graph.downstream(key))
    return near.union(*(_below(project, down) for down in near))


def test_a_run_of_an_environment_is_told_in_the_history_of_that_one(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    text = PROJECT_FILE + "environments: {prod: {connections: {lake: {base_path: prod_lake}}}}\n"
    project = make_project(tmp_path, "2024-01-01", text=text)
    prod = Project.load(project.path, "prod")
    job = build_definitions(prod).resolve_job_def("shop")
    run = instance.create_run_for_job(job, tags=job.run_tags)
    instance.report_run_canceled(run)
    assert reconcile(project, instance) == []
    assert project.open_state().list_runs() == []
    assert {row.node_name for row in reconcile(prod, instance)} == set(NODES)
    assert {row.environment for row in prod.open_state().list_runs()} == {"prod"}
