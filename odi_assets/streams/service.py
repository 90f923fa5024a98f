"""A stream node as a service: it processes new input as it arrives, until it is stopped."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError
from odi_assets.nodes.planning.planner import NEW_DATA
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.result import NodeResult
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets.nodes.service import SERVICE
from odi_assets.nodes.stop_signals import stop_signals
from odi_assets.spark.session import open_session
from odi_assets.streams.execution.run import StreamService
from odi_assets.streams.query.run import BatchProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def serve(
    project: Project,
    key: NodeKey,
    interval: str,
    on_batch: Callable[[BatchProgress], None] | None = None,
    request: RunRequest = NEW_DATA,
) -> NodeResult:
    """Run a stream node until SIGTERM or SIGINT, which end it after the batch that it computes. One row of history.

    Args:
        interval: how often it looks for new data, as Spark takes it: ``10 seconds``.
        on_batch: called with each batch as it ends.

    Raises:
        ConfigError: there is no such node, or it is no stream.
        OdiError: what ended the query; SparkDiedError, if its JVM died. What was committed stays, and the next run goes
            on from there.
    """
    if project.graph.node(key).stream is None:
        raise ConfigError(
            f"{key} is no stream",
            fix=f"odi run {key.pipeline} --node {key.node} --every 10s runs it as a service",
            node=str(key),
        )
    history = RunHistory(project, project.open_state(), str(uuid.uuid4()), SERVICE, is_partial=lambda _: True)
    handlers: list[Callable[[Callable[[], None]], None]] = []
    with ExitStack() as opened:

        @cache
        def open_spark() -> SparkSession:
            # Until then a signal ends the process at once: there is no batch that it would break off.
            handlers.append(opened.enter_context(stop_signals()))
            session = open_session(project.config.spark, app_name=f"odi stream run {key}")
            opened.callback(session.stop)
            return session.spark

        service = StreamService(interval, on_batch, on_start=lambda stop: handlers[0](stop))
        return run_node(NodeRun(history, key, open_spark, service=service), request)
