"""The plan of one node: what it will read, how it will write, and the fence it will take. No Spark, no Dagster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from odi_assets.config.graph import NodeKey, state_key
from odi_assets.config.models import FileFormat, NodeConfig, StatefulIncrement, WriteConfig, WriteMode
from odi_assets.connections.location import Location
from odi_assets.errors import ConfigError, IncrementError
from odi_assets.increments.files import SourceFile
from odi_assets.increments.model import UNKNOWN, PartitionFilter, ReadPlan
from odi_assets.increments.position import table_position
from odi_assets.increments.reads import SourceRead, SourceSpec, plan_source
from odi_assets.increments.stateful import Memory
from odi_assets.nodes.agreement import hwm_in_target, require_memory, trusted_hwm
from odi_assets.nodes.behind import require_target
from odi_assets.nodes.bounds import Bounds, partition_values
from odi_assets.nodes.display import hwm_text
from odi_assets.nodes.fences import app_id, range_app_id
from odi_assets.nodes.project import READ_VIEW, Project
from odi_assets.nodes.ranges import RangeWay, range_way, require_ranges
from odi_assets.nodes.standing import remembers
from odi_assets.nodes.widening import affected_partitions
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import HwmEntry
from odi_assets.state.values import encode
from odi_assets.tables.handle import TableHandle


@dataclass(frozen=True)
class NodePlan:
    """What one run of a node will do.

    Attributes:
        reads: one plan per source.
        target: the node's table, at the version whose fence was checked.
        mode: how the rows will be written, which is not always how the project file says: a full refresh, or a
            source that has to be read whole, replaces the table.
        replace: partitions to replace, for partition_overwrite; None: just those that rows are written to.
        number: the fence of the commit.
        entry: the HWM entry as read from state; a tombstone too.
        bounds: set for bounded runs, which never touch the HWM.
        within: of a bounded run, the partitions that the rows to be written are in; others are left out.
        repaired: the target's log was ahead of state, and the HWM was taken from there.
        nothing_new: no incremental source is ahead of its HWM: nothing is to be done.
        inputs: where each source stood, and each node that this one waits for without reading it.
    """

    project: Project
    key: NodeKey
    node: NodeConfig
    reads: tuple[ReadPlan, ...]
    target: TableHandle
    mode: WriteMode
    number: int
    hwm_before: Any
    hwm_after: Any
    entry: HwmEntry | None
    replace: tuple[Mapping[str, str | None], ...] | None = None
    bounds: Bounds | None = None
    within: PartitionFilter | None = None
    full_refresh: bool = False
    repaired: bool = False
    nothing_new: bool = False
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def app_id(self) -> str:
        return app_id(self.key) if self.bounds is None else range_app_id(self.key)

    @property
    def state_key(self) -> str:
        return state_key(self.key, self.node)

    @property
    def moves_hwm(self) -> bool:
        """Whether a commit of this plan carries an HWM."""
        return self.bounds is None and any(read.incremental for read in self.reads)

    @property
    def summary(self) -> str:
        """What will be read, in words."""
        if self.bounds is not None:
            return f"{self.bounds}"
        parts = [read.summary if len(self.reads) == 1 else f"{read.name}: {read.summary}" for read in self.reads]
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON-ready values, for ``odi plan --json`` and for the commit's metadata."""
        return {
            "pipeline": self.key.pipeline,
            "node": self.key.node,
            "action": "nothing" if self.nothing_new else "write",
            "mode": self.mode.value,
            "summary": self.summary,
            "hwm_before": hwm_text(self.hwm_before),
            "hwm_after": hwm_text(self.hwm_after),
            "table_version": self.target.version,
            "full_refresh": self.full_refresh,
            "bounds": str(self.bounds) if self.bounds else None,
            "reads": [
                {
                    "name": read.name,
                    "source": read.label,
                    "format": read.format,
                    "incremental": read.incremental,
                    "summary": read.summary,
                    "files": len(read.files) if read.files is not None else None,
                    "rows": read.known_rows,
                    "hwm_before": hwm_text(read.hwm_before),
                    "hwm_after": hwm_text(read.hwm_after),
                }
                for read in self.reads
            ],
        }


def plan_node(
    project: Project,
    state: StateBackend,
    key: NodeKey,
    *,
    full_refresh: bool = False,
    bounds: Bounds | None = None,
) -> NodePlan:
    """Decide what a run of ``key`` will do: look at state, the target's fence and the sources. Changes nothing.

    Raises:
        ConfigError: no such node, or it cannot be run with these bounds.
        TargetBehindStateError: state knows an HWM, and the target that should hold its rows is gone or older.
        IncrementError, SourceError, TableError: a source cannot be planned.
    """
    node = project.node(key)
    if bounds is not None:
        require_ranges(project, (key,), bounds)
    target = TableHandle.open(project.target(key))
    entry = state.get_entry(state_key(key, node), deleted=True)
    hwm, repaired = trusted_hwm(entry, target, app_id(key))
    if bounds is None and not full_refresh:
        require_target(key, state_key(key, node), hwm, entry, target)
        if node.write.mode is WriteMode.APPEND and any(spec.incremental for spec in source_specs(project, key)):
            require_memory(key, state_key(key, node), entry, target, app_id(key))
        # Without an HWM all is read; added to what earlier runs left in the table, it would be there twice.
        full_refresh = hwm is None and remembers(node) and target.transaction_number(app_id(key)) > 0
    start = None if full_refresh or bounds is not None else hwm
    typed = repaired or entry is None or entry.value_type is not None
    memories = _memories(node, target, key, start, typed=typed)
    specs = source_specs(project, key, target.location if bounds is None else None)
    sources = {spec.name: plan_source(spec, _hwm_of(start, spec, key), memories.get(spec.name)) for spec in specs}
    plan = NodePlan(
        project=project,
        key=key,
        node=node,
        reads=tuple(source.plan for source in sources.values()),
        target=target,
        mode=node.write.mode,
        number=target.transaction_number(range_app_id(key) if bounds else app_id(key)) + 1,
        hwm_before=hwm,
        hwm_after=hwm,
        entry=entry,
        bounds=bounds,
        full_refresh=full_refresh,
        repaired=repaired,
        inputs={**_waited_positions(project, key), **{name: s.plan.position for name, s in sources.items()}},
    )
    if bounds is not None:
        return _bounded(plan, bounds)
    if full_refresh:
        return _with_hwm(replace(plan, mode=WriteMode.OVERWRITE, reads=tuple(r.whole() for r in plan.reads)))
    return _with_hwm(_incremental(plan, sources))


def waited_for(project: Project, key: NodeKey) -> tuple[NodeKey, ...]:
    """The nodes of ``depends_on``: they run first, and what this node takes from them is not ours to see."""
    return tuple(project.graph.resolve(key, name) for name in project.node(key).depends_on)


def _waited_positions(project: Project, key: NodeKey) -> dict[str, Any]:
    return {str(other): table_position(TableHandle.open(project.target(other))) for other in waited_for(project, key)}


def source_specs(project: Project, key: NodeKey, target: Location | None = None) -> list[SourceSpec]:
    """The sources of a node with their places resolved; with ``target``, to be remembered beside that table."""
    node = project.node(key)
    specs = []
    if node.read is not None:
        read = node.read
        specs.append(
            SourceSpec(
                READ_VIEW,
                f"{read.connection}:{read.path}",
                read.format,
                project.location(read.connection, ""),
                read.path,
                project.location(read.connection, read.path),
                read.schema_ddl,
                read.options,
                read.incremental,
                target,
                node.write.mode,
            )
        )
    for name, item in node.inputs.items():
        upstream = project.graph.resolve(key, item.node)
        table = project.target(upstream)
        spec = SourceSpec(name, str(upstream), FileFormat.DELTA, table, "", table, incremental=item.incremental)
        specs.append(replace(spec, mode=node.write.mode))
    return specs


def rows_are_known_by_keys(write: WriteConfig) -> bool:
    """Whether rows that are read again are told from new ones as they are written."""
    return write.mode is not WriteMode.APPEND or bool(write.keys)


def _memories(node: NodeConfig, target: TableHandle, key: NodeKey, hwm: Any, *, typed: bool) -> Mapping[str, Memory]:
    """What the commit that set ``hwm`` remembers of the sources of stateful increments, if it was set by one."""
    items = {READ_VIEW: node.read.incremental if node.read else None}
    items |= {name: item.incremental for name, item in node.inputs.items()}
    names = [name for name, increment in items.items() if isinstance(increment, StatefulIncrement)]
    facts = _facts_of(target, app_id(key), hwm) if names and hwm is not None else {}
    by_keys = rows_are_known_by_keys(node.write)
    return {name: replace(Memory.of(facts.get(name)), by_keys=by_keys, typed=typed) for name in names}


def _facts_of(target: TableHandle, fence: str, hwm: Any) -> Mapping[str, Any]:
    for stamp in target.stamps():
        # A backfill's commit repeats the HWM, and remembers nothing.
        if stamp.app_id == fence and "hwm" in stamp.facts and "bounds" not in stamp.facts:
            found = stamp.facts["hwm"]
            same = tuple(encode(hwm)) == (found["value"], found["type"])
            return found.get("reads") or {} if same else {}
    return {}


def _hwm_of(hwm: Any, spec: SourceSpec, key: NodeKey) -> Any:
    """The part of a node's HWM that belongs to one source: all of it for ``read``, by name for inputs."""
    if hwm is None or spec.incremental is None or spec.name == READ_VIEW:
        return hwm if spec.incremental is not None else None
    if not isinstance(hwm, dict):
        raise IncrementError(
            f"{key}: its HWM {hwm!r} does not say which input it is of",
            fix=f"set it as {{{spec.name!r}: …}} with odi state set, or run the node with --full-refresh",
            node=str(key),
        )
    return hwm.get(spec.name)


def _incremental(plan: NodePlan, sources: Mapping[str, SourceRead]) -> NodePlan:
    following = [read for read in plan.reads if read.incremental]
    if following and all(read.nothing_new for read in following):
        return replace(plan, nothing_new=True)
    if plan.mode is WriteMode.PARTITION_OVERWRITE and plan.target.exists and any(map(_is_partial, plan.reads)):
        return _pending(plan, sources)
    if not following:
        return plan
    if plan.mode is WriteMode.OVERWRITE:
        # Such a node shows its sources as they are; its increment only decides whether there is anything to do.
        return _read_whole(plan, plan.mode)
    steps = [source.step for source in sources.values() if source.step is not None]
    if plan.mode is WriteMode.PARTITION_OVERWRITE and steps:
        return _widened(plan, sources)
    if any(step.extent in {"table", "partitions"} for step in steps) and plan.target.exists:
        return _read_whole(plan, WriteMode.OVERWRITE)
    if len(following) > 1:
        names = ", ".join(f"`{read.name}`" for read in following)
        raise ConfigError(
            f"{plan.key}: rows of {names} together make its rows, so {plan.mode.value} of an increment would miss "
            "those that meet rows read before",
            fix="make one input incremental, or partition the node and write with partition_overwrite",
            node=str(plan.key),
        )
    return plan


def _read_whole(plan: NodePlan, mode: WriteMode) -> NodePlan:
    return replace(plan, mode=mode, reads=tuple(read_whole(read) for read in plan.reads))


def read_whole(read: ReadPlan) -> ReadPlan:
    """A source read whole; of a files increment, every file that the target will stand for, not just the new ones."""
    if read.every_file is None:
        return read.whole()
    count = len(read.every_file)
    summary = f"whole: {count:,} file{'' if count == 1 else 's'}"
    return replace(read.whole(), files=read.every_file, summary=summary)


def _widened(plan: NodePlan, sources: Mapping[str, SourceRead]) -> NodePlan:
    column = _partition_column(plan)
    affected = affected_partitions(sources, column, str(plan.key))
    if affected is None or not plan.target.exists:
        return _read_whole(plan, WriteMode.OVERWRITE)
    reads = tuple(
        replace(read, changes=None, partitions=affected, nothing_new=False, summary=_widened_text(read, affected))
        if sources[read.name].step is not None
        else read
        for read in plan.reads
    )
    fixed = None if affected.pending else tuple({column: value} for value in affected.values)
    return replace(plan, reads=reads, replace=fixed)


def _is_partial(read: ReadPlan) -> bool:
    """Whether only rows of a window, or of new files, are read: a part of what their partitions hold."""
    return not read.nothing_new and (read.window is not None or read.every_file is not None)


def _pending(plan: NodePlan, sources: Mapping[str, SourceRead]) -> NodePlan:
    """Compute each partition that new rows touch from all of its rows, once it is known which those are."""
    column = _partition_column(plan)
    _require_every_file(plan)
    if any(read.reloads for read in plan.reads) or affected_partitions(sources, column, str(plan.key)) is None:
        # Nothing tells which partitions the former rows of a rewritten file stand in.
        return _read_whole(plan, WriteMode.OVERWRITE)
    wanted = PartitionFilter(column, pending=True)
    text = f"; the whole of each {column} they touch"
    return replace(
        plan,
        reads=tuple(
            replace(read, changes=None, partitions=wanted, summary=read.summary + text)
            if _is_partial(read) or sources[read.name].step is not None
            else read
            for read in plan.reads
        ),
    )


def _require_every_file(plan: NodePlan) -> None:
    for read in plan.reads:
        if read.lost_files:
            count = len(read.lost_files)
            raise IncrementError(
                f"{plan.key}: {count:,} loaded file{'' if count == 1 else 's'} of {read.label} "
                f"{'is' if count == 1 else 'are'} gone ({', '.join(read.lost_files[:3])}), and partitions that "
                "hold their rows cannot be computed anew without them",
                fix="put the files back; or write what is read with `append` or `upsert`, and let a second node write "
                "by partitions; or accept the files that are there: odi run --full-refresh",
                node=str(plan.key),
            )


def _widened_text(read: ReadPlan, affected: PartitionFilter) -> str:
    if affected.pending:
        return f"{read.summary}; the whole of each {affected.column} they touch"
    count = len(affected.values)
    return f"{read.summary}; the whole of {count:,} partition{'' if count == 1 else 's'} of {affected.column}"


def _partition_column(plan: NodePlan) -> str:
    if plan.node.partition is not None:
        return plan.node.partition.column
    return plan.node.write.partition_by[0]


def _bounded(plan: NodePlan, bounds: Bounds) -> NodePlan:
    way = range_way(plan.key, plan.node)
    if way.source is not None:
        reads = tuple(_cursor_range(read, way, bounds) for read in plan.reads)
        return replace(plan, reads=reads, mode=way.mode)
    partition = plan.node.partition
    values = partition_values(partition, bounds) if partition is not None else ()
    wanted = PartitionFilter(way.column, values)
    reads = tuple(_partition_range(read, wanted, bounds) for read in map(_loaded(plan), plan.reads))
    replaced = tuple({way.column: value} for value in values) if way.mode is WriteMode.PARTITION_OVERWRITE else None
    return replace(plan, reads=reads, mode=way.mode, replace=replaced, within=wanted)


def _everything(read: ReadPlan) -> ReadPlan:
    return replace(read_whole(read), incremental=False, window=None, stateful=None)


def _cursor_range(read: ReadPlan, way: RangeWay, bounds: Bounds) -> ReadPlan:
    if read.name != way.source or read.window is None:
        return _everything(read)
    window = replace(read.window.whole(), lower=bounds.start, upper=bounds.end, upper_inclusive=False, nulls=False)
    return replace(_everything(read), window=window, summary=f"{bounds}")


def _partition_range(read: ReadPlan, wanted: PartitionFilter, bounds: Bounds) -> ReadPlan:
    if read.handle is None or not read.handle.exists or wanted.column not in read.handle.columns:
        return read
    return replace(read, partitions=wanted, summary=f"{bounds}")


def _loaded(plan: NodePlan) -> Callable[[ReadPlan], ReadPlan]:
    """How much of each source a range is made of: all there is; for a node that appends, what its increments have
    loaded, for they will append the rest."""
    if plan.node.write.mode is not WriteMode.APPEND:
        return _everything
    hwm = hwm_in_target(plan.entry, plan.target, app_id(plan.key), plan.hwm_before)
    specs = {spec.name: spec for spec in source_specs(plan.project, plan.key, plan.target.location)}

    def upto(read: ReadPlan) -> ReadPlan:
        if not read.incremental:
            return _everything(read)
        mark = _hwm_of(hwm, specs[read.name], plan.key)
        if mark is None:
            raise ConfigError(
                f"{plan.key} appends, and nothing of {read.label} was loaded yet: its first run would repeat the range",
                fix=f"run it first (odi run {plan.key.pipeline} --node {plan.key.node}); a range can be run again then",
                node=str(plan.key),
            )
        if read.every_file is not None:
            return replace(_everything(read), files=_loaded_files(plan, specs[read.name], mark))
        if read.window is not None:
            return replace(_everything(read), window=replace(read.window.whole(), upper=mark))
        return replace(_everything(read), handle=_at_version(read, mark))

    return upto


def _loaded_files(plan: NodePlan, spec: SourceSpec, mark: Any) -> tuple[SourceFile, ...]:
    read = plan_source(spec, mark).plan
    if read.lost_files:
        raise ConfigError(
            f"{plan.key}: {len(read.lost_files):,} of the files that were loaded from {read.label} are gone, among "
            f"them {read.lost_files[0]}; a range made of the others would lose their rows",
            fix="put the files back; what is loaded can be corrected by a full refresh from what is left",
            node=str(plan.key),
        )
    return tuple(file for file in read.every_file or () if file not in (read.files or ()))


def _at_version(read: ReadPlan, mark: Any) -> TableHandle | None:
    version = mark if isinstance(mark, int) else mark.get("version")
    if read.handle is None or version == read.handle.version:
        return read.handle
    return TableHandle.open(read.handle.location, version)


def _with_hwm(plan: NodePlan) -> NodePlan:
    return plan if plan.nothing_new else replace(plan, hwm_after=combined_hwm(plan))


def combined_hwm(plan: NodePlan) -> Any:
    """The node's HWM once all its reads are in the target; UNKNOWN while one of them is."""
    following = [read for read in plan.reads if read.incremental]
    if not following:
        return plan.hwm_before
    if any(read.hwm_after is UNKNOWN for read in following):
        return UNKNOWN
    if following[0].name == READ_VIEW and len(following) == 1:
        return following[0].hwm_after
    return {read.name: read.hwm_after for read in following if read.hwm_after is not None}
