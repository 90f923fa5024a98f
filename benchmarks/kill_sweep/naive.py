"""Writers without the protocol, for the sweep to show that it bites: data and HWM in two steps, in either order.

The first order is that of Odibi and of every Delta IO manager for Dagster: a kill between the two repeats rows. The
other one loses them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyarrow import csv

from odi_assets.nodes.project import Project
from odi_assets.state.backend import StateBackend

KEY = "p.target"


def run_naive(spec: dict[str, Any], tell: Callable[[str], None]) -> None:
    """Load the files above the HWM."""
    project = Project.load(spec["project"])
    state = project.open_state()
    tell("began")
    after = state.get_hwm(KEY) or ""
    files = [file for file in sorted((project.root / "landing").glob("*.csv")) if file.name > after]
    if not files:
        return
    rows = pa.concat_tables([csv.read_csv(file) for file in files])
    steps: list[Callable[[], None]] = [
        lambda: append(project.root / "lake" / "target", rows),
        lambda: advance(state, files[-1].name),
    ]
    for step in steps if spec["kind"] == "write, then set the HWM" else reversed(steps):
        step()


def append(table: Path, rows: pa.Table) -> None:
    """The write of a naive writer."""
    write_deltalake(str(table), rows, mode="append")


def advance(state: StateBackend, hwm: str) -> None:
    """Its second step."""
    state.set_hwm(KEY, hwm)
