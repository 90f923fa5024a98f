"""The Spark Connect server of ``odi dev --connect``: where it listens, what it is started with, how a run reaches it.

It is a classic session in a process of its own, with Spark's plugin for Spark Connect. It listens on this machine
alone, and asks for a token. What needs a JVM of its own is in ``orchestration.runs.at_once``.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import SparkConfig

if TYPE_CHECKING:
    from odi_assets.spark.session import SessionHandle

SERVER_VARIABLE = "ODI_DEV_CONNECT"
"""The environment variable in which the processes below ``odi dev --connect`` find the server's address."""
HOST = "127.0.0.1"

_TOKEN, _TOKEN_VARIABLE = "spark.connect.authenticate.token", "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_PLUGINS, _PLUGIN = "spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin"
_END_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
"""A server that lived on without memory would let each run wait; one that ends is replaced."""


def new_address() -> str:
    """An address on a free port of this machine, with a token that nobody knows.

    PySpark's client sends a token without TLS to ``localhost`` alone, and takes no other name for it.
    """
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    return f"sc://localhost:{port}/;token={secrets.token_urlsafe(32)}"


def shared_server() -> str | None:
    """The address of the server that this process shares with others; None if there is none."""
    return os.environ.get(SERVER_VARIABLE) or None


def start_server(config: SparkConfig, address: str) -> SessionHandle:
    """Start the server in this process, with all that ``config`` says of a session. It ends with this process.

    Raises:
        JavaError: there is no Java that Spark can use.
        OdiError: it did not start.
    """
    from odi_assets.spark.session import classic_session

    place, _, token = address.partition("/;token=")
    # Spark takes it from the environment too, and an environment is no setting that is shown.
    os.environ[_TOKEN_VARIABLE] = token
    conf = {
        **config.conf,
        _PLUGINS: ",".join(filter(None, [config.conf.get(_PLUGINS), _PLUGIN])),
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": place.rpartition(":")[2],
    }
    conf.pop(_TOKEN, None)
    server = config.model_copy(update={"remote": None, "conf": conf})
    return classic_session(server, "odi dev --connect", options=[_END_WITHOUT_MEMORY])


def fail_at_once(client: Any) -> None:
    """Let calls of ``client`` fail as soon as the server has gone, if it is the one of ``odi dev --connect``.

    PySpark's own way is to call again for ten minutes. But on one machine, who does not answer has ended, and with it
    the session.
    """
    if shared_server() is None:
        return
    import grpc
    from pyspark.sql.connect.client.retries import DefaultPolicy

    class WhereItLives(DefaultPolicy):
        def can_retry(self, e: BaseException) -> bool:
            gone = isinstance(e, grpc.RpcError) and e.code() == grpc.StatusCode.UNAVAILABLE
            return not gone and super().can_retry(e)

    client.set_retry_policies([WhereItLives()])
