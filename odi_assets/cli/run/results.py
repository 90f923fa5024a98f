"""The results of a run as a table, and the commands that a user may want next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odi_assets.cli.terminal.exit_codes import readable
from odi_assets.cli.terminal.output import Column, data_table, hwm_change, node_name, note
from odi_assets.nodes.execution.checks.outcomes import failed_lines
from odi_assets.nodes.mark import mark_text
from odi_assets.nodes.result import QUARANTINED, is_left_out, rows_left
from odi_assets.util.extras import has_ui
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.result import NodeResult

_COLUMNS = (
    Column("status", lambda node_result: node_result.status.value),
    Column("read", lambda node_result: node_result.rows_read, "right"),
    Column("written", lambda node_result: node_result.rows_written, "right"),
    Column(
        "HWM before → after",
        lambda node_result: hwm_change(*map(mark_text, (node_result.hwm_before, node_result.hwm_after))),
        wrap=True,
    ),
    Column("version", lambda node_result: node_result.table_version, "right"),
    Column("seconds", lambda node_result: f"{node_result.seconds:.1f}", "right"),
)


def show_results(results: Sequence[NodeResult]) -> None:
    """Print the table of a run on stdout."""
    name = node_name(result.key for result in results)
    data_table([Column("node", lambda node_result: name(node_result.key)), *_COLUMNS], results)


def show_rows_left(results: Sequence[NodeResult]) -> None:
    """Print, on stderr, which rows of its sources each node did not take in, and why."""
    for result in results:
        for text in rows_left(result.metrics):
            note(f"{result.key}: {text}.")


def show_checks(results: Sequence[NodeResult]) -> None:
    """Print, on stderr, a line for each check that failed; the error of a node says which of them stopped it."""
    for result in results:
        for text in failed_lines(result.metrics, stopping=result.error is None):
            note(f"{result.key}: {text}")
        if rows := result.metrics.get(QUARANTINED):
            note(f"{result.key}: {counted(rows, 'row')} went to the quarantine.")


def show_left_out(results: Sequence[NodeResult]) -> None:
    """Print, on stderr, why a resumed run left nodes out; once for each reason."""
    reasons: dict[str, list[str]] = {}
    for result in results:
        if is_left_out(result):
            reasons.setdefault(result.error or "", []).append(result.key.node)
    for reason, nodes in reasons.items():
        note(f"Skipped {', '.join(nodes)}: {reason}")


def show_failures(results: Sequence[NodeResult]) -> None:
    """Print the error of each node that failed, once, on stderr; if none did, why the rest was skipped."""
    failed = [result for result in results if result.status.value == "FAILURE"]
    for result in failed:
        note(f"odi: {result.key} failed: {readable(result.error or 'no reason was given')}")
    if not failed:
        skipped = [result for result in results if result.status.value == "SKIPPED" and not is_left_out(result)]
        for reason in dict.fromkeys(result.error for result in skipped):
            note(f"odi: the run failed: {readable(reason or 'no reason was given')}")


def show_next(project: Project, results: Sequence[NodeResult]) -> None:
    """Print on stderr where the tables are and what may be typed next, in this folder."""
    odi = "odi"
    project_file = Path(os.environ.get("ODI_PROJECT") or "odibi.yaml")
    if not (project_file.exists() and project_file.samefile(project.path)):
        odi = f"odi -c {shlex.quote(os.path.relpath(project.path))}"
    commands = {
        f"{odi} plan": "what the next run would read",
        f"{odi} runs list": "what ran, and how it ended",
        f"{odi} state list": "how far each node has read",
    }
    if has_ui():
        commands[f"{odi} dev"] = "the same in Dagster's UI"
    if (project.root / "data" / "landing" / "flights").is_dir():
        commands |= _sample_command(project.root, odi)
    uris = sorted({result.uri for result in results})
    location = ", ".join(uris)
    if all(map(os.path.isabs, uris)):
        common = Path(os.path.commonpath(uris))
        location = os.path.relpath(common) if common.is_relative_to(Path.cwd()) else str(common)
    note(f"The tables are in {location}")
    note("Next:")
    width = max(map(len, commands))
    for command, purpose in commands.items():
        note(f"  {command:<{width}}  {purpose}")


def _sample_command(root: Path, odi: str) -> dict[str, str]:
    from odi_assets.sample.landing import can_arrive

    if can_arrive(root):
        return {f"{odi} sample arrive --days 1": "land the next day of flights, for the next run"}
    return {f"{odi} sample reset --days 15": "start again with half of January; the rest can arrive then"}
