"""Who writes an asset's table: the fence of its partitions, and the attempts at one materialization.

Both are app transactions of the commit, so the table itself answers for them, however many commits came between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

import dagster as dg

from odi_assets.delta.commit import Stamp
from odi_assets.delta.history import CommittedStamp, commit_at
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.request import FULL_REFRESH_TAG

if TYPE_CHECKING:
    from odi_assets.orchestration.assets.chosen_partitions import ChosenPartitions

READS = "reads"
"""Key of a commit's facts: the versions of the tables that its rows were made of, by asset."""
_ATTEMPT_OF = "attempt_of"
_PAGE = 100
_CLOCKS = timedelta(minutes=5)
"""How far the clocks of Dagster's storage and of a writer may be apart."""


def noted_reads(asset: str, handle: TableHandle) -> Mapping[str, Mapping[str, Any]]:
    """Up to where an asset without partitions has read others' tables, by its last commit."""
    fence = app_id(asset)
    stamps = handle.stamps() if handle.exists else ()
    stamp = next((candidate for candidate in stamps if candidate.app_id == fence), None)
    return {} if stamp is None else stamp.facts.get(READS) or {}


@dataclass(frozen=True)
class StepAttempt:
    """The step that writes.

    Attributes:
        identity: the same for all attempts at one materialization: retries of the step, and new executions of a run.
            A full refresh is a materialization of its own.
        run_id: of this attempt.
        began: when the first of these attempts began; None if Dagster no longer knows.
        reported: whether an attempt reported to Dagster, after this moment, that the asset is materialized.
        partitions: keys of the asset's partitions, sorted; None for an asset without any.
        reads: by asset, the version of the table that its increment was read up to.
        chosen: what says which rows belong to these partitions.
    """

    identity: str
    run_id: str
    began: datetime | None
    reported: Callable[[datetime], bool]
    partitions: tuple[str, ...] | None = None
    full_refresh: bool = False
    reads: Mapping[str, Mapping[str, Any]] | None = None
    chosen: ChosenPartitions | None = None

    def stamp(self, asset: str, handle: TableHandle) -> Stamp:
        """What this attempt's commit on ``handle`` says of itself."""
        fence = app_id(asset, self.partitions)
        facts = {
            "asset": asset,
            "run_id": self.run_id,
            _ATTEMPT_OF: self.identity,
            READS: dict(self.reads or {}),
        }
        # A commit that others came before is made on a later version. From here on it is looked for.
        earliest = 0 if handle.version is None else handle.version + 1
        own = ((self._app_id(asset), earliest + 1),)
        return Stamp.next_on(handle, fence, facts, transactions=own)

    def earlier(self, asset: str, handle: TableHandle, *, once: bool) -> int | None:
        """The version that an earlier attempt at the same materialization committed; None if this one is to commit.

        Args:
            once: whatever Dagster recorded. Otherwise a run that reported its materialization may write again.
        """
        number = handle.transaction_number(self._app_id(asset))
        stamps = _from(handle, number - 1) if number else self._before_attempts_were_numbered(asset, handle)
        stamp = next((candidate for candidate in stamps if candidate.facts.get(_ATTEMPT_OF) == self.identity), None)
        # What an increment gave, no later attempt is given.
        if once or self.reads:
            return stamp.version if stamp else number - 1 if number else None
        if stamp is None:
            return None
        own = stamp.facts.get("run_id") == self.run_id
        return None if not own and self.reported(stamp.committed_at) else stamp.version

    def _app_id(self, asset: str) -> str:
        return f"odi_assets.attempt:{asset}:{self.identity}"

    def _before_attempts_were_numbered(self, asset: str, handle: TableHandle) -> Iterator[CommittedStamp]:
        """The asset's commits since the first attempt began: a former version of odi_assets may have made one."""
        if not handle.exists or self.began is None:
            return iter(())
        since = self.began - _CLOCKS
        stamps = takewhile(lambda stamp: stamp.committed_at >= since, handle.stamps())
        return (stamp for stamp in stamps if stamp.facts.get("asset") == asset)


def app_id(asset: str, partitions: Sequence[str] | None = None) -> str:
    """The Delta app transaction that fences an asset's writes; runs of different partitions do not meet."""
    return f"odi_assets.asset:{asset}" + (f":{_name_of(partitions)}" if partitions else "")


def _name_of(partitions: Sequence[str]) -> str:
    names = sorted(set(partitions))
    if len(names) == 1:
        return names[0]
    digest = hashlib.blake2b(json.dumps(names).encode(), digest_size=8).hexdigest()
    return f"{names[0]}...{names[-1]}:{digest}"


def _from(handle: TableHandle, version: int) -> Iterator[CommittedStamp]:
    """Our stamps from ``version`` on, oldest first."""
    commits = (commit_at(handle.location, number) for number in count(version))
    return (commit.stamp for commit in takewhile(lambda commit: commit is not None, commits) if commit and commit.stamp)


def attempt_of(
    context: dg.OutputContext, reads: Mapping[str, Mapping[str, Any]], chosen: ChosenPartitions | None
) -> StepAttempt:
    """The attempt that a step is, at the partitions of its asset."""
    partitions = tuple(sorted(map(str, context.asset_partition_keys))) if context.has_asset_partitions else None
    step, run = context.step_context, context.step_context.dagster_run
    root = run.root_run_id or run.run_id
    began = step.instance.get_run_record_by_id(root) or step.instance.get_run_record_by_id(run.run_id)
    full_refresh = run.tags.get(FULL_REFRESH_TAG) == "true"
    ends = [partitions[0], partitions[-1]] if partitions else []
    return StepAttempt(
        "/".join([root, step.step.key, *ends, *(["full refresh"] if full_refresh else [])]),
        run.run_id,
        began.create_timestamp if began else None,
        lambda after: _is_reported(context, root, after),
        partitions,
        full_refresh,
        reads,
        chosen,
    )


def _is_reported(context: dg.OutputContext, root: str, after: datetime) -> bool:
    """Whether another run of those that began with ``root`` materialized the asset after this moment."""
    instance, own = context.step_context.instance, context.step_context.dagster_run.run_id
    for page in _materializations(context, after):
        run_ids = list({record.run_id for record in page} - {own})
        runs = instance.get_runs(dg.RunsFilter(run_ids=run_ids)) if run_ids else []
        if any((run.root_run_id or run.run_id) == root for run in runs):
            return True
    return False


def _materializations(context: dg.OutputContext, after: datetime) -> Iterator[Sequence[dg.EventLogRecord]]:
    """The asset's materializations at the run's partitions, page by page; the first after the moment come first."""
    keys = list(context.asset_partition_keys) if context.has_asset_partitions else None
    wanted = dg.AssetRecordsFilter(context.asset_key, asset_partitions=keys, after_timestamp=after.timestamp())
    cursor, more = None, True
    while more:
        page = context.step_context.instance.fetch_materializations(wanted, _PAGE, cursor, ascending=True)
        yield page.records
        cursor, more = page.cursor, page.has_more
