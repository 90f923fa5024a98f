"""How much of its sources an increment needs: new rows alone, whole partitions, or all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from odi_assets.config.models import WriteMode
from odi_assets.errors import ConfigError, IncrementError
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.widening import affected_partitions
from odi_assets.sources.model import PartitionFilter, ReadPlan
from odi_assets.sources.reads import SourceRead


def incremental(plan: NodePlan, sources: Mapping[str, SourceRead]) -> NodePlan:
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
