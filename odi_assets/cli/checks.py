"""``odi checks``: the checks of a node over its table as it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from odi_assets.cli.run.command import quiet_libraries
from odi_assets.cli.run.progress import SparkColumn
from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.options import JsonOption, NodeArgument, Settings
from odi_assets.cli.terminal.output import Column, console, data_json, data_table, note, stdout_kept_for_data
from odi_assets.delta.damage import require_no_remains
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.execution.checks.table import check_table, require_checks
from odi_assets.nodes.node import Node
from odi_assets.spark.session import open_session
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.nodes.execution.checks.outcomes import CheckOutcome

_COLUMNS = (
    Column("check", lambda one: one.check.name),
    Column("severity", lambda one: one.check.config.severity),
    Column("passed", lambda one: "yes" if one.passed else "no"),
    Column("rows that fail", lambda one: one.rows_failed, "right"),
    Column("what was found", lambda one: one.text, wrap=True),
)


def checks(settings: Settings, node: NodeArgument, as_json: JsonOption = False) -> None:
    """Evaluate the checks of a node over its table as it is. Exit code 1 if one of severity `error` fails."""
    project = settings.project()
    found = Node.of(project, project.node_named(node))
    require_checks(found)
    table = TableHandle.open(found.target.location)
    if not table.exists:
        require_no_remains(table.location)
        note(f"{found} has no table yet: run it with odi run {found.command}")
        raise typer.Exit(FAILED)
    quiet_libraries()
    outcomes = _evaluated(found, table)
    if as_json:
        data_json([one.to_json() for one in outcomes])
    else:
        data_table(_COLUMNS, outcomes)
        _conclude(outcomes, table)
    if any(one.blocks for one in outcomes):
        raise typer.Exit(FAILED)


def _evaluated(node: Node, table: TableHandle) -> tuple[CheckOutcome, ...]:
    shown_on = console(sys.stderr)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), SparkColumn(), TimeElapsedColumn())
    with (
        stdout_kept_for_data(),
        Progress(*columns, console=shown_on, transient=True, disable=not shown_on.is_terminal) as progress,
    ):
        progress.add_task(f"{node}: looking at its table", total=None)
        handle = open_session(node.project.config.spark)
        try:
            return check_table(node, table, handle.spark)
        finally:
            handle.stop()


def _conclude(outcomes: Sequence[CheckOutcome], table: TableHandle) -> None:
    note()
    failed = [one for one in outcomes if not one.passed]
    for one in failed:
        note(f"{one.line}.")
    rows = f" over {counted(table.rows, 'row')}" if table.rows is not None else ""
    note(f"{len(outcomes) - len(failed):,} of {counted(len(outcomes), 'check')} passed{rows}, version {table.version}.")
