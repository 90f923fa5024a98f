"""Rewinds a node: its table and its HWM go back together, and with a cascade the nodes that read what is undone.

A rewind is a commit like any other: it takes the node's fence, and its stamp carries the HWM of the version that comes
back. So the next plan repairs a rewind that dies between its commit and state, like a run. Nothing is erased: the
versions that are undone stay, and one can go forward to them again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.config.models import WriteMode
from odi_assets.delta.commit import FileChanges, Stamp, commit
from odi_assets.delta.history import CommittedStamp, restored_version
from odi_assets.delta.maintenance.restore import lost_files
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IncrementError, OdiError, SourceError, StateConflictError, StateError, TableError
from odi_assets.nodes.commit_facts import CommitFacts, CommittedHwm, HwmOrigin
from odi_assets.nodes.execution.checks.quarantine import bring_in_step
from odi_assets.nodes.history import attempts
from odi_assets.nodes.kinds import GoesAlong
from odi_assets.nodes.mark import NodeMark, mark_text
from odi_assets.nodes.node import Node, app_id, app_ids
from odi_assets.nodes.planning.identity import unmarked_rows
from odi_assets.nodes.planning.target_check import ForeignChange, rows_removed_since, what_is_behind
from odi_assets.nodes.planning.writers import require_written_by_itself
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.rewind_log import require_log_kept
from odi_assets.nodes.recovery.table_versions import Choice
from odi_assets.nodes.remedies import remedies_named
from odi_assets.nodes.result import REWIND, RunInfo
from odi_assets.sources.files.loaded import ledger
from odi_assets.sources.marks import FilesMark, LedgerPart
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import HwmEntry, RunStatus
from odi_assets.tables.engine import engine_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rewind:
    """How one node goes back.

    Attributes:
        handle: the table as it is, whose fence the commit takes; the commit moves it to the new version.
        from_version, rows_before: its version and its rows before the commit.
        before: the table at the version that comes back.
        entry: the HWM in state.
        committed: the HWM of ``before``, as its commit carried it; None if it has none.
        undone: the stamped commits whose rows leave, newest first.
        along: what goes back along with the table, and is no table: the checkpoint of a stream.
        gone: files whose rows leave, and that no run can read again: they are gone from the landing zone.
    """

    key: NodeKey
    handle: TableHandle
    before: TableHandle
    entry: HwmEntry | None
    committed: CommittedHwm | None
    from_version: int
    rows_before: int | None
    undone: tuple[CommittedStamp, ...] = ()
    along: GoesAlong | None = None
    gone: tuple[str, ...] = ()

    @property
    def to_version(self) -> int:
        return int(self.before.version or 0)

    @property
    def hwm_before(self) -> NodeMark | None:
        if self.along is not None:
            return self.along.before.mark if self.along.before else None
        return NodeMark.in_state(self.entry)

    @property
    def hwm_after(self) -> NodeMark | None:
        if self.along is not None:
            return self.along.facts.mark
        return None if self.committed is None else self.committed.mark

    def to_json(self) -> dict[str, Any]:
        """The rewind as JSON-ready values."""
        return {
            "pipeline": self.key.pipeline,
            "node": self.key.node,
            "from_version": self.from_version,
            "to_version": self.to_version,
            "rows_before": self.rows_before,
            "rows_after": self.before.rows,
            "hwm_before": mark_text(self.hwm_before),
            "hwm_after": mark_text(self.hwm_after),
            "gone": list(self.gone),
            "undone": [
                {"version": stamp.version, "run_id": facts.run_id, "increment": facts.increment}
                for stamp, facts in ((stamp, CommitFacts.of(stamp)) for stamp in self.undone)
            ],
        }


@dataclass(frozen=True)
class RewindPlan:
    """Rewinds in the order they are made, and nodes that need none, each with the reason."""

    rewinds: tuple[Rewind, ...] = ()
    left: Mapping[NodeKey, str] = field(default_factory=dict)


def plan_rewind(
    project: Project, state: StateBackend, key: NodeKey, choose: Choice, *, cascade: bool = False
) -> RewindPlan:
    """Decide how ``key`` goes back, and with ``cascade`` every node that read what it would undo. Changes nothing.

    Nodes furthest downstream come first: wherever a cascade is stopped, no node is ahead of what it reads, and the same
    command completes it.

    Raises:
        ConfigError: there is no such node, or no such version of its table.
        IdentityMismatchError: another node wrote its table.
        StateError: the HWM of that version is not known any more; or the server has let go the log that a capture
            would read once more.
        SourceError: the server of a capture cannot be reached.
        TableError: its table does not exist, or files of the version are gone.
    """
    handle = _table_of(project, key)
    version = choose(handle)
    rewinds: list[Rewind] = []
    left: dict[NodeKey, str] = {}
    node = Node.of(project, key)
    if version == handle.version and not (
        not node.kind.can_go_on(node) or _state_is_apart(project, state, key, handle)
    ):
        left[key] = f"is at version {version} already"
    else:
        rewinds.append(_rewind(project, state, key, handle, version))
    reached = {key: version}
    for below in _all_downstream(project, key) if cascade else ():
        _follow(project, state, below, reached, rewinds, left)
    return RewindPlan(tuple(reversed(rewinds)), left)


def _state_is_apart(project: Project, state: StateBackend, key: NodeKey, handle: TableHandle) -> bool:
    """Whether state has another HWM than the rows of the table: that was put back without it."""
    node, entry = Node.of(project, key), state.get_entry(state_key(key, project.graph.node(key)))
    if entry is None or not node.following:
        return False
    committed = _hwm_of_version(node, state, handle)
    return (
        committed is None
        or not committed.carries(NodeMark.in_state(entry))
        or bool(what_is_behind(key, entry, handle, look_at_files=False))
    )


def _follow(
    project: Project,
    state: StateBackend,
    key: NodeKey,
    reached: dict[NodeKey, int],
    rewinds: list[Rewind],
    left: dict[NodeKey, str],
) -> None:
    """Add a node that reads from nodes of ``reached``, which go back to those versions."""
    handle = TableHandle.open(project.target(key))
    if not handle.exists:
        left[key] = "has no table"
        return
    limits = {str(above): version for above, version in reached.items() if above in project.graph.upstream(key)}
    version = _last_unaffected(handle, key, limits)
    node = Node.of(project, key)
    require_written_by_itself(node, handle)
    if version == handle.version and not node.kind.is_ahead_of_table(node):
        left[key] = "read nothing of what is undone"
    elif version is None:
        reached[key] = -1
        then = (
            "its next run reads its inputs whole"
            if node.kind.takes_rows_back
            else f"start it over: odi run {node.command} --full-refresh"
        )
        left[key] = f"all of its versions read what is undone; {then}"
    else:
        reached[key] = version
        rewinds.append(_rewind(project, state, key, handle, version))


def _table_of(project: Project, key: NodeKey) -> TableHandle:
    handle = TableHandle.open(project.target(key))
    if handle.exists:
        require_written_by_itself(Node.of(project, key), handle)
        return handle
    raise TableError(
        f"{key} has no table at {handle.location.uri}, so there is nothing to go back to",
        fix=f"build it from its sources: odi run {key.pipeline} --node {key.node} --full-refresh",
        node=str(key),
    )


def _rewind(project: Project, state: StateBackend, key: NodeKey, handle: TableHandle, version: int) -> Rewind:
    before = TableHandle.open(handle.location, version)
    gone = lost_files(handle.location, before.live_files)
    if gone:
        raise TableError(
            f"{key} cannot go back to version {version}: {len(gone):,} of its files are gone or cut, {gone[0]} "
            "among them",
            fix=f"choose another version (odi state rewind {key} --list), or rebuild the table from its sources "
            f"(odi run {key.pipeline} --node {key.node} --full-refresh): what vacuum removed does not come back",
            node=str(key),
            version=version,
        )
    node = Node.of(project, key)
    with remedies_named(node):
        committed = _hwm_of_version(node, state, before)
        _require_ledger(node, committed, before)
        along = node.kind.rewind(node, before)
        committed = _hwm_of_version(node, state, before)
        if node.captures:
            require_log_kept(node, committed.mark if committed else None, version)
    entry = state.get_entry(node.state_key, deleted=True)
    try:
        not_read_again = tuple(_gone_files(node, entry, committed) if along is None else along.gone_files(node))
    except SourceError as error:
        _log.warning("%s: whether files are gone that it would read again was not seen: %s", node, error.message)
        not_read_again = ()
    return Rewind(
        key,
        handle,
        before,
        entry,
        committed,
        int(handle.version or 0),
        handle.rows,
        tuple(s for s in handle.stamps() if s.version > version and s.app_id in app_ids(key)),
        along,
        not_read_again,
    )


def _gone_files(node: Node, entry: HwmEntry | None, committed: CommittedHwm | None) -> list[str]:
    """The files that are gone since, of those that were loaded up to the HWM in state, and not up to the committed."""
    kept = set(_lost_names(node, committed.mark if committed else None))
    return [name for name in _lost_names(node, NodeMark.in_state(entry)) if name not in kept]


def _lost_names(node: Node, hwm: NodeMark | None) -> list[str]:
    try:
        marks = {} if hwm is None else node.marks(hwm)
    except IncrementError:
        # The node was followed by something else then.
        return []
    files = [(source, mark) for source in node.sources if isinstance(mark := marks.get(source.name), FilesMark)]
    losses = [loss for source, mark in files for loss in source.losses(mark, None, None)]
    return [name for loss in losses if loss.for_good for name in loss.names]


def _require_ledger(node: Node, committed: CommittedHwm | None, before: TableHandle) -> None:
    """Raises StateError if the HWM of a version counts on lists of loaded files that are gone or damaged: the run after
    the rewind could not read them."""
    mark = None if committed is None else committed.mark
    try:
        for name in mark.ledger_parts() if mark is not None else ():
            ledger.read_parts(before.location, [LedgerPart(name, 0)], str(node))
    except IncrementError as error:
        raise StateError(
            f"{node} cannot go back to version {before.version}: {error.message}",
            fix=f"put it back from a copy; or choose another version (odi state rewind {node} --list); or rebuild the "
            f"table from its sources: odi run {node.command} --full-refresh",
            node=str(node),
            version=before.version,
        ) from error


def _last_unaffected(handle: TableHandle, key: NodeKey, limits: Mapping[str, int]) -> int | None:
    """The newest version that holds nothing read from a version of an input beyond its limit; None: there is none.

    Args:
        limits: by upstream node, the version its table goes back to.
    """
    affected: dict[int, bool] = {}
    now = False
    newest: int | None = None
    for stamp in reversed(list(handle.stamps())):
        if stamp.app_id not in app_ids(key):
            # Compaction changes no row.
            continue
        if not now and affected:
            newest = stamp.version - 1
        now = _is_affected(stamp, limits, now, affected)
        affected[stamp.version] = now
    return handle.version if affected and not now else newest


def _is_affected(stamp: CommittedStamp, limits: Mapping[str, int], before: bool, affected: Mapping[int, bool]) -> bool:
    facts = CommitFacts.of(stamp)
    if facts.rewound_to is not None:
        earlier = [affected[version] for version in sorted(affected) if version <= facts.rewound_to]
        return earlier[-1] if earlier else False
    read = facts.inputs
    beyond = read is None or any(int(read.get(name, -1)) > limit for name, limit in limits.items())
    return beyond or (before and facts.mode != WriteMode.OVERWRITE)


def _all_downstream(project: Project, key: NodeKey) -> list[NodeKey]:
    """Every node that reads from ``key``, directly or not, in the order they run."""
    reached = {key}
    for candidate in project.graph.order():
        if reached.intersection(project.graph.upstream(candidate)):
            reached.add(candidate)
    return [candidate for candidate in project.graph.order() if candidate in reached and candidate != key]


def _hwm_of_version(node: Node, state: StateBackend, handle: TableHandle) -> CommittedHwm | None:
    """The HWM that belongs to the rows of ``handle``, a version of the node's table. None: that version had no HWM.

    Raises:
        StateError: neither the table's log nor state goes back that far.
    """
    if not node.following:
        return None
    stamp = handle.last_stamp(app_id(node.key), carrying="hwm")
    change = None if stamp is None else rows_removed_since(stamp.version, handle)
    if change is not None:
        return _after_change(node, state, handle, change)
    if stamp is not None:
        facts = CommitFacts.of(stamp)
        return facts.hwm and replace(facts.hwm, root=facts.root)
    version = int(handle.version or 0)
    known = _known_of(node, state, handle, range(version + 1))
    if known is not None:
        return known
    if any(commit.version == 0 for commit in handle.commits()):
        return None
    raise StateError(
        f"{node}: which HWM belongs to version {version} is not known any more: the log was cleaned since",
        fix=f"choose a later version (odi state rewind {node} --list), or rebuild the table with odi run "
        f"{node.command} --full-refresh",
        node=str(node),
        version=version,
    )


def _after_change(node: Node, state: StateBackend, handle: TableHandle, change: ForeignChange) -> CommittedHwm | None:
    """The HWM after somebody else changed the table: from the version that was accepted, or that they restored."""
    version = int(handle.version or 0)
    accepted = _known_of(node, state, handle, range(change.commit.version, version + 1))
    if accepted is not None:
        return accepted
    restored = restored_version(change.commit.operation, change.commit.parameters)
    if restored is not None:
        return _hwm_of_version(node, state, TableHandle.open(handle.location, restored))
    raise StateError(
        f"{node}: no HWM belongs to version {version}: the table was {change}",
        fix=f"choose a version before that (odi state rewind {node} --list)",
        node=str(node),
        version=version,
    )


def _known_of(node: Node, state: StateBackend, handle: TableHandle, versions: range) -> CommittedHwm | None:
    """The newest HWM in state that was written for one of ``versions`` of the node's table, in its history."""
    for entry in state.history(node.state_key):
        if entry.target_commit is not None and entry.target_commit in versions and not entry.deleted:
            origin = HwmOrigin.from_json(entry.origin)
            if origin is not None and origin.is_other_history(handle, entry.target_commit):
                continue
            hwm = CommittedHwm.of(NodeMark.of_value(entry.value), measures=origin.measures if origin else None)
            return replace(hwm, root=origin.root if origin is not None else None)
    return None


def apply_rewind(project: Project, state: StateBackend, plan: RewindPlan) -> list[tuple[Rewind, int]]:
    """Make the rewinds of ``plan``, as one run of the history. Each is returned with the version it made.

    Raises:
        FencedError, TableConflictError: another run committed to the table since; that node was not changed.
    """
    run_id = str(uuid.uuid4())
    return [(rewind, _apply(project, state, rewind, run_id)) for rewind in plan.rewinds]


def _apply(project: Project, state: StateBackend, rewind: Rewind, run_id: str) -> int:
    run = RunInfo(run_id, REWIND)
    fence = app_id(rewind.key)
    node = Node.of(project, rewind.key)
    stamp = Stamp.next_on(rewind.handle, fence, _facts(node, rewind, run_id).to_json())
    # A bounded run in flight began from rows that are about to leave.
    ranges = app_id(rewind.key, bounded=True)
    also = [(ranges, rewind.handle.transaction_number(ranges) + 1)]
    attempts.begin(project, rewind.key, run)
    try:
        version = rewind.from_version
        if rewind.to_version != version:
            version = engine_of(rewind.handle).restore(rewind.handle, rewind.to_version, stamp, also)
        else:
            # The commit says that the table holds the rows of its HWM, or of a stream's batch.
            handle = rewind.handle
            version = commit(handle, handle.schema_json, handle.partition_columns, FileChanges("rows", ()), stamp)
        if rewind.along is not None:
            with remedies_named(node):
                rewind.along.apply(node)
    except BaseException:
        attempts.end(project, rewind.key, run)
        raise
    _move_hwm(node, state, rewind, version, run_id)
    row = attempts.run_record(
        project,
        rewind.key,
        run,
        RunStatus.SUCCESS,
        datetime.now(UTC),
        metrics={
            "mode": REWIND,
            "from_version": rewind.from_version,
            "to_version": rewind.to_version,
            "rows_total": rewind.before.rows,
        },
        hwm_before=rewind.hwm_before,
        hwm_after=rewind.hwm_after,
        table_version=version,
    )
    state.record_runs([row])
    attempts.end(project, rewind.key, run)
    try:
        bring_in_step(node, TableHandle.open(rewind.handle.location))
    except OdiError as error:
        _log.warning("%s: its quarantine will be brought in step by its next run: %s", node, error.message)
    return version


def _facts(node: Node, rewind: Rewind, run_id: str) -> CommitFacts:
    entry, keeps_hwm = rewind.entry, bool(node.following)
    before = CommitFacts.last_in(rewind.before, app_ids(node.key)) if rewind.before.exists else None
    return CommitFacts(
        node=str(node),
        project=node.project.config.project,
        # What the marks measure, they measure from the folder that the project had then.
        root=(rewind.committed and rewind.committed.root) or str(node.project.root.resolve()),
        history=node.project.history,
        run_id=run_id,
        mode=REWIND,
        increment=f"back from version {rewind.from_version} to version {rewind.to_version}",
        state_revision=entry.revision if entry else 0,
        state_updated_at=entry.updated_at if entry else datetime.now(UTC),
        hwm=(rewind.committed or CommittedHwm.of(None)) if keeps_hwm else None,
        unmarked=True if unmarked_rows(node.key, rewind.before) is not None else None,
        before_first_run=not rewind.before.transaction_number(app_id(node.key)) if keeps_hwm else None,
        rewound_to=rewind.to_version if rewind.to_version == rewind.from_version else None,
        stream=rewind.along.facts if rewind.along else None,
        known_by=None if before is None else before.known_by,
        sources=None if before is None else before.sources,
    )


def _move_hwm(node: Node, state: StateBackend, rewind: Rewind, version: int, run_id: str) -> None:
    if not node.following:
        return
    name = node.state_key
    revision = rewind.entry.revision if rewind.entry and not rewind.entry.deleted else None
    origin = _facts(node, rewind, run_id).origin(rewind.before.table_id)
    try:
        if rewind.hwm_after is None:
            state.delete_hwm(name, expected_revision=revision)
            return
        state.compare_and_set(
            name,
            rewind.hwm_after.value,
            expected_revision=revision,
            target_commit=version,
            run_id=run_id,
            origin=origin.of_version(rewind.handle.location, version).to_json(),
        )
    except StateConflictError:
        _log.warning(
            "%s: somebody else changed its HWM during the rewind; their value stays, and version %s of the table "
            "carries %s",
            rewind.key,
            version,
            rewind.hwm_after,
        )
