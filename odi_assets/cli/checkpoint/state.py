"""``odi checkpoint read``, ``changes`` and ``timers``: the state of a query, through Spark."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from odi_assets.cli.checkpoint.options import (
    BatchOption,
    LimitOption,
    OperatorOption,
    PathArgument,
    SideOption,
    StoreOption,
    VariableOption,
    WhereOption,
)
from odi_assets.cli.checkpoint.place import collect_rows, find_place, open_reader, show_rows
from odi_assets.cli.terminal.options import JsonOption, Settings


def read(
    settings: Settings,
    path: PathArgument,
    store: StoreOption = None,
    side: SideOption = None,
    batch: BatchOption = None,
    operator: OperatorOption = 0,
    variable: VariableOption = None,
    whole: Annotated[bool, typer.Option("--whole", help="A list or map variable in one row per key.")] = False,
    snapshot_batch: Annotated[
        int | None,
        typer.Option("--snapshot-batch", metavar="N", min=0, help="Rebuild from the snapshot after this batch."),
    ] = None,
    snapshot_partition: Annotated[
        int | None, typer.Option("--snapshot-partition", metavar="N", min=0, help="… of this one partition.")
    ] = None,
    where: WhereOption = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
) -> None:
    """Print the state of an operator after a batch."""
    _print(
        settings,
        path,
        lambda reader: reader.read(
            store,
            side=side,
            batch=batch,
            operator=operator,
            variable=variable,
            flatten=False if whole else None,
            snapshot_batch=snapshot_batch,
            snapshot_partition=snapshot_partition,
        ),
        where,
        limit,
        as_json,
    )


def changes(
    settings: Settings,
    path: PathArgument,
    first: Annotated[
        int | None, typer.Option("--from", metavar="N", min=0, help="First batch; the oldest kept unless given.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", metavar="N", min=0, help="Last batch; the newest unless given.")
    ] = None,
    store: StoreOption = None,
    side: SideOption = None,
    operator: OperatorOption = 0,
    variable: VariableOption = None,
    where: WhereOption = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
) -> None:
    """Print what each batch put into the state of an operator, and removed from it."""
    _print(
        settings,
        path,
        lambda reader: reader.changes(
            first, last, store=store, side=side, operator=operator, variable=variable
        ).orderBy("batch_id"),
        where,
        limit,
        as_json,
    )


def timers(
    settings: Settings,
    path: PathArgument,
    batch: BatchOption = None,
    operator: OperatorOption = 0,
    where: WhereOption = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
) -> None:
    """Print the timers that transformWithState has registered."""
    _print(settings, path, lambda reader: reader.timers(batch, operator), where, limit, as_json)


def _print(settings: Settings, path: str, ask: Any, where: str | None, limit: int, as_json: bool) -> None:
    with open_reader(find_place(settings, path)) as reader:
        frame = ask(reader)
        columns = frame.columns
        rows = collect_rows(reader, frame, where, limit)
    show_rows(rows, columns, limit, as_json, "There is no such row.")
