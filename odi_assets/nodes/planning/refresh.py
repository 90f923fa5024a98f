"""The plan of a full refresh, and what the table holds that it does not bring back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from odi_assets.config.models import WriteMode
from odi_assets.delta.changes import changes
from odi_assets.delta.history import TableCommit
from odi_assets.delta.maintenance.compaction import APP_ID as COMPACTION
from odi_assets.errors import IdentityMismatchError, IncrementError, LossError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import app_id, app_ids
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.planning.start import marks_of
from odi_assets.nodes.request import ACCEPT_LOSS_TAG
from odi_assets.sources.losses import Loss
from odi_assets.sources.marks import Mark
from odi_assets.util.words import counted

_REMOVALS = frozenset({"DELETE", "TRUNCATE", "RESTORE"})
"""Operations that only take rows out, or bring rows of the table back."""


def planned_refresh(plan: NodePlan) -> NodePlan:
    """``plan``, to read the sources from the beginning and replace the table.

    Raises:
        LossError: rows would be lost for good, and the request does not say that they may be.
        SourceError, TableError: a source cannot be planned.
    """
    losses = require_consent(plan, _losses(plan))
    until = plan.request.until
    reads = tuple(source.bounded(until.get(source.name)).plan(None).whole() for source in plan.node.sources)
    write = replace(plan.write, mode=WriteMode.OVERWRITE)
    return replace(plan, request=replace(plan.request, full_refresh=True), write=write, reads=reads, losses=losses)


def require_consent(plan: NodePlan, losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """The losses of a full refresh.

    Raises:
        LossError: rows would be lost for good, and the request does not say that they may be.
    """
    losses = tuple(losses)
    if any(loss.for_good for loss in losses) and not plan.request.accept_loss:
        raise LossError(
            f"{plan.node}: its table holds what a full refresh does not bring back: {'; '.join(map(str, losses))}",
            fix=f"{_way_back(plan)}; or let it go: "
            f"odi run {plan.node.command} --full-refresh --yes, in Dagster the run tag {ACCEPT_LOSS_TAG}: true",
            node=str(plan.node),
            losses=losses,
        )
    return losses


def _way_back(plan: NodePlan) -> str:
    """What brings an increment back in the place of a full refresh."""
    entry = plan.start.entry
    if plan.request.full_refresh or entry is None or not entry.deleted:
        return "put back what is gone"
    return f"bring the high-water mark back: odi state reset {entry.key} --to-revision {entry.revision - 1}"


def _losses(plan: NodePlan) -> Iterator[Loss]:
    node, target = plan.node, plan.target
    if not target.live_files or node.config.write.mode.traits.increment == "table":
        # Nothing is there, or each run replaces all of it anyway.
        return
    last = target.last_stamp(app_id(node.key))
    marks = _marks(plan)
    if last is not None and marks is not None:
        positions = CommitFacts.of(last).positions or {}
        since = _first_versions(plan)
        for source in node.sources:
            yield from source.losses(marks.get(source.name), positions.get(source.name), since.get(source.name))
    yield from losses_of_others(plan)


def losses_of_others(plan: NodePlan) -> Iterator[Loss]:
    """What others wrote into the table."""
    foreign = [change for commit in _commits_of_others(plan) if (change := _change(plan, commit))]
    if foreign:
        yield Loss(f"what others wrote there, in {counted(len(foreign), 'version')}", tuple(foreign))


def _marks(plan: NodePlan) -> dict[str, Mark] | None:
    """The marks up to which the table was loaded: from state, or from the table's log if state has none. None if the
    HWM belongs to other sources than the node has now, which cannot bring the table's rows back anyway."""
    try:
        marks = marks_of(plan.node, plan.start, plan.target)
    except IdentityMismatchError:
        return None
    except IncrementError:
        marks = {}
    stamp = None if marks else plan.target.last_stamp(app_id(plan.node.key), carrying="hwm")
    hwm = CommitFacts.of(stamp).hwm if stamp else None
    if hwm is None:
        return marks
    try:
        return plan.node.marks(hwm.mark, hwm.remembered, hwm.measures)
    except IncrementError:
        # The node was followed by something else then.
        return {}


def _first_versions(plan: NodePlan) -> dict[str, int]:
    """By source, the version of its table from which the target was last computed as a whole, if the log has it."""
    first: Mapping[str, Any] = {}
    for stamp in plan.target.stamps():
        if stamp.app_id == app_id(plan.node.key):
            facts = CommitFacts.of(stamp)
            first = facts.positions or first
            if facts.mode == WriteMode.OVERWRITE:
                break
    return {name: int(position["version"]) for name, position in first.items() if position.get("version") is not None}


def _commits_of_others(plan: NodePlan) -> Iterator[TableCommit]:
    """Commits since the node last replaced the table that neither it nor maintenance made, newest first.

    A commit by a node that the project no longer has counts as the node's own: the node was renamed.
    """
    project, ours = plan.node.project, {*app_ids(plan.node.key), COMPACTION}
    there = {str(key) for key in project.graph.nodes}
    for commit in plan.target.commits():
        stamp = commit.stamp
        if stamp is None or stamp.app_id not in ours:
            facts = CommitFacts.of(stamp) if stamp else None
            if facts is None or facts.node in there or facts.project not in (None, project.config.project):
                yield commit
        elif stamp.app_id == app_id(plan.node.key) and CommitFacts.of(stamp).mode == WriteMode.OVERWRITE:
            return


def _change(plan: NodePlan, commit: TableCommit) -> str | None:
    """What a commit of others wrote, in words; None if it wrote no row of its own."""
    made = changes(plan.target, commit.version - 1, commit.version)
    if commit.operation in _REMOVALS or not made.files:
        return None
    rows = f", {counted(made.rows, 'row')}" if made.rows else ""
    writer = CommitFacts.of(commit.stamp).node if commit.stamp else commit.operation
    return f"{commit.version} ({writer or 'unknown'}{rows})"
