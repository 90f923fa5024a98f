"""``odi config``: check the project file, and describe it to editors."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.cli.terminal.exit_codes import BAD_INPUT
from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import data, data_json, note
from odi_assets.config.compared_columns import column_of_order
from odi_assets.config.diagnostics.mistakes import ConfigErrors
from odi_assets.config.json_schema import schema_text
from odi_assets.config.known_columns import READ
from odi_assets.config.loader import load_project_file
from odi_assets.config.models.reads import SOURCES
from odi_assets.config.table_engines import TABLE_ENGINES
from odi_assets.errors import ConfigError
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.config.models.project import ProjectConfig


def check(
    settings: Settings,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="The file, instead of -c.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the project file and list all its mistakes, a line each: FILE:LINE:COLUMN: KEY: what is wrong."""
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
    _require_typed_order(path, loaded.config)
    for point in (SOURCES, TABLE_ENGINES):
        point.require_unique()
    if as_json:
        data_json([])
    for warning in loaded.warnings:
        note(warning)
    nodes = sum(len(pipeline.nodes) for pipeline in loaded.config.pipelines)
    summary = f"{path}: OK, {counted(len(loaded.config.pipelines), 'pipeline')}, {counted(nodes, 'node')}"
    note(f"{summary}, {counted(len(others), 'environment')}" if others else summary)


def _require_typed_order(path: Path, project: ProjectConfig) -> None:
    """Raises ConfigError for rows that are ordered by a text whose type nobody declared: runs refuse it."""
    for pipeline in project.pipelines:
        for node in pipeline.nodes:
            ordered_by = column_of_order(node, path.parent)
            untyped = {".".join(at[1:-1]) or READ for at, read in node.reads.items() if read.is_untyped}
            if ordered_by is not None and ordered_by.view in {view.casefold() for view in untyped}:
                raise ConfigError(
                    f"{path}: {pipeline.pipeline}.{node.name}: `only_if_newer: {node.write.only_if_newer}` orders rows "
                    f"by `{ordered_by.column}`, which has no type: all columns of a CSV without `schema` are text, in "
                    "which `10` comes before `9`",
                    fix="name the columns in `read.schema`, with STRING for what is compared as text",
                    node=node.name,
                )
            if node.read is not None and node.read.untyped_cursor is not None:
                raise ConfigError(
                    f"{path}: {pipeline.pipeline}.{node.name}: the cursor `{node.read.untyped_cursor}` has no type: "
                    "all columns of a CSV without `schema` are text, in which `10` comes before `9`",
                    fix="name the columns in `read.schema`; or set `incremental.date_format` for dates; or say that it "
                    "is compared as text: `incremental.type: text`",
                    node=node.name,
                )


def schema() -> None:
    """Print the JSON Schema of project files, for editors."""
    data(schema_text().rstrip())
