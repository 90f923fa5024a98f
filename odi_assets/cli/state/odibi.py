"""``odi catalog``: what Odibi's documents tell its users to type, answered by ``odi``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from odi_assets.cli.options import Settings
from odi_assets.cli.output import Column, data_json, data_table, note
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
    """List high-water marks as `odibi catalog state` does; `odi state list` tells more."""
    from odi_assets.state.values import to_json

    entries = settings.at(file).project().open_state().list_hwms()
    found = [entry for entry in entries if pipeline is None or pipeline in entry.key]
    rows = [
        {"key": entry.key, "value": to_json(entry.value)[0], "updated_at": entry.updated_at.isoformat()}
        for entry in found
    ]
    if format_ == "json":
        data_json(rows)
    elif rows:
        data_table(_COLUMNS, rows)
    note(f"{counted(len(rows), 'high-water mark')}")


def _text(value: Any) -> str:
    from odi_assets.state.values import dump

    return value if isinstance(value, str) else dump(value)
