"""``odi config``: check the project file, and describe it to editors."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from odi_assets.cli.terminal.exit_codes import BAD_INPUT
from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import data, data_json, note
from odi_assets.util.words import counted


def check(
    settings: Settings,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="The file, instead of -c.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the project file and list all its mistakes, a line each: FILE:LINE:COLUMN: KEY: what is wrong."""
    from odi_assets.config.diagnostics.mistakes import ConfigErrors
    from odi_assets.config.loader import load_project_file

    path = settings.at(file).project_file
    try:
        loaded = load_project_file(path, environment=settings.environment)
        others = [name for name in loaded.config.environments if settings.environment is None]
        for name in others:
            load_project_file(path, environment=name)
    except ConfigErrors as error:
        if not any(problem.line for problem in error.problems):
            raise
        if as_json:
            data_json([asdict(problem) for problem in error.problems])
        else:
            data("\n".join(str(problem) for problem in error.problems))
        note(f"odi: {path} has {counted(len(error.problems), 'mistake')}")
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        data_json([])
    for warning in loaded.warnings:
        note(warning)
    nodes = sum(len(pipeline.nodes) for pipeline in loaded.config.pipelines)
    found = f"{path}: OK, {counted(len(loaded.config.pipelines), 'pipeline')}, {counted(nodes, 'node')}"
    note(f"{found}, {counted(len(others), 'environment')}" if others else found)


def schema() -> None:
    """Print the JSON Schema of project files, for editors."""
    from odi_assets.config.json_schema import schema_text

    data(schema_text().rstrip())
