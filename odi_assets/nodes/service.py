"""Nodes as a service: they run whenever their sources have something new, until somebody stops them.

A look at the sources needs no Spark, and leaves no row of history. The session stays open between two runs.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from odi_assets.config.graph import NodeKey
from odi_assets.errors import OdiError
from odi_assets.nodes.events import Listener, NodeEvent, nobody
from odi_assets.nodes.execution.checks.bad_rows import out_of_step
from odi_assets.nodes.history.repair import own_rows
from odi_assets.nodes.history.resume import verdict
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.forecast import Forecast, forecasts
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import REWIND
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets.nodes.stop_signals import stop_signals
from odi_assets.spark.session import SessionHandle, open_session
from odi_assets.state.backend import StateBackend
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

SERVICE = "service"
"""The trigger of a service in the run history."""
_LOOKED_AT = 20
"""Rows of history that are asked for the last run of a node."""


@dataclass
class NodeService:
    """Runs nodes again and again.

    Attributes:
        keys: in the order they run.
        every: the time between two looks.
        listener: hears of each node that starts, comes further or ends.
        stop: once it is set, the service ends after the commit that is being made.
    """

    project: Project
    keys: Sequence[NodeKey]
    every: timedelta
    listener: Listener = nobody
    stop: threading.Event = field(default_factory=threading.Event)
    _session: SessionHandle | None = field(init=False, default=None)
    _stops: Callable[[Callable[[], None]], None] = field(init=False, default=lambda _: None)

    def run(self) -> None:
        """Run until SIGTERM, SIGINT or :attr:`stop`.

        After a run that fails, the next one waits as the sensor does: ``automation.first_pause``, doubled up to
        ``longest_pause``.

        Raises:
            OdiError: ``automation.max_attempts`` runs in a row have failed. What was committed stays, and the next run
                goes on from there.
        """
        automation = self.project.config.automation
        failures = 0
        with stop_signals() as self._stops:
            self._stops(self.stop.set)
            try:
                while not self.stop.is_set():
                    error = self._round()
                    failures = 0 if error is None else failures + 1
                    if error is not None and failures >= automation.max_attempts:
                        error.add_note(f"{counted(failures, 'run')} in a row have failed")
                        raise error
                    pause = self.every
                    if failures:
                        pause = max(pause, min(automation.first_pause * 2 ** (failures - 1), automation.longest_pause))
                    self.stop.wait(pause.total_seconds())
            finally:
                self._close()

    def _round(self) -> OdiError | None:
        """Look, and run what has something to do; the error of the first node that failed."""
        try:
            state = self.project.open_state()
            due = self._due(state)
        except OdiError as error:
            _log.error("the sources cannot be looked at: %s", error)
            return error
        return self._run(state, due) if due else None

    def _due(self, state: StateBackend) -> set[NodeKey]:
        due: set[NodeKey] = set()
        for forecast in forecasts(self.project, state, self.keys):
            if self.stop.is_set():
                return set()
            follows = not due.isdisjoint(self.project.graph.upstream(forecast.key))
            if _has_news(forecast) or (
                forecast.action != "nothing" and (follows or self._is_behind(state, forecast.key))
            ):
                due.add(forecast.key)
        return due

    def _is_behind(self, state: StateBackend, key: NodeKey) -> bool:
        """Whether something changed for a node since it last succeeded, or that cannot be looked at: its run says why.

        A node that reads its inputs whole writes whenever it runs. A source that has to be read to know counts as
        unchanged.
        """
        rows = own_rows(self.project, state.list_runs(pipeline=key.pipeline, node=key.node, limit=_LOOKED_AT))
        last = next((row for row in rows if row.partition_key is None and row.trigger != REWIND), None)
        if last is None or not last.status.succeeded:
            return True
        try:
            knows = all(source.knows_changes for source in Node.of(self.project, key).sources)
            return knows and not verdict(self.project, state, key, last).skip
        except OdiError as error:
            _log.warning("%s: whether it is behind cannot be looked at: %s", key, error)
            return True

    def _run(self, state: StateBackend, due: set[NodeKey]) -> OdiError | None:
        def is_partial(pipeline: str) -> bool:
            return not due.issuperset(self.project.graph.order(pipeline))

        history = RunHistory(
            self.project, state, str(uuid.uuid4()), SERVICE, is_partial=is_partial, listener=self._listen
        )
        first: OdiError | None = None
        gone: dict[NodeKey, NodeKey] = {}
        for key in self.keys:
            if self.stop.is_set():
                break
            if key not in due:
                continue
            above = next((gone[up] for up in self.project.graph.upstream(key) if up in gone), None)
            if above is not None:
                gone[key] = above
                history.skip([key], f"{above} failed")
                continue
            try:
                run_node(NodeRun(history, key, self._spark))
            except OdiError as error:
                # Its row of history has it, and the listener hears of it. What does not need the node runs.
                gone[key] = key
                first = first or error
                self._close()
            except KeyboardInterrupt:
                if not self.stop.is_set():
                    raise
        return first

    def _listen(self, event: NodeEvent) -> None:
        self.listener(event)
        if event.kind == "progressed" and self.stop.is_set():
            # A snapshot may take hours. The next run goes on behind the commit that was made.
            raise KeyboardInterrupt

    def _spark(self) -> SparkSession:
        if self._session is None:
            self._session = open_session(self.project.config.spark, app_name="odi run")
            # A new session of Spark has a handler of its own for SIGINT.
            self._stops(self.stop.set)
        return self._session.spark

    def _close(self) -> None:
        """End the session: it may be the reason why a node failed."""
        session, self._session = self._session, None
        if session is not None:
            session.stop()


def _has_news(forecast: Forecast) -> bool:
    """Whether a node has something to do, whatever its last run did: a source moved, or something is left undone."""
    plan = forecast.plan
    if forecast.action == "error" or plan is None:
        return forecast.action == "error"
    if not plan.nothing_new and (plan.node.kind.leaves_work or any(read.moves for read in plan.reads)):
        return True
    return any(read.is_to_be_noted for read in plan.reads) or bool(out_of_step(plan.node, plan.target))
