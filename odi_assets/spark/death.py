"""The death of the JVM that Spark runs in: py4j says of it only that a connection was refused, and Spark Connect's
client that there is no session."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from odi_assets.errors import SparkDiedError
from odi_assets.spark.jvm.gateway import JvmEndedError, said_no_memory
from odi_assets.spark.lazy import java_errors
from odi_assets.spark.shared_server import shared_server

_NO_MEMORY = "java.lang.OutOfMemoryError"
_OUT_OF_MEMORY_EXIT = 52
"""Spark's exit code where a thread of it had no memory left (``SparkExitCode.OOM``); 3 is the exit code of the JVM's
own ``-XX:+ExitOnOutOfMemoryError``."""
_STOPPED = ("SparkContext was shut down", "on a stopped SparkContext")
_ENDING = (
    *_STOPPED,
    *('the return value of "org.apache.spark.SparkContext.', 'the return value of "org.apache.spark.SparkEnv.'),
)
"""What a JVM answers to a call while it ends."""
_SERVER_GONE = (
    *("StatusCode.UNAVAILABLE", "[INVALID_HANDLE.SESSION_", "[INVALID_HANDLE.OPERATION_", "[NO_ACTIVE_SESSION]"),
    *_STOPPED,
)
"""What the errors of Spark Connect's client say where the server has ended, or another one is in its place."""
_SECONDS, _LAST_SECONDS = 2.0, 30.0
"""How long a JVM that closed its connections, or is ending, may take to end; and one that does not listen any more."""

_CLIENT = "pyspark.errors.exceptions.connect"
_MEMORY = "`spark.driver.memory`"
_GOES_ON = "what was committed stays, and the next run goes on from there"


@contextmanager
def death_named(what: str, *, but: type[Exception] = SparkDiedError) -> Iterator[None]:
    """A block in which the errors that the death of the JVM causes say that it died.

    Args:
        but: errors that say what is wrong themselves.

    Raises:
        SparkDiedError: it died, or had no memory left.
    """
    try:
        yield
    except Exception as error:
        died = None if isinstance(error, but) else death_of_spark(error, what)
        if died is None:
            raise
        raise died from error


def death_of_spark(error: BaseException, what: str = "") -> SparkDiedError | None:
    """What ``error`` comes from, if that is the death of this process's JVM; None if it is something else.

    Args:
        what: what was going on, in words.
    """
    chain = list(_chain(error))
    during = f" while {what}" if what else ""
    is_silent = any(map(_is_of_connection, chain))
    if is_silent and (code := _exit_code()) is not None:
        what_happened, why = way_of_death(code)
        return SparkDiedError(
            f"the JVM in which Spark runs died{during}: {what_happened}",
            fix=f"{_GOES_ON}; {why}",
            exit_code=code,
        )
    said = any(_NO_MEMORY in str(cause) for cause in chain)
    if said or (is_silent and said_no_memory()):
        return SparkDiedError(
            f"the JVM in which Spark runs had no memory left{during} ({_NO_MEMORY})",
            fix=f"{_GOES_ON}; give Spark more: `spark: {{conf: {{spark.driver.memory: 4g}}}}` in the project file "
            "(1g unless it says otherwise; of a cluster's executors spark.executor.memory)",
            exit_code=None,
        )
    if any(map(_is_of_a_server, chain)):
        return SparkDiedError(
            f"the Spark Connect server died{during}, or was started again",
            fix=f"{_GOES_ON}; "
            + (
                "`odi dev` starts another server, and its output says of what this one died"
                if shared_server() is not None
                else "start the server again if nobody does; its log says of what it died"
            ),
            exit_code=None,
        )
    return None


def death_as_it_started(error: BaseException) -> SparkDiedError | None:
    """What ``error`` comes from, if a signal or want of memory ended the JVM as it started; None if it is something
    else, as an option that the JVM does not know."""
    code = error.code if isinstance(error, JvmEndedError) else _exit_code() if _is_of_connection(error) else None
    if code is None or (code >= 0 and not said_no_memory()):
        return None
    what_happened, why = way_of_death(code)
    return SparkDiedError(f"the JVM in which Spark runs died as it started: {what_happened}", fix=why, exit_code=code)


def _is_of_a_server(error: BaseException) -> bool:
    """Whether Spark Connect's client says that its server, or its session there, is gone."""
    of_client = type(error).__module__.partition(".")[0] == "grpc" or _CLIENT in type(error).__module__
    return of_client and any(text in str(error) for text in _SERVER_GONE)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            waiting += [cause.__cause__, cause.__context__]


def _is_of_connection(error: BaseException) -> bool:
    """Whether the JVM gave no answer, or answered while it ended."""
    if isinstance(error, java_errors.Py4JJavaError):
        return said_no_memory() or any(text in str(error) for text in _ENDING)
    # py4j raises Py4JError itself, with no more than the call, where nobody answers.
    return isinstance(error, ConnectionError | EOFError | java_errors.Py4JError)


def _exit_code() -> int | None:
    """How the JVM of this process ended: its exit code, or a signal as a negative number; None if it runs, or there
    is none."""
    context: Any = sys.modules.get("pyspark.core.context")
    gateway = context.SparkContext._gateway if context is not None else None
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return None
    for seconds in (_SECONDS, _LAST_SECONDS):
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        if process.returncode is not None or _takes_calls(gateway):
            break
    return process.returncode


def _takes_calls(gateway: Any) -> bool:
    """Whether the JVM still listens. One that has no memory left stops to before it ends."""
    parameters = gateway.gateway_parameters
    try:
        socket.create_connection((parameters.address, parameters.port), _SECONDS).close()
    except OSError:
        return False
    return True


def way_of_death(code: int) -> tuple[str, str]:
    """How a JVM ended that gave this exit code, or was ended by a signal (a negative one), and what helps, in words."""
    if code in (_OUT_OF_MEMORY_EXIT, 3) or said_no_memory():
        return f"it had no memory left (exit code {code})", f"give it more by {_MEMORY} in `spark.conf`"
    if code == -signal.SIGKILL:
        return (
            "SIGKILL: somebody killed it, or the system did because the machine had no memory left",
            f"if it was the memory, give the machine more of it, or Spark less: {_MEMORY} in `spark.conf` (1g unless "
            "it says otherwise), and the cores of `spark.master`",
        )
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return how, f"the lines above are its own; if it had no memory left, {_MEMORY} in `spark.conf` gives it more"
