"""The plan of a bounded run: what of each source its range is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import WriteMode
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.fences import app_id
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.range_support import RangeWay, range_way
from odi_assets.nodes.planning.read_scope import read_whole
from odi_assets.nodes.planning.sources import hwm_of, source_specs
from odi_assets.nodes.planning.starting_hwm import hwm_in_target
from odi_assets.nodes.planning.time_range import Bounds, partition_values
from odi_assets.sources.files.listing import SourceFile
from odi_assets.sources.model import PartitionFilter, ReadPlan
from odi_assets.sources.reads import SourceSpec, plan_source

_TIMES = ("date", "timestamp", "timestamp_ntz")


def bounded(plan: NodePlan, bounds: Bounds) -> NodePlan:
    way = range_way(plan.key, plan.node)
    if way.source is not None:
        for read in plan.reads:
            if read.name == way.source and read.handle is not None and read.handle.exists:
                require_time_cursor(plan.key, read, read.handle.columns)
        reads = tuple(_cursor_range(read, way, bounds) for read in plan.reads)
        return replace(plan, reads=reads, mode=way.mode)
    partition = plan.node.partition
    values = partition_values(partition, bounds) if partition is not None else ()
    wanted = PartitionFilter(way.column, values)
    reads = tuple(_partition_range(read, wanted, bounds) for read in map(_loaded(plan), plan.reads))
    replaced = tuple({way.column: value} for value in values) if way.mode is WriteMode.PARTITION_OVERWRITE else None
    return replace(plan, reads=reads, mode=way.mode, replace=replaced, within=wanted)


def require_time_cursor(key: NodeKey, read: ReadPlan, columns: Mapping[str, Any]) -> None:
    """Raises ConfigError unless the cursor of ``read`` is a date or a time: a range is one of those.

    Args:
        columns: the types of the source's columns, as Delta and Spark write them in JSON.
    """
    window = read.window
    if window is None or window.date_format is not None:
        return
    for name in filter(None, (window.column, window.fallback)):
        kind = columns.get(name)
        if kind is None or kind in _TIMES:
            continue
        shown = kind if isinstance(kind, str) else kind["type"]
        text = "say how with `incremental.date_format`, if it holds dates as text; or " if kind == "string" else ""
        raise ConfigError(
            f"{key} takes ranges of its cursor `{name}`, which is {shown} in {read.label}, "
            "and a range is one of dates or times",
            fix=f"{text}add `partition: {{column: …, start: …}}` to the node; or load all of it with --full-refresh",
            node=str(key),
            column=name,
        )


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
        mark = hwm_of(hwm, specs[read.name], plan.key)
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
