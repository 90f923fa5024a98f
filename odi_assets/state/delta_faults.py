"""What deltalake raises, as errors of ours: told apart by type, so that callers know what may be tried again."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError

from odi_assets.errors import OdiError, StateConflictError, StateError, Transient

_PASSING = frozenset(
    {errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED, errno.ESTALE}
)
_used = False
_forked = False


class CommitConflict(StateConflictError):
    """A commit met a concurrent one that it may not stand beside; after a fresh look it may be made again."""


class StateUnreachableError(StateError, Transient):
    """The store of the system tables did not answer this time."""


def _after_fork() -> None:
    global _forked
    _forked = _forked or _used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def require_own_runtime() -> None:
    """deltalake's threads do not survive a fork: say so before it panics.

    Raises:
        StateError: this process was forked from one that had already used deltalake.
    """
    global _used
    _used = True
    if _forked:
        raise StateError(
            f"process {os.getpid()} was forked from one that had opened system tables; deltalake does not work there",
            fix="start worker processes with the `spawn` or `forkserver` method",
        )


@contextmanager
def deltalake_calls(what: str, uri: str) -> Iterator[None]:
    """Run deltalake calls and raise its errors as ours.

    Raises:
        CommitConflict: a concurrent commit; transient.
        StateUnreachableError: the store did not answer; transient.
        StateError: anything else: permissions, a full disk, a schema that does not match, a damaged log.
    """
    try:
        yield
    except OdiError:
        raise
    except (DeltaError, OSError) as error:
        raise typed(error, what, uri) from error
    except BaseException as error:
        if type(error) is Exception:
            # A stream that breaks off while it is read: arro3 has no type for it.
            raise typed(error, what, uri) from error
        # deltalake's panics are no Exceptions, and have no public type.
        if type(error).__name__ != "PanicException":
            raise
        raise StateError(f"{what}: deltalake broke down at {uri}: {error}", uri=uri) from error


def typed(error: Exception, what: str, uri: str) -> StateError:
    """The error of ours for what deltalake raised."""
    message = f"{what} failed at {uri}: {error}"
    if isinstance(error, CommitFailedError):
        return CommitConflict(message, fix="try again; nothing was written", uri=uri)
    if isinstance(error, SchemaMismatchError | DeltaProtocolError):
        return StateError(message, fix="the table is not one that this version can write; look at its schema", uri=uri)
    if _passes(error, uri):
        return StateUnreachableError(message, fix="try again when the store answers", uri=uri)
    return StateError(message, fix="check the path, its permissions, and the free space there", uri=uri)


def _passes(error: Exception, uri: str) -> bool:
    if not isinstance(error, OSError) or isinstance(error, PermissionError | FileNotFoundError):
        return False
    if error.errno is not None:
        return error.errno in _PASSING
    # Without a number it came from an object store, whose client has already told apart what is refused for good.
    return isinstance(error, ConnectionError | TimeoutError) or "://" in uri
