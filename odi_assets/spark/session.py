"""Spark sessions with the settings that our tables need. Whoever starts a session stops it."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from odi_assets.config.models import SparkConfig
from odi_assets.config.spark_settings import REQUIRED_CONF
from odi_assets.connections.cached import share_jvm
from odi_assets.errors import OdiError
from odi_assets.spark.connect_worker import without_tokens
from odi_assets.spark.death import death_as_it_started, death_of_spark
from odi_assets.spark.jvm.archive import Archive
from odi_assets.spark.jvm.gateway import LOG_LEVEL_VARIABLE, JvmStart, has_gateway, quiet_query_errors
from odi_assets.spark.jvm.overhead import spare
from odi_assets.spark.progress import watch_remote
from odi_assets.spark.redaction import hide_secrets, settings_pattern
from odi_assets.spark.shared_server import limit_retries
from odi_assets.util.debugging import debugging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_CONF: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A landing of thousands of small files is the common case here; the default makes a task of each.
    "spark.sql.files.openCostInBytes": "262144",
    # And to look up more than 32 files makes a task of each: for 1,000 files, ten times the time.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    "spark.sql.shuffle.partitions": "16",
}
"""Settings of a classic session; ``spark.conf`` of the project file overrides each."""

LOCAL_CONF: Mapping[str, str] = {
    # With a local master, the driver and its executors share a machine: no name look-up, no other networks.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # No more of them run at once than there are cores, and each costs some milliseconds.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(min(32, 4 * (os.cpu_count() or 8))),
}
"""More settings for a local master only: executors of a cluster could not reach such a driver."""

SMALL_BYTES = 32 * 1024**2
"""Up to this size of what it reads, a run takes less time without the optimizing compiler of the JVM.
`python -m benchmarks start` measures it."""

_CONNECT_SECONDS = 60
"""How long a server of Spark Connect may take to accept a connection."""
_AGAIN_SECONDS = 5
"""The same, for a server that has just let this process wait in vain: for another node of the run."""
_unanswered: set[str] = set()
_said_missing: set[str] = set()
"""Packages that were said to be missing: once is enough for a process, however many sessions it opens."""

LOCAL_MASTER = "local[*]"
_ONE_ATTEMPT = re.compile(r"local(\[(\d+|\*)\])?")
_PACKAGES = "spark.jars.packages"
_DETAILS = re.compile(r'details = "(.+)"')
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


_log = logging.getLogger(__name__)


@dataclass
class SessionHandle:
    """A session and whether this process started it: only then does :meth:`stop` stop it.

    Attributes:
        archive: the class-data archive of the JVM; None if the session came with no JVM of its own.
    """

    spark: SparkSession
    started_here: bool
    archive: Archive | None = None

    def stop(self) -> None:
        """Stop the session if it was started through this handle.

        If its JVM had no class-data archive, one is made for the next JVM. Nobody waits for it.
        """
        if self.started_here:
            self.started_here = False
            try:
                self.spark.stop()
            except Exception as error:
                # A JVM that died is stopped. Whoever met its death says of what it died.
                if death_of_spark(error) is None:
                    raise
            if self.archive is not None and self.archive.can_be_made:
                from odi_assets.spark.jvm.prepare import prepare_in_background

                prepare_in_background(self.archive)


class _Beginning:
    """A classic session that starts in a thread."""

    def __init__(self, config: SparkConfig, app_name: str, *, is_small: bool) -> None:
        self.config = config
        self._handle: SessionHandle | None = None
        self._error: BaseException | None = None
        # In this thread: a JVM ends with the thread that started it.
        with _start_named(config):
            jvm = JvmStart(classic_conf(config, app_name), is_small=is_small)
        self._thread = threading.Thread(target=self._start, args=(app_name, jvm), name="odi-spark-start", daemon=True)
        self._thread.start()

    def _start(self, app_name: str, jvm: JvmStart) -> None:
        try:
            self._handle = classic_session(self.config, app_name, jvm)
        except BaseException as error:  # noqa: BLE001  raised where the session is asked for
            self._error = error

    def handle(self) -> SessionHandle:
        """Wait for the session.

        Raises:
            OdiError: it did not start.
        """
        self._thread.join()
        if self._handle is None:
            assert self._error is not None
            raise self._error
        # A session is active in the thread that made it.
        spark: Any = self._handle.spark
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
        return self._handle

    def give_up(self) -> None:
        """Wait for the session and stop it, if it started."""
        self._thread.join()
        if self._handle is not None:
            self._handle.stop()


_beginning: list[_Beginning] = []


@contextmanager
def session_beginning(config: SparkConfig, *, app_name: str = "odi_assets", is_small: bool = False) -> Iterator[None]:
    """Start a classic session beside what the block does; :func:`open_session` with the same settings waits for it.

    Errors of the session are raised there. If nobody asked for the session, it is stopped at the end of the block.
    Nothing is started where there is a JVM already.

    Args:
        is_small: the session is to read little (see :class:`odi_assets.spark.jvm.gateway.JvmStart`).

    Raises:
        JavaError: there is no Java that Spark can use.
        OdiError: the JVM could not be started.
    """
    begun = [] if config.remote or has_gateway() else [_Beginning(config, app_name, is_small=is_small)]
    _beginning.extend(begun)
    try:
        yield
    finally:
        for beginning in begun:
            if beginning in _beginning:
                _beginning.remove(beginning)
                beginning.give_up()


def open_session(config: SparkConfig | None = None, *, app_name: str = "odi_assets") -> SessionHandle:
    """The active session if there is one, else a new one: Spark Connect if ``config.remote`` is set, classic otherwise.

    Raises:
        JavaError: a classic session is wanted and no Java that Spark can use was found.
        OdiError: the session cannot be started or the Connect server does not answer.
    """
    from pyspark.sql import SparkSession

    config = config or SparkConfig()
    if _beginning:
        begun = _beginning.pop()
        if begun.config == config:
            return begun.handle()
        begun.give_up()
    active = SparkSession.getActiveSession()
    # A session stays "active" after its owner stopped its JVM.
    if active is not None and not _is_stopped(active):
        apply_conf(active, REQUIRED_CONF)
        hide_secrets(active)
        _tell_of_missing_packages(active, config)
        return SessionHandle(active, started_here=False)
    return _connect(config, app_name) if config.remote else classic_session(config, app_name)


def runs_tasks_once(spark: Any) -> bool:
    """Whether a task that fails ends its job: on a local master that was given no number of failures. False through
    Spark Connect, where this is not known."""
    return hasattr(spark, "_jsparkSession") and _ONE_ATTEMPT.fullmatch(str(spark.sparkContext.master)) is not None


def _is_stopped(spark: Any) -> bool:
    stopped = getattr(spark, "is_stopped", None)
    if isinstance(stopped, bool):
        return stopped
    context = getattr(spark, "_sc", None)
    return context is not None and getattr(context, "_jsc", None) is None


def classic_conf(config: SparkConfig, app_name: str = "odi_assets") -> dict[str, str]:
    """All settings of a classic session of a project."""
    master = config.master or LOCAL_MASTER
    # The log level is set at run time too: a JVM keeps the level that it was started with.
    level = {} if debugging() else {"spark.log.level": os.environ.get(LOG_LEVEL_VARIABLE, "error").upper()}
    conf = {**classic_defaults(master), **level, **config.conf, **REQUIRED_CONF, **settings_pattern(config.conf)}
    return conf | {"spark.app.name": app_name, "spark.master": master, **packages_conf(config)}


def classic_session(
    config: SparkConfig, app_name: str, jvm: JvmStart | None = None, *, options: Sequence[str] = ()
) -> SessionHandle:
    """A classic session in a JVM that is starting; without one, in the JVM of this process, or a new one.

    Args:
        options: of Java, for a new JVM.

    Raises:
        JavaError: there is no Java that Spark can use.
        OdiError: it did not start.
    """
    conf = classic_conf(config, app_name)
    with _start_named(config):
        if jvm is None and not has_gateway():
            jvm = JvmStart(conf, options=options)
        archive = jvm.connect() if jvm is not None else None
        from pyspark.sql import SparkSession

        quiet_query_errors()
        builder = SparkSession.builder
        for key, value in conf.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spare(spark)
    apply_conf(spark, REQUIRED_CONF)
    hide_secrets(spark)
    return SessionHandle(spark, started_here=True, archive=archive)


@contextmanager
def _start_named(config: SparkConfig) -> Iterator[None]:
    """A block whose errors say that Spark did not start."""
    try:
        yield
    except OdiError:
        raise
    except Exception as error:
        if (died := death_as_it_started(error)) is not None:
            raise died from error
        raise OdiError(
            f"Spark did not start (master {config.master or LOCAL_MASTER}): {error}",
            fix=f"check `spark.master` and `spark.conf` in the project file{_packages_advice(config)}; the lines above "
            "are Spark's own log",
        ) from error


def _packages_advice(config: SparkConfig) -> str:
    """What to look at where JARs cannot be fetched: Spark names them, and does not say why."""
    return (
        ", and whether `spark.packages` can be fetched: Java may not trust a certificate authority of your own; "
        f"`spark.conf: {{{_JAVA_OPTIONS}: -Djavax.net.ssl.trustStore=FILE}}` names the ones to trust"
        if packages_conf(config)
        else ""
    )


def packages_conf(config: SparkConfig) -> dict[str, str]:
    """The JARs that a new session fetches: first from `spark.conf`, then from `spark.packages`."""
    named = [*filter(None, config.conf.get(_PACKAGES, "").split(",")), *config.packages]
    return {_PACKAGES: ",".join(dict.fromkeys(named))} if config.packages else {}


def _tell_of_missing_packages(spark: SparkSession, config: SparkConfig) -> None:
    """A session has the JARs that it was started with: those that the project names come too late."""
    missing = set(config.packages) - set((spark.conf.get(_PACKAGES, "") or "").split(",")) - _said_missing
    if missing:
        _said_missing.update(missing)
        _log.warning(
            "the Spark session was not started with %s of `spark.packages`; if its JARs are not there in another way, "
            "name them where the session is started",
            ", ".join(sorted(missing)),
        )


def classic_defaults(master: str) -> dict[str, str]:
    """Settings that a session on ``master`` has unless the project file says otherwise."""
    return {**DEFAULT_CONF, **(LOCAL_CONF if master.startswith("local") else {})}


def _connect(config: SparkConfig, app_name: str) -> SessionHandle:
    from pyspark.sql import SparkSession

    quiet_query_errors()
    builder: Any = SparkSession.builder.appName(app_name)
    remote = _address(str(config.remote))
    try:
        _require_channel(remote)
        session: SparkSession = builder.remote(remote).getOrCreate()
        session.version  # noqa: B018  the first call that goes to the server
    except Exception as error:
        _forget(SparkSession.getActiveSession())
        address, why, does = without_tokens(remote), without_tokens(_reason(error)), "does not answer"
        fix = "check `spark.remote` in the project file, or remove it to run Spark in this process"
        if "UNAUTHENTICATED" in str(error):
            does = "refuses"
            fix = (
                "give the server's token: `remote: sc://HOST:PORT/;token=${SPARK_TOKEN}`, or the environment variable "
                "SPARK_CONNECT_AUTHENTICATE_TOKEN"
            )
        raise OdiError(f"the Spark Connect server at {address} {does}: {why}", fix=fix, remote=address) from error
    watch_remote(cast(Any, session).client)
    limit_retries(cast(Any, session).client)
    share_jvm()
    _tell_of_missing_packages(session, config)
    apply_conf(session, {k: v for k, v in config.conf.items() if not _is_static(session, k, v)})
    apply_conf(session, REQUIRED_CONF)
    hide_secrets(session)
    return SessionHandle(session, started_here=True)


def _require_channel(remote: str) -> None:
    """Spark's client would look for a server that is not there for ten minutes, without a word.

    Raises:
        TimeoutError: there is none within :data:`_CONNECT_SECONDS`, or :data:`_AGAIN_SECONDS` if there was none before.
        Exception: whatever PySpark raises where the address is not right.
    """
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    if not remote.startswith("sc://"):
        return
    with DefaultChannelBuilder(remote).toChannel() as channel:
        seconds = _AGAIN_SECONDS if remote in _unanswered else _CONNECT_SECONDS
        try:
            grpc.channel_ready_future(channel).result(timeout=seconds)
        except grpc.FutureTimeoutError:
            _unanswered.add(remote)
            raise TimeoutError(f"no connection within {seconds} seconds") from None
        _unanswered.discard(remote)


def _address(remote: str) -> str:
    """The address as pyspark reads it: a token behind ``/;`` may have characters of addresses, but no semicolon."""
    place, separator, parameters = remote.partition("/;")
    pairs = (parameter.partition("=") for parameter in parameters.split(";"))
    return place + separator + ";".join(f"{name}{equals}{quote(value, safe='%')}" for name, equals, value in pairs)


def _reason(error: Exception) -> str:
    """Why a call failed. The text of an error of gRPC is a block of lines, of which one says it."""
    details = getattr(error, "details", None)
    named = _DETAILS.search(str(error))
    return str((callable(details) and details()) or (named[1] if named else error))


def _forget(begun: Any) -> None:
    """Forget a session that was begun: it counts as active, and the next node would go on with it."""
    if begun is not None:
        begun.release_session_on_close = False
        begun.stop()


def _is_static(spark: SparkSession, key: str, value: str) -> bool:
    if spark.conf.isModifiable(key):
        return False
    if spark.conf.get(key, None) != value:
        _log.warning("%s belongs to the Spark Connect server and is not set by this project", key)
    return True


def apply_conf(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Give each setting of ``conf`` its value in the session."""
    for key, value in conf.items():
        if spark.conf.get(key, None) != value:
            spark.conf.set(key, value)
