"""Processes of this host, by names that no later process has. A pid alone may belong to another process by now."""

from __future__ import annotations

import os
import socket

import psutil

_TICKS_PER_SECOND = 100


def process_name(pid: int) -> str:
    """A process of this host: ``host/pid/start``, its start in hundredths of a second since the host's; empty if it
    has ended."""
    return f"{socket.gethostname()}/{pid}/{_start(pid)}"


def own_process() -> str:
    """The process that asks."""
    return process_name(os.getpid())


def is_gone(process: str) -> bool | None:
    """Whether a process named so has ended; None if it ran on another host, of which nothing is known here."""
    host, pid, _ = process.rsplit("/", 2)
    return None if host != socket.gethostname() else process_name(int(pid)) != process


def _start(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        # Moments of the clock move when the clock is set; the time between the two does not.
        return str(round((process.create_time() - psutil.boot_time()) * _TICKS_PER_SECOND))
    except psutil.NoSuchProcess:
        return ""
