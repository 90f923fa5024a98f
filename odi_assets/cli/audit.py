"""``odi audit``: a node's table against its sources, by ranges."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from odi_assets.cli.run.command import quiet_libraries
from odi_assets.cli.run.progress import SparkColumn
from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.options import JsonOption, NodeArgument, Settings
from odi_assets.cli.terminal.output import (
    Column,
    console,
    data,
    data_json,
    data_table,
    note,
    short_value,
    stdout_kept_for_data,
)
from odi_assets.nodes.audit.audit import audit as compare
from odi_assets.nodes.audit.found import differences
from odi_assets.spark.session import open_session
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.audit.found import Audit, KeyDifference
    from odi_assets.nodes.project import Project

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
    comparison = _audit(project, key, by)
    if as_json:
        data_json(comparison.to_json())
    else:
        _show(comparison)
    if comparison.differing:
        raise typer.Exit(FAILED)


def _audit(project: Project, key: NodeKey, by: str | None) -> Audit:
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
            return compare(project, handle.spark, project.open_state(), key, by)
        finally:
            handle.stop()


_KEYS = (
    Column("key", lambda difference: ", ".join(f"{name}={value}" for name, value in difference.key.items()), wrap=True),
    Column("row", lambda difference: difference.what),
    Column("source → table", lambda difference: _columns_text(difference), wrap=True),
)


def _columns_text(difference: KeyDifference) -> str:
    return ", ".join(
        f"{name}: {short_value(source)} → {short_value(table)}" for name, (source, table) in difference.columns.items()
    )


def _show(comparison: Audit) -> None:
    columns = (
        Column("range", lambda audit_range: audit_range.name),
        Column("source", lambda audit_range: audit_range.difference.source_rows, "right"),
        Column("table", lambda audit_range: audit_range.difference.table_rows, "right"),
        Column("differs", lambda audit_range: differences(audit_range.difference), wrap=True),
        Column("repair", lambda audit_range: audit_range.command, wrap=True),
    )
    if comparison.differing:
        data_table(columns, comparison.differing)
        note()
    if comparison.keys:
        data("")
        data_table(_KEYS, comparison.keys)
        note()
    note(f"Compared by {comparison.by}: {', '.join(comparison.compared) or 'the number of rows'}.")
    for text in comparison.notes:
        note(f"{text[0].upper()}{text[1:]}.")
    note(_conclusion(comparison))


def _conclusion(comparison: Audit) -> str:
    if comparison.is_by_key:
        difference = comparison.ranges[0].difference
        differing = difference.missing + difference.extra + difference.repeated + difference.changed
        return (
            f"{counted(differing, comparison.by)} of {difference.source_rows + difference.extra:,} differ."
            if differing
            else (f"All of {counted(difference.source_rows, comparison.by)} agree.")
        )
    of = counted(len(comparison.ranges), "range")
    far = " in which groups there are; what was computed of them was not compared" if comparison.groups_only else ""
    return f"{len(comparison.differing):,} of {of} differ." if comparison.differing else f"All of {of} agree{far}."
