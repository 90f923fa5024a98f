"""Where in Python an expression was made, which PySpark tells the JVM for the messages of errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_call_sites() -> Iterator[None]:
    """A block whose expressions are this package's: an error of Spark names no line of them.

    PySpark asks the JVM ten times for each such expression. With many columns, this takes longer than the read itself.
    ``spark.python.sql.dataFrameDebugging.enabled`` turns the question off as well, but PySpark reads it only once for
    all sessions of a process, and code of the project is to keep its lines.
    """
    from pyspark.errors import utils as errors

    utils: Any = errors
    utils._enable_debugging_cache = False
    try:
        yield
    finally:
        # PySpark looks at its setting again. What was there before may be the False of a block in another thread.
        utils._enable_debugging_cache = None
