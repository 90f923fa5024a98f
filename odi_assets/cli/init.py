"""``odi init``: a project to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from odi_assets.cli.terminal.output import data, note
from odi_assets.errors import ConfigError
from odi_assets.sample.examples import NEXT, Example, create

_EXAMPLES = ("files", "sql", "stream")


def init(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where; this folder unless given.")] = Path(),
    example: Annotated[
        str,
        typer.Option(
            "--example",
            metavar="|".join(_EXAMPLES),
            help="files: orders as CSV, loaded and summed up. sql: orders of a database, each once. stream: orders "
            "joined to payments as both arrive.",
        ),
    ] = "files",
) -> None:
    """Make a small project that runs: a project file, and files that have landed. Overwrites nothing."""
    chosen = _chosen(example)
    written = create(folder, chosen)
    for path in written:
        data(str(path))
    note("\nWhat to type next:")
    if folder.resolve() != Path.cwd():
        note(f"  cd {folder}")
    width = max(len(step.command) for step in NEXT[chosen])
    for step in NEXT[chosen]:
        note(f"  {step.command:<{width}}  {step.what}")


def _chosen(text: str) -> Example:
    if text not in _EXAMPLES:
        raise ConfigError(f"there is no example `{text}`", fix=f"there are: {', '.join(_EXAMPLES)}")
    return Example(text)
