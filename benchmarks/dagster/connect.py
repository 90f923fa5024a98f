"""Runs of small nodes from the UI below ``odi dev --connect``, against a JVM for each step and one for each run."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.dagster.server import LOCATION, Server, running_dagster
from benchmarks.harness import Options, Row, timed_row

NODES, ROWS = 8, 2_000
_ROUNDS = 2
_BAR, _ONE_SECONDS, _RUN_SECONDS = 0.5, 5.0, 600
_OWN_JVMS = "own_jvms"
_OWN_JVMS_PY = """\
import dagster as dg
from odi_assets import Project, build_definitions

defs = build_definitions(Project.load("odibi.yaml"), executor=dg.multiprocess_executor)
"""
_LAUNCH = (
    "mutation($location: String!, $assets: [AssetKeyInput!]) { launchRun(executionParams: {selector: {jobName: "
    '"__ASSET_JOB", repositoryName: "__repository__", repositoryLocationName: $location, assetSelection: $assets}, '
    "runConfigData: {}}) { __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"
)
_RUN = (
    "query($id: ID!) { runOrError(runId: $id) { ... on Run { status stats { __typename ... on RunStatsSnapshot "
    "{ launchTime endTime } } } } }"
)


def connect(options: Options) -> list[Row]:
    """Seconds of a run of independent nodes, from its launch to its end, after a first one; and of one node."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _make(root)
        options.say(f"{NODES} nodes below odi dev --connect")
        with running_dagster(root, ("odi", "dev", "--connect")) as server:
            shared = _runs(server, LOCATION, range(NODES))
            one = _runs(server, LOCATION, [0])
        options.say("the same with a JVM for each step")
        with running_dagster(root, ("dagster", "dev", "-m", _OWN_JVMS)) as server:
            own = _runs(server, _OWN_JVMS, range(NODES))
        options.say("the same with a JVM for the run")
        with running_dagster(root, ("odi", "dev")) as server:
            single = _runs(server, LOCATION, range(NODES))
    warm, middles = statistics.median(one), (statistics.median(shared), statistics.median(single))
    name = f"{NODES} small nodes from the UI, s"
    return [
        timed_row(name, shared, own, "a JVM for each step", _BAR),
        Row(name, *middles, "a JVM for the run, nodes in turn", middles[0] / middles[1], "", None),
        Row("one warm node from the UI, s", warm, None, "", None, f"<= {_ONE_SECONDS:g} s", warm <= _ONE_SECONDS),
    ]


def _make(root: Path) -> None:
    (root / "landing").mkdir()
    lines = [f"{number},{number * 3}" for number in range(ROWS)]
    (root / "landing" / "rows.csv").write_text("\n".join(["id,amount", *lines, ""]), encoding="utf-8")
    read = (
        "{connection: landing, format: csv, path: rows.csv, schema: 'id BIGINT, amount BIGINT', options: {header: "
        "'true'}}"
    )
    sql = "SELECT id % 10 AS k, sum(amount) AS amount FROM df GROUP BY id % 10"
    nodes = [
        f"  - {{name: n{number}, read: {read}, transform: {{sql: '{sql}'}}, "
        f"write: {{connection: lake, path: n{number}, mode: overwrite}}}}"
        for number in range(NODES)
    ]
    head = [
        "project: eight",
        "connections: {landing: {type: local, base_path: landing}, lake: {type: local, base_path: lake}}",
        "system: {connection: lake, path: system}",
        "pipelines:",
        "- pipeline: p",
        "  nodes:",
    ]
    (root / "odibi.yaml").write_text("\n".join([*head, *nodes, ""]), encoding="utf-8")
    (root / f"{_OWN_JVMS}.py").write_text(_OWN_JVMS_PY, encoding="utf-8")


def _runs(server: Server, location: str, nodes: Sequence[int]) -> list[float]:
    assets = [{"path": ["p", f"n{number}"]} for number in nodes]
    return [_run(server, location, assets) for _ in range(_ROUNDS + 1)][1:]


def _run(server: Server, location: str, assets: list[dict[str, Any]]) -> float:
    run_id = server.ask(_LAUNCH, location=location, assets=assets)["launchRun"]["run"]["runId"]
    deadline = time.monotonic() + _RUN_SECONDS
    while time.monotonic() < deadline:
        with suppress(TimeoutError):
            run = server.ask(_RUN, id=run_id)["runOrError"]
            if run["status"] in ("FAILURE", "CANCELED"):
                raise RuntimeError(f"run {run_id} ended with {run['status']}")
            if run["status"] == "SUCCESS":
                return float(run["stats"]["endTime"] - run["stats"]["launchTime"])
        time.sleep(0.5)
    raise RuntimeError(f"run {run_id} did not end within {_RUN_SECONDS} s")
