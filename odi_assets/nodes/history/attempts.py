"""Attempts of nodes, from their start to their row of run history.

The row is written when an attempt ends, so a killed attempt leaves none. A small file beside the project's local state
says that it had begun. These files cost no commit and are not synced to disk: they have to outlive a process. What a
power cut destroys is found in the target's log or in Dagster.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock

from odi_assets.config.graph import NodeKey
from odi_assets.connections.location import is_there
from odi_assets.errors import StateError
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunRecord, RunStatus
from odi_assets.util.process import process_name

FOLDER = Path(".odibi") / "in_flight"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class NodeAttempt(RunInfo):
    """One attempt of one node, as seen from outside its run.

    Attributes:
        process: where it runs or ran, as ``util.process`` names it; None if unknown.
        error: why it failed, if Dagster recorded that.
        succeeded: whether Dagster recorded that it succeeded; its row is then in another store of state.
        cancelled: somebody ended its run.
        skipped: why the node's turn never came in its run; empty if it began.
    """

    key: NodeKey
    partition_key: str | None = None
    process: str | None = None
    error: str | None = None
    succeeded: bool = False
    cancelled: bool = False
    skipped: str = ""

    @property
    def identity(self) -> tuple[NodeKey, str, int]:
        """Node, run and number of the attempt: there is one row of history for each."""
        return self.key, self.run_id, self.attempt


def begin(project: Project, key: NodeKey, run: RunInfo, partition_key: str | None = None) -> None:
    """Note that an attempt begins. If the project's folder cannot be written, only Dagster knows of it."""
    facts = {
        "project": project.config.project,
        "environment": project.environment,
        "run_id": run.run_id,
        "node": str(key),
        "attempt": run.attempt,
        "trigger": run.trigger,
        "partition_key": partition_key,
        "code_version": run.code_version,
        "began": run.started_at.isoformat(),
        "process": process_name(),
        "partial": run.partial,
    }
    file = _file(project, key, run)
    scratch = file.with_suffix(".tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps(facts), encoding="utf-8")
        scratch.replace(file)
    except OSError as error:
        _log.info("%s: the start of attempt %d of run %s cannot be noted: %s", key, run.attempt, run.run_id, error)


def end(project: Project, key: NodeKey, run: RunInfo) -> None:
    """Delete the note of an attempt whose row is written."""
    try:
        _file(project, key, run).unlink(missing_ok=True)
    except OSError as error:
        _log.info("%s: the note of attempt %d of run %s cannot be deleted: %s", key, run.attempt, run.run_id, error)


def record(
    project: Project, state: StateBackend, result: NodeResult, run: RunInfo, partition_key: str | None = None
) -> None:
    """Write the node's row of run history, and delete the note of the attempt."""
    state.record_runs([row_of_result(project, result, run, partition_key)])
    end(project, result.key, run)


def row_of_result(project: Project, result: NodeResult, run: RunInfo, partition_key: str | None = None) -> RunRecord:
    """The node's row of run history; the attempt ends now."""
    return run_record(
        project,
        result.key,
        run,
        result.status,
        datetime.now(UTC),
        seconds=result.seconds,
        rows_processed=result.rows_written,
        metrics={
            **result.metrics,
            "rows_read": result.rows_read,
            "rows_written": result.rows_written,
            "increment": result.increment,
        },
        partition_key=partition_key,
        hwm_before=result.hwm_before,
        hwm_after=result.hwm_after,
        table_version=result.table_version,
        error=result.error,
    )


def run_record(
    project: Project,
    key: NodeKey,
    run: RunInfo,
    status: RunStatus,
    ended: datetime,
    *,
    seconds: float | None = None,
    rows_processed: int | None = None,
    code_version: str | None = None,
    hwm_before: NodeMark | None = None,
    hwm_after: NodeMark | None = None,
    **fields: Any,
) -> RunRecord:
    """The row of one attempt of ``key``.

    Args:
        seconds: how long it took; from its start to ``ended`` if None.
        code_version: the code version in the commit, if it is known; else the one of ``run``.
        fields: the other fields of :class:`RunRecord`.
    """
    return RunRecord(
        run_id=run.run_id,
        project=project.config.project,
        pipeline_name=key.pipeline,
        node_name=key.node,
        status=status,
        rows_processed=rows_processed,
        duration_ms=int(((ended - run.started_at).total_seconds() if seconds is None else seconds) * 1000),
        environment=project.environment,
        timestamp=ended,
        started_at=run.started_at,
        trigger=run.trigger,
        attempt=run.attempt,
        code_version=code_version or run.code_version,
        hwm_before=None if hwm_before is None else hwm_before.value,
        hwm_after=None if hwm_after is None else hwm_after.value,
        **fields,
    )


def open_attempts(project: Project) -> list[NodeAttempt]:
    """The attempts of this project and environment that began here and have no row yet.

    Raises:
        StateError: the notes of attempts cannot be looked at.
    """
    folder = project.root / FOLDER
    notes = []
    try:
        files = sorted(folder.iterdir()) if is_there(folder) else []
        for file in files:
            if file.suffix == ".json" and (facts := _facts(file)) is not None:
                notes.append(facts)
    except OSError as error:
        raise _unreachable(folder, error) from error
    own = (project.config.project, project.environment)
    return [_attempt(facts) for facts in notes if (facts["project"], facts["environment"]) == own]


def _facts(file: Path) -> dict[str, Any] | None:
    try:
        facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        # A power cut destroyed its content; the target's log and Dagster know the rest.
        _log.warning("%s cannot be read and is ignored; it can be deleted", file)
        return None
    return facts


def _unreachable(folder: Path, error: OSError) -> StateError:
    return StateError(
        f"the notes of attempts in {folder} cannot be looked at: {error}",
        fix="give odi the right to read and write there; until then killed attempts get no row of history",
        path=str(folder),
    )


@contextmanager
def only_one(project: Project) -> Iterator[None]:
    """Keep other processes of this host from repairing the same history at the same time.

    Raises:
        StateError: there can be no lock there; two processes would write the same rows.
    """
    folder = project.root / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "repair.lock")
        lock.acquire()
    except OSError as error:
        raise _unreachable(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def _attempt(facts: dict[str, Any]) -> NodeAttempt:
    return NodeAttempt(
        facts["run_id"],
        facts["trigger"],
        facts["attempt"],
        facts["code_version"],
        datetime.fromisoformat(facts["began"]),
        facts.get("partial", False),
        key=NodeKey.parse(facts["node"]),
        partition_key=facts["partition_key"],
        process=facts["process"],
    )


def _file(project: Project, key: NodeKey, run: RunInfo) -> Path:
    return project.root / FOLDER / f"{quote(run.run_id, safe='')}.{run.attempt}.{key}.json"
