"""The last steps of a materialization, which need no Spark: advance the HWM in state, and the result of a node that had
nothing to do."""

from __future__ import annotations

import logging

from odi_assets.errors import SourceError, StateConflictError
from odi_assets.nodes.commit_facts import HwmOrigin
from odi_assets.nodes.execution.outcomes import committed_by_earlier_attempt, nothing_new, succeeded_before
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.request import ACCEPT_LOSS_TAG
from odi_assets.nodes.result import NodeResult, RunInfo
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import HwmEntry
from odi_assets.util.phases import phase

_log = logging.getLogger(__name__)


@phase("commit")
def advance(
    plan: NodePlan,
    state: StateBackend,
    hwm: NodeMark | None,
    version: int | None,
    run_id: str,
    origin: HwmOrigin | None,
) -> None:
    """Write the HWM of commit ``version`` into state. State is an index of it: the commit is what counts."""
    if hwm is None:
        return
    of_commit = None if origin is None else origin.of_version(plan.target.location, version)

    def write(seen: HwmEntry | None) -> None:
        state.compare_and_set(
            plan.node.state_key,
            hwm.value,
            expected_revision=seen.revision if seen else None,
            expected_value=seen.value if seen else None,
            target_commit=version,
            run_id=run_id,
            origin=of_commit.to_json() if of_commit else None,
        )

    try:
        try:
            write(plan.start.current)
        except StateConflictError:
            # Who accepts a table as it is changes nothing for a run that is under way.
            now = state.get_entry(plan.node.state_key)
            accepted = HwmOrigin.from_json(now.origin) if now else None
            if accepted is None or not accepted.accepted:
                raise
            write(now)
    except StateConflictError:
        _log.warning(
            "%s: its HWM was changed by somebody else while it ran; their value stays, and the commit of version %s "
            "carries %s",
            plan.node.key,
            version,
            hwm,
        )


def end_hwm(plan: NodePlan, state: StateBackend) -> None:
    """Take the HWM out of state: the commit carries none."""
    seen = plan.start.current
    try:
        state.delete_hwm(plan.node.state_key, expected_revision=seen.revision if seen else None)
    except StateConflictError:
        text = "%s: its HWM was changed by somebody else while it ran; their value stays, and the commit carries none"
        _log.warning(text, plan.node.key)


def _require_rows(plan: NodePlan) -> None:
    if not plan.request.full_refresh or not plan.target.exists:
        return
    if plan.start.hwm is not None or plan.target.rows != 0:
        sources = ", ".join(read.snapshot.label for read in plan.reads)
        fix = (
            "see that the rows are there, and that the cursor has values at or above `initial_value`, if it is set; "
            "then run the full refresh again"
        )
        if all(read.snapshot.is_emptied for read in plan.reads):
            fix += (
                f"; or, if it was emptied on purpose, empty the table, too: odi run {plan.node.command} --full-refresh "
                f"--yes, in Dagster the run tag {ACCEPT_LOSS_TAG}: true"
            )
        raise SourceError(
            f"{plan.node}: a full refresh finds no row in {sources}, so it replaces nothing: the table stays as it is",
            fix=fix,
            node=str(plan.node),
        )


def no_data(plan: NodePlan, state: StateBackend, run: RunInfo) -> NodeResult:
    """The result of a node with nothing new: no commit. Repairs state if the target's log was ahead of it.

    Changes that brought no row (files that were renamed or got a new time, commits upstream that changed no row) move
    the HWM in state alone. So the next plan need not look at them again; it may not be able to, once logs are cleaned.
    If that HWM is lost, the target's log has a lower one, and the same changes are found above it.

    Raises:
        SourceError: a full refresh finds no row. The table that is there keeps its rows, and the HWM its value.
    """
    _require_rows(plan)
    hwm, entry = plan.start.hwm, plan.start.entry
    for warning in filter(None, (read.warning for read in plan.reads)):
        _log.warning(warning)
    if plan.start.repaired and plan.moves_hwm:
        advance(plan, state, hwm, plan.start.log_version, run.run_id, plan.start.origin)
    elif (
        entry is not None and plan.target.exists and plan.moves_hwm and any(read.is_to_be_noted for read in plan.reads)
    ):
        for read in plan.reads:
            read.before_commit()
            if read.keep is not None:
                read.keep()
        hwm = plan.marked()
        advance(plan, state, hwm, entry.target_commit, run.run_id, plan.origin(plan.target.table_id))
    result = nothing_new(plan, run, hwm)
    earlier = committed_by_earlier_attempt(plan, run)
    return result if earlier is None else succeeded_before(plan, result, earlier)
