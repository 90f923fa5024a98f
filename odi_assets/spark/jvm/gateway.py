"""Starts the JVM of a classic session, without the terminal output that a user does not need."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partialmethod
from io import RawIOBase
from pathlib import Path
from socketserver import BaseServer
from typing import Any

from odi_assets.spark.jvm.archive import JVM_VARIABLES, Archive, made_cache_folder
from odi_assets.spark.jvm.java import Java, find_java
from odi_assets.spark.jvm.launch import (
    DirectStartUnavailable,
    JvmProcess,
    archive_of,
    launch,
    launch_command,
    options_of_size,
)
from odi_assets.spark.jvm.scripts_home import home_for_scripts
from odi_assets.spark.jvm.settings_file import SUBMIT_ARGUMENTS, settings_as_argument
from odi_assets.util.debugging import debugging

LOG_LEVEL_VARIABLE = "ODI_SPARK_LOG_LEVEL"
"""Spark's log level from its first line on: ``error`` unless set. Read by log4j2.properties in this package."""

_APP_NAME = "spark.app.name"
_JAVA_OPTIONS, _DEFAULT_OPTIONS = "spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"
_LOG_OPTION = "-Dlog4j2.configurationFile"
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
_TRUST_OPTION = "-Djavax.net.ssl.trustStore"
_TRUSTED = ("/etc/ssl/certs/java/cacerts", "/etc/pki/ca-trust/extracted/java/cacerts")
"""Where Debian and Fedora keep a machine's certificate authorities for Java."""
_OF_SPARKS_OPTIONS = (b"Using incubator modules: jdk.incubator.vector", b"package sun.security.action not in java.base")
"""What the JVM warns of as it starts, because of options that Spark gives it; the second one since Java 24."""

_CHATTER = re.compile(rb"^(?:Starting )?Streaming TransformWithState\w* Python worker\b.*\n(?:\n|(?=.))", re.MULTILINE)
_CHATTER_BEGINS = (b"Starting Streaming TransformWithState", b"Streaming TransformWithState")
"""What the Python worker of ``transformWithState`` prints at first (``transform_with_state_driver_worker``)."""

_IVY = re.compile(
    rb"^(?::: (?:loading settings|resolving dependencies|resolution report|retrieving) ::.*"
    rb"|Ivy Default Cache set to: .*|The jars for the packages stored in: .*|\S+#\S+ added as a dependency"
    rb"|\tconfs: \[.*|\tfound \S+ in .*|\t:: (?:modules in use|evicted modules):|\t\S+#\S+ (?:from|by) .*"
    rb"|\t-+|\t\|.*\||\t\d+ artifacts copied, .*)\n",
    re.MULTILINE,
)
_IVY_BEGINS = (b":: ", b"Ivy Default", b"The jars for", b"\t")
"""What Ivy says of `spark.packages` at each start, though nothing is wrong. What it downloads, and what it does not
find, is shown."""

_NO_MEMORY = b"java.lang.OutOfMemoryError"
"""What the JVM says where a thread of it ends for want of memory; who waits for the thread's answer gets none."""
_seen: set[bytes] = set()

_STOP_SECONDS = 0.05
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_CHUNK = 65536
_log = logging.getLogger(__name__)


def quiet_options(conf: Mapping[str, str]) -> list[str]:
    """Java options for this package's log settings, unless ``conf`` brings its own or ODI_DEBUG is set."""
    if debugging() or _LOG_OPTION in conf.get(_JAVA_OPTIONS, ""):
        return []
    return [f"{_LOG_OPTION}={_LOG_CONFIG.as_uri()}"]


def trust_options(java: Java, conf: Mapping[str, str]) -> list[str]:
    """Java options by which a Java of PyPI trusts the certificate authorities of this machine, as its own Java would.

    None where ``conf`` or the environment names authorities, or the machine keeps none for Java.
    """
    chosen = [conf.get(key, "") for key in (_JAVA_OPTIONS, _DEFAULT_OPTIONS)]
    chosen += [os.environ.get(name, "") for name in (*JVM_VARIABLES, SUBMIT_ARGUMENTS)]
    if not java.is_of_pypi or any(_TRUST_OPTION in options for options in chosen):
        return []
    return [f"{_TRUST_OPTION}={file}" for file in _TRUSTED if os.access(file, os.R_OK)][:1]


def quiet_query_errors() -> None:
    """Stop PySpark from logging, as a line of JSON with its stack, each error of a query that it raises anyway."""
    from pyspark.logger import PySparkLogger

    if not debugging():
        for name in _QUERY_LOGGERS:
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


class JvmEndedError(Exception):
    """A JVM ended before a context was made in it. ``code`` is its exit code, or the signal as a negative number."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the JVM ended as it started: exit code {code}")
        self.code = code


class JvmStart:
    """A JVM that starts by itself until :meth:`connect` makes a Spark context in it.

    The JVM's first lines, warnings that Spark itself causes, are dropped; everything else goes to stderr as it is. On
    Linux, a JVM of the main thread ends with this process even while it starts.

    Args:
        is_small: the JVM is to read little, and gets the options of a short life.
        options: of Java, which come before the project's.

    Raises:
        JavaError: there is no Java that Spark can use.
    """

    def __init__(self, conf: Mapping[str, str], *, is_small: bool = False, options: Sequence[str] = ()) -> None:
        # Spark's Python workers must be this Python: `python3` of PATH, its default, need not have our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self._java, self._conf, self._is_small, self._options = find_java(), conf, is_small, options
        self._opened = ExitStack()
        self._stderr = self._opened.enter_context(_forwarded_stderr())
        self._jvm: JvmProcess | None = None
        made_cache_folder()
        try:
            self._command = launch_command(self._java, {key: conf[key] for key in conf if key != _APP_NAME})
            self.archive = archive_of(self._command)
            self._jvm = self._started()
        except DirectStartUnavailable as reason:
            self.archive = Archive(reason=str(reason))
        except BaseException:
            self._opened.close()
            raise
        _import_pyspark()
        if debugging() or self.archive.is_unsafe:
            _log.warning("class-data archive: %s", self.archive.reason or f"the one in {self.archive.folder}")

    def _started(self) -> JvmProcess:
        small = options_of_size(self._command, is_small=self._is_small)
        return launch(self._command, self.archive, self._stderr, *self._own_options(), *small)

    def _own_options(self) -> list[str]:
        return [*self._options, *quiet_options(self._conf), *trust_options(self._java, self._conf)]

    def connect(self) -> Archive:
        """Wait for the JVM, and make a Spark context in it.

        Returns:
            The class-data archive of the JVM, or why it has none.

        Raises:
            JvmEndedError: the JVM ended before it could be connected to.
            Exception: whatever PySpark raises when the context does not start.
        """
        from pyspark import SparkConf, SparkContext

        with self._opened:
            gateway = self._gateway()
        spark_conf = SparkConf()
        for key, value in self._conf.items():
            spark_conf.set(key, value)
        _end_accumulators_soon()
        SparkContext(conf=spark_conf, gateway=gateway)
        return self.archive

    def _gateway(self) -> Any:
        """Wait for the JVM and connect to it.

        A JVM that crashed as it took its archive is started once more, without the archive.
        """
        if self._jvm is None:
            return self._in_pysparks_way()
        connection = self._jvm.connection()
        if connection is None and self._jvm.crashed and self.archive.is_usable:
            self.archive = replace(self.archive, reason="the JVM crashed with it", can_be_made=True)
            self._jvm = self._started()
            connection = self._jvm.connection()
        if connection is None:
            raise JvmEndedError(self._jvm.process.returncode)
        if self._jvm.archive_refused:
            self.archive = replace(self.archive, reason="the JVM refused it", can_be_made=True)
        return _connected(*connection, self._jvm)

    def _in_pysparks_way(self) -> Any:
        from pyspark.java_gateway import launch_gateway

        options = [self._conf.get(_JAVA_OPTIONS, ""), *self._own_options()]
        conf = {**self._conf, _JAVA_OPTIONS: " ".join(options).strip()}
        # Spark's scripts look for Java by this variable.
        os.environ["JAVA_HOME"] = str(home_for_scripts(self._java))
        start: Any = launch_gateway
        with settings_as_argument(conf) as handed_on:
            return start(popen_kwargs={"stderr": self._stderr, "pass_fds": handed_on})


def _import_pyspark() -> None:
    """Import PySpark while a JVM starts.

    Another thread may connect to the JVM, beside imports of this one. Python's import system does not let two threads
    import modules that import each other: one of them would meet a module that is half made.
    """
    import pyspark.sql.functions  # noqa: F401

    from odi_assets.spark.have_numpy import load_test_utilities

    load_test_utilities()


def _end_accumulators_soon() -> None:
    """PySpark's server of accumulators looks twice a second whether its session stops, which waits for it."""
    from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

    servers: tuple[Any, ...] = (AccumulatorTCPServer, AccumulatorUnixServer)
    for server in servers:
        server.serve_forever = partialmethod(BaseServer.serve_forever, poll_interval=_STOP_SECONDS)


_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


def _connected(port: int, secret: str, jvm: JvmProcess) -> Any:
    """PySpark's gateway to a JVM that runs already."""
    from pyspark.java_gateway import launch_gateway

    # PySpark takes them from the environment. Processes that this one starts are to have JVMs of their own.
    os.environ |= {_PORT: str(port), _SECRET: secret}
    try:
        connect: Any = launch_gateway
        gateway = connect()
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    # The JVM ends when its stdin closes, so the process has to be kept.
    gateway.proc = jvm.process
    return gateway


def has_gateway() -> bool:
    """Whether this process has started a JVM."""
    context: Any = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None


def said_no_memory() -> bool:
    """Whether a JVM of this process has said that it has no memory left."""
    return _NO_MEMORY in _seen


@contextmanager
def _forwarded_stderr() -> Iterator[int]:
    """The descriptor that a JVM may write its stderr to, as long as it lives."""
    source, sink = os.pipe()
    pump = threading.Thread(target=_forward, args=(source,), name="odi-spark-stderr", daemon=True)
    pump.start()
    try:
        yield sink
    except BaseException:
        os.close(sink)
        pump.join(timeout=5)
        raise
    os.close(sink)


def drop_connection(spark: Any) -> None:
    """Close this thread's connection to the JVM of a classic session; the next call opens another one.

    For a thread that was interrupted in the middle of a call, as by *Terminate* in Dagster: the answer is still to
    come, and the next call would take it for its own.
    """
    client = spark._jvm._gateway_client
    # Without a connection per thread (PYSPARK_PIN_THREAD=false), py4j itself does not use such a connection any more.
    connection = client.get_thread_connection() if hasattr(client, "get_thread_connection") else None
    if connection is not None:
        connection.close()


def _forward(source: int) -> None:
    """Copy the JVM's stderr to ours, without the warnings that it begins with and without its workers' chatter."""
    with open(source, "rb", buffering=0) as stream:
        pending, held = _after_warnings(stream), b""
        alive = True
        while pending or (pending := stream.read(_CHUNK)):
            shown, held = _without_chatter(held + pending)
            if _NO_MEMORY in shown:
                _seen.add(_NO_MEMORY)
            # Reading goes on when our stderr is closed: a full pipe would stop the JVM.
            alive = alive and _written(shown)
            pending = b""
        if alive and held:
            _written(_quieted(held + b"\n"))


def _after_warnings(stream: RawIOBase) -> bytes:
    """What comes first after the lines that warn of Spark's options, read to the end of a line."""
    head = b""
    while chunk := stream.read(_CHUNK):
        head += chunk
        while b"\n" in head:
            line, _, rest = head.partition(b"\n")
            if not any(warning in line for warning in _OF_SPARKS_OPTIONS):
                return head
            head = rest
    return head


def _quieted(text: bytes) -> bytes:
    text = _CHATTER.sub(b"", text)
    return text if debugging() else _IVY.sub(b"", text)


def _without_chatter(text: bytes) -> tuple[bytes, bytes]:
    """``text`` without chatter; and its last line, if that may become some, or the blank line after it is to come."""
    text = _quieted(text)
    begin = text.rfind(b"\n", 0, -1) + 1
    last = text[begin:]
    may_be = bool(last) and any(last.startswith(beginning[: len(last)]) for beginning in _CHATTER_BEGINS)
    if last and not last.endswith(b"\n"):
        # The name of a package is one word, until it goes on.
        begins = any(beginning.startswith(last) or last.startswith(beginning) for beginning in _IVY_BEGINS)
        may_be = may_be or begins or b" " not in last or b"#" in last
    return (text[:begin], last) if may_be else (text, b"")


def _written(data: bytes) -> bool:
    try:
        while data:
            # By descriptor: the lock of sys.stderr may be held for ever when the interpreter ends.
            data = data[os.write(2, data) :]
    except OSError:
        return False
    return True
