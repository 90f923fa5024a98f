"""The process of the Spark Connect server of ``odi dev --connect``.

It holds the server's JVM, and puts another one in its place when that has died: with the project file as it is then.
``odi dev`` holds the other end of its stdin, so it ends with ``odi dev``, however that ends; and the JVM ends with it.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

from odi_assets.cli.terminal.exit_codes import report
from odi_assets.cli.terminal.output import note
from odi_assets.nodes.project import Project
from odi_assets.spark.death import way_of_death
from odi_assets.spark.lazy import java_errors
from odi_assets.spark.session import classic_session
from odi_assets.spark.shared_server import TOKEN_VARIABLE, server_settings, shared_server, token_of

READY = b"ready\n"
"""What it writes to stdout once the first server answers."""
AGAIN = "again"
MODULE = "odi_assets.cli.dev.server"
_END_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
"""A server that lived on without memory would let each run wait; one that ends is replaced."""
_LOOK_SECONDS, _STOP_SECONDS = 0.5, 10
_PAUSES = (1, 2, 5, 10, 30)
"""Seconds to wait before a server is started again that did not start."""


def main(arguments: list[str]) -> int:
    """Serve until stdin closes. The exit code says whether the first server started."""
    # Ctrl-C is for `odi dev`.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    failures = int(arguments[1]) if arguments[:1] == [AGAIN] else None
    address = shared_server()
    assert address is not None
    try:
        os.environ[TOKEN_VARIABLE] = token_of(address)
        settings = server_settings(Project.load().config.spark, address)
        handle = classic_session(settings, "odi dev --connect", options=[_END_WITHOUT_MEMORY])
    except Exception as error:  # noqa: BLE001  said as commands say it; what was started before goes on without
        code = report(error)
        return code if failures is None else _try_again(failures)
    jvm = _jvm_of(handle.spark)
    if failures is None:
        os.write(sys.stdout.fileno(), READY)
    else:
        note("odi dev: the new Spark Connect server is there; the next runs use it.")
    # py4j logs with its stack that the JVM has gone. That is said here.
    logging.getLogger().setLevel(logging.CRITICAL)
    while not _is_stdin_closed(_LOOK_SECONDS):
        if jvm.poll() is not None or _is_stopped(handle.spark):
            _end(jvm)
            what, remedy = way_of_death(jvm.returncode)
            note(
                f"odi dev: the Spark Connect server died: {what}\n  → another one is started. Runs that used it have "
                f"failed; what they committed stays, and the next runs go on from there; {remedy}"
            )
            _become_anew(0)
    _end(jvm)
    return 0


def _jvm_of(spark: Any) -> subprocess.Popen[bytes]:
    process: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc
    return process


def _is_stdin_closed(seconds: float) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)


def _is_stopped(spark: Any) -> bool:
    """Whether the Spark context has ended, as it does where its master has gone; the JVM may live on."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except (java_errors.Py4JError, OSError):
        # The JVM does not answer any more: it is ending.
        return True


def _try_again(failures: int) -> int:
    pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
    note(f"odi dev: the Spark Connect server did not start; runs wait. It is tried again in {pause} s.")
    if _is_stdin_closed(pause):
        return 0
    return _become_anew(failures + 1)


def _become_anew(failures: int) -> int:
    """Begin again in a process that has started no JVM. stdin stays as it is."""
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", MODULE, AGAIN, str(failures)])


def _end(jvm: subprocess.Popen[bytes]) -> None:
    """Have the JVM end, as it does when its stdin closes, and wait for that."""
    if jvm.stdin is not None:
        with suppress(OSError):
            jvm.stdin.close()
    try:
        jvm.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
