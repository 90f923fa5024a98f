"""The attempts of one process, which dies after them: arguments FOLDER CASES KILLED."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow as pa

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.orchestration.assets.attempts import StepAttempt
from odi_assets.orchestration.assets.frames import AssetTable, write_frame
from odi_assets.tables.engine import WriteResult


def write(folder: Path, case: str, mode: str, days: list[str], label: str) -> WriteResult | None:
    """One attempt of the run ``label`` at ``days``, a row for each; None if an earlier one was committed."""
    location = Location(str(folder / case))
    table = AssetTable(case, location, WriteMode(mode), ("id",), ("day",), "day")
    rows = pa.table({"id": days, "day": days, "run": [label] * len(days)})
    attempt = StepAttempt(f"{label}/step", label, None, lambda _: False, tuple(days))
    return write_frame(table, rows, attempt, _no_spark)[0]


def _no_spark() -> None:
    raise AssertionError("these writes need no Spark")


def main() -> None:
    folder, cases, killed = sys.argv[1:]
    committed = {
        case: write(Path(folder), case, mode, days, "killed") is not None
        for case, (mode, days) in json.loads(cases).items()
    }
    print(json.dumps(committed), flush=True)
    if killed == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
