"""``odi checkpoint health``: state over batches, watermark, late rows, times and files of a query."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.checkpoints import excesses, measure
from odi_assets.checkpoints.health import health_rows
from odi_assets.cli.checkpoint.files import spans
from odi_assets.cli.checkpoint.options import PathArgument
from odi_assets.cli.checkpoint.place import find_place, open_reader
from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import Column, data_json, data_table, moment, note
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.checkpoints import CheckpointReader, Health, StoreHealth

_BATCHES = (
    Column("batch", lambda row: str(row["batch"]), "right"),
    Column("planned (UTC)", lambda row: row["planned_at"] and moment(row["planned_at"]), spare=True),
    Column("seconds", lambda row: _decimal(row["seconds"]), "right", optional=True),
    Column("watermark", lambda row: row["watermark"] and moment(row["watermark"]), optional=True),
    Column("oldest in state", lambda row: _time(row["oldest_event_time"]), optional=True),
    Column("state rows", lambda row: row["state_rows"], "right", optional=True),
    Column("state bytes", lambda row: row["state_bytes"], "right", optional=True, spare=True),
    Column("bytes written", lambda row: row["bytes_written"], "right", optional=True, spare=True),
    Column("rows in", lambda row: row["rows_in"], "right", optional=True),
    Column("late", lambda row: row["rows_dropped"], "right", optional=True),
    Column("removed", lambda row: row["rows_removed"], "right", optional=True),
    Column("commit ms", lambda row: row["commit_ms"], "right", optional=True, spare=True),
    Column("load ms", lambda row: row["load_ms"], "right", optional=True, spare=True),
)


def _heaviest(store: StoreHealth) -> str:
    return ", ".join(f"{key}: {rows:,}" for key, rows in store.heaviest)


_STORES = (
    Column("operator", lambda store: f"{store.operator_id} {store.operator}"),
    Column("store", lambda store: store.name),
    Column("rows", lambda store: store.total, "right", optional=True),
    Column("by partition", lambda store: _ends(store.rows), "right", optional=True),
    Column("skew", lambda store: _decimal(store.skew), "right", optional=True),
    Column("oldest event time", lambda store: _time(store.oldest), optional=True),
    Column("heaviest keys", _heaviest, wrap=True, optional=True),
)


def health(
    settings: Settings,
    path: PathArgument,
    files_only: Annotated[
        bool, typer.Option("--files-only", help="Do not read the state: no Spark, no keys by partition.")
    ] = False,
    batches: Annotated[
        int, typer.Option("--batches", metavar="N", min=1, help="Read the state of this many retained batches.")
    ] = 4,
    as_json: JsonOption = False,
) -> None:
    """Tell how a query is doing. With limits in a stream node's `health`, exits with 1 if they are passed."""
    place = find_place(settings, path)
    with ExitStack() as opened:
        if files_only:
            source: CheckpointReader | str = opened.enter_context(place.on_this_machine()).path
        else:
            source = opened.enter_context(open_reader(place, logs_only=False))
        figures = measure(source, read_state=not files_only, records=place.records(), most_batches=batches)
    limits = place.limits()
    beyond = excesses(figures, limits) if limits else []
    if as_json:
        data_json(health_json(figures) | {"path": place.path, "beyond_limits": [vars(excess) for excess in beyond]})
    else:
        _print(figures)
    for excess in beyond:
        note(f"odi: {excess.message}")
    if beyond:
        raise typer.Exit(FAILED)


def _print(figures: Health) -> None:
    rows = list(health_rows(figures))
    if rows:
        data_table(_BATCHES, rows[-20:])
    if figures.stores:
        data_table(_STORES, figures.stores)
    watermark = (
        f"the watermark is {moment(figures.watermark)} UTC" if figures.watermark else "there is no watermark yet"
    )
    note(f"Query {figures.query_id}: {watermark}; {counted(figures.files, 'file')}, {figures.bytes:,} bytes.")
    if figures.stuck_batches:
        held = f": source {', '.join(figures.stalled_sources)} gave nothing" if figures.stalled_sources else ""
        note(f"The watermark stands still since {figures.stuck_batches} of the batches with rows{held}.")
    if figures.snapshot_lag:
        note(f"A restart replays up to {counted(figures.snapshot_lag, 'version')} since the last snapshot of a store.")
    if figures.lost_batches:
        note(
            f"The state after the batches {spans(figures.lost_batches)} cannot be rebuilt: see `odi checkpoint files`."
        )
    for name, (wanted, stored) in figures.overridden.items():
        note(f"{name} is {stored}, from the checkpoint; this session has {wanted}.")


def health_json(health: Health) -> dict[str, Any]:
    """The figures as JSON."""
    return {
        "path": str(health.path),
        "query": health.query_id,
        "watermark": _iso(health.watermark),
        "oldest_event_time": _iso(health.oldest),
        "stuck_batches": health.stuck_batches,
        "stalled_sources": list(health.stalled_sources),
        "rows_dropped": health.rows_dropped,
        "skew": health.skew,
        "files": health.files,
        "bytes": health.bytes,
        "snapshot_lag": health.snapshot_lag,
        "lost_batches": list(health.lost_batches),
        "overridden": {
            name: {"wanted": wanted, "in_force": in_force} for name, (wanted, in_force) in health.overridden.items()
        },
        "stores": [
            {
                "operator": store.operator_id,
                "name": store.operator,
                "store": store.name,
                "rows": store.total,
                "by_partition": None if store.rows is None else list(store.rows.values()),
                "skew": store.skew,
                "oldest_event_time": _iso(store.oldest),
                "heaviest": [{"key": key, "rows": rows} for key, rows in store.heaviest],
            }
            for store in health.stores
        ],
        "batches": [
            {name: _iso(value) if isinstance(value, datetime) else value for name, value in row.items()}
            | {"rows": dict(batch.rows), "bytes": dict(batch.bytes), "written": dict(batch.written)}
            for row, batch in zip(health_rows(health), health.batches, strict=True)
        ],
    }


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None


def _time(time: datetime | None) -> str | None:
    return moment(time) if time else None


def _decimal(number: float | None) -> str | None:
    return None if number is None else f"{number:.1f}"


def _ends(rows: Any) -> str | None:
    """The fewest and the most rows of a partition."""
    return f"{min(rows.values()):,}–{max(rows.values()):,}" if rows else None
