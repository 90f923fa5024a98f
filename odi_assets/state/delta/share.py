"""System tables of ours become such as Odibi has them, so that both tools can use them side by side.

If it is killed in between, it can be run again: as long as ``meta_state`` has our columns it alone counts, and the log
of revisions beside it is rewritten. Both tables are replaced on the very version that was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from arro3.core import Table
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from odi_assets.connections.location import Location
from odi_assets.delta.errors import STATE, CommitConflict, store_options
from odi_assets.delta.retry import raced
from odi_assets.delta.table import TableHandle
from odi_assets.state.delta import odibi
from odi_assets.state.delta.hwms import COLUMNS as HWM_COLUMNS
from odi_assets.state.delta.hwms import INDEXED, HwmLog, revisions_by_key
from odi_assets.state.delta.runs import COLUMNS as RUN_COLUMNS
from odi_assets.state.delta.runs import as_odibis_run
from odi_assets.state.delta.system_columns import Columns, by_column
from odi_assets.state.delta.table import SystemTable
from odi_assets.state.records import HwmEntry
from odi_assets.state.values import encode

_RUN_PARTITIONS = ("pipeline_name", "date")
# Delta's defaults, which Odibi leaves as they are, and statistics of Odibi's columns.
_PROPERTIES = {
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 1 weeks",
    "delta.dataSkippingStatsColumns": "",
}


def share(state: Location, runs: Location) -> dict[str, int]:
    """Give ``meta_state`` and ``meta_runs`` Odibi's columns, and ``meta_state`` one row per key; a missing table is
    made. How many rows were rewritten in each: none where a table is Odibi's already.

    Raises:
        CommitConflict: others kept writing at the same time; nothing was changed.
        StateError: a table cannot be read or written.
    """
    return {
        "meta_state": raced(lambda: _share_state(state), lost=_is_conflict),
        "meta_runs": raced(lambda: _share_runs(runs), lost=_is_conflict),
    }


def _is_conflict(error: BaseException) -> bool:
    return isinstance(error, CommitConflict)


def _share_state(location: Location) -> int:
    table = SystemTable(location, HWM_COLUMNS, INDEXED)
    handle = _as_plain_as_odibis(table, odibi.COLUMNS, ())
    if handle is None:
        return 0
    with handle.calls("reading a system table"):
        rows = table.rows(handle, "TRUE")
    by_environment = _revisions(rows)
    _write_revisions(odibi.revisions_beside(location), by_environment)
    newest = [revisions[0] for histories in by_environment.values() for revisions in histories.values()]
    by_key = _one_per_key([entry for entry in newest if not entry.deleted])
    marks = [entry for entry in newest if by_key.get(entry.key, entry) is entry]
    lists = _lists([*by_key.values()]) if by_key else dict.fromkeys(odibi.COLUMNS.kinds, ())
    _replace(
        handle,
        odibi.COLUMNS.to_arrow(lists),
        [Transaction(odibi.mark_of(entry.environment, entry.key), entry.revision) for entry in marks],
    )
    return len(by_key)


def _share_runs(location: Location) -> int:
    table = SystemTable(location, RUN_COLUMNS, ())
    odibis = Columns({name: kind for name, kind in RUN_COLUMNS.kinds.items() if name not in RUN_COLUMNS.ours})
    handle = _as_plain_as_odibis(table, odibis, _RUN_PARTITIONS)
    if handle is None:
        return 0
    with handle.calls("reading a system table"):
        rows = [as_odibis_run(row) for row in table.rows(handle, "TRUE")]
    _replace(handle, odibis.to_arrow(by_column(rows) if rows else dict.fromkeys(odibis.kinds, ())), [])
    return len(rows)


def _as_plain_as_odibis(table: SystemTable, odibis: Columns, partitions: Sequence[str]) -> TableHandle | None:
    """The table, if it is still to get Odibi's columns; its properties are such as Odibi leaves them. A table that is
    not there is made."""
    handle = table.open()
    if handle is None:
        new_handle = TableHandle(table.location, None, STATE)
        with new_handle.calls("making a system table"):
            DeltaTable.create(
                table.uri,
                odibis.schema,
                mode="error",
                partition_by=list(partitions) or None,
                storage_options=store_options(table.location),
            )
        return None
    properties = {**_PROPERTIES, "delta.dataSkippingStatsColumns": ",".join(_indexed(table, odibis))}
    there = handle.table.metadata().configuration
    changed = {name: value for name, value in properties.items() if there.get(name, value) != value}
    if changed:
        with handle.calls("setting properties of a system table"):
            handle.table.alter.set_table_properties(changed)
        handle = table.open()
    return None if handle is None or table.is_odibis(handle) else handle


def _indexed(table: SystemTable, odibis: Columns) -> list[str]:
    return [
        name
        for name in ("key", "run_id", "pipeline_name", "node_name", "environment", "updated_at", "timestamp")
        if name in odibis.kinds and name in table.columns.kinds
    ]


def _revisions(rows: Sequence[Mapping[str, Any]]) -> dict[str | None, dict[str, list[HwmEntry]]]:
    def environment(row: Mapping[str, Any]) -> str:
        return row["environment"] or ""

    groups = groupby(sorted(rows, key=environment), environment)
    return {name or None: revisions_by_key(list(group)) for name, group in groups}


def _write_revisions(location: Location, by_environment: Mapping[str | None, Mapping[str, Sequence[HwmEntry]]]) -> None:
    handle = HwmLog(location, None).open_for_writing()
    entries = [
        entry for histories in by_environment.values() for revisions in histories.values() for entry in revisions
    ]
    prefixes = {name: HwmLog(location, name).fence_prefix for name in by_environment}
    newest = [revisions[0] for histories in by_environment.values() for revisions in histories.values()]
    lists = _lists(entries) if entries else dict.fromkeys(HWM_COLUMNS.kinds, ())
    fences = [Transaction(prefixes[entry.environment] + entry.key, entry.revision) for entry in newest]
    with handle.calls("writing revisions"):
        write_deltalake(
            handle.table,
            HWM_COLUMNS.to_arrow(lists),
            mode="overwrite",
            commit_properties=CommitProperties(app_transactions=fences or None, max_commit_retries=0),
        )


def _lists(entries: Sequence[HwmEntry]) -> dict[str, Sequence[Any]]:
    columns = dict(zip(HwmEntry._fields, zip(*entries, strict=True), strict=True))
    texts = [None if entry.deleted else encode(entry.value).json for entry in entries]
    return {**columns, "value": texts, "written_at": columns["updated_at"]}


def _one_per_key(entries: Sequence[HwmEntry]) -> dict[str, HwmEntry]:
    """The entry of each key that was written last: Odibi has no room for one entry per environment."""
    by_key: dict[str, HwmEntry] = {}
    for entry in sorted(entries, key=lambda entry: entry.updated_at):
        by_key[entry.key] = entry
    return by_key


def _replace(handle: TableHandle, rows: Table, marks: Sequence[Transaction]) -> None:
    with handle.calls("giving a system table Odibi's columns"):
        write_deltalake(
            handle.table,
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=list(handle.partition_columns) or None,
            commit_properties=CommitProperties(app_transactions=list(marks) or None, max_commit_retries=0),
        )
