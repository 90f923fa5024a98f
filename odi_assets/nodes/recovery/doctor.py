"""Finds where tables, state and run history disagree, each with its remedy. Changes nothing; needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IdentityMismatchError, IncrementError, OdiError, StateError, TableError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.execution.checks.bad_rows import out_of_step as quarantine_out_of_step
from odi_assets.nodes.execution.checks.quarantine import is_lost, lost_rows
from odi_assets.nodes.history.attempts import NodeAttempt, open_attempts
from odi_assets.nodes.history.repair import GRACE, attempt_of, own_rows, stamps_without_row
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.apply import AppliedLogs
from odi_assets.nodes.planning.identity import require_own
from odi_assets.nodes.planning.start import Start, marks_in_state, marks_of, table_and_start
from odi_assets.nodes.planning.target_check import require_hwm_known, what_is_behind
from odi_assets.nodes.planning.writers import require_own_quarantine
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.files import files_beside, files_of_node, files_without_hwm
from odi_assets.nodes.recovery.findings import Disagreement, Kind, lasting, over
from odi_assets.nodes.recovery.recover import find_recovery
from odi_assets.nodes.recovery.slots import lag_found, slots_found
from odi_assets.nodes.remedies import remedies_named
from odi_assets.sources.marks import Mark, hwm_text
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import HwmEntry, RunRecord
from odi_assets.tables.schema import require_same_partitioning
from odi_assets.util.process import is_gone


def examine(
    project: Project, state: StateBackend, keys: Sequence[NodeKey], *, deep: bool = False
) -> list[Disagreement]:
    """Every disagreement about ``keys``, in their order, and what was not looked at. A node that cannot be examined
    counts as a disagreement.

    Args:
        deep: read every data file and every commit, too.
    """
    logs = AppliedLogs(project)
    disagreements = [
        disagreement for key in keys for disagreement in lasting(partial(_look, logs, state, key), deep=deep)
    ]
    disagreements.extend(slots_found(project, state, keys))
    return disagreements


def _look(logs: AppliedLogs, state: StateBackend, key: NodeKey, deep: bool) -> list[Disagreement]:
    disagreements: list[Disagreement] = []
    try:
        with remedies_named(Node.of(logs.project, key)):
            disagreements.extend(_of_node(logs, state, key, deep=deep))
    except (OdiError, OSError) as error:
        disagreements.append(over(key, error))
    if disagreements:
        # A run may have brought the node beyond the version that is open: the next look is at the newest one.
        logs.forget()
    return disagreements


def unfinished(project: Project, state: StateBackend, keys: Sequence[NodeKey]) -> dict[NodeKey, str]:
    """What is left of the snapshots of ``keys``, in words. It is no disagreement: their next run goes on with it."""
    entries = {entry.key: entry for entry in state.list_hwms()}
    texts = {}
    for key in keys:
        mark = NodeMark.in_state(entries.get(state_key(key, project.graph.node(key))))
        text = mark.snapshot_left() if mark is not None else None
        if text is not None:
            texts[key] = text
    return texts


def kept_gaps(project: Project, keys: Sequence[NodeKey]) -> dict[NodeKey, str]:
    """What nodes should have kept beside their tables and never did, in words. Nothing brings it back; what was kept,
    and is no more, is a disagreement."""
    gaps_by_key = {}
    for key in keys:
        node = Node.of(project, key)
        gaps = node.kind.gaps(node)
        if gaps is not None:
            gaps_by_key[key] = gaps
    return gaps_by_key


def _of_node(logs: AppliedLogs, state: StateBackend, key: NodeKey, *, deep: bool) -> Iterator[Disagreement]:
    project = logs.project
    node = Node.of(project, key, logs.of(key))
    if not node.kind.keeps_hwm:
        target = TableHandle.open(node.target.location)
        disagreements = list(node.kind.examine(node, target))
        yield from disagreements
        yield from files_without_hwm(node, target, deep=deep)
        goes_on = not any(disagreement.kind in (Kind.STREAM_APART, Kind.REDEFINED) for disagreement in disagreements)
        yield from _history(project, state, key, target, goes_on=goes_on)
        return
    target, start = table_and_start(node, state)
    try:
        require_own_quarantine(node)
        require_own(node, start, target)
        marks = marks_of(node, start, target)
    except IdentityMismatchError as error:
        # What else there is to say would be about another definition.
        yield Disagreement(key, Kind.REDEFINED, error.message, str(error.fix))
        return
    yield from _hwm(node, state, start, target)
    yield from _ahead(node, marks, target)
    yield from files_of_node(node, state, target, deep=deep)
    beside = list(files_beside(node, deep=deep))
    yield from beside
    if not any(disagreement.kind in (Kind.UNREADABLE, Kind.DAMAGED) for disagreement in beside):
        yield from _quarantine(node, target)
    yield from _history(project, state, key, target)
    if target.exists:
        yield from _partitioning(node, target)
        yield from _inputs(node, state)
    if node.config.captures_server:
        yield from lag_found(project, state, key)


def _partitioning(node: Node, target: TableHandle) -> Iterator[Disagreement]:
    try:
        require_same_partitioning(target, node.partition_by)
    except TableError as error:
        yield Disagreement(node.key, Kind.REDEFINED, error.message, str(error.fix))


def _quarantine(node: Node, target: TableHandle) -> Iterator[Disagreement]:
    """What runs and rewinds that died have left undone in the quarantine, and what it has lost."""
    differences = quarantine_out_of_step(node, target, every=True)
    lost = [missing for missing in differences.missing if is_lost(node, missing[1])]
    if lost or differences.passed:
        gone = [*lost, *differences.passed]
        yield Disagreement(node.key, Kind.QUARANTINE_APART, *lost_rows(node, gone))
    text = str(replace(differences, missing=tuple(missing for missing in differences.missing if missing not in lost)))
    if text:
        remedy = f"odi run {node.command}: it completes that first, even without new data"
        yield Disagreement(node.key, Kind.QUARANTINE_APART, text, remedy)


def _hwm(node: Node, state: StateBackend, start: Start, target: TableHandle) -> Iterator[Disagreement]:
    if not node.following:
        return
    recovery = find_recovery(node.project, state, node.key)
    if recovery is not None:
        by = f"run {recovery.run_id}" if recovery.run_id else "a run"
        yield Disagreement(
            node.key,
            Kind.STATE_BEHIND,
            f"{by} committed {recovery.hwm_after} in version {recovery.version} of the table, and state has "
            f"{recovery.hwm_before or 'no HWM'}",
            f"odi state recover {node} (the node's next run does it too)",
        )
        return
    try:
        require_hwm_known(node, start, target)
    except StateError as error:
        yield Disagreement(node.key, Kind.STATE_BEHIND, error.message, str(error.fix))
    entry = start.current
    why = what_is_behind(node.key, entry, target, look_at_files=False) if entry is not None else None
    if entry is not None and why is not None:
        yield Disagreement(
            node.key,
            Kind.TABLE_BEHIND,
            f"state says it was loaded up to {hwm_text(entry.value)}; its table {why}",
            _ways_back(node, target),
        )
    elif entry is not None:
        yield from _set_by_hand(node, entry, target)


def _ahead(node: Node, marks: Mapping[str, Mark], target: TableHandle) -> Iterator[Disagreement]:
    """A mark that keeps out all rows until the clock has reached it."""
    why = _why_ahead(node, marks)
    if why is None:
        return
    way = f"odi run {node.command} --full-refresh loads everything once"
    version = _last_version_within_clock(node, target)
    if version is not None:
        way = f"odi state rewind {node} --to-version {version} undoes what set it, and the next run reads that again"
    yield Disagreement(
        node.key,
        Kind.MARK_AHEAD,
        f"{why}: rows that come until then are never read",
        f"correct the rows at the source, or set `incremental.on_ahead: hold`; then {way}; "
        "or, if such dates are meant, `incremental.max_ahead: none`",
    )


def _why_ahead(node: Node, marks: Mapping[str, Mark]) -> str | None:
    now = datetime.now(UTC)
    reasons = (source.why_ahead(marks[source.name], now) for source in node.sources if source.name in marks)
    return next(filter(None, reasons), None)


def _last_version_within_clock(node: Node, target: TableHandle) -> int | None:
    """The last version of the table whose HWM is not ahead of the clock; None if there is none, or no table."""
    version = target.version
    for stamp in target.stamps():
        committed = CommitFacts.of(stamp).hwm if stamp.app_id == app_id(node.key) else None
        if committed is None:
            continue
        try:
            marks = node.marks(committed.mark, committed.remembered, committed.measures)
        except IncrementError:
            # The node was followed by something else then.
            return None
        if _why_ahead(node, marks) is None:
            return version
        version = stamp.version - 1
    # Nothing before the first commit of the node has an HWM to go back to.
    return None


def _set_by_hand(node: Node, entry: HwmEntry, target: TableHandle) -> Iterator[Disagreement]:
    """An HWM that does not match the rows, of a node that appends and would load rows twice if it read them again."""
    stamp = target.last_stamp(app_id(node.key), carrying="hwm")
    committed = CommitFacts.of(stamp).hwm if stamp else None
    if stamp is None or committed is None or entry.run_id is not None or node.target.rows_are_known:
        return
    accepted = entry.target_commit is not None and entry.target_commit >= stamp.version
    if accepted or committed.carries(NodeMark.of_value(entry.value)) or entry.value is None:
        return
    yield Disagreement(
        node.key,
        Kind.SET_BY_HAND,
        f"state was set to {hwm_text(entry.value)} by hand, and its table was loaded up to "
        f"{committed.mark}, in version {stamp.version}; the next run appends what lies after the former, "
        "loaded or not",
        f"odi state rewind {node} --list puts both back together, odi run {node.command} --full-refresh loads all "
        f"once; or, if that is what you want, odi state accept {node}",
    )


def _ways_back(node: Node, target: TableHandle) -> str:
    """What to do about a table that is behind its state. A change log with a gap is no way on."""
    back = (
        f"odi state rewind {node} --list" if target.exists else "put back the table, or `write.path`, if it was edited"
    )
    if node.captures:
        return f"odi run {node.command} --full-refresh --yes, or {back}"
    return f"odi run {node.command} --full-refresh, or {back}, or odi state accept {node}"


def _history(
    project: Project, state: StateBackend, key: NodeKey, target: TableHandle, *, goes_on: bool = False
) -> Iterator[Disagreement]:
    """Where run history and a table's commits disagree.

    Args:
        goes_on: what the node has read was put back with the table.
    """
    rows = own_rows(project, state.list_runs(pipeline=key.pipeline, node=key.node))
    noted = {open_attempt.identity: open_attempt for open_attempt in open_attempts(project) if open_attempt.key == key}
    for stamp in stamps_without_row(project, key, target, rows):
        attempt = attempt_of(key, stamp)
        gone = _is_gone(noted.pop(attempt.identity, attempt))
        if gone is not False:
            yield Disagreement(
                key,
                Kind.HISTORY_BEHIND,
                f"run {attempt.run_id} committed version {stamp.version} and has no row of history",
                f"odi state recover {key}{'' if gone else _once_it_must_have_ended(stamp)}",
            )
    known = {(row.run_id, row.attempt) for row in rows}
    for attempt in noted.values():
        if (attempt.run_id, attempt.attempt) not in known and _is_gone(attempt):
            yield Disagreement(
                key,
                Kind.HISTORY_BEHIND,
                f"run {attempt.run_id} was killed, attempt {attempt.attempt} of "
                f"{attempt.started_at:%Y-%m-%d %H:%M:%S} UTC, and has no row of history",
                f"odi state recover {key}",
            )
    yield from _rows_without_commit(project, state, key, target, rows, goes_on=goes_on)


def _is_gone(attempt: NodeAttempt) -> bool | None:
    return None if attempt.process is None else is_gone(attempt.process)


def _once_it_must_have_ended(stamp: CommittedStamp) -> str:
    until = stamp.committed_at + GRACE
    return f" (from {until:%H:%M} UTC on; until then its run may yet write it)" if until > datetime.now(UTC) else ""


def _rows_without_commit(
    project: Project,
    state: StateBackend,
    key: NodeKey,
    target: TableHandle,
    rows: Sequence[RunRecord],
    *,
    goes_on: bool,
) -> Iterator[Disagreement]:
    last = next((row for row in rows if row.status.succeeded and row.table_version is not None), None)
    version = -1 if target.version is None else target.version
    if last is None or last.table_version is None or last.table_version <= version:
        return
    entry = state.get_entry(Node.of(project, key).state_key)
    if entry is not None and (not target.exists or entry.updated_at > last.timestamp):
        # The finding about its HWM says what happened to the table, or that was accepted.
        return
    now = f"is at version {version}" if target.exists else "does not exist"
    run = f"odi run {key.pipeline} --node {key.node}"
    go_on = f"{run} goes on from there, with what came since; or " if goes_on else ""
    yield Disagreement(
        key,
        Kind.HISTORY_AHEAD,
        f"run {last.run_id} left version {last.table_version} of the table, which {now}",
        f"the table was put back, dropped or rebuilt outside of odi: {go_on}{run} --full-refresh rebuilds it",
    )


def _inputs(node: Node, state: StateBackend) -> Iterator[Disagreement]:
    entry = state.get_entry(node.state_key)
    if entry is None:
        return
    marks = marks_in_state(node, entry)
    for source in node.sources:
        mark = marks.get(source.name)
        unreachable = source.why_unreachable(mark) if mark is not None else None
        wrong = unreachable or (source.other_history(mark) if mark is not None else None)
        waits = source.why_waiting(mark) if mark is not None else None
        if waits is not None:
            remedy = f"look at the tool that writes it; if it is meant, odi run {node.command} --full-refresh"
            yield Disagreement(node.key, Kind.WAITS, f"{source.label} is not read: {waits}", remedy)
        if wrong is not None:
            yield Disagreement(
                node.key,
                Kind.UPSTREAM_CHANGED,
                f"it read {source.label} up to {hwm_text(mark.value if mark else None)}; {wrong}",
                f"odi run {node.command} --full-refresh, once {source.label} is right"
                + ("" if unreachable else f"; or go on above it with the table as it is: odi state accept {node}"),
            )
        elif mark is not None and (soon := source.why_soon_unreachable(mark)) is not None:
            how = f"odi run {node.command} reads it now; let the server keep its log for longer than a run may be late"
            yield Disagreement(node.key, Kind.SOON_LOST, f"{source.label}: {soon}", how)
        elif mark is not None and (rewritten := source.rewritten(mark)) is not None:
            what = f"whether rows below the HWM of {node} are other ones now: {rewritten}"
            how = f"odi run {node.command} compares them before it reads"
            yield Disagreement(node.key, Kind.NOT_LOOKED_AT, what, how)
