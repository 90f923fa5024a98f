"""``odi checkpoint metadata`` and ``files``: what a checkpoint's files tell without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.checkpoints import inspect, judge, read_schemas
from odi_assets.checkpoints.schemas import type_names
from odi_assets.cli.checkpoint.options import PathArgument
from odi_assets.cli.checkpoint.place import find_place
from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import Column, data_json, data_table, moment, note
from odi_assets.state.delta.batches import stateful_operators
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.checkpoints import Checkpoint, CheckpointVerdict, StoreVersions

_PARTS = (
    Column("operator", lambda row: f"{row['operator']} {row['name'] or '?'}"),
    Column("store", lambda row: row["store"]),
    Column("partitions", lambda row: row["partitions"], "right"),
    Column("key", lambda row: _columns(row["key"]), wrap=True),
    Column("value", lambda row: _columns(row["value"]), wrap=True),
    Column("variable", lambda row: row["kind"], optional=True),
)
_STORES = (
    Column("operator", lambda store: str(store.operator_id), "right"),
    Column("store", lambda store: store.store),
    Column("partition", lambda store: str(store.partition), "right"),
    Column("versions", lambda store: spans(store.rebuildable)),
    Column("snapshots", lambda store: spans(store.snapshots)),
    Column("lost", lambda store: spans(store.lost), optional=True),
    Column("bytes", lambda store: sum(store.bytes.values()), "right", spare=True),
)
_FAULTS = (
    Column("file", lambda fault: fault.path),
    Column("what is wrong", lambda fault: fault.fault, wrap=True),
    Column("remedy", lambda fault: fault.remedy, wrap=True),
)


def metadata(settings: Settings, path: PathArgument, as_json: JsonOption = False) -> None:
    """Show a query's id, batches, watermark, stateful operators, stores and settings. Needs no Spark."""
    place = find_place(settings, path)
    with place.on_this_machine(logs_only=True) as here:
        checkpoint = inspect(here.path)
        parts = list(_store_rows(checkpoint))
    if as_json:
        data_json({**_facts(checkpoint), "path": place.path, "state": parts})
        return
    if parts:
        data_table(_PARTS, parts)
    for line in _summary_lines(checkpoint):
        note(line)


def _store_rows(checkpoint: Checkpoint) -> Iterator[dict[str, Any]]:
    for operator in checkpoint.operators:
        schemas = read_schemas(operator)
        kinds = {variable.name: variable.kind for variable in operator.variables}
        names = [name for name in schemas if not name.startswith("$")] or operator.store_names
        for name in names:
            schema = schemas.get(name)
            yield {
                "operator": operator.operator_id,
                "name": operator.name,
                "store": name,
                "kind": kinds.get(name),
                "partitions": operator.stores[0].partitions,
                "key": schema and schema.key,
                "value": schema and schema.value,
            }


def files(
    settings: Settings,
    path: PathArgument,
    all_partitions: Annotated[bool, typer.Option("--all", help="Show sound partitions too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Read every file of a checkpoint and tell whether its query would restart, which batches can be read, and what is
    missing or torn. Needs no Spark.

    Exits with 1 if something is.
    """
    place = find_place(settings, path)
    with place.on_this_machine() as here:
        verdict = judge(here.path, stateful_operators(place.records()))
    if place.node is not None:
        verdict = verdict.of_node(str(place.node))
    file_report = verdict.files
    if as_json:
        data_json(_files_json(verdict) | {"path": place.path})
    else:
        shown = [store for store in file_report.stores if all_partitions or (verdict.faults and store.lost)]
        if shown:
            data_table(_STORES, shown)
        if verdict.faults:
            data_table(_FAULTS, verdict.faults)
    note(f"{counted(file_report.files, 'file')}, {file_report.bytes:,} bytes.")
    _tell_batches(verdict)
    if file_report.cleaned:
        note(f"Spark has cleaned the state after {spans(file_report.cleaned)} away.")
    broken = [batch for batch in file_report.lost if batch not in file_report.cleaned]
    if broken:
        note(
            f"It cannot after {spans(broken)}: {file_report.lost[broken[0]].path} {file_report.lost[broken[0]].fault}."
        )
    if verdict.faults:
        note("odi: some files are missing or damaged")
        note("  → the query can go on" if verdict.restarts else f"  → the query cannot go on: {verdict.why}")
        raise typer.Exit(FAILED)


def _tell_batches(verdict: CheckpointVerdict) -> None:
    if not verdict.files.stores and verdict.restarts:
        note("The query keeps no state, or has not run yet.")
        return
    readable, feeds = (spans(batches) for batches in (verdict.readable, verdict.feeds))
    note(
        f"The state after these batches can be rebuilt: {readable}."
        if readable
        else "The state after no batch can be rebuilt."
    )
    note(f"The changes of these batches can be read: {feeds}." if feeds else "The changes of no batch can be read.")


def spans(numbers: Any) -> str:
    """``0–3, 7``."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in ranges)


def _facts(checkpoint: Checkpoint) -> dict[str, Any]:
    last = checkpoint.last_committed
    return {
        "query": checkpoint.query_id,
        "batches": [batch.batch_id for batch in checkpoint.batches if batch.committed],
        "in_flight": checkpoint.in_flight.batch_id if checkpoint.in_flight else None,
        "committed_at": last.committed_at.isoformat() if last and last.committed_at else None,
        "watermark": checkpoint.watermark.isoformat() if checkpoint.watermark else None,
        "provider": checkpoint.state_store_provider,
        "settings": dict(checkpoint.batches[-1].conf) if checkpoint.batches else {},
    }


def _summary_lines(checkpoint: Checkpoint) -> list[str]:
    committed = [batch.batch_id for batch in checkpoint.batches if batch.committed]
    lines = [f"Query {checkpoint.query_id}."]
    lines.append(f"Batches {spans(committed)} are retained." if committed else "No batch is committed yet.")
    if checkpoint.in_flight:
        lines.append(f"Batch {checkpoint.in_flight.batch_id} runs, or a restart will run it.")
    if checkpoint.watermark:
        lines.append(f"The next batch has the watermark {moment(checkpoint.watermark)} UTC.")
    if checkpoint.state_store_provider and checkpoint.operators:
        provider = checkpoint.state_store_provider.rpartition(".")[2]
        lines.append(f"{provider}, {counted(checkpoint.shuffle_partitions or 0, 'partition')}: fixed by the first run.")
    return lines


def _columns(schema: Any) -> str | None:
    return ", ".join(f"{name} {kind}" for name, kind in type_names(schema)) if schema else None


def _files_json(verdict: CheckpointVerdict) -> dict[str, Any]:
    file_report = verdict.files
    return {
        "restarts": verdict.restarts,
        "why": verdict.why or None,
        "files": file_report.files,
        "bytes": file_report.bytes,
        "snapshot_lag": file_report.snapshot_lag,
        "readable": list(verdict.readable),
        "feeds": list(verdict.feeds),
        "lost": {batch: vars(fault) for batch, fault in file_report.lost.items()},
        "cleaned": list(file_report.cleaned),
        "faults": [vars(fault) for fault in verdict.faults],
        "stores": [_store_json(store) for store in file_report.stores],
    }


def _store_json(store: StoreVersions) -> dict[str, Any]:
    return {
        "operator": store.operator_id,
        "store": store.store,
        "partition": store.partition,
        "rebuildable": list(store.rebuildable),
        "lost": {version: vars(fault) for version, fault in store.lost.items()},
        "snapshots": list(store.snapshots),
        "changes": {version: {"put": puts, "removed": gone} for version, (puts, gone) in store.changes.items()},
        "bytes": dict(store.bytes),
    }
