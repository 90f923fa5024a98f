"""What deltalake raises, as errors of ours: told apart by type, so that callers know what may be tried again."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from deltalake import __version__ as VERSION
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)

from odi_assets.delta.store_answers import Answer, answer, is_remote, plain
from odi_assets.errors import OdiError, StateConflictError, StateError, Transient

_PASSING = frozenset(
    {errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED, errno.ESTALE}
)
# deltalake has no type for these: it says them as a failed commit, a failed read or a failed opening.
_UNSUPPORTED = (
    re.compile(r"Unsupported table features required: \[(?P<features>.*?)\]"),
    re.compile(r"(?P<features>Column mapping) is not supported"),
    re.compile(r"loading a (?P<features>catalog-managed) table"),
)
_used = False
_forked = False


class CommitConflict(StateConflictError):
    """A commit met a concurrent one that it may not stand beside; after a fresh look it may be made again."""


class StateUnreachableError(StateError, Transient):
    """The store of the system tables did not answer this time. Fields: uri, connection."""


class StateAccessError(StateError):
    """The store of the system tables refused, and will again until its connection is mended.

    Fields: uri, connection (None: the backend was given storage options and no name for them).
    """


class OutcomeUnknown(StateUnreachableError):
    """A commit was sent, and neither its answer nor a look at the table could be had.

    Attributes:
        landed: tells from the table, once it answers, whether the commit is there.
        result: what the commit's caller gets if it is.
    """

    landed: Callable[[Any], bool]
    result: Any = None


class UnsupportedFeatureError(StateError):
    """A system table uses Delta features that deltalake cannot read or write; Spark can. Fields: uri, features."""


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
def deltalake_calls(what: str, uri: str, connection: str | None = None) -> Iterator[None]:
    """Run deltalake calls and raise its errors as ours.

    Args:
        what: names the calls in messages.
        uri: the table.
        connection: the name of the connection that leads to it, if it is known.

    Raises:
        CommitConflict: a concurrent commit; transient.
        StateUnreachableError: the store did not answer; transient.
        StateAccessError: the store refused, or there is no such bucket.
        StateError: anything else: permissions of files, a full disk, a schema that does not match, a damaged log.
    """
    try:
        yield
    except OdiError:
        raise
    except (DeltaError, OSError) as error:
        raise typed(error, what, uri, connection) from error
    except BaseException as error:
        if type(error) is Exception:
            # A stream that breaks off while it is read: arro3 has no type for it.
            raise typed(error, what, uri, connection) from error
        # deltalake's panics are no Exceptions, and have no public type.
        if type(error).__name__ != "PanicException":
            raise
        raise StateError(f"{what}: deltalake broke down at {uri}: {plain(error)}", uri=uri) from error


def typed(error: Exception, what: str, uri: str, connection: str | None = None) -> StateError:
    """The error of ours for what deltalake raised."""
    message = f"{what} failed at {uri}: {plain(error)}"
    features = unsupported_features(error)
    if features:
        return UnsupportedFeatureError(
            f"{what} failed at {uri}: the table uses Delta features that deltalake {VERSION} cannot handle here: "
            f"{', '.join(features)}",
            fix="give the backend a `spark_session` with Delta's connector, or copy the state to new tables "
            "(`odi state migrate`)",
            uri=uri,
            features=features,
        )
    if isinstance(error, CommitFailedError):
        return CommitConflict(message, fix="try again; nothing was written", uri=uri)
    if isinstance(error, SchemaMismatchError | DeltaProtocolError):
        return StateError(message, fix="the table is not one that this version can write; look at its schema", uri=uri)
    if _passes(error):
        return StateUnreachableError(message, fix="try again when the store answers", uri=uri, connection=connection)
    if is_remote(uri):
        return _of_store(answer(error), message, uri, connection)
    return StateError(message, fix="check the path, its permissions, and the free space there", uri=uri)


def require_known_scheme(error: TableNotFoundError, uri: str) -> None:
    """A URI that deltalake does not understand is not a table that is not there yet, though it raises the same type.

    Raises:
        StateError: deltalake does not know the URI's scheme.
    """
    if "Unknown scheme" in str(error):
        scheme = uri.partition("://")[0]
        raise StateError(
            f"a system table cannot be at {uri}: `{scheme}` is no scheme of a store",
            fix="write abfss://container@account.dfs.core.windows.net/…, s3://bucket/… or gs://bucket/…",
            uri=uri,
        ) from error


def _of_store(found: Answer, message: str, uri: str, connection: str | None) -> StateError:
    where = f"connection `{connection}`" if connection else "the storage options"
    fixes = {
        Answer.DENIED: f"mend the key, token or signature of {where}: there is none, or it is wrong, has expired, "
        "or does not give the right to list, read, write and delete there",
        Answer.NO_BUCKET: f"make the bucket or container, or mend its name in {where}",
        Answer.REFUSED: f"mend {where}: its region, its endpoint and its names",
        Answer.UNUSABLE: f"mend {where}: nothing could be asked with it",
    }
    if found in fixes:
        return StateAccessError(message, fix=fixes[found], uri=uri, connection=connection)
    if found is Answer.SILENCE:
        fix = f"check the network and the endpoint of {where}, or try again when the store answers"
        return StateUnreachableError(message, fix=fix, uri=uri, connection=connection)
    return StateError(message, fix="look at the table's folder in the store: it may be damaged", uri=uri)


def unsupported_features(error: Exception) -> tuple[str, ...]:
    """The Delta features that deltalake refused, as it names them; empty if the error is another one."""
    for pattern in _UNSUPPORTED:
        found = pattern.search(str(error))
        if found:
            names = re.sub(r'Unknown\("(.*?)"\)', r"\1", found["features"])
            return tuple(sorted(names.split(", ")))
    return ()


def _passes(error: Exception) -> bool:
    if not isinstance(error, OSError) or isinstance(error, PermissionError | FileNotFoundError):
        return False
    return isinstance(error, ConnectionError | TimeoutError) or error.errno in _PASSING
