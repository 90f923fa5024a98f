"""Whether a stream node whose definition changed can go on from its checkpoint, told before its query starts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odi_assets.connections.location import Location
from odi_assets.errors import CheckpointError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.planning.stream import StreamPlan
from odi_assets.nodes.result import RunInfo
from odi_assets.streaming.query.progress_log import ProgressLog
from odi_assets.streaming.query.run import query_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)


def require_fits_checkpoint(plan: StreamPlan, rows: DataFrame, run: RunInfo) -> None:
    """Compare the query with its checkpoint if the node's definition is not that of its last batch; what the checkpoint
    overrides, and what holds for new rows alone, is logged.

    Raises:
        CheckpointError: the query would fail in its first batch.
    """
    from odi_assets.streaming.checkpoints import Effect, check_against

    stamp, settings = plan.marks.stamp, plan.node.config.stream
    if stamp is None or settings is None or CommitFacts.of(stamp).code_version == run.code_version:
        return
    with _readable(plan) as checkpoint:
        if checkpoint is None:
            return
        conf, store = query_conf(settings), _store(plan.checkpoint, rows)
        found = check_against(checkpoint, rows, conf, output_mode=settings.output_mode, store=store)
    for one in found:
        if one.effect is Effect.FAILS:
            raise CheckpointError(
                f"{plan.node}: its definition changed, and it cannot go on from its checkpoint: {one.what}: "
                f"{one.stored} in the checkpoint, {one.wanted} now",
                fix=f"put the definition back, or begin anew: odi run {plan.node.command} --full-refresh",
                path=plan.checkpoint.uri,
                node=str(plan.node),
            )
        _log.warning("%s: its definition changed: %s", plan.node, one)


def _store(checkpoint: Location, rows: DataFrame) -> tuple[str, Mapping[str, Any]] | None:
    """Where the query is planned, if that is not on this machine: a server of Spark Connect does not see its files."""
    is_here = checkpoint.is_local or hasattr(rows, "_jdf")
    return None if is_here else (checkpoint.uri, checkpoint.fsspec_options)


@contextmanager
def _readable(plan: StreamPlan) -> Iterator[Path | None]:
    """The checkpoint, or a copy of its logs; None if there is nothing to compare with."""
    from odi_assets.streaming.checkpoints import local_copy

    place = plan.checkpoint
    if place.is_local:
        # A full refresh has a checkpoint of its own, which is not there yet.
        path = Path(place.uri)
        yield path if (path / "offsets").is_dir() else None
    elif ProgressLog(place).query() is not None:
        with local_copy(place.uri, place.fsspec_options, logs_only=True) as copy:
            yield copy
    else:
        yield None
