"""Faults of Delta tables and their stores as errors of ours. Their types show callers what may be tried again.

deltalake raises ``OSError`` or ``DeltaError`` for whatever went wrong in a store and keeps no field of it: the HTTP
status is in the text alone, in the words of Rust's ``object_store``. Nothing else is decided by words.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from deltalake import __version__ as VERSION
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
)

from odi_assets.connections.location import Location
from odi_assets.errors import OdiError, StateConflictError, StateError, TableConflictError, TableError, Transient
from odi_assets.util.lazy import pa


class StoreUnreachableError(TableError, StateError, Transient):
    """The store of a node's table, or of a system table, did not answer this time. Fields: uri, connection."""


class OutcomeUnknownError(StoreUnreachableError):
    """A commit was sent, and neither its answer nor a look at the table could be had. Fields: uri, connection.

    Attributes:
        look: looks again, and returns what the commit's caller gets if it is in the table, None if it is not.
    """

    look: Callable[[], Any]


class StoreAccessError(TableError, StateError):
    """The store of a table refused, and will again until its connection is repaired.

    Fields: uri, connection (None: the options were given by hand, without a name).
    """


class UnsupportedFeatureError(TableError, StateError):
    """A table uses Delta features that we cannot read or write; Spark's own connector can. Fields: uri, features."""


class DamagedTableError(TableError, StateError):
    """Files of a table's log, or its data files, are torn or missing. Fields: uri."""


class CommitConflict(StateConflictError):
    """A commit to a system table met a concurrent one; after a fresh look it may be made again."""


@dataclass(frozen=True)
class Owner:
    """Whose table it is, as far as its errors tell.

    Attributes:
        noun: what messages call such a table.
        error: raised where neither waiting nor repairing the connection helps.
        conflict: raised when a concurrent commit came first; nothing was written.
        without_feature: what to do about features that deltalake lacks.
        is_system: `odi tables repair --system` repairs it; others are repaired by their path.
    """

    noun: str
    error: type[OdiError]
    conflict: type[OdiError]
    without_feature: str
    is_system: bool = False


NODE = Owner(
    "the Delta table",
    TableError,
    TableConflictError,
    "use Spark's own Delta connector for this table, or copy it into a table without that feature",
)
STATE = Owner(
    "a system table",
    StateError,
    CommitConflict,
    "give the backend a `spark_session` with Delta's connector, or copy the state to new tables (`odi state migrate`)",
    is_system=True,
)
STORE = replace(STATE, is_system=False)

Answer = Literal["silence", "denied", "no bucket", "no object", "refused", "unusable", "unknown"]
"""What a store answered, by what can be done about it.

* silence: it did not answer, or had too much to do: a later call may succeed.
* denied: key, token or signature are none, are wrong, have expired, or do not give the right.
* no bucket, no object: there is no such bucket or container; one object is not there, the store is.
* refused: the request was understood and refused: another region, a name that cannot be.
* unusable: the options made no client: nothing was sent.
* unknown: an object store's client does not use these words.
"""

_TRANSIENT = frozenset(
    {errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED, errno.ESTALE}
)
_BUSY = frozenset({408, 409, 412, 425, 429})
# deltalake has no type for these: it says them as a failed commit, a failed read or a failed opening.
_UNSUPPORTED = (
    re.compile(r"Unsupported table features required: \[(?P<features>.*?)\]"),
    re.compile(r"(?P<features>Column mapping) is not supported"),
    re.compile(r"loading a (?P<features>catalog-managed) table"),
    re.compile(r"Unsupported: Feature '(?P<features>.*?)' is not supported"),
)
_NO_VALUE = re.compile(r"Failed to parse value '(.*?)' as '(.*?)'")
# What RUST_BACKTRACE adds.
_STACK = re.compile(r"\n\s+0: .*", re.DOTALL)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_JOINT = re.compile(r"\s*\n\s*↳\s*")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>([\w.]+)</Code>")
_BODY = re.compile(r"(: )?\s*(<\?xml|<Error|<html|<!doctype).*", re.IGNORECASE | re.DOTALL)
_NO_CLIENT = re.compile(r"Generic \w+ error: ")
# deltalake tries each request again in silence, ten times by default; longer waits are for our retries, which tell.
_PATIENCE = {"max_retries": "3", "retry_timeout": "10s"}
_process: int | None = None


@contextmanager
def deltalake_calls(what: str, location: Location, owner: Owner = NODE) -> Iterator[None]:
    """Run deltalake calls on the table at ``location`` and raise its errors, panics included, as ours.

    Args:
        what: names the calls in messages.

    Raises:
        OdiError: also in a process that was forked from one that had used deltalake, whose threads are gone there.
    """
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise owner.error(
            f"process {os.getpid()} was forked from one that had opened Delta tables; deltalake does not work there",
            fix="start worker processes with the `spawn` or `forkserver` method",
        )
    try:
        yield
    except OdiError:
        raise
    except (DeltaError, OSError) as error:
        raise translated(error, what, location, owner) from error
    except BaseException as error:
        if type(error) is Exception:
            # A stream that breaks off while it is read: arro3 has no type for it.
            raise translated(error, what, location, owner) from error
        # deltalake's panics are no Exceptions, and have no public type.
        if type(error).__name__ != "PanicException":
            raise
        message = f"{what}: deltalake broke down at {location.uri}: {plain(error)}"
        raise owner.error(message, uri=location.uri) from error


@contextmanager
def data_reads(what: str, location: Location, owner: Owner = NODE) -> Iterator[None]:
    """The same for calls that read data files.

    Raises:
        DamagedTableError: a file is gone, or cannot be read.
        OdiError: as of :func:`deltalake_calls`; the store did not answer, or refused, among others.
    """
    with deltalake_calls(what, location, owner):
        try:
            yield
        except Exception as error:
            # A stream that breaks off: arro3 has no type for it, and pyarrow one for all of its errors.
            if not isinstance(error, pa.ArrowException) and type(error) is not Exception:
                raise
            odi_error = translated(error, what, location, owner)
            odi_error.__cause__ = error
            is_damage = type(odi_error) is owner.error and not cannot_look(odi_error)
            raise (unreadable(location, "a data file", error) if is_damage else odi_error) from error


def unreadable(location: Location, path: str, error: Exception) -> DamagedTableError:
    """The error over a data file that is gone, or cannot be read."""
    why = (str(error).strip() or type(error).__name__).splitlines()[0]
    return DamagedTableError(
        f"{path} of the Delta table at {location.uri} cannot be read: {why}",
        fix="odi doctor --deep names every such file, and for each table what to do",
        uri=location.uri,
        path=path,
    )


def translated(error: Exception, what: str, location: Location, owner: Owner = NODE) -> OdiError:
    """The error of ours for what deltalake raised."""
    uri, connection = location.uri, location.connection
    message = f"{what} failed at {uri}: {plain(error)}"
    features = unsupported_features(error)
    if features:
        return UnsupportedFeatureError(
            f"{what} failed at {uri}: the table uses Delta features that deltalake {VERSION} cannot handle here: "
            f"{', '.join(features)}",
            fix=owner.without_feature,
            uri=uri,
            features=features,
        )
    odd = _NO_VALUE.search(str(error))
    if odd is not None:
        negative = ": deltalake writes negative decimals so, and cannot read them" if ".-" in odd[1] else ""
        return owner.error(
            f"{what} failed at {uri}: its log has a partition of the value {odd[1]!r}, which is no {odd[2]}{negative}",
            fix="let another writer make the table, as Spark's Delta connector; or partition it by another column, as "
            "the value as text",
            uri=uri,
        )
    if isinstance(error, CommitFailedError):
        return owner.conflict(message, fix="try again; nothing was written", uri=uri)
    if isinstance(error, SchemaMismatchError | DeltaProtocolError):
        return owner.error(message, fix="the table is not one that this version can write; look at its schema", uri=uri)
    if _is_transient(error):
        return StoreUnreachableError(message, fix="try again when the store answers", uri=uri, connection=connection)
    if not location.is_local:
        return _of_store(answer(error), message, location, owner)
    return owner.error(message, fix="check the path, its permissions, its _delta_log and the free space there", uri=uri)


def cannot_look(error: OdiError) -> bool:
    """Whether an error leaves open what is there, because the store did not answer or refused to."""
    if isinstance(error, StoreUnreachableError | StoreAccessError):
        return True
    named = _OS_ERROR.search(str(error.__cause__))
    number = int(named[1]) if named else getattr(error.__cause__, "errno", None)
    return number is not None and number != errno.ENOENT


def store_options(location: Location) -> dict[str, str] | None:
    """deltalake's options for the store of ``location``."""
    return {**({} if location.is_local else _PATIENCE), **location.storage_options} or None


def plain(error: BaseException) -> str:
    """The text of deltalake's error on one line, without colours, Rust's stack and the body of the answer."""
    text = _JOINT.sub(": ", _COLOURS.sub("", _STACK.sub("", str(error))))
    code = _CODE.search(text)
    text = _BODY.sub("", text).strip()
    return f"{text} ({code[1]})" if code else text


def answer(error: BaseException) -> Answer:
    """What the store answered, when ``error`` came of a call on a remote table."""
    text = _JOINT.sub(": ", _COLOURS.sub("", str(error)))
    status = _STATUS.search(text)
    if status:
        return _of_status(int(status[1]), text)
    if "loading credentials" in text:
        return "denied"
    if "builder error" in text:
        return "unusable"
    if "Error performing" in text or "HTTP error" in text:
        return "silence"
    return "unusable" if _NO_CLIENT.match(text) else "unknown"


def unsupported_features(error: Exception) -> tuple[str, ...]:
    """The Delta features that deltalake refused, as it names them; empty if the error is another one."""
    for pattern in _UNSUPPORTED:
        match = pattern.search(str(error))
        if match:
            names = re.sub(r'Unknown\("(.*?)"\)', r"\1", match["features"])
            return tuple(sorted(names.split(", ")))
    return ()


def _of_status(status: int, text: str) -> Answer:
    if status in (401, 403) or "ExpiredToken" in text:
        return "denied"
    if status == 404:
        listing = "Error performing list request" in text or "NoSuchBucket" in text or "ContainerNotFound" in text
        return "no bucket" if listing else "no object"
    return "silence" if status >= 500 or status in _BUSY else "refused"


def _of_store(store_answer: Answer, message: str, location: Location, owner: Owner) -> OdiError:
    uri, connection = location.uri, location.connection
    where = f"connection `{connection}`" if connection else "the storage options"
    fixes = {
        "denied": f"repair the key, token or signature of {where}: there is none, or it is wrong, has expired, "
        "or does not give the right to list, read, write and delete there",
        "no bucket": f"make the bucket or container, or correct its name in {where}",
        "refused": f"correct {where}: its region, its endpoint and its names",
        "unusable": f"correct {where}: nothing could be asked with it",
    }
    if store_answer in fixes:
        return StoreAccessError(message, fix=fixes[store_answer], uri=uri, connection=connection)
    if store_answer == "silence":
        fix = f"check the network and the endpoint of {where}, or try again when the store answers"
        return StoreUnreachableError(message, fix=fix, uri=uri, connection=connection)
    return owner.error(message, fix="look at the table's folder in the store: it may be damaged", uri=uri)


def _is_transient(error: Exception) -> bool:
    if not isinstance(error, OSError) or isinstance(error, PermissionError | FileNotFoundError):
        return False
    return isinstance(error, ConnectionError | TimeoutError) or error.errno in _TRANSIENT
