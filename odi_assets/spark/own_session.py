"""A session of a node's own: what its SQL or its function changes in the session, later nodes do not see.

Settings, temporary views, registered functions and the current database belong to a session. A node's code reaches its
session in several ways: as an argument, as ``df.sparkSession``, by ``SparkSession.builder.getOrCreate()``, as a
variable that its module made when it was imported. All of them lead to one Python object. So that object stays, and
while a node uses it, it talks to a clone of the session behind it.

Tables of the catalog, global temporary views and cached data belong to the application: all its sessions share them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from odi_assets.config.spark_settings import REQUIRED_CONF
from odi_assets.spark.call_sites import without_call_sites
from odi_assets.spark.jvm.gateway import drop_connection
from odi_assets.spark.progress import watch_remote
from odi_assets.spark.session import apply_conf
from odi_assets.spark.shared_server import limit_retries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STREAMS = "_sqm"
"""Where Spark Connect's sessions keep their list of streaming queries, beside what they keep as cached properties."""

_locks: WeakKeyDictionary[SparkSession, threading.RLock] = WeakKeyDictionary()


class OwnSession:
    """A clone of the session behind ``spark``. In a ``with`` block, ``spark`` and its DataFrames are of the clone.

    The block may be entered several times; what the node's code changed is there again, but for the settings that
    results depend on: these are put back. Threads that share ``spark`` enter one after the other.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        self._lock = _locks.setdefault(spark, threading.RLock())
        with self._lock:
            self._client: Any = _cloned_client(spark) if _is_connect(spark) else None
            cloned = (
                {"_jsparkSession": self._spark._jsparkSession.cloneSession()}
                if self._client is None
                else {"_client": self._client, "_session_id": self._client._session_id}
            )
            self._inside = {name: value for name, value in vars(spark).items() if not _is_derived(spark, name)} | cloned
        self._outside: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._lock.acquire()
        self._outside = dict(vars(self._spark))
        self._exchange(self._inside)
        apply_conf(self._spark, REQUIRED_CONF)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        interrupted = self._client is None and error is not None and not isinstance(error, Exception)
        self._inside = dict(vars(self._spark))
        try:
            if interrupted:
                self._go_back_interrupted()
            else:
                self._exchange(self._outside)
        finally:
            self._lock.release()

    def _go_back_interrupted(self) -> None:
        drop_connection(self._spark)
        try:
            self._exchange(self._outside)
        except Py4JNetworkError:
            # py4j has the JVM close the connection of a call that was interrupted. One that is opened at that moment
            # may be closed too.
            self._exchange(self._outside)

    @contextmanager
    def until_written(self, rows: DataFrame) -> Iterator[None]:
        """The block in which ``rows`` are written, and after which the clone is given up.

        After a write that failed, the clone stays with Spark Connect's server, which may be what failed. The server
        forgets it.
        """
        with self:
            # The node's code may have made them in yet another session.
            apply_conf(rows.sparkSession, REQUIRED_CONF)
            yield
        self.close()

    def close(self) -> None:
        """Give the clone up."""
        if self._client is not None:
            self._client.release_session()
            self._client.close()

    def _exchange(self, attributes: dict[str, Any]) -> None:
        vars(self._spark).clear()
        vars(self._spark).update(attributes)
        if self._client is None:
            # PySpark sets it at times (createDataFrame does), so it has to be put back.
            sessions = self._spark._get_j_spark_session_class(self._spark._jvm)
            sessions.setActiveSession(self._spark._jsparkSession)


@contextmanager
def own_session(spark: SparkSession) -> Iterator[None]:
    """The block in which ``spark`` talks to a clone. After a failure the clone stays, as in ``until_written``.

    Expressions of this package have no call sites there.
    """
    own = OwnSession(spark)
    with own, without_call_sites():
        yield
    own.close()


def _is_connect(spark: SparkSession) -> bool:
    return "_client" in vars(spark)


def _cloned_client(spark: Any) -> Any:
    client = spark.client.clone()
    watch_remote(client)
    limit_retries(client)
    return client


def _is_derived(spark: SparkSession, name: str) -> bool:
    """Whether an attribute was made of the session behind ``spark``: a clone makes its own."""
    return name == _STREAMS or isinstance(getattr(type(spark), name, None), cached_property)
