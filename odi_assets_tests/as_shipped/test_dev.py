"""``odi dev``: Dagster's UI and daemon over the project of a folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from odi_assets_tests.as_shipped.installed import Installed

START_SECONDS, STOP_SECONDS, RUN_SECONDS = 240, 60, 240
_ENDED = ("SUCCESS", "FAILURE", "CANCELED")
_LAUNCH = (
    "mutation($job: String!) { launchRun(executionParams: {selector: {jobName: $job, repositoryName: "
    '"__repository__", repositoryLocationName: "odi_assets.definitions"}, runConfigData: {}}) '
    "{ __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"
)
_STATUS = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
_ASSETS = "{ assetNodes { assetKey { path } } }"
_RUNS = "{ runsOrError { ... on Runs { results { runId status jobName } } } }"


class Dev:
    """A running ``odi dev``."""

    def __init__(self, process: subprocess.Popen[str], address: str, log: Path) -> None:
        self.process, self.address, self.log = process, address, log

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """The answer of the UI's API."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.address}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
        assert not answer.get("errors"), answer
        return dict(answer["data"])

    def await_answer(self) -> None:
        """Wait until the UI answers."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.address}/server_info", timeout=5):
                    return
            except (urllib.error.URLError, TimeoutError):
                time.sleep(0.5)
        pytest.fail(f"`odi dev` did not answer:\n{self.log.read_text(encoding='utf-8')[-4000:]}")

    def run(self, job: str) -> str:
        """Launch a job as the UI's button does; how its run ended."""
        launched = self.ask(_LAUNCH, job=job)["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline:
            status = str(self.ask(_STATUS, id=launched["run"]["runId"])["runOrError"]["status"])
            if status in _ENDED:
                return status
            time.sleep(0.5)
        pytest.fail(f"the run did not end:\n{self.log.read_text(encoding='utf-8')[-4000:]}")


@contextmanager
def dev(installed: Installed, command: str, folder: Path) -> Iterator[Dev]:
    """``odi dev`` on a free port, until its Ctrl-C."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "dev.log"
    with log.open("w", encoding="utf-8") as written:
        process = subprocess.Popen(
            installed.found(f"{command} --port {port}"),
            cwd=folder,
            env=dict(installed.variables),
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # A script that starts the suite in the background has SIGINT ignored, and so would have all below it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            running = Dev(process, f"http://127.0.0.1:{port}", log)
            running.await_answer()
            yield running
            process.send_signal(signal.SIGINT)
            process.wait(timeout=STOP_SECONDS)
        finally:
            # The session that was made for it holds its daemon, code server and runs too, and nothing else.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=STOP_SECONDS)


@pytest.mark.usefixtures("jvm")
def test_the_ui_runs_what_init_made_and_shows_what_the_shell_ran(installed: Installed, tmp_path: Path) -> None:
    """The start of the README."""
    installed.done("odi init shop", tmp_path)
    folder = tmp_path / "shop"
    with dev(installed, "odi dev", folder) as running:
        paths = [node["assetKey"]["path"] for node in running.ask(_ASSETS)["assetNodes"]]
        assert ["shop", "spending"] in paths
        assert running.run("shop") == "SUCCESS"
        (folder / "landing" / "orders" / "2024-01-03.csv").write_text(
            "order_id,customer,amount,ordered_on\n5,dan,1.00,2024-01-03\n", encoding="utf-8"
        )
        results = json.loads(installed.done("odi run --json", folder))
        assert {one["node"]: one["rows_written"] for one in results} == {"orders": 1, "spending": 4}
        runs = running.ask(_RUNS)["runsOrError"]["results"]
        assert {run["status"] for run in runs} == {"SUCCESS"}
        assert results[0]["run_id"] in {run["runId"] for run in runs}
    told = running.log.read_text(encoding="utf-8")
    assert f"DAGSTER_HOME is {folder / '.dagster'}" in told
    assert "Warning" not in told


@pytest.mark.usefixtures("jvm")
def test_it_is_started_from_another_folder_by_the_name_of_the_project_file(
    installed: Installed, tmp_path: Path
) -> None:
    installed.done("odi init --example stream made", tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    elsewhere = Installed(installed.programs, {**installed.variables, "DAGSTER_HOME": str(home)})
    with dev(elsewhere, "odi dev -c made/odibi.yaml -h 127.0.0.1", tmp_path) as running:
        paths = [node["assetKey"]["path"] for node in running.ask(_ASSETS)["assetNodes"]]
        assert ["orders_payments", "paid_orders"] in paths
    assert f"DAGSTER_HOME is {home}" in running.log.read_text(encoding="utf-8")
    assert not (tmp_path / "made" / ".dagster").exists()


SHARED = """\
project: shared
connections: {landing: {type: local, base_path: landing}, lake: {type: local, base_path: lake}}
system: {connection: lake, path: system}
spark: {conf: {spark.driver.memory: 512m}}
pipelines:
- pipeline: shop
  nodes:
  - name: orders
    read: {connection: landing, format: json, path: "*.json", schema: "id INT"}
    write: {connection: lake, path: orders, mode: overwrite}
  - name: shops
    read: {connection: landing, format: json, path: "*.json", schema: "id INT"}
    transform: {function: "fn:shops"}
    write: {connection: lake, path: shops, mode: overwrite}
"""
FUNCTION = """\
import os, signal
from pathlib import Path

KILL = Path(__file__).parent / "kill"


def shops(df):
    assert "connect" in type(df).__module__, "this run has a JVM of its own"
    if KILL.exists():
        os.kill(int(KILL.read_text()), signal.SIGKILL)
    return df
"""


def server_jvm(running: Dev) -> psutil.Process:
    """The one JVM below ``odi dev``."""
    (found,) = [one for one in psutil.Process(running.process.pid).children(recursive=True) if one.name() == "java"]
    return found


@pytest.mark.usefixtures("jvm")
def test_runs_share_a_server_that_is_replaced_when_it_dies_and_ends_with_odi_dev(
    installed: Installed, tmp_path: Path
) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.json").write_text('{"id": 1}\n', encoding="utf-8")
    (tmp_path / "odibi.yaml").write_text(SHARED, encoding="utf-8")
    (tmp_path / "fn.py").write_text(FUNCTION, encoding="utf-8")
    with dev(installed, "odi dev --connect", tmp_path) as running:
        first = server_jvm(running)
        (tmp_path / "kill").write_text(str(first.pid), encoding="utf-8")
        assert running.run("shop") == "FAILURE"
        (tmp_path / "kill").unlink()
        said = installed.run("odi runs last shop", tmp_path)
        assert "the Spark Connect server died" in said.stdout + said.stderr
        assert "the next run goes on from there" in said.stdout + said.stderr
        # The next run waits for the server that takes the place of the first.
        assert running.run("shop") == "SUCCESS"
        second = server_jvm(running)
        assert second != first
        running.process.kill()
        second.wait(STOP_SECONDS)
    log = running.log.read_text(encoding="utf-8")
    assert "odi dev: the Spark Connect server died: SIGKILL" in log
    assert "odi dev: the new Spark Connect server is there" in log
    assert "Traceback" not in log.partition("odi dev: the Spark Connect server died")[0]
    assert "token=" not in log
