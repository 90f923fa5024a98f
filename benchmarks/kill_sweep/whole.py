"""A whole ``odi run``, killed with all its processes: Dagster, Python, the JVM and what it writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from odi_assets.nodes.history.attempts import FOLDER


def run_whole(project: Path, log: Path, kill_after: float | None) -> tuple[bool, float]:
    """Run ``odi run`` on a project file and kill it after so many seconds; whether it was killed, and how long it took.

    Raises:
        RuntimeError: it was left alone, and failed.
    """
    command = [sys.executable, "-m", "odi_assets.cli", "run", "p", "-c", str(project)]
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    began = time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=project.parent, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        code = process.wait(timeout=kill_after)
    except subprocess.TimeoutExpired:
        code = None
    # Of a run that ended by itself, too, nothing may go on.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if code:
        raise RuntimeError(f"odi run failed ({code}); its output is in {log}")
    return code is None, time.monotonic() - began


def open_runs(project: Path) -> list[str]:
    """Ids of the runs whose attempts have begun and not ended."""
    notes = (project.parent / FOLDER).glob("*.json")
    return [json.loads(note.read_text(encoding="utf-8"))["run_id"] for note in notes]
