"""The daemons of Dagster that run on this host. An instance must have one: two would request every run twice."""

from __future__ import annotations

from pathlib import Path

import psutil

from odi_assets.orchestration.runs.instance import HOME_VARIABLE

_PROGRAMS = ("dagster._daemon", "dagster-daemon")


def daemons_at(home: Path) -> list[int]:
    """The processes of this user that are a daemon with this home: one of ``odi dev``, or what a killed one left."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        words = [Path(word).name for word in process.info["cmdline"] or ()]
        named = (process.info["environ"] or {}).get(HOME_VARIABLE)
        if named and not set(_PROGRAMS).isdisjoint(words) and Path(named).resolve() == home.resolve():
            found.append(process.pid)
    return sorted(found)
