"""Call sites: where in Python an expression was made. PySpark sends them to the JVM, for the messages of errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_blocks = 0
"""How many blocks :func:`without_call_sites` are open, in all threads: what turns call sites off is one for all."""


@contextmanager
def without_call_sites() -> Iterator[None]:
    """A block whose expressions are this package's: an error of Spark names no line of them.

    PySpark calls the JVM ten times more for each expression that has a call site.
    ``spark.python.sql.dataFrameDebugging.enabled`` turns the question off as well, but PySpark reads it only once for
    all sessions of a process, and code of the project is to keep its lines. Blocks may be nested.
    """
    _enter(1)
    try:
        yield
    finally:
        _enter(-1)


@contextmanager
def with_call_sites() -> Iterator[None]:
    """A block of the project's code within :func:`without_call_sites`: an error of Spark names its lines."""
    _set(None)
    try:
        yield
    finally:
        _enter(0)


def _enter(more: int) -> None:
    global _blocks
    with _lock:
        _blocks += more
        # None: PySpark looks at its setting again.
        _set(False if _blocks else None)


def _set(value: bool | None) -> None:
    from pyspark.errors import utils as errors

    utils: Any = errors
    utils._enable_debugging_cache = value
