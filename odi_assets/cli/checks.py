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
    Column("check", lambda outcome: outcome.check.name),
    Column("severity", lambda outcome: outcome.check.config.severity),
    Column("passed", lambda outcome: "yes" if outcome.passed else "no"),
    Column("rows that fail", lambda outcome: outcome.rows_failed, "right"),
    Column("what was found", lambda outcome: outcome.text, wrap=True),
)


def checks(settings: Settings, node: NodeArgument, as_json: JsonOption = False) -> None:
    """Evaluate the checks of a node over its table as it is. Exit code 1 if one of severity `error` fails."""
    project = settings.project()
    checked_node = Node.of(project, project.node_named(node))
    require_checks(checked_node)
    table = TableHandle.open(checked_node.target.location)
    if not table.exists:
        require_no_remains(table.location)
        note(f"{checked_node} has no table yet: run it with odi run {checked_node.command}")
        raise typer.Exit(FAILED)
    quiet_libraries()
    outcomes = _evaluated(checked_node, table)
    if as_json:
        data_json([outcome.to_json() for outcome in outcomes])
    else:
        data_table(_COLUMNS, outcomes)
        _conclude(outcomes, table)
    if any(outcome.blocks for outcome in outcomes):
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
    failed = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in failed:
        note(f"{outcome.line}.")
    rows = f" over {counted(table.rows, 'row')}" if table.rows is not None else ""
    note(f"{len(outcomes) - len(failed):,} of {counted(len(outcomes), 'check')} passed{rows}, version {table.version}.")
