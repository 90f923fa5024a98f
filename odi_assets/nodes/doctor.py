"""Where tables, state and run history disagree, each with its remedy. Looks only; needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.errors import OdiError
from odi_assets.nodes.behind import what_is_behind
from odi_assets.nodes.display import hwm_text
from odi_assets.nodes.project import Project
from odi_assets.nodes.recover import find_recovery
from odi_assets.nodes.standing import remembers
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import RunRecord
from odi_assets.tables.handle import TableHandle
from odi_assets.tables.restore import missing_files


class Kind(StrEnum):
    """What disagrees with what."""

    STATE_BEHIND = "state behind its table"
    TABLE_BEHIND = "table behind its state"
    FILES_MISSING = "files missing"
    HISTORY_BEHIND = "run without a row of history"
    HISTORY_AHEAD = "row of history without its commit"
    UPSTREAM_CHANGED = "input is another table"
    UNREADABLE = "cannot be looked at"


@dataclass(frozen=True)
class Disagreement:
    """One finding about one node: what is wrong, and the command that mends it."""

    key: NodeKey
    kind: Kind
    message: str
    remedy: str

    def to_json(self) -> dict[str, str]:
        """The finding as JSON-ready values."""
        return {
            "pipeline": self.key.pipeline,
            "node": self.key.node,
            "kind": self.kind.value,
            "message": self.message,
            "remedy": self.remedy,
        }


def examine(project: Project, state: StateBackend, keys: Sequence[NodeKey]) -> list[Disagreement]:
    """Every disagreement about ``keys``, in their order. A node that cannot be looked at is one, too."""
    found: list[Disagreement] = []
    for key in keys:
        try:
            found.extend(_of_node(project, state, key))
        except OdiError as error:
            found.append(Disagreement(key, Kind.UNREADABLE, error.message, error.fix or "see the message"))
    return found


def _of_node(project: Project, state: StateBackend, key: NodeKey) -> Iterator[Disagreement]:
    target = TableHandle.open(project.target(key))
    yield from _hwm(project, state, key, target)
    if target.exists:
        yield from _files(key, target)
        yield from _history(state, key, target)
        yield from _inputs(project, state, key)


def _hwm(project: Project, state: StateBackend, key: NodeKey, target: TableHandle) -> Iterator[Disagreement]:
    if not remembers(project.node(key)):
        return
    recovery = find_recovery(project, state, key)
    if recovery is not None:
        by = f"run {recovery.run_id}" if recovery.run_id else "a run"
        yield Disagreement(
            key,
            Kind.STATE_BEHIND,
            f"{by} committed {hwm_text(recovery.hwm_after)} in version {recovery.version} of the table, and state has "
            f"{hwm_text(recovery.hwm_before) or 'no HWM'}",
            f"odi state recover {key} (the node's next run does it too)",
        )
        return
    entry = state.get_entry(state_key(key, project.node(key)))
    why = what_is_behind(key, entry, target, look_at_files=False) if entry is not None else None
    if entry is not None and why is not None:
        yield Disagreement(
            key,
            Kind.TABLE_BEHIND,
            f"state says it was loaded up to {hwm_text(entry.value)}; its table {why}",
            f"odi run {key.pipeline} --node {key.node} --full-refresh, or odi state rewind {key} --list, "
            f"or odi state accept {key}",
        )


def _files(key: NodeKey, target: TableHandle) -> Iterator[Disagreement]:
    gone = missing_files(target.location, target.live_files)
    if gone:
        yield Disagreement(
            key,
            Kind.FILES_MISSING,
            f"{len(gone):,} of {len(target.live_files):,} files of version {target.version} are gone, {gone[0]} among "
            "them",
            f"put them back, or odi state rewind {key} --list, or odi run {key.pipeline} --node {key.node} "
            "--full-refresh",
        )


def _history(state: StateBackend, key: NodeKey, target: TableHandle) -> Iterator[Disagreement]:
    rows = state.list_runs(pipeline=key.pipeline, node=key.node)
    known = {row.run_id for row in rows}
    oldest = min((row.timestamp for row in rows), default=datetime.min.replace(tzinfo=UTC))
    ours = [c for c in target.commits() if c.stamp is not None and c.stamp.facts.get("node") == str(key)]
    for commit in reversed(ours):
        run_id = commit.stamp.facts.get("run_id") if commit.stamp else None
        # Rows before the oldest one were dropped by retention.
        if run_id not in known and commit.made_at >= oldest:
            yield Disagreement(
                key,
                Kind.HISTORY_BEHIND,
                f"run {run_id} committed version {commit.version} and has no row of history",
                f"odi state recover {key}",
            )
    yield from _rows_without_commit(key, target, rows)


def _rows_without_commit(key: NodeKey, target: TableHandle, rows: Sequence[RunRecord]) -> Iterator[Disagreement]:
    last = next((row for row in rows if row.status.succeeded and row.table_version is not None), None)
    if last is not None and last.table_version is not None and last.table_version > int(target.version or 0):
        yield Disagreement(
            key,
            Kind.HISTORY_AHEAD,
            f"run {last.run_id} left version {last.table_version} of the table, which stands at {target.version}",
            f"the table was put back or made anew outside of odi: odi run {key.pipeline} --node {key.node} "
            "--full-refresh rebuilds it",
        )


def _inputs(project: Project, state: StateBackend, key: NodeKey) -> Iterator[Disagreement]:
    entry = state.get_entry(state_key(key, project.node(key)))
    if entry is None or not isinstance(entry.value, dict):
        return
    for name, given in project.node(key).inputs.items():
        position = entry.value.get(name)
        if not isinstance(position, dict) or not isinstance(position.get("version"), int):
            continue
        above = project.graph.resolve(key, given.node)
        table = TableHandle.open(project.target(above))
        if not table.exists:
            what = "does not exist"
        elif position.get("table_id") not in (None, table.table_id):
            what = "was dropped and made again"
        elif position["version"] > int(table.version or 0):
            what = f"stands at version {table.version}"
        else:
            continue
        yield Disagreement(
            key,
            Kind.UPSTREAM_CHANGED,
            f"it read {above} up to version {position['version']}; the table of {above} {what}",
            f"odi run {key.pipeline} --node {key.node} --full-refresh, once {above} is right",
        )
