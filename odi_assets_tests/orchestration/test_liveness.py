from __future__ import annotations

import subprocess
import sys
import uuid

import dagster as dg

from odi_assets.orchestration.runs.in_flight import PROCESS_TAG, end_lost_run
from odi_assets.util.process import process_name


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
