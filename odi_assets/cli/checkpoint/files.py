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
    Column("operator", lambda one: str(one.operator_id), "right"),
    Column("store", lambda one: one.store),
    Column("partition", lambda one: str(one.partition), "right"),
    Column("versions", lambda one: spans(one.rebuildable)),
    Column("snapshots", lambda one: spans(one.snapshots)),
    Column("lost", lambda one: spans(one.lost), optional=True),
    Column("bytes", lambda one: sum(one.bytes.values()), "right", spare=True),
)
_FAULTS = (
    Column("file", lambda one: one.path),
    Column("what is wrong", lambda one: one.fault, wrap=True),
    Column("remedy", lambda one: one.remedy, wrap=True),
)


def metadata(settings: Settings, path: PathArgument, as_json: JsonOption = False) -> None:
    """Show a query's id, batches, watermark, stateful operators, stores and settings. Needs no Spark."""
    place = find_place(settings, path)
    with place.on_this_machine(logs_only=True) as here:
        known = inspect(here.path)
        parts = list(_store_rows(known))
    if as_json:
        data_json({**_facts(known), "path": place.path, "state": parts})
        return
    if parts:
        data_table(_PARTS, parts)
    for line in _summary_lines(known):
        note(line)


def _store_rows(known: Checkpoint) -> Iterator[dict[str, Any]]:
    for operator in known.operators:
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
        verdict = judge(here.path)
    if place.node is not None:
        verdict = verdict.of_node(str(place.node))
    found = verdict.files
    if as_json:
        data_json(_files_json(verdict) | {"path": place.path})
    else:
        shown = [one for one in found.stores if all_partitions or (verdict.faults and one.lost)]
        if shown:
            data_table(_STORES, shown)
        if verdict.faults:
            data_table(_FAULTS, verdict.faults)
    note(f"{counted(found.files, 'file')}, {found.bytes:,} bytes.")
    _tell_batches(verdict)
    if found.cleaned:
        note(f"Spark has cleaned the state after {spans(found.cleaned)} away.")
    broken = [batch for batch in found.lost if batch not in found.cleaned]
    if broken:
        note(f"It cannot after {spans(broken)}: {found.lost[broken[0]].path} {found.lost[broken[0]].fault}.")
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
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in found)


def _facts(known: Checkpoint) -> dict[str, Any]:
    last = known.last_committed
    return {
        "query": known.query_id,
        "batches": [batch.batch_id for batch in known.batches if batch.committed],
        "in_flight": known.in_flight.batch_id if known.in_flight else None,
        "committed_at": last.committed_at.isoformat() if last and last.committed_at else None,
        "watermark": known.watermark.isoformat() if known.watermark else None,
        "provider": known.state_store_provider,
        "settings": dict(known.batches[-1].conf) if known.batches else {},
    }


def _summary_lines(known: Checkpoint) -> list[str]:
    committed = [batch.batch_id for batch in known.batches if batch.committed]
    lines = [f"Query {known.query_id}."]
    lines.append(f"Batches {spans(committed)} are retained." if committed else "No batch is committed yet.")
    if known.in_flight:
        lines.append(f"Batch {known.in_flight.batch_id} runs, or a restart will run it.")
    if known.watermark:
        lines.append(f"The next batch has the watermark {moment(known.watermark)} UTC.")
    if known.state_store_provider and known.operators:
        provider = known.state_store_provider.rpartition(".")[2]
        lines.append(f"{provider}, {counted(known.shuffle_partitions or 0, 'partition')}: fixed by the first run.")
    return lines


def _columns(schema: Any) -> str | None:
    return ", ".join(f"{name} {kind}" for name, kind in type_names(schema)) if schema else None


def _files_json(verdict: CheckpointVerdict) -> dict[str, Any]:
    found = verdict.files
    return {
        "restarts": verdict.restarts,
        "why": verdict.why or None,
        "files": found.files,
        "bytes": found.bytes,
        "snapshot_lag": found.snapshot_lag,
        "readable": list(verdict.readable),
        "feeds": list(verdict.feeds),
        "lost": {batch: vars(fault) for batch, fault in found.lost.items()},
        "cleaned": list(found.cleaned),
        "faults": [vars(fault) for fault in verdict.faults],
        "stores": [_store_json(one) for one in found.stores],
    }


def _store_json(one: StoreVersions) -> dict[str, Any]:
    return {
        "operator": one.operator_id,
        "store": one.store,
        "partition": one.partition,
        "rebuildable": list(one.rebuildable),
        "lost": {version: vars(fault) for version, fault in one.lost.items()},
        "snapshots": list(one.snapshots),
        "changes": {version: {"put": puts, "removed": gone} for version, (puts, gone) in one.changes.items()},
        "bytes": dict(one.bytes),
    }
