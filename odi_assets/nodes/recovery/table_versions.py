"""The versions of a table, and the ways to choose one of them: by number, by time, by run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.delta.changes import is_other_history
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.history.resume import TARGET
from odi_assets.nodes.node import Node, app_ids
from odi_assets.state.backend import StateBackend

Choice = Callable[[TableHandle], int]
"""Chooses one version of a table."""

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Version:
    """A version of a table: when it was made, and the stamp of the run that made it, if one of ours did."""

    number: int
    made_at: datetime
    operation: str
    stamp: CommittedStamp | None = None


def versions(handle: TableHandle) -> Iterator[Version]:
    """The versions whose commits the log still has, newest first; a later version has a later time.

    After a clock went back, a commit may look older than the one before it. As in Delta's own time travel, it then
    counts as a millisecond later than that one.
    """
    oldest_first: list[Version] = []
    for commit in reversed(list(handle.commits())):
        made_at = commit.made_at
        if oldest_first and made_at <= oldest_first[-1].made_at:
            made_at = oldest_first[-1].made_at + _MILLISECOND
        oldest_first.append(Version(commit.version, made_at, commit.operation, commit.stamp))
    return reversed(oldest_first)


def at_version(number: int) -> Choice:
    """The version ``number``."""

    def choose(handle: TableHandle) -> int:
        newest = int(handle.version or 0)
        if not 0 <= number <= newest:
            raise ConfigError(f"there is no version {number}: the table is at version {newest}", version=number)
        if not handle.is_kept(number):
            oldest = min((commit.version for commit in handle.commits()), default=newest)
            raise ConfigError(
                f"version {number} is not known any more: the table's log was cleaned and begins with version {oldest}",
                fix="choose a later version: --list shows them",
                version=number,
            )
        return number

    return choose


def at_time(moment: datetime) -> Choice:
    """The version that was the newest one at ``moment``."""

    def choose(handle: TableHandle) -> int:
        oldest: Version | None = None
        for version in versions(handle):
            if version.made_at <= moment:
                return version.number
            oldest = version
        since = f": its log begins with version {oldest.number}, of {_text(oldest.made_at)}" if oldest else ""
        raise ConfigError(f"the table has no version as old as {_text(moment)}{since}", moment=moment)

    return choose


def after_run(run_id: str, state: StateBackend, key: NodeKey) -> Choice:
    """The version that the table had after the run, committed by it or not. The beginning of a run id is enough."""

    def choose(handle: TableHandle) -> int:
        committed = _stamps_of(handle, run_id)
        if committed:
            return committed[0].version
        seen = state.list_runs(pipeline=key.pipeline, node=key.node)
        row_by_run = {r.run_id: r for r in reversed(seen) if r.run_id.startswith(run_id)}
        _require_one(run_id, row_by_run, key)
        row = next(iter(row_by_run.values()))
        version, commit = row.table_version, (row.metrics.get(TARGET) or {}).get("commit")
        if version is None or version > int(handle.version or 0) or is_other_history(handle, version, commit):
            raise ConfigError(
                f"run {run_id} left no version of {key}'s table that is still there",
                fix=f"`odi state rewind {key} --list` shows the versions there are",
            )
        return version

    return choose


def before_run(run_id: str, state: StateBackend, key: NodeKey) -> Choice:
    """The version before the run's first commit, or the one that the run has left as it was."""

    def choose(handle: TableHandle) -> int:
        committed = _stamps_of(handle, run_id)
        if not committed:
            return after_run(run_id, state, key)(handle)
        _require_one(run_id, dict.fromkeys(str(CommitFacts.of(stamp).run_id) for stamp in committed), key)
        first = committed[-1].version
        if first == 0:
            raise ConfigError(
                f"run {run_id} made the table of {key}; there is nothing before it",
                fix=f"rebuild it: odi run {key.pipeline} --node {key.node} --full-refresh",
            )
        return first - 1

    return choose


def before_last_rewind(node: Node) -> Choice:
    """The version that the last rewind went back from. If it was such a redo itself, and died before all of the node
    was there, it is the version that the redo made."""

    def choose(handle: TableHandle) -> int:
        rewinds = _last_rewinds(node, handle)
        if not rewinds:
            raise ConfigError(
                f"the last commit to the table of {node} is no rewind, so there is nothing to do again",
                fix=f"`odi state rewind {node} --list` shows the versions to go to",
            )
        (version, back_to), *earlier = rewinds
        was_redo = bool(earlier) and back_to == earlier[0][0] - 1
        return int(handle.version or 0) if was_redo and not node.kind.can_go_on(node) else version - 1

    return choose


def _last_rewinds(node: Node, handle: TableHandle) -> list[tuple[int, int]]:
    """The rewinds since the last run, newest first: the version that each made, and the version it went back to.
    Left out are those that completed one that had died."""
    rewinds: list[tuple[int, int]] = []
    for stamp in handle.stamps():
        back_to = CommitFacts.of(stamp).rewound_to
        if back_to is None and stamp.app_id in app_ids(node.key):
            break
        if back_to is not None and back_to != stamp.version - 1:
            if rewinds and rewinds[-1][1] == back_to:
                rewinds.pop()
            rewinds.append((stamp.version, back_to))
    return rewinds


def _stamps_of(handle: TableHandle, run_id: str) -> list[CommittedStamp]:
    if not run_id:
        raise ConfigError("which run is not said: its id is empty", fix="`odi runs list` shows the runs")
    return [stamp for stamp in handle.stamps() if (CommitFacts.of(stamp).run_id or "").startswith(run_id)]


def _require_one(run_id: str, runs: dict[str, Any], key: NodeKey) -> None:
    if not runs:
        raise ConfigError(f"{key} knows no run {run_id}", fix="`odi runs list` shows the runs", run_id=run_id)
    if len(runs) > 1:
        raise ConfigError(f"`{run_id}` begins the ids of several runs: {', '.join(runs)}", fix="give more of it")


def _text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
