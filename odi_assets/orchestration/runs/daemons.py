"""The daemons of Dagster that run on this host. An instance must have one: two would request every run twice."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import psutil

from odi_assets.errors import OdiError
from odi_assets.orchestration.runs.instance import HOME_VARIABLE

_PROGRAMS = ("dagster._daemon", "dagster-daemon")
_LOCK = ".odi-dev.lock"
SECONDS_TO_END = 5.0
"""How long a daemon that was asked to end takes at most, after Ctrl-C."""


def daemons_at(home: Path) -> list[int]:
    """The processes of this user that are a daemon with this home: one of ``odi dev``, or what a killed one left."""
    process_ids = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        words = [Path(word).name for word in process.info["cmdline"] or ()]
        process_home = (process.info["environ"] or {}).get(HOME_VARIABLE)
        if process_home and not set(_PROGRAMS).isdisjoint(words) and Path(process_home).resolve() == home.resolve():
            process_ids.append(process.pid)
    return sorted(process_ids)


def take_home(home: Path) -> None:
    """Let this process alone start a daemon with this home, and what it becomes by ``exec``, as long as it lives.

    Raises:
        OdiError: there is one, or another ``odi dev`` is about to start it.
    """
    # In a home that nobody may write, a lock has no place.
    lock = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT, 0o644) if os.access(home, os.W_OK) else None
    deadline = time.monotonic() + SECONDS_TO_END
    while (running := daemons_at(home)) or not _locked(lock):
        if time.monotonic() > deadline:
            if lock is not None:
                os.close(lock)
            pids = " ".join(map(str, running))
            raise OdiError(
                f"a daemon of Dagster is at work in {home} already, as process {pids}: two would request runs twice"
                if running
                else f"another `odi dev` has begun in {home}: two daemons would request runs twice",
                fix="use the UI that was started with it" + (f"; or end it: kill {pids}" if running else ""),
            )
        time.sleep(0.2)
    if lock is not None:
        os.set_inheritable(lock, True)


def _locked(lock: int | None) -> bool:
    """Whether this process has the lock now, or needs none."""
    try:
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
