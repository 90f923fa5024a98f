"""The Spark Connect server of ``odi dev --connect``: where it listens, what it is started with, how a run reaches it.

It is a classic session in a process of its own (``cli.dev.server``), with Spark's plugin for Spark Connect. It listens
on this machine alone, and asks for a token. What needs a JVM of its own is in ``orchestration.runs.at_once``.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import time
from dataclasses import dataclass
from typing import Any

from odi_assets.config.models import SparkConfig

SERVER_VARIABLE = "ODI_DEV_CONNECT"
"""The environment variable in which the processes below ``odi dev --connect`` find the server's address."""
HOST = "127.0.0.1"

_TOKEN, TOKEN_VARIABLE = "spark.connect.authenticate.token", "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_SECONDS, _LONGEST_PAUSE = 110.0, 75.0
"""How long a server may not answer, and what lies between two calls at most: Spark's policy waits 50 ms, and then four
times as long each time, up to a minute. So the last call comes after two minutes."""
_PLUGINS, _PLUGIN = "spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin"

_log = logging.getLogger(__name__)


@dataclass
class _Outage:
    """When calls of this process began to fail, by whatever session, and when one failed last."""

    began: float = -math.inf
    last: float = -math.inf


_outage = _Outage()


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


def server_settings(config: SparkConfig, address: str) -> SparkConfig:
    """What the server's session is started with: all that ``config`` says of a session, and where to listen.

    The token is not among them: Spark takes it from :data:`TOKEN_VARIABLE` too, and an environment is no setting that
    is shown.
    """
    conf = {
        **config.conf,
        _PLUGINS: ",".join(filter(None, [config.conf.get(_PLUGINS), _PLUGIN])),
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": address.partition("/;")[0].rpartition(":")[2],
    }
    conf.pop(_TOKEN, None)
    return config.model_copy(update={"remote": None, "conf": conf})


def token_of(address: str) -> str:
    """The token in an address of :func:`new_address`."""
    return address.partition("token=")[2]


def limit_retries(client: Any) -> None:
    """Let calls of ``client`` fail soon after the server has gone, and say meanwhile that it does not answer.

    PySpark's own way is to call again for ten minutes without a word. A server that has ended has lost the session,
    too: two minutes are enough for a network that is gone for a moment, and of the server of ``odi dev --connect``, on
    one machine, who does not answer has ended.
    """
    import grpc
    from pyspark.sql.connect.client.retries import DefaultPolicy

    class Patience(DefaultPolicy):
        def can_retry(self, e: BaseException) -> bool:
            if not isinstance(e, grpc.RpcError) or e.code() != grpc.StatusCode.UNAVAILABLE:
                return super().can_retry(e)
            now = time.monotonic()
            if now - _outage.last > _LONGEST_PAUSE:
                _outage.began = now
                if shared_server() is None:
                    _log.warning("the Spark Connect server does not answer; it is called again for two minutes")
            _outage.last = now
            return shared_server() is None and now - _outage.began < _SECONDS

    client.set_retry_policies([Patience()])
