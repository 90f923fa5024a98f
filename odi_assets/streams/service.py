"""A stream node as a service: it processes new input as it arrives, until it is stopped."""

from __future__ import annotations

import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError
from odi_assets.nodes.planning.planner import NEW_DATA
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.result import NodeResult
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets.spark.session import open_session
from odi_assets.streams.execution.run import StreamService
from odi_assets.streams.query.run import BatchProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

SERVICE = "service"
"""The trigger of a service in the run history."""


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
            f"{key} is no stream", fix=f"run it with odi run {key.pipeline} --node {key.node}", node=str(key)
        )
    history = RunHistory(project, project.open_state(), str(uuid.uuid4()), SERVICE, is_partial=lambda _: True)
    handlers: list[Callable[[Callable[[], None]], None]] = []
    with ExitStack() as opened:

        @cache
        def open_spark() -> SparkSession:
            # Until then a signal ends the process at once: there is no batch that it would break off.
            handlers.append(opened.enter_context(_stop_signals()))
            session = open_session(project.config.spark, app_name=f"odi stream run {key}")
            opened.callback(session.stop)
            return session.spark

        service = StreamService(interval, on_batch, on_start=lambda stop: handlers[0](stop))
        return run_node(NodeRun(history, key, open_spark, service=service), request)


@contextmanager
def _stop_signals() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Let SIGTERM and SIGINT call what the block names, once; a second one interrupts as usual.

    Until the block has named it, SIGTERM waits. The JVM that the block starts ignores SIGTERM: who stops a service
    sends it to all processes of it, and Spark has to live until the batch is committed. It ends with this process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda _: None
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    waiting = threading.Event()
    stops: list[Callable[[], None]] = []

    def as_before() -> None:
        for number, before in previous.items():
            signal.signal(number, before)

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        _log.info("signal %s: stopping after the batch that runs", number)
        waiting.set()
        if stops:
            as_before()
            stops[0]()

    def handled_by(stop: Callable[[], None]) -> None:
        stops.append(stop)
        signal.signal(signal.SIGINT, handle)
        if waiting.is_set():
            handle(signal.SIGTERM, None)

    signal.signal(signal.SIGTERM, handle)
    _children.ignore_sigterm()
    try:
        yield handled_by
    finally:
        _children.may_be_ended()
        as_before()


class _Children:
    """Whether processes that are forked from this one ignore SIGTERM, and so what they execute does."""

    def __init__(self) -> None:
        self._ignore = False
        self._hooked = False

    def ignore_sigterm(self) -> None:
        self._ignore = True
        if not self._hooked:
            self._hooked = True
            os.register_at_fork(after_in_child=self._in_child)

    def may_be_ended(self) -> None:
        self._ignore = False

    def _in_child(self) -> None:
        if self._ignore:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


_children = _Children()
