"""What a run committed before it was killed, as materializations: conditions of nodes below wait for these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

import dagster as dg

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import PartitionConfig
from odi_assets.delta.changes import changes
from odi_assets.delta.history import CommittedStamp
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.history.repair import CLOCKS_APART
from odi_assets.nodes.node import app_ids
from odi_assets.nodes.project import Project
from odi_assets.orchestration.naming import DagsterNames, partition_of
from odi_assets.orchestration.partitions import PartitionKeys, PartitionSize, add_partitions

REPORTED_TAG = "odi/committed_by"
"""Tag of a materialization that is reported for a run which ended before it could: that run's id."""
_PAGE = 1_000


def report_committed(project: Project, instance: dg.DagsterInstance, run: dg.DagsterRun, key: NodeKey) -> None:
    """Report what a node committed in a run that has ended, where the run did not: of a node with partitions, each
    partition that it wrote. What is reported already stays as it is.

    Raises:
        TableError: the node's table cannot be read.
    """
    record = instance.get_run_record_by_id(run.run_id)
    began = datetime.fromtimestamp(0, UTC) if record is None else record.create_timestamp
    names, partition = DagsterNames.of(project), partition_of(project, key)
    asset = names.asset(key)
    reported = set(_reported(instance, run, asset, began))
    if partition is None and reported:
        return
    target = TableHandle.open(project.target(key))
    stamps = target.stamps() if target.exists else ()
    oldest = began.replace(tzinfo=began.tzinfo or UTC) - CLOCKS_APART
    own = [
        stamp
        for stamp in takewhile(lambda stamp: stamp.committed_at >= oldest, stamps)
        if stamp.app_id in app_ids(key) and CommitFacts.of(stamp).run_id == run.run_id
    ]
    if not own:
        return
    if partition is not None:
        add_partitions(instance, names.partitions(key), partition, target)
    metadata_by_partition: Mapping[str | None, Mapping[str, Any]] = (
        {None: _of_table(target, own)} if partition is None else _of_partitions(target, own, partition)
    )
    for partition_key, metadata in metadata_by_partition.items():
        if partition_key not in reported:
            instance.report_runless_asset_event(
                dg.AssetMaterialization(
                    asset,
                    description=f"committed by run {run.run_id}, which ended before it reported that",
                    metadata=metadata,
                    partition=partition_key,
                    # A later run may have reported its own commit: the table is what it is now.
                    tags={"dagster/data_version": str(target.version), REPORTED_TAG: run.run_id},
                )
            )


def _reported(
    instance: dg.DagsterInstance, run: dg.DagsterRun, asset: dg.AssetKey, began: datetime
) -> Iterator[str | None]:
    """The partitions that are reported of the run, by itself or for it; None for the asset as a whole.

    Who reported them for it may have been killed before the run got its tag.
    """
    since = dg.AssetRecordsFilter(asset, after_timestamp=began.timestamp())
    page = instance.fetch_materializations(since, limit=_PAGE)
    while True:
        for record in page.records:
            event = record.asset_materialization
            if event is not None and run.run_id in (record.run_id, (event.tags or {}).get(REPORTED_TAG)):
                yield event.partition
        if not page.has_more:
            return
        page = instance.fetch_materializations(since, limit=_PAGE, cursor=page.cursor)


def _of_table(target: TableHandle, own: list[CommittedStamp]) -> Mapping[str, Any]:
    rows = sum(CommitFacts.of(stamp).rows_written or 0 for stamp in own)
    return {"rows_written": rows, "delta_version": target.version, "dagster/row_count": target.rows}


def _of_partitions(
    target: TableHandle, own: list[CommittedStamp], partition: PartitionConfig
) -> Mapping[str | None, Mapping[str, Any]]:
    rows = Counter[tuple[str | None, ...]]()
    for stamp in own:
        for commit in changes(target, stamp.version - 1, stamp.version).commits:
            rows.update(commit.rows_by(partition.columns))
    keys_of = PartitionKeys(partition, target.columns)
    written, sizes = keys_of.rows(rows), keys_of.sizes(target)
    return {
        key: {
            "rows_written": written.get(key, 0),
            "delta_version": target.version,
            **sizes.get(key, PartitionSize()).metadata,
        }
        for key in keys_of.of_all(rows)
    }
