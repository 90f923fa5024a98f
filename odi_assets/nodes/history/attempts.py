"""Attempts of nodes, from their begin to their row of run history.

An attempt that has begun is noted in a small file beside the project's local state.

A row is written as an attempt ends, so an attempt that is killed leaves none. Its file says that there was one. The
files cost no commit, and are not synced to disk: they have to outlive a process, and what a power cut takes along is
found in the target's log or by Dagster.
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
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunRecord
from odi_assets.util.process import process_name

FOLDER = Path(".odibi") / "in_flight"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Attempt:
    """One attempt of one node, as it is known from outside of its run.

    Attributes:
        process: where it runs or ran, as ``nodes.process`` names it; None if that is not known.
        error: why it failed, where somebody else was told.
        partial: its run is of some of the pipeline's nodes only.
    """

    key: NodeKey
    run_id: str
    number: int
    began: datetime
    trigger: str | None = None
    partition_key: str | None = None
    code_version: str | None = None
    process: str | None = None
    error: str | None = None
    partial: bool = False


def begin(project: Project, key: NodeKey, run: RunInfo, partition_key: str | None = None) -> None:
    """Note that an attempt begins. Where the project's folder cannot be written, only Dagster knows of it."""
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
    file = _file(project, key, run.run_id, run.attempt)
    scratch = file.with_suffix(".tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps(facts), encoding="utf-8")
        scratch.replace(file)
    except OSError as error:
        _log.info("%s: that attempt %d of run %s began is not noted: %s", key, run.attempt, run.run_id, error)


def end(project: Project, key: NodeKey, run_id: str, attempt: int) -> None:
    """Forget an attempt whose row is written."""
    try:
        _file(project, key, run_id, attempt).unlink(missing_ok=True)
    except OSError as error:
        _log.info("%s: the note of attempt %d of run %s stays: %s", key, attempt, run_id, error)


def record(
    project: Project, state: StateBackend, result: NodeResult, run: RunInfo, partition_key: str | None = None
) -> None:
    """Write the node's row of run history, and forget that the attempt is open."""
    ended = datetime.now(UTC)
    state.record_runs(
        [
            RunRecord(
                run_id=run.run_id,
                project=project.config.project,
                pipeline_name=result.key.pipeline,
                node_name=result.key.node,
                status=result.status,
                rows_processed=result.rows_written,
                duration_ms=int(result.seconds * 1000),
                metrics={
                    **result.metrics,
                    "rows_read": result.rows_read,
                    "rows_written": result.rows_written,
                    "increment": result.increment,
                },
                environment=project.environment,
                timestamp=ended,
                started_at=run.started_at,
                partition_key=partition_key,
                trigger=run.trigger,
                attempt=run.attempt,
                hwm_before=result.hwm_before,
                hwm_after=result.hwm_after,
                table_version=result.table_version,
                code_version=run.code_version,
                error=result.error,
            )
        ]
    )
    end(project, result.key, run.run_id, run.attempt)


def open_attempts(project: Project) -> list[Attempt]:
    """The attempts of this project and environment that began here and have not been recorded."""
    found = []
    for file in sorted((project.root / FOLDER).glob("*.json")):
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except ValueError:
            # A power cut took what it said; the target's log and Dagster know the rest.
            _log.warning("%s says nothing of an attempt any more, and is passed over; it can be deleted", file)
            continue
        if (facts["project"], facts["environment"]) == (project.config.project, project.environment):
            found.append(_attempt(facts))
    return found


@contextmanager
def only_one(project: Project) -> Iterator[None]:
    """Hold off others of this host that would mend the same history."""
    folder = project.root / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "mending.lock")
        lock.acquire()
    except OSError as error:
        _log.info("history is mended without a lock: %s", error)
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _attempt(facts: dict[str, Any]) -> Attempt:
    return Attempt(
        key=NodeKey.parse(facts["node"]),
        run_id=facts["run_id"],
        number=facts["attempt"],
        began=datetime.fromisoformat(facts["began"]),
        trigger=facts["trigger"],
        partition_key=facts["partition_key"],
        code_version=facts["code_version"],
        process=facts["process"],
        partial=facts.get("partial", False),
    )


def _file(project: Project, key: NodeKey, run_id: str, attempt: int) -> Path:
    return project.root / FOLDER / f"{quote(run_id, safe='')}.{attempt}.{key}.json"
