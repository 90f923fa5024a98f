"""Adopts a table and its HWM for a definition that changed, where the rows are the same.

A commit without rows says what the HWM measures now. It is made under the node's own fence, so that the table is the
node's from then on. Where the source is followed in another way now, all rows that the source holds count as loaded.
That is refused as long as the former definition would still read some of these rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import (
    FilesIncrement,
)
from odi_assets.delta.commit import FileChanges, Stamp, commit
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IdentityMismatchError, NoCursorColumnError
from odi_assets.nodes.commit_facts import CommitFacts, CommittedHwm, HwmOrigin
from odi_assets.nodes.kinds import Former
from odi_assets.nodes.mark import NodeMark, mark_text
from odi_assets.nodes.node import Node, app_id, app_ids
from odi_assets.nodes.planning.identity import (
    difference,
    is_moved,
    matched,
    origin_now,
    other_sources_of_parts,
    require_followed,
    require_hwm_not_taken,
    require_no_unmarked_rows,
    require_own_hwm,
    same_order,
    same_sources,
    unmarked_rows,
)
from odi_assets.nodes.planning.known_rows import known_after, known_differently
from odi_assets.nodes.planning.start import Start, facts_of, start_of
from odi_assets.nodes.planning.writers import (
    QUARANTINE_PREFIX,
    Writer,
    other_quarantiner,
    other_writer,
    quarantine_of,
    require_no_quarantine,
    require_own_quarantine,
)
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.former_read import leaves_out_nulls
from odi_assets.nodes.recovery.former_source import FormerLoad, require_all_loaded
from odi_assets.nodes.recovery.renamed_cursor import Session, renamed, resolved, with_ties
from odi_assets.nodes.remedies import remedies_named
from odi_assets.nodes.result import ADOPT
from odi_assets.sources.marks import Mark, hwm_text
from odi_assets.sources.reads import PlannedRead, Read
from odi_assets.sources.snapshot import Position
from odi_assets.sources.source import Source
from odi_assets.sources.sql.marks import SnapshotMark
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import NO_TABLE, HwmEntry
from odi_assets.util.words import counted


@dataclass(frozen=True)
class Adoption:
    """What adopting will do.

    Attributes:
        target: the node's table.
        entry: what state has under the node's key now.
        hwm_before, hwm_after: the HWM as it was kept, and as it will be.
        origin: what it is of from then on.
        changes: what changed, in words.
        left: the HWM of a node that wrote the table, and has it no more: it goes. None if there is none.
        remembered: by source, what the commit has to store beside the HWM.
        reads: of sources that count as loaded; what they write to storage goes before the commit.
        taken_over: what wrote the table, of a node that keeps no HWM in state.
        quarantine: the node's, if another node or project wrote it.
    """

    node: Node
    target: TableHandle
    entry: HwmEntry | None
    hwm_before: NodeMark | None
    hwm_after: NodeMark | None
    origin: HwmOrigin
    changes: tuple[str, ...]
    left: HwmEntry | None = None
    remembered: Mapping[str, Any] = field(default_factory=dict)
    reads: tuple[PlannedRead, ...] = ()
    taken_over: Former | None = None
    quarantine: TableHandle | None = None

    def to_json(self) -> dict[str, Any]:
        """The adoption as JSON-ready values."""
        return {
            "pipeline": self.node.key.pipeline,
            "node": self.node.key.node,
            "changes": list(self.changes),
            "hwm_before": mark_text(self.hwm_before),
            "hwm_after": mark_text(self.hwm_after),
        }


def plan_adoption(project: Project, state: StateBackend, key: NodeKey, spark: Session) -> Adoption | None:
    """What there is to adopt for a node; None if nothing changed. Writes nothing.

    Args:
        spark: gives a session; asked only if a source cannot tell its position otherwise.

    Raises:
        IdentityMismatchError: the former definition would still read rows, or the new one append all rows again.
        ConfigError: there is no such node.
    """
    node = Node.of(project, key)
    target = TableHandle.open(node.target.location)
    require_no_quarantine(node, target)
    writer = other_writer(node, target)
    if not node.kind.keeps_hwm:
        return node.kind.adopt(node, target, writer)
    entry = state.get_entry(node.state_key, deleted=True)
    left, kept = _kept_before(state, node, writer, entry)
    written_by = _written_by(node, writer)
    fence = app_id(written_by)
    start = start_of(node, kept, target, fence)
    require_hwm_not_taken(node, start.origin)
    require_followed(node, start.origin)
    require_no_unmarked_rows(node, start, target, written_by)
    changes = _changes(node, start, target, writer, left)
    quarantine, of_quarantine = _foreign_quarantine(node)
    changes += of_quarantine
    if not changes and _still_measures(node, start):
        return None
    marks, reads = dict[str, Mark](), list[PlannedRead]()
    names, facts = _former_names(node, start), facts_of(fence, start.hwm, target)
    for source in node.sources:
        if source.name in names:
            mark, read, words = _mark_now(node, source, names[source.name], start, facts, spark)
            changes += words
            marks |= {} if mark is None else {source.name: replace(mark, measures=source.identity)}
            reads += [] if read is None else [read]
    return Adoption(
        node,
        target,
        entry,
        start.hwm,
        NodeMark.of(marks, node.following) if marks else None,
        origin_now(node, target.table_id if target.exists else None),
        tuple(changes),
        left,
        _remembered(marks, reads),
        tuple(reads),
        quarantine=quarantine,
    )


def _changes(node: Node, start: Start, target: TableHandle, writer: Writer | None, left: HwmEntry | None) -> list[str]:
    """What changed about the node, its table and what it follows, each in words; not how its sources are read."""
    followed = start.origin is not None and bool(start.origin.measures)
    begins = [left.key] if left is not None and left.key in map(str, node.project.graph.nodes) else []
    return [
        *(_foreign_hwm(node, start.origin) if writer is None else [f"the table was written by {writer}"]),
        *(["it follows none of its sources any more"] if followed and not node.following else []),
        *other_sources_of_parts(node, start, target),
        *known_differently(node, target),
        *(f"{key}, which has another table now, begins with its first run" for key in begins),
    ]


def _remembered(marks: Mapping[str, Mark], reads: Sequence[PlannedRead]) -> dict[str, Any]:
    facts_by_source: dict[str, dict[str, Any]] = {
        name: getattr(mark, "remembered", dict)() for name, mark in marks.items()
    }
    facts_by_source |= {read.name: dict(read.remembered()) for read in reads if isinstance(read, Read)}
    return {name: facts for name, facts in facts_by_source.items() if facts}


def apply_adoption(state: StateBackend, adoption: Adoption) -> None:
    """Commit what the HWM is of now, and write it into state.

    Raises:
        FencedError: a run of the node committed since; nothing was written.
        StateConflictError: somebody else changed the HWM since; the commit counts all the same.
    """
    node, target, entry = adoption.node, adoption.target, adoption.entry
    if adoption.taken_over is not None:
        adoption.taken_over.take_over(_facts(adoption))
        return
    for read in adoption.reads:
        read.before_commit()
    _take_quarantine(node, adoption.quarantine)
    version = None
    if target.exists:
        stamp = Stamp.next_on(target, app_id(node.key), _facts(adoption).to_json())
        version = commit(target, target.schema_json, target.partition_columns, FileChanges("rows", ()), stamp)
    if adoption.hwm_after is not None:
        state.compare_and_set(
            node.state_key,
            adoption.hwm_after.value,
            expected_revision=entry.revision if entry and not entry.deleted else None,
            target_commit=NO_TABLE if version is None and entry and entry.target_commit == NO_TABLE else version,
            origin=adoption.origin.of_version(target.location, version).to_json(),
        )
    elif entry is not None and not entry.deleted and not node.following:
        # It follows nothing any more.
        state.delete_hwm(node.state_key, expected_revision=entry.revision)
    if adoption.left is not None:
        state.delete_hwm(adoption.left.key, expected_revision=adoption.left.revision)


def _take_quarantine(node: Node, table: TableHandle | None) -> None:
    if table is None:
        return
    facts = {"node": str(node), "project": node.project.config.project, "mode": ADOPT}
    stamp = Stamp.next_on(table, f"{QUARANTINE_PREFIX}{node}:{ADOPT}", facts)
    commit(table, table.schema_json, table.partition_columns, FileChanges("rows", ()), stamp)


def _foreign_quarantine(node: Node) -> tuple[TableHandle | None, list[str]]:
    """The quarantine of a node if another node or project wrote it, and that in words.

    Raises:
        IdentityMismatchError: it is no quarantine.
    """
    location = quarantine_of(node)
    table = None if location is None else TableHandle.open(location)
    writer = None if table is None else other_quarantiner(node, table)
    if writer is None:
        return None, []
    if not writer.quarantines:
        require_own_quarantine(node)
    return table, [f"the quarantine was written by {writer}"]


def _written_by(node: Node, writer: Writer | None) -> NodeKey:
    return node.key if writer is None else NodeKey.parse(writer.nodes[0])


def _facts(adoption: Adoption) -> CommitFacts:
    node, entry, origin, target = adoption.node, adoption.entry, adoption.origin, adoption.target
    keeps_hwm = bool(node.following) or adoption.hwm_before is not None
    hwm = CommittedHwm.of(adoption.hwm_after, adoption.remembered, origin.measures) if keeps_hwm else None
    return CommitFacts(
        node=str(node),
        project=origin.project,
        root=origin.root,
        mode=ADOPT,
        increment="; ".join(adoption.changes),
        state_revision=entry.revision if entry else 0,
        state_updated_at=entry.updated_at if entry else datetime.now(UTC),
        hwm=hwm,
        unmarked=True if unmarked_rows(_written_by(node, other_writer(node, target)), target) is not None else None,
        # Parts alone are no load up to somewhere: the first run adds to them, as it would have before.
        before_first_run=True if keeps_hwm and _has_parts_alone(node, target) else None,
        known_by=known_after(node, target),
    )


def _has_parts_alone(node: Node, target: TableHandle) -> bool:
    increments, parts = map(target.transaction_number, app_ids(node.key))
    return bool(parts) and not increments


def _kept_before(
    state: StateBackend, node: Node, writer: Writer | None, entry: HwmEntry | None
) -> tuple[HwmEntry | None, HwmEntry | None]:
    """The HWM that goes, because its node has the table no more, if any; and the HWM of the table's rows."""
    if writer is None or str(node) in writer.nodes:
        return None, entry
    former = next((former_entry for name in writer.nodes if (former_entry := state.get_entry(name)) is not None), None)
    if former is None:
        return None, entry
    # An adoption under the other name has left a tombstone here: the rows have its HWM since.
    is_kept = entry is None or entry.deleted or (_is_of_table(node, former) and not _is_of_table(node, entry))
    there = {str(key) for key in node.project.graph.nodes}
    is_left = is_kept if former.key not in there else _is_of_table(node, former) and _has_other_table(node, former)
    return (former if is_left else None), (former if is_kept else entry)


def _is_of_table(node: Node, entry: HwmEntry) -> bool:
    """Whether an HWM is of the table of ``node``."""
    origin = HwmOrigin.from_json(entry.origin)
    return origin is not None and origin.place == node.target.location.true_path()


def _has_other_table(node: Node, entry: HwmEntry) -> bool:
    """Whether the node of the project that keeps this HWM writes another table than ``node``."""
    return node.project.target(NodeKey.parse(entry.key)).true_path() != node.target.location.true_path()


def _foreign_hwm(node: Node, origin: HwmOrigin | None) -> list[str]:
    try:
        require_own_hwm(node, origin)
    except IdentityMismatchError as error:
        return [error.message.partition(": ")[2]]
    return []


def _still_measures(node: Node, start: Start) -> bool:
    if start.hwm is None:
        return True
    try:
        matched(node, start.origin)
    except IdentityMismatchError:
        return False
    return True


def _former_names(node: Node, start: Start) -> dict[str, str]:
    """By each source that has a mark, the name under which the HWM keeps it: of what measures the same; else its own;
    else the only one that is left.

    Raises:
        IdentityMismatchError: it is not known which mark belongs to which source.
    """
    names = same_sources(node, start.origin)
    measures = start.origin.measures if start.origin is not None else {}
    unmatched = [name for name in measures if name not in names.values()]
    others = [name for name in node.following if name not in names]
    names |= {name: name for name in others if name in unmatched}
    unmatched, others = (
        [name for name in unmatched if name not in others],
        [name for name in others if name not in unmatched],
    )
    if len(unmatched) == len(others) == 1:
        names[others[0]] = unmatched[0]
    elif unmatched and others:
        raise IdentityMismatchError(
            f"{node}: its HWM has marks of {', '.join(f'`{name}`' for name in unmatched)}, and it is not known which "
            f"of them belongs to {' or '.join(f'`{name}`' for name in others)} now",
            fix="give one of the inputs its former name back and adopt, then the next; "
            f"or rebuild the table from its sources: odi run {node.command} --full-refresh",
            node=str(node),
        )
    return names


def _mark_now(
    node: Node, source: Source, name: str, start: Start, facts: CommitFacts | None, spark: Session
) -> tuple[Mark | None, PlannedRead | None, list[str]]:
    """The mark of a source as it is followed now, the read that found it, if any, and what changed, in words.

    Args:
        name: the name under which the HWM keeps its mark.
        facts: of the commit that set the HWM.
    """
    measures = start.origin.measures if start.origin is not None else {}
    then = measures.get(name)
    hwm = start.hwm
    value = None if hwm is None else hwm.of_source(name, tuple(measures) or node.following, str(node))
    if value is None:
        return None, None, []
    moved = start.origin is not None and is_moved(node, start.origin)
    words = [] if then is None else [difference(then, source.identity, moved=moved)]
    changes = [f"{source.label} {text}" for text in words if text is not None]
    ordered_alike = then is None or same_order(then, source.identity)
    # Whatever else the commit remembers was found with the former definition.
    kept_facts = _kept_facts(facts, name)
    ties = {part: kept for part, kept in kept_facts.items() if part in ("ties", "tied_by")}
    began = {part: kept for part, kept in kept_facts.items() if part == "began_at"} if ordered_alike else {}
    if ordered_alike and (source.identity.reading or {}).get("ties"):
        tied = with_ties(source, source.mark(value, ties | began), spark)
        return tied, None, [*changes, "rows that are tied with the HWM count as loaded, but for those known to be new"]
    if then is None or not changes:
        return source.mark(value, began), None, changes
    if ordered_alike and not isinstance(source.increment, FilesIncrement):
        return source.mark(value, began), None, changes
    load = FormerLoad(then, value, ties, _position_read_out(facts, name), moved)
    if ordered_alike:
        with remedies_named(node):
            read = source.moved_here(source.mark(value, {}), then)
        if read is not None:
            return source.wrapped_mark(read.after, value), read, [*changes, read.summary]
        changes += require_all_loaded(node, source, load, spark)
    else:
        try:
            changes += require_all_loaded(node, source, load, spark)
        except NoCursorColumnError as error:
            return renamed(node, source, then, value, kept_facts, error, spark)
        if "rows" in (then.reading or {}):
            changes.append(f"{source.label}: rows at or below its HWM that came since the last run count as loaded")
        if leaves_out_nulls(then):
            changes.append(f"{source.label}: rows without a cursor count as loaded")
    return _counted_as_loaded(node, source, value, changes, spark)


def _kept_facts(facts: CommitFacts | None, name: str) -> Mapping[str, Any]:
    """What the commit of an HWM remembers beside a mark."""
    kept: Mapping[str, Any] = {} if facts is None or facts.hwm is None else facts.hwm.remembered.get(name, {})
    return kept


def _position_read_out(facts: CommitFacts | None, name: str) -> Position | None:
    """Where a source stood when all of it was loaded: no row of it was held. None if that is not known."""
    is_read_out = facts is not None and "seen" in _kept_facts(facts, name)
    return (facts.positions or {}).get(name) if facts is not None and is_read_out else None


def _counted_as_loaded(
    node: Node, source: Source, value: Any, changes: list[str], spark: Session
) -> tuple[Mark | None, PlannedRead | None, list[str]]:
    """What :func:`_mark_now` says where all that is there counts as loaded, whether or not it would be read now."""
    read = resolved(source.unwaited.plan(None), spark)
    _require_none_held(node, source, read)
    mark = read.after if isinstance(read, Read) else None
    if isinstance(mark, SnapshotMark):
        mark = mark.completed
    mark = source.wrapped_mark(mark, value)
    if mark is None:
        raise IdentityMismatchError(
            f"{node}: {source.label} holds nothing now, so nothing says up to where it counts as loaded",
            fix="adopt once the rows that are loaded are there; or put the definition back; "
            f"or rebuild the table from its sources: odi run {node.command} --full-refresh",
            node=str(node),
        )
    changes.append(f"what {source.label} holds now, up to {hwm_text(mark.value)}, counts as loaded")
    return mark, read, changes


def _require_none_held(node: Node, source: Source, read: PlannedRead) -> None:
    """Raises IdentityMismatchError if rows that may be loaded would be read again once their time has come."""
    held = read.held
    if held and not source.target.rows_are_known:
        raise IdentityMismatchError(
            f"{node}: {counted(held, 'row')} of {source.label} ahead of the clock may be loaded already, and would be "
            "read again once their time has come",
            fix="say `incremental.max_ahead: none` in place of `on_ahead: hold`, and adopt; "
            f"or rebuild the table from its sources: odi run {node.command} --full-refresh",
            node=str(node),
        )
