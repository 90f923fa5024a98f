"""A disk that takes no files, as an error that says so and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from odi_assets.connections.location import Location
from odi_assets.errors import TableError

_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
_FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT)))
_CLOSED = (*map(os.strerror, (errno.EROFS, errno.EACCES, errno.EPERM)), "Mkdirs failed to create")
"""What the system says, and Hadoop where Java gives no reason. Java and Spark pass it on in their messages."""


def refusal_of(text: str, table: Location) -> TableError | None:
    """The error for what Spark says of a job that writes below ``table``; None if it says of no disk that it refused.

    A disk may be full where executors keep what they compute, too. A closed folder is one of the table's only if it is
    named: the same job reads the sources.
    """
    full = next((reason for reason in _FULL if reason in text), None)
    if full is not None:
        return _error(table, full)
    closed = next((reason for reason in _CLOSED if reason in text), None)
    return None if closed is None or f"{table.uri}/" not in text else _error(table, closed)


@contextmanager
def refusals_named(table: Location) -> Iterator[None]:
    """Within, the system's refusal to write a file below ``table`` raises a TableError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NUMBERS or not f"{error.filename}/".startswith(f"{table.uri}/"):
            raise
        raise _error(table, f"{os.strerror(error.errno)} ({error.filename})") from error


def _error(table: Location, reason: str) -> TableError:
    fix = "make room where the table is, or where executors keep what they compute (`spark.local.dir`)"
    if not reason.startswith(_FULL):
        reason = "a folder cannot be made there" if reason.startswith("Mkdirs") else reason
        fix = "let the user of this process write to the table's folder, on a disk that is not read-only"
    return TableError(
        f"the rows for the table at {table.uri} were not written: {reason}",
        fix=f"{fix}, and run the node again: it goes on from its last commit",
        uri=table.uri,
    )
