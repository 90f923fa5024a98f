"""One run's rows of ``meta_runs``, and its progress for a listener."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from odi_assets.config.graph import NodeKey
from odi_assets.errors import OdiError, TableError
from odi_assets.nodes.events import Listener, NodeEvent, nobody
from odi_assets.nodes.execution.outcomes import failure
from odi_assets.nodes.history.attempts import NodeAttempt, begin, record
from odi_assets.nodes.history.repair import with_commits
from odi_assets.nodes.history.resume import last_rows, left_out, verdict
from odi_assets.nodes.node import code_version
from odi_assets.nodes.planning.apply import AppliedLogs
from odi_assets.nodes.planning.forecast import missing_inputs
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import PARTIAL, NodeResult, RunInfo, is_cancellation
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunRecord, RunStatus

logger = logging.getLogger(__name__)


@dataclass
class RunHistory:
    """Records each node of one run when it ends.

    Attributes:
        trigger: what started the run.
        retries: how often the whole run was tried before.
        is_partial: whether the run is of only some of a pipeline's nodes.
        results: the nodes that ended, in that order.
        failed: a node failed, or was cancelled.
        logs: the change logs that its nodes apply.
    """

    project: Project
    state: StateBackend
    run_id: str
    trigger: str | None = "manual"
    retries: int = 0
    is_partial: Callable[[str], bool] = lambda _: False
    listener: Listener = nobody
    results: dict[NodeKey, NodeResult] = field(default_factory=dict)
    failed: bool = False
    _before: dict[str, Mapping[NodeKey, RunRecord]] = field(default_factory=dict)
    logs: AppliedLogs = field(init=False)

    def __post_init__(self) -> None:
        self.logs = AppliedLogs(self.project, self.run_id)

    def start(self, key: NodeKey, retry_number: int = 0, partition_key: str | None = None) -> RunInfo:
        """A node begins; ``retry_number`` counts the retries of its step within the run."""
        info = RunInfo(
            run_id=self.run_id,
            trigger=self.trigger,
            attempt=1 + retry_number + self.retries,
            code_version=code_version(self.project, key),
            started_at=datetime.now(UTC),
            partial=self.is_partial(key.pipeline),
        )
        begin(self.project, key, info, partition_key)
        try:
            self.listener(NodeEvent("started", key))
        except BaseException as error:
            self.fail(key, info, error, (), partition_key)
            raise
        return info

    def finish(self, result: NodeResult, info: RunInfo, partition_key: str | None = None) -> None:
        """A node has ended, with data or without. Listeners are called, even if no row of it can be written.

        Raises:
            StateError: the row cannot be written.
        """
        if self.is_partial(result.key.pipeline):
            result = replace(result, metrics={**result.metrics, PARTIAL: True})
        try:
            record(self.project, self.state, result, info, partition_key)
        except OdiError as error:
            if result.status in (RunStatus.SUCCESS, RunStatus.NO_DATA):
                result = replace(result, status=RunStatus.FAILURE, error=_unrecorded(result, error))
            raise
        finally:
            self.results[result.key] = result
            self.listener(NodeEvent("finished", result.key, result))

    def progress(self, key: NodeKey, text: str) -> None:
        """A node that makes several commits has made one."""
        logger.info("%s: %s", key, text)
        self.listener(NodeEvent("progressed", key, reason=text))

    def left_out(self, key: NodeKey, info: RunInfo) -> NodeResult | None:
        """Record a node that a resumed run leaves out, and return its result; None if the node has to run.

        Raises:
            SourceError, TableError: a source cannot be examined.
        """
        if key.pipeline not in self._before:
            rows = last_rows(self.state, self.project, key.pipeline, self.run_id)
            self._before[key.pipeline] = rows
        decision = verdict(self.project, self.state, key, self._before[key.pipeline].get(key))
        if not decision.skip:
            self.listener(NodeEvent("decided", key, reason=decision.reason))
            return None
        result = left_out(self.project, key, decision)
        self.finish(result, info)
        return result

    def inputs_wait(self, key: NodeKey) -> bool:
        """Whether a node has an input that has no table yet because there was nothing to make it of."""
        above = [up for up in self.project.graph.upstream(key) if not self._has_table(up)]
        return any(map(self._is_idle, missing_inputs(self.project, key, above)))

    def _has_table(self, key: NodeKey) -> bool:
        """Whether this run has found the table of a node, or made it."""
        known = self.results.get(key)
        return known is not None and known.table_version is not None

    def _is_idle(self, key: NodeKey) -> bool:
        """Whether the last run that came to a node, this one or one before it, found nothing to read, and there was no
        table."""
        last: NodeResult | RunRecord | None = self.results.get(key)
        if last is None:
            rows = self.state.list_runs(pipeline=key.pipeline, node=key.node)
            last = next((row for row in rows if row.status is not RunStatus.SKIPPED), None)
        return last is not None and last.status is RunStatus.NO_DATA and last.table_version is None

    def fail(
        self,
        node: NodeKey | NodePlan,
        info: RunInfo,
        error: BaseException,
        skipped: Iterable[NodeKey],
        partition_key: str | None = None,
    ) -> None:
        """Record a node that failed or was cancelled, and the ``skipped`` nodes that have not ended. Never hides
        ``error``."""
        key = node.node.key if isinstance(node, NodePlan) else node
        self.failed = True
        try:
            result = failure(node, info, error, self.project.target(key).uri)
            if is_cancellation(error):
                result = self._with_commits(NodeAttempt(**vars(info), key=key), result)
            self.finish(result, info, partition_key)
        except Exception as unwritten:  # noqa: BLE001  the error that made the node fail is to be seen
            logger.error("the failure of %s has no row in the run history: %s", key, unwritten)
        self.skip(skipped, "the run was cancelled before it began" if is_cancellation(error) else f"{key} failed")

    def _with_commits(self, attempt: NodeAttempt, result: NodeResult) -> NodeResult:
        try:
            return with_commits(self.project, attempt, result)
        except TableError as error:
            logger.warning("%s: whether it had committed is not known: %s", attempt.key, error)
            return result

    def skip(self, keys: Iterable[NodeKey], reason: str) -> None:
        """Record nodes that this run does not reach. If a row cannot be written, say so, and go on."""
        for key in keys:
            if key in self.results:
                continue
            info = RunInfo(self.run_id, self.trigger, code_version=code_version(self.project, key))
            uri = self.project.target(key).uri
            try:
                self.finish(NodeResult(key, RunStatus.SKIPPED, seconds=0.0, uri=uri, error=reason), info)
            except OdiError as unwritten:
                logger.error("that %s was skipped has no row in the run history: %s", key, unwritten)


def _unrecorded(result: NodeResult, error: OdiError) -> str:
    done = "it had nothing to do" if result.table_version is None else f"its table is at version {result.table_version}"
    return f"{done}, and its row of history could not be written (a later run writes it): {error}"
