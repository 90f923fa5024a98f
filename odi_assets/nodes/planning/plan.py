"""What one run of a node will do, decided before it does anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import WriteMode
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts, CommittedHwm, HwmOrigin
from odi_assets.nodes.mark import NodeMark, mark_text
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.identity import measured, unmarked_rows
from odi_assets.nodes.planning.known_rows import known_after
from odi_assets.nodes.planning.start import Start
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.result import RunInfo
from odi_assets.sources.copies import fields_of
from odi_assets.sources.marks import Unresolved
from odi_assets.sources.reads import PlannedRead, Read, UnresolvedRead
from odi_assets.sources.snapshot import Partitions
from odi_assets.tables.engine import WriteSpec
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.sources.losses import Loss


@dataclass(frozen=True)
class WritePlan:
    """How the rows will go into the table.

    Attributes:
        mode: may differ from the mode in the project file: a full refresh, or a source that has to be read whole,
            replaces the table.
        app_id, number: the fence of the commit.
        replace: the partitions to replace. None: only those that rows are written to.
        within: only rows in these partitions are written. None: all rows are written.
    """

    mode: WriteMode
    app_id: str
    number: int
    replace: Partitions | None = None
    within: Partitions | None = None


@dataclass(frozen=True)
class NodePlan:
    """What one run of a node will do. ``execution.resolve`` adds what only Spark can tell of its reads.

    Attributes:
        target: the node's table, at the version whose fence was checked.
        start: the HWM that the run starts from.
        reads: one per source.
        recompute: the partition column, if affected partitions will be recomputed from all of their rows, and the rows
            have to be read to know which partitions are affected.
        waited: the position of each node in ``depends_on``.
        nothing_new: no source is ahead of its mark, so there is nothing to do.
        losses: what the table holds and a full refresh does not bring back.
    """

    node: Node
    request: RunRequest
    target: TableHandle
    start: Start
    write: WritePlan
    reads: tuple[PlannedRead, ...]
    recompute: str | None = None
    waited: Mapping[str, Any] = field(default_factory=dict)
    nothing_new: bool = False
    losses: tuple[Loss, ...] = ()

    @property
    def hwm_after(self) -> NodeMark | None:
        """The HWM once the rows are in the target; ``UNTIL_READ`` while one of the reads is unresolved."""
        return self.start.hwm if self.nothing_new or not self.moves_hwm else self.marked()

    @property
    def moves_hwm(self) -> bool:
        """Whether a commit of this plan carries an HWM."""
        return not self.request.is_bounded and bool(self.node.following)

    @property
    def ends_hwm(self) -> bool:
        """Whether a commit of this plan ends an HWM: the table is rebuilt by a node that no longer follows a source, or
        of sources that were emptied."""
        is_ended = not self.node.following or self.marked() is None
        return self.request.full_refresh and is_ended and self.start.hwm is not None

    @property
    def inputs(self) -> dict[str, Any]:
        """The position of each source, and of each node in ``depends_on``."""
        positions = {
            read.name: read.snapshot.position
            if read.under is None
            else {**read.snapshot.position, "cursor": read.under}
            for read in self.reads
        }
        return {**self.waited, **positions}

    @property
    def bytes(self) -> int | None:
        """Size of the files that the run will read; an upper bound if it has to read to know. None if not known."""
        if self.nothing_new:
            return 0
        return self._bytes(whole=self.recompute is not None)

    @property
    def bytes_beside_gains(self) -> int | None:
        """The same for a plan that finds nothing new although nodes before it write in the same run: all but what these
        write."""
        return self._bytes(whole=self.write.mode.traits.increment != "rows")

    def _bytes(self, *, whole: bool) -> int | None:
        sizes = [read.snapshot.bytes if whole else read.bytes for read in self.reads]
        known = [size for size in sizes if size is not None]
        return sum(known) + (self.target.bytes if self._reads_target else 0) if len(known) == len(sizes) else None

    @property
    def _reads_target(self) -> bool:
        traits = self.write.mode.traits
        repeats = any(isinstance(read, UnresolvedRead) or read.overlap is not None for read in self.reads)
        return traits.computed_from == "table" or (traits.keeps_stored_rows and repeats)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a run says that its rows do not show, each with what to do."""
        return ()

    @property
    def summary(self) -> str:
        """What will be read, in words."""
        if self.request.is_bounded:
            again = self.node.config.write.mode.traits.takes_rows_again
            return self.request.part if again else f"{self.request.part}, of what its increments have loaded"
        # If nothing is to be done, the inputs that would be read whole are not read either.
        reads = [read for read in self.reads if read.follows or not self.nothing_new or len(self.reads) == 1]
        text = "; ".join(read.summary if len(self.reads) == 1 else f"{read.name}: {read.summary}" for read in reads)
        if self.write.replace is not None and self.recompute is None:
            count = counted(len(self.write.replace.values), "partition")
            return f"{text}; the whole of {count} of {self.write.replace.column}"
        return f"{text}; the whole of each {self.recompute} they affect" if self.recompute else text

    def marked(self) -> NodeMark | None:
        """The HWM made of the marks of all reads; ``UNTIL_READ`` while one of the reads is unresolved."""
        marks = {read.name: read.after for read in self.reads if read.follows and read.after is not None}
        return NodeMark.of(marks, self.node.following)

    def origin(self, table_id: str | None) -> HwmOrigin:
        """What the HWM of this plan is of.

        Args:
            table_id: the id of the node's table, once there is one.
        """
        project, marks = self.node.project, {read.name: read.after for read in self.reads if read.follows}
        measures = {name: mark.measures for name, mark in marks.items() if mark and not isinstance(mark, Unresolved)}
        known = {name: identity for name, identity in measures.items() if identity is not None}
        return HwmOrigin(str(self.node), project.config.project, str(project.root.resolve()), table_id, known)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a row of the node's table: ``write.keys``, or what the log that it applies says."""
        if self.node.config.apply is None or self.node.config.apply.history:
            return tuple(self.node.config.write.keys)
        from odi_assets.nodes.planning.apply import key_of_log

        return key_of_log(self)

    @property
    def write_spec(self) -> WriteSpec:
        """How the table's engine is to write the rows."""
        write, replaced = self.node.config.write, self.write.replace
        return WriteSpec(
            self.write.mode,
            self.keys,
            self.node.partition_by,
            None if replaced is None else tuple({replaced.column: value} for value in replaced.values),
            write.schema_policy,
            write.delete_when,
            write.only_if_newer,
            write.mode,
            span=None if replaced is None else replaced.box,
        )

    def commit_facts(self, run: RunInfo) -> CommitFacts:
        """What a commit of this plan says of the node and of its run."""
        project = self.node.project
        return CommitFacts(
            node=str(self.node),
            project=project.config.project,
            root=str(project.root.resolve()),
            history=project.history,
            run_id=run.run_id,
            attempt=run.attempt,
            mode=self.write.mode.value,
            increment=self.summary,
            code_version=run.code_version,
            positions=self.inputs,
            partial=run.partial,
        )

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON-ready values, for ``odi plan --json``."""
        return {
            "pipeline": self.node.key.pipeline,
            "node": self.node.key.node,
            "action": "nothing" if self.nothing_new else "write",
            "mode": self.write.mode.value,
            "summary": self.summary,
            "hwm_before": mark_text(self.start.hwm),
            "hwm_after": mark_text(self.hwm_after),
            "table_version": self.target.version,
            "full_refresh": self.request.full_refresh,
            "bounds": self.request.part or None,
            "reads": [read.to_json() for read in self.reads],
            "losses": [{"what": loss.what, "names": list(loss.names)} for loss in self.losses],
        }


@dataclass(frozen=True)
class ResolvedPlan(NodePlan):
    """A plan whose reads are resolved: all that its commit depends on is known.

    Attributes:
        kept: by source, how much it keeps of the values that rows are known by (see ``execution.kept_values``).
    """

    reads: tuple[Read, ...]
    kept: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: NodePlan, reads: tuple[Read, ...], write: WritePlan) -> ResolvedPlan:
        """``plan`` with its reads resolved. If none of its sources is ahead after all, it has nothing to do."""
        following = [read for read in reads if read.follows]
        nothing = plan.nothing_new or (bool(following) and all(read.nothing_new for read in following))
        return cls(**{**fields_of(NodePlan, plan), "reads": reads, "write": write, "nothing_new": nothing})

    def _leaves_unmarked(self) -> bool:
        """Whether the table may hold rows after the commit that no HWM counts."""
        if self.request.is_bounded:
            # A part of a node that appends has only rows that its increments have loaded.
            return self.node.config.write.mode.traits.takes_rows_again
        # Rows that an increment leaves for later may be there, of a part that was run before.
        leaves = not self.replaces_rows and any(read.leaves_rows for read in self.reads)
        return leaves and unmarked_rows(self.node.key, self.target) is not None

    @property
    def replaces_rows(self) -> bool:
        """Whether none of the rows that the table holds stays."""
        is_whole = self.node.config.write.mode.traits.increment == "table" and not self.request.is_bounded
        return self.request.full_refresh or is_whole

    def commit_facts(self, run: RunInfo) -> CommitFacts:
        """What the commit of this plan says of itself."""
        entry, bounds, hwm = self.start.entry, self.request.bounds, None
        inputs, resolve = self.node.config.inputs, self.node.project.graph.resolve
        read_at = {read.name: read.snapshot.table_version for read in self.reads}
        versions = {name: version for name in inputs if (version := read_at.get(name)) is not None}
        if self.moves_hwm:
            following = [read for read in self.reads if read.follows]
            remembered = {read.name: dict(facts) for read in following if (facts := read.remembered())}
            hwm = CommittedHwm.of(self.hwm_after, remembered, self.origin(None).measures)
        elif self.ends_hwm:
            hwm = CommittedHwm.of(None)
        return replace(
            super().commit_facts(run),
            state_revision=entry.revision if entry else 0,
            state_updated_at=self.start.seen_at,
            inputs={str(resolve(self.node.key, inputs[name].node)): version for name, version in versions.items()},
            bounds=(bounds.start.isoformat(), bounds.end.isoformat()) if bounds else None,
            ranges={read.name: held for read in self.reads if (held := read.range_held) is not None} or None,
            partitions=self.request.partitions or None,
            sources={name: identity.to_json() for name, identity in measured(self.node).items()}
            if self.request.is_bounded
            else None,
            hwm=hwm,
            unmarked=True if self._leaves_unmarked() else None,
            known_by=known_after(self.node, self.target, kept=self.kept, replaced=self.replaces_rows),
        )
