"""A whole ``odi run``, killed with all its processes, Dagster, Python, the JVM and what it writes; or its JVM alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

from benchmarks.processes import processes_of
from odi_assets.nodes.history.attempts import FOLDER

_SAYS_SO = (b"the JVM in which Spark runs died", b"Spark did not start")


def run_whole(
    project: Path, log: Path, kill_after: float | None, *, jvm_alone: bool = False
) -> tuple[Literal["", "run", "JVM"], float]:
    """Run ``odi run`` on a project file and kill it after so many seconds; what was killed, and how long it took.

    Args:
        jvm_alone: kill the JVM and leave the run to itself, if it has one by then.

    Raises:
        RuntimeError: it was left alone, and failed; or its JVM died, and it did not say so.
    """
    command = [sys.executable, "-m", "odi_assets.cli", "run", "p", "-c", str(project)]
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    began = time.monotonic()
    said_before = log.stat().st_size if log.exists() else 0
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=project.parent, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        code = process.wait(timeout=kill_after)
    except subprocess.TimeoutExpired:
        code = None
    jvms = [number for number, name in processes_of(process.pid).items() if name == "java"] if jvm_alone else []
    if code is None and jvms:
        for number in jvms:
            os.kill(number, signal.SIGKILL)
        code = process.wait()
        if code and not any(words in log.read_bytes()[said_before:] for words in _SAYS_SO):
            raise RuntimeError(f"odi run does not say that its JVM died; its output is in {log}")
        return ("JVM" if code else ""), time.monotonic() - began
    # Of a run that ended by itself, too, nothing may go on.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if code:
        raise RuntimeError(f"odi run failed ({code}); its output is in {log}")
    return ("run" if code is None else ""), time.monotonic() - began


def open_runs(project: Path) -> list[str]:
    """Ids of the runs whose attempts have begun and not ended."""
    notes = (project.parent / FOLDER).glob("*.json")
    return [json.loads(note.read_text(encoding="utf-8"))["run_id"] for note in notes]
