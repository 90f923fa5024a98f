"""Call sites: where in Python an expression was made. PySpark sends them to the JVM, for the messages of errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_call_sites() -> Iterator[None]:
    """A block whose expressions are this package's: an error of Spark names no line of them.

    PySpark calls the JVM ten times more for each expression that has a call site.
    ``spark.python.sql.dataFrameDebugging.enabled`` turns the question off as well, but PySpark reads it only once for
    all sessions of a process, and code of the project is to keep its lines.
    """
    from pyspark.errors import utils as errors

    utils: Any = errors
    before = utils._enable_debugging_cache
    utils._enable_debugging_cache = False
    try:
        yield
    finally:
        # A False may be of a block in another thread: PySpark then looks at its setting again.
        utils._enable_debugging_cache = before or None


@contextmanager
def with_call_sites() -> Iterator[None]:
    """A block of the project's code within :func:`without_call_sites`: an error of Spark names its lines."""
    from pyspark.errors import utils as errors

    utils: Any = errors
    before, utils._enable_debugging_cache = utils._enable_debugging_cache, None
    try:
        yield
    finally:
        utils._enable_debugging_cache = before
