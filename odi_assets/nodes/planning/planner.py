"""The plan of one node: what it will read, how it will write, and the fence it will take. No Spark, no Dagster."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import WriteMode
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError, IdentityMismatchError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.apply import require_captured
from odi_assets.nodes.planning.identity import require_own
from odi_assets.nodes.planning.partition_column import partition_column, require_partition_column
from odi_assets.nodes.planning.plan import NodePlan, WritePlan
from odi_assets.nodes.planning.range import planned_range
from odi_assets.nodes.planning.same_history import in_same_history
from odi_assets.nodes.planning.start import Start, marks_of, table_and_start
from odi_assets.nodes.planning.target_check import require_hwm_known, require_target
from odi_assets.nodes.planning.writers import require_no_quarantine, require_own_quarantine
from odi_assets.nodes.project import Project
from odi_assets.nodes.remedies import remedies_named
from odi_assets.nodes.request import RunRequest
from odi_assets.sources.delta.source import DeltaTableSource
from odi_assets.sources.marks import Mark
from odi_assets.sources.reads import AffectedPartitions, PlannedRead
from odi_assets.sources.snapshot import Partitions
from odi_assets.sources.source import Source
from odi_assets.tables.schema import require_same_partitioning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odi_assets.nodes.planning.start import Hwms
    from odi_assets.state.backend import StateBackend
    from odi_assets.state.records import HwmEntry


@dataclass(frozen=True)
class KnownHwms:
    """The HWM entries of all keys as they were at one moment, those that mark a deletion too."""

    entries: Mapping[str, HwmEntry]

    @classmethod
    def of(cls, state: StateBackend) -> KnownHwms:
        """The entries that state has now, in one look.

        Raises:
            StateError: state cannot be read.
        """
        return cls({entry.key: entry for entry in state.list_hwms(deleted=True)})

    def get_entry(self, key: str, *, deleted: bool = False) -> HwmEntry | None:
        """As of ``StateBackend``."""
        entry = self.entries.get(key)
        return None if entry is None or (entry.deleted and not deleted) else entry


NEW_DATA = RunRequest()
"""The request of a run that takes in what is new."""


def plan_node(project: Project, state: Hwms, key: NodeKey, request: RunRequest = NEW_DATA) -> NodePlan:
    """Decide what a run of ``key`` will do: look at state, the target's fence and the sources. Changes nothing.

    Raises:
        ConfigError: no such node, or it cannot be run as requested.
        IdentityMismatchError: the table or the HWM is another node's, or the marks measure something else, or another
            history of it.
        TargetBehindStateError: state has an HWM, and the target that should hold its rows is gone or older.
        StateError: it appends, and nothing says any more up to where its table was loaded.
        LossError: a full refresh would lose rows, and the request does not say that it may.
        IncrementError, SourceError, TableError: a source cannot be planned.
        CheckpointError: of a stream node: its checkpoint and its table do not belong together.
    """
    node = Node.of(project, key, request.log)
    # A run may commit between the look at the node's table and the look at a source, and its server's slot moves with
    # it: that the two do not belong together is so if a second look, at the newest change log too, says so.
    with suppress(IdentityMismatchError), remedies_named(node):
        return _planned(node, state, request)
    node = Node.of(project, key)
    with remedies_named(node):
        return _planned(node, state, request)


def _planned(node: Node, state: Hwms, request: RunRequest) -> NodePlan:
    key, project = node.key, node.project
    own = node.kind.plan(node, request)
    if own is not None:
        return own
    target, start = table_and_start(node, state)
    require_own_quarantine(node)
    if request.full_refresh:
        require_no_quarantine(node, target)
    elif target.exists or start.origin is not None:
        require_own(node, start, target)
    if target.exists:
        require_same_partitioning(target, node.partition_by)
    fence = app_id(key, bounded=request.is_bounded)
    plan = NodePlan(
        node,
        request,
        target,
        start,
        WritePlan(node.config.write.mode, fence, target.transaction_number(fence) + 1),
        reads=(),
        waited={str(other): TableHandle.open(project.target(other)).position for other in node.waits_for},
    )
    if request.inputs_wait:
        return _waiting(plan)
    if request.is_bounded:
        return planned_range(plan)
    if request.full_refresh or (start.hwm is None and target.exists and _starts_over(node, start, target)):
        from odi_assets.nodes.planning.refresh import planned_refresh

        return planned_refresh(plan)
    if start.hwm is not None and node.following:
        require_target(node, start, target)
    marks = in_same_history(node, marks_of(node, start, target), target)
    return _increment(
        replace(
            plan,
            reads=tuple(
                _read_of(node, source.bounded(request.until.get(source.name)), marks.get(source.name))
                for source in node.sources
            ),
        )
    )


def _read_of(node: Node, source: Source, mark: Mark | None) -> PlannedRead:
    read = source.plan(mark)
    # A table that is replaced as a whole needs no comparison of what it was made of.
    whole = read.rechecked and node.config.write.mode.traits.increment == "table"
    return source.plan(None) if whole else read


def _waiting(plan: NodePlan) -> NodePlan:
    """``plan``, which has nothing to do as long as tables above it are not there."""
    tables = [source for source in plan.node.sources if isinstance(source, DeltaTableSource) and not source.exists]
    return replace(plan, reads=tuple(table.nothing_yet() for table in tables), nothing_new=True)


def _starts_over(node: Node, start: Start, target: TableHandle) -> bool:
    """Whether the table has to be replaced. Without an HWM everything is read; added to what earlier runs left in the
    table, it would be there twice.

    Raises:
        StateError: it appends, and nothing says how far it has read.
    """
    fence = app_id(node.key)
    if not node.following or not target.transaction_number(fence):
        return False
    require_hwm_known(node, start, target)
    last = target.last_stamp(fence)
    # After a rewind to before the first run, the table holds no rows of runs.
    return last is None or not CommitFacts.of(last).before_first_run


def _increment(plan: NodePlan) -> NodePlan:
    """``plan``, whose reads are of what each source gained, with as much more as its table needs: the rows alone, whole
    partitions, or all of the sources.

    Raises:
        ConfigError: the increments of several sources do not make the rows of the node.
        IncrementError: rows that are needed cannot be read any more.
    """
    following = [read for read in plan.reads if read.follows]
    if plan.node.config.apply is not None:
        require_captured(plan)
    if following and all(read.nothing_new for read in following):
        return replace(plan, nothing_new=True)
    scope = plan.write.mode.traits.increment
    by_partitions = scope == "partitions"
    for read in following:
        if (names := read.snapshot.column_names) is not None:
            require_partition_column(plan.node, read.label, names)
    if by_partitions and any(_is_amid(read, plan.target.exists) for read in plan.reads):
        return _by_partitions(plan)
    rewrites = any(read.rewrites for read in plan.reads)
    if following and (scope == "table" or (rewrites and (plan.target.exists or by_partitions))):
        # The table is made of its sources as a whole; the increment only decides whether there is anything to do.
        return _read_whole(plan)
    if len(following) > 1 and not by_partitions:
        names = ", ".join(f"`{read.name}`" for read in following)
        raise ConfigError(
            f"{plan.node}: rows of {names} together make its rows, so {plan.write.mode.value} of an increment would "
            "miss those that meet rows read before",
            fix="make one input incremental, or partition the node and write with partition_overwrite",
            node=str(plan.node),
        )
    return plan


def _is_amid(read: PlannedRead, table_exists: bool) -> bool:
    """Whether rows of the source that the read leaves out belong to the partitions of the rows that it reads."""
    if not read.is_part or read.nothing_new:
        return False
    # A first increment begins where all reads of the source begin. A window does not, nor does what follows a mark
    # whose table is gone.
    return table_exists or not read.follows or read.before is not None


def _read_whole(plan: NodePlan) -> NodePlan:
    reads = tuple(read.whole() for read in plan.reads)
    return replace(plan, reads=reads, write=replace(plan.write, mode=WriteMode.OVERWRITE))


def _by_partitions(plan: NodePlan) -> NodePlan:
    """Compute each partition that gained rows from all of its rows. If only rows tell which those are, resolving the
    plan finds them."""
    column = partition_column(plan.node)
    if column is None:
        raise AssertionError("a node that writes by partitions")
    affected = reduce(or_, (read.affected(column, str(plan.node)) for read in plan.reads), AffectedPartitions())
    if affected.everything:
        return _read_whole(plan)
    if affected.by_rows:
        return replace(plan, recompute=column)
    wanted = Partitions.of(column, affected.values)
    reads = tuple(read.in_partitions(wanted) if read.is_part else read for read in plan.reads)
    return replace(plan, reads=reads, write=replace(plan.write, replace=wanted))
