"""``odi audit``: a node's table against its sources, by ranges."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.cli.run.command import quiet_libraries
from odi_assets.cli.run.progress import SparkColumn
from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.options import JsonOption, NodeArgument, Settings
from odi_assets.cli.terminal.output import Column, console, data_json, data_table, note, stdout_kept_for_data
from odi_assets.nodes.recovery.audit import differences
from odi_assets.spark.session import open_session
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.recovery.audit import Audit

ByOption = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="LENGTH",
        help="Length of a range: hour, day or month, or a whole number for number cursors. By default a partition, a "
        "day, or 1000000.",
    ),
]


def audit(
    settings: Settings,
    node: NodeArgument,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare a node's table with its sources, by ranges. Exit code 1 if some differ, each with its repair."""
    project = settings.project()
    key = project.node_named(node)
    quiet_libraries()
    found = _audit(project, key, by)
    if as_json:
        data_json(found.to_json())
    else:
        _show(found)
    if found.differing:
        raise typer.Exit(FAILED)


def _audit(project: Project, key: NodeKey, by: str | None) -> Audit:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shown_on = console(sys.stderr)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), SparkColumn(), TimeElapsedColumn())
    what = f"{key}: reading its sources and its table, each once"
    if not shown_on.is_terminal:
        note(what)
    with (
        stdout_kept_for_data(),
        Progress(*columns, console=shown_on, transient=True, disable=not shown_on.is_terminal) as progress,
    ):
        progress.add_task(what, total=None)
        handle = open_session(project.config.spark)
        try:
            from odi_assets.nodes.recovery.audit import audit as compare

            return compare(project, handle.spark, project.open_state(), key, by)
        finally:
            handle.stop()


def _show(found: Audit) -> None:
    columns = (
        Column("range", lambda one: one.name),
        Column("source", lambda one: one.found.source_rows, "right"),
        Column("table", lambda one: one.found.table_rows, "right"),
        Column("differs", lambda one: differences(one.found), wrap=True),
        Column("repair", lambda one: one.command, wrap=True),
    )
    if found.differing:
        data_table(columns, found.differing)
        note()
    note(f"Compared by {found.by}: {', '.join(found.compared) or 'the number of rows'}.")
    for text in found.notes:
        note(f"{text[0].upper()}{text[1:]}.")
    of = counted(len(found.ranges), "range")
    far = " in which groups there are; what was computed of them was not compared" if found.groups_only else ""
    note(f"{len(found.differing):,} of {of} differ." if found.differing else f"All of {of} agree{far}.")
