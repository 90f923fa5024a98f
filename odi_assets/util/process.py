"""Processes of this host, by names that no later process has. A pid alone may belong to another process by now."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def process_name(pid: int) -> str:
    """A process of this host: ``host/pid/start``."""
    return f"{socket.gethostname()}/{pid}/{_start(pid)}"


def own_process() -> str:
    """The process that asks."""
    return process_name(os.getpid())


def is_gone(process: str) -> bool | None:
    """Whether a process named so has ended; None if it ran on another host, of which nothing is known here."""
    host, pid, _ = process.rsplit("/", 2)
    return None if host != socket.gethostname() else process_name(int(pid)) != process


def _start(pid: int) -> str:
    """When a process started, in the system's ticks; ``running`` where it does not tell, empty if it is gone."""
    if not Path("/proc/self/stat").exists():
        return "running" if _answers(pid) else ""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name of the program, in parentheses, may hold spaces and parentheses (man proc, /proc/pid/stat, field 22).
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
