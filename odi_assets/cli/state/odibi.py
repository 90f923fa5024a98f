"""``odi catalog``: what Odibi's documents tell its users to type, answered by ``odi``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from odi_assets.cli.project.nodes import ls
from odi_assets.cli.runs.filters import NodeFilter, PipelineOption, StatusOption, chosen_runs
from odi_assets.cli.runs.list import record_json, show_table
from odi_assets.cli.runs.stats import stats as of_runs
from odi_assets.cli.terminal.options import Settings
from odi_assets.cli.terminal.output import Column, data_json, data_table, note
from odi_assets.state.values import dump, to_json
from odi_assets.util.words import counted

_COLUMNS = (
    Column("key", lambda row: row["key"]),
    Column("value", lambda row: _text(row["value"]), wrap=True),
    Column("updated_at", lambda row: row["updated_at"]),
)


def state(
    settings: Settings,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="The project file, instead of -c.")] = None,
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", "-p", metavar="NAME", help="Only keys that hold this text.")
    ] = None,
    format_: Annotated[Literal["table", "json"], typer.Option("--format", "-f", help="How to print.")] = "table",
) -> None:
    """List high-water marks as `odibi catalog state` does; `odi state list` shows more."""
    entries = settings.at(file).project().open_state().list_hwms()
    chosen_entries = [entry for entry in entries if pipeline is None or pipeline in entry.key]
    rows = [
        {"key": entry.key, "value": to_json(entry.value)[0], "updated_at": entry.updated_at.isoformat()}
        for entry in chosen_entries
    ]
    if format_ == "json":
        data_json(rows)
    elif rows:
        data_table(_COLUMNS, rows)
    note(f"{counted(len(rows), 'high-water mark')}")


FileArgument = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="The project file, instead of -c.")]
FormatOption = Annotated[Literal["table", "json"], typer.Option("--format", "-f", help="How to print.")]


def runs(
    settings: Settings,
    file: FileArgument = None,
    pipeline: PipelineOption = None,
    node: NodeFilter = None,
    status: StatusOption = None,
    days: Annotated[int | None, typer.Option("--days", "-d", min=1, help="Only the last days.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="At most this many, the newest.")] = 20,
    format_: FormatOption = "table",
) -> None:
    """List runs as `odibi catalog runs` does; `odi runs list` shows more."""
    project = settings.at(file).project()
    records = chosen_runs(project, pipeline, node, status, f"{days}d" if days else None, limit)
    if format_ == "json":
        data_json([record_json(record) for record in records])
    elif records:
        show_table(records, leave_out={"attempt"})
    note(counted(len(records), "run"))


def nodes(settings: Settings, file: FileArgument = None, format_: FormatOption = "table") -> None:
    """List the nodes as `odibi catalog nodes` does; `odi ls` is the same."""
    ls(settings.at(file), None, format_ == "json")


def tables(settings: Settings, file: FileArgument = None, format_: FormatOption = "table") -> None:
    """List the tables of the nodes: version, rows, files and size."""
    from odi_assets.delta.table import TableHandle

    project = settings.at(file).project()
    rows = []
    for key in project.graph.order(None):
        handle = TableHandle.open(project.target(key))
        size = sum(live_file.size for live_file in handle.live_files)
        rows.append(
            {
                "node": str(key),
                "version": handle.version,
                "rows": handle.rows if handle.exists else None,
                "files": len(handle.live_files),
                "bytes": size,
                "uri": handle.location.uri,
            }
        )
    if format_ == "json":
        data_json(rows)
    elif rows:
        data_table(_TABLE_COLUMNS, rows)


def stats(
    settings: Settings,
    file: FileArgument = None,
    pipeline: PipelineOption = None,
    days: Annotated[int | None, typer.Option("--days", "-d", min=1, help="Only the last days.")] = None,
    format_: FormatOption = "table",
) -> None:
    """Success rates and durations; `odi runs stats` is the same."""
    of_runs(settings.at(file), pipeline, None, f"{days}d" if days else None, format_ == "json")


_TABLE_COLUMNS = (
    Column("node", lambda row: row["node"]),
    Column("version", lambda row: "none" if row["version"] is None else row["version"], "right"),
    Column("rows", lambda row: row["rows"], "right"),
    Column("files", lambda row: row["files"], "right"),
    Column("MB", lambda row: f"{row['bytes'] / 1024 / 1024:.1f}", "right"),
    Column("table", lambda row: row["uri"], spare=True),
)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dump(value)
