"""Processes of this host, by names that no later process has. A pid alone may belong to another process by now."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import psutil

_TICKS_PER_SECOND = 100


def process_name(pid: int | None = None) -> str:
    """A process of this host, our own by default: ``host/pid/start``.

    The start is in hundredths of a second since the host's own; it is empty if the process has ended.
    """
    pid, start = os.getpid() if pid is None else pid, ""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            # The clock may be set; the time between the two moments does not change with it.
            start = str(round((process.create_time() - psutil.boot_time()) * _TICKS_PER_SECOND))
    return f"{socket.gethostname()}/{pid}/{start}"


def is_gone(process: str) -> bool | None:
    """Whether a process named so has ended; None if it ran on another host, of which nothing is known here."""
    host, pid, _ = process.rsplit("/", 2)
    return None if host != socket.gethostname() else process_name(int(pid)) != process
