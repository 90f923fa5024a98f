"""Checks, before its query starts, whether a stream node whose definition changed can go on from its checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odi_assets.checkpoints import check_against
from odi_assets.checkpoints.compare import CheckpointDifference, DifferenceEffect
from odi_assets.connections.location import Location
from odi_assets.errors import CheckpointError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.result import RunInfo
from odi_assets.streams.planning.marks import settings_of
from odi_assets.streams.planning.plan import StreamPlan
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.streams.query.run import query_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

_GOES_ON = (DifferenceEffect.FROM_NOW_ON, DifferenceEffect.MISREAD)
_AGAIN = "Batches between were computed otherwise: their rows are in the state"


Changed = Mapping[str, tuple[str, str]]
"""By what differs: as the checkpoint notes it, and as the query of a batch had it."""


def require_fits_checkpoint(plan: StreamPlan, rows: DataFrame, run: RunInfo) -> Changed:
    """Compare the query with its checkpoint and its last batch, if the node's definition changed since that batch. Logs
    what the checkpoint overrides, and which changes affect new rows only.

    Returns:
        What of the query is not as the checkpoint notes it. Spark notes what the first batch was computed with.

    Raises:
        CheckpointError: the query would fail in its first batch, or misread its state.
    """
    stamp, settings, last = plan.marks.stamp, settings_of(plan.node), plan.marks.last
    before: Changed = {} if last is None or plan.request.full_refresh else last.changed
    if stamp is None or CommitFacts.of(stamp).code_version == run.code_version:
        return before
    with ProgressLog(plan.checkpoint).readable() as checkpoint:
        if checkpoint is None:
            return {}
        conf, store = query_conf(settings), _store(plan.checkpoint, rows)
        differences = check_against(checkpoint, rows, conf, output_mode=settings.output_mode, store=store)
    for difference in differences:
        is_misread = difference.effect is DifferenceEffect.MISREAD and before.get(difference.what) != (
            difference.stored,
            difference.wanted,
        )
        if difference.effect is DifferenceEffect.FAILS or is_misread:
            why = ", and Spark would take the one for the other" if is_misread else ""
            raise CheckpointError(
                f"{plan.node}: its definition changed, and it cannot go on from its checkpoint: {difference.what}: "
                f"{difference.stored} in the checkpoint, {difference.wanted} now{why}",
                fix=f"put the definition back, or start over: odi run {plan.node.command} --full-refresh",
                path=plan.checkpoint.uri,
                node=str(plan.node),
            )
    for difference in _since_last_batch(differences, before):
        _log.warning("%s: its definition changed: %s", plan.node, difference)
    return {entry.what: (entry.stored, entry.wanted) for entry in differences if entry.effect in _GOES_ON}


def _since_last_batch(differences: Iterable[CheckpointDifference], before: Changed) -> Iterator[CheckpointDifference]:
    """What changed since the last batch, of what is not as in the first one, or is so again."""
    now = {}
    for difference in differences:
        now[difference.what] = difference.wanted
        last = before.get(difference.what, (difference.stored, difference.stored))[1]
        if difference.effect not in _GOES_ON:
            yield difference
        elif last != difference.wanted:
            yield replace(
                difference, stored=last, since="in the last batch" if difference.what in before else difference.since
            )
    for what, (first, last) in before.items():
        if what not in now and first != last:
            yield CheckpointDifference(DifferenceEffect.FROM_NOW_ON, what, last, first, _AGAIN, "in the last batch")


def _store(checkpoint: Location, rows: DataFrame) -> tuple[str, Mapping[str, Any]] | None:
    """Where the query is planned, if that is not on this machine: a server of Spark Connect does not see its files."""
    is_here = checkpoint.is_local or hasattr(rows, "_jdf")
    return None if is_here else (checkpoint.uri, checkpoint.fsspec_options)
