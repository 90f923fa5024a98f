"""Runs that a sensor requested for a node and a position, and whether another one is due.

Dagster's own record of runs counts, not the sensor's cursor: that may be lost, and people reset it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import AutomationConfig
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunStatus
from odi_assets.util.words import counted

DUE_TAG = "odi.due/"
"""Run tag, followed by a node's name: its value says where the node's sources stood when the run was requested."""


_LONGEST_NAME = 63
"""Characters that Dagster takes in a tag's name."""


@dataclass(frozen=True)
class RequestDecision:
    """Whether a run is to be requested for a node whose source is ahead; else why not.

    Attributes:
        given_up: nothing will be requested until the position moves, because too many runs failed.
    """

    due: bool
    reason: str = ""
    given_up: bool = False


def due_tags(marks: dict[NodeKey, str]) -> dict[str, str]:
    """The tags of a run that is requested for nodes whose sources stand at these positions."""
    return {_due_tag(key): mark for key, mark in marks.items()}


def _due_tag(key: NodeKey) -> str:
    name = key.node
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 13]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return f"{DUE_TAG}{name}"


def verdict(
    instance: dg.DagsterInstance,
    state: StateBackend,
    automation: AutomationConfig,
    project_tags: dict[str, str],
    key: NodeKey,
    mark: str,
    now: float,
    *,
    follows: bool = False,
) -> RequestDecision:
    """Whether to request a run for ``key``, whose sources stand at ``mark``.

    Args:
        project_tags: tags that the runs of this pipeline's sensor have.
        now: the time, in seconds.
        follows: the node only follows the first run of others. A run in which it was skipped has tried those.
    """
    tags = {**project_tags, _due_tag(key): mark}
    records = instance.get_run_records(dg.RunsFilter(tags=tags), limit=automation.max_attempts + 1)
    if records and records[0].dagster_run.status is dg.DagsterRunStatus.CANCELED:
        run_id = records[0].dagster_run.run_id
        return RequestDecision(
            False, f"run {run_id} for this was cancelled; the next one is requested once there is more"
        )
    tried = [record for record in records if follows or not _was_skipped(state, key, record.dagster_run)]
    return after_tries(automation, len(tried), _last_end(tried), now) if tried else RequestDecision(True)


def after_tries(automation: AutomationConfig, tries: int, last_end: float, now: float) -> RequestDecision:
    """Whether to request another run after some that did not take in what is there.

    Args:
        last_end: when the last of them ended, in seconds, as ``now`` is.
    """
    runs = f"{counted(tries, 'run')} for this did not take it in"
    if tries >= automation.max_attempts:
        return RequestDecision(False, f"{runs}; no more are requested until there is more", given_up=True)
    wait = _pause(automation, tries) - (now - last_end)
    return RequestDecision(wait <= 0, f"{runs}; the next one is requested in {wait:.0f} s" if wait > 0 else "")


def _pause(automation: AutomationConfig, tries: int) -> float:
    first, longest = automation.first_pause.total_seconds(), automation.longest_pause.total_seconds()
    return float(min(first * 2.0 ** min(tries - 1, 60), longest))


def _last_end(records: Sequence[dg.RunRecord]) -> float:
    return max(record.end_time or record.update_timestamp.timestamp() for record in records)


def _was_skipped(state: StateBackend, key: NodeKey, run: dg.DagsterRun) -> bool:
    """Whether the node did not run in this run, because another one failed or the run was killed in another one.

    A run that ended before any node began has tried all of them.
    """
    if run.status is not dg.DagsterRunStatus.FAILURE:
        return False
    rows = state.list_runs(run_id=run.run_id)
    own = {row.status for row in rows if (row.pipeline_name, row.node_name) == (key.pipeline, key.node)}
    return own == {RunStatus.SKIPPED} and any(row.status in (RunStatus.FAILURE, RunStatus.LOST) for row in rows)
