"""Runs of a project: in this process, through the command's entry point, or through the command itself."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import dagster as dg

from benchmarks.change_sweep.world import Home
from odi_assets.cli import main
from odi_assets.errors import OdiError
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import Bounds, RunRequest
from odi_assets.orchestration.run import run_pipeline

_WELL = {"SUCCESS", "NO_DATA"}
_PATIENCE = 300.0
_SPARK_IS_GONE = (
    "ConnectionRefusedError",
    "Py4JNetworkError",
    "Py4JError: org.apache.spark.sql.classic.SparkSession does",
)


@dataclass(frozen=True)
class Ended:
    """How a node of a run ended; ``error`` is what a user sees."""

    node: str
    status: str
    error: str = ""

    @property
    def well(self) -> bool:
        return self.status in _WELL


class Runner:
    """Makes runs, in one Dagster instance for a life."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    def run(
        self, home: Home, pipeline: str, nodes: Sequence[str] = (), *, full: bool = False, days: tuple[str, str] | None
    ) -> list[Ended]:
        """Run nodes of a pipeline in this process; all, if none is named."""
        names = [str(at) for at in home.nodes() if at.pipeline == pipeline and (not nodes or at.name in nodes)]
        try:
            project = Project.load(home.file)
            request = RunRequest(full, bounds=Bounds.of(*days) if days else None)
            found = run_pipeline(project, pipeline, request, nodes=list(nodes) or None, instance=self._instance)
        except OdiError as error:
            return [Ended(name, "FAILURE", f"{type(error).__name__}: {error}") for name in names]
        ended = [Ended(str(result.key), result.status.value, result.error or "") for result in found.results]
        if gone := next((one for one in ended if one.error.startswith(_SPARK_IS_GONE)), None):
            raise RuntimeError(f"Spark went away in a run of {gone.node}: {gone.error}")
        return ended


def command(home: Home, *arguments: str) -> tuple[int, str, str]:
    """What ``odi`` does with arguments, in this process: its exit code, stdout and stderr."""
    buffers = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(buffer, encoding="utf-8", write_through=True) for buffer in buffers)
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["--config", str(home.file), *arguments])
    said, told = (buffer.getvalue().decode() for buffer in buffers)
    return code, said, told


def run_by_command(home: Home, *arguments: str, apart: bool = False) -> list[Ended]:
    """``odi run``; ``apart`` in a process of its own, as a user starts it."""
    given = ("run", *arguments, "--json")
    if apart:
        whole = [sys.executable, "-m", "odi_assets.cli", "--config", str(home.file), *given]
        done = subprocess.run(whole, capture_output=True, text=True, check=False, timeout=_PATIENCE)
        out, err = done.stdout, done.stderr
    else:
        _, out, err = command(home, *given)
    try:
        found = json.loads(out)
    except ValueError:
        return [Ended(str(at), "FAILURE", err) for at in home.nodes()]
    return [Ended(f"{one['pipeline']}.{one['node']}", one["status"], one["error"] or "") for one in found]
