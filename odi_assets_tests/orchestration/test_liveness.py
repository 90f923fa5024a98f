"""Which runs still have their process, and by which process a run is known."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid

import dagster as dg
import pytest

from odi_assets.nodes.project import Project
from odi_assets.orchestration.runs.in_flight import PROCESS_TAG, end_lost_run
from odi_assets.util.process import is_gone, process_name


def _run(instance: dg.DagsterInstance, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED) -> dg.DagsterRun:
    run = dg.DagsterRun(job_name="shop", run_id=str(uuid.uuid4()), status=status)
    return instance.add_run(run)


def _stored(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found


def test_a_run_of_a_living_process_is_left_alone(instance: dg.DagsterInstance) -> None:
    run = _run(instance)
    instance.add_run_tags(run.run_id, {PROCESS_TAG: process_name()})
    assert not end_lost_run(instance, _stored(instance, run))
    assert _stored(instance, run).status is dg.DagsterRunStatus.STARTED


def test_a_run_whose_process_was_killed_ends_as_failed(instance: dg.DagsterInstance) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    run = _run(instance)
    instance.add_run_tags(run.run_id, {PROCESS_TAG: process_name(process.pid)})
    assert not end_lost_run(instance, _stored(instance, run))
    process.kill()
    process.wait(timeout=30)
    assert end_lost_run(instance, _stored(instance, run))
    assert _stored(instance, run).status is dg.DagsterRunStatus.FAILURE


def test_another_process_with_the_same_pid_is_not_the_run(instance: dg.DagsterInstance) -> None:
    run = _run(instance)
    instance.add_run_tags(run.run_id, {PROCESS_TAG: process_name()})
    stamp = _stored(instance, run).tags[PROCESS_TAG].rpartition("/")[0]
    instance.add_run_tags(run.run_id, {PROCESS_TAG: f"{stamp}/1"})
    assert end_lost_run(instance, _stored(instance, run))


def test_runs_of_other_hosts_and_runs_that_name_no_process_are_left_to_dagster(instance: dg.DagsterInstance) -> None:
    elsewhere, unnamed = _run(instance), _run(instance)
    instance.add_run_tags(elsewhere.run_id, {PROCESS_TAG: "another-host/1/1"})
    assert not end_lost_run(instance, _stored(instance, elsewhere))
    assert not end_lost_run(instance, unnamed)


STEPS = """
import os, sys
import dagster as dg
from odi_assets import Project, build_definitions

def note(context):
    run = context.instance.get_run_by_id(context.run_id)
    with open("noted", "a") as file:
        print(run.tags.get("odi/process"), os.getpid(), file=file)

@dg.asset(required_resource_keys={"run_history"})
def first(context: dg.AssetExecutionContext) -> None:
    note(context)

@dg.asset(deps=[first], required_resource_keys={"run_history"})
def second(context: dg.AssetExecutionContext) -> None:
    note(context)

defs = dg.Definitions.merge(
    build_definitions(Project.load("odibi.yaml")),
    dg.Definitions(assets=[first, second], executor=EXECUTOR),
)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "is_one_process"),
    [
        ("dg.in_process_executor", True),
        ("dg.multiprocess_executor", False),
        ('dg.multiprocess_executor.configured({"start_method": {"forkserver": {}}})', False),
    ],
)
def test_a_run_is_known_by_the_process_that_starts_its_steps_not_by_a_step_that_ends_before_it(
    project: Project, executor: str, is_one_process: bool
) -> None:
    (project.root / "defs.py").write_text(STEPS.replace("EXECUTOR", executor), encoding="utf-8")
    home = project.root / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    command = ["-m", "dagster", "asset", "materialize", "-f", "defs.py", "--select", "first,second"]
    run = subprocess.Popen([sys.executable, *command], cwd=project.root, env={**os.environ, "DAGSTER_HOME": str(home)})
    assert run.wait(timeout=240) == 0
    noted = [line.split() for line in (project.root / "noted").read_text(encoding="utf-8").splitlines()]
    assert len(noted) == 2
    assert {tag.split("/")[1] for tag, _ in noted} == {str(run.pid)}
    assert {step == str(run.pid) for _, step in noted} == {is_one_process}
    assert is_gone(noted[0][0])
