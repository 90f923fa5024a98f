"""``odi init``: a project to begin with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.cli.terminal.output import data, note
from odi_assets.errors import ConfigError
from odi_assets.sample.examples import NEXT, Example, Step, create
from odi_assets.scaffold.project import ProjectRequest, create_for
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.scaffold.project import MadeProject

_EXAMPLES = tuple(Example)
_OF_DATABASES = ("--cdc", "--schema", "--tables", "--append-only")


def init(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where; this folder unless given.")] = Path(),
    example: Annotated[
        str | None,
        typer.Option(
            "--example",
            metavar="|".join(_EXAMPLES),
            help="files: orders as CSV, loaded and summed up; the one unless given. sql: orders of a database, each "
            "once. stream: orders joined to payments as both arrive. cdc: the changes of a PostgreSQL that it makes.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="Make the project for the tables of a database: postgresql://USER@HOST:PORT/DATABASE, mysql:// or "
            "mariadb://. A password in it is used once, and written nowhere.",
        ),
    ] = None,
    cdc: Annotated[
        bool, typer.Option("--cdc", help="With --from: capture the changes of PostgreSQL, MariaDB or MySQL.")
    ] = False,
    schema: Annotated[
        list[str] | None,
        typer.Option("--schema", help="With --from: a schema, and again for another; `public`, or MySQL's database."),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option("--tables", metavar="PATTERN", help="With --from: these tables, as in `customer*`; and again."),
    ] = None,
    append_only: Annotated[
        list[str] | None,
        typer.Option(
            "--append-only", metavar="PATTERN", help="With --from: tables whose rows never change; and again."
        ),
    ] = None,
) -> None:
    """Make a small project that runs, or the project for a database. Overwrites nothing."""
    if source is None:
        options = [name for name, value in zip(_OF_DATABASES, (cdc, schema, tables, append_only), strict=True) if value]
        if options:
            raise ConfigError(f"{', '.join(options)} is for the tables of a database", fix="name it with --from URL")
        chosen = _chosen(example or Example.FILES.value)
        _show(folder, create(folder, chosen), NEXT[chosen])
        return
    if example is not None:
        raise ConfigError("--example and --from are two projects", fix="give one of them")
    if cdc and append_only:
        raise ConfigError("a capture sees all changes: --append-only says nothing there", fix="leave it out")
    request = ProjectRequest(tuple(schema or ()), tuple(tables or ()), tuple(append_only or ()), cdc)
    written, project = create_for(folder, source, request)
    _show(folder, written, _steps_of(project))
    _show_findings(folder, project)


def _show(folder: Path, written: Sequence[Path], steps: Sequence[Step]) -> None:
    for path in written:
        data(str(path))
    note("\nWhat to type next:")
    if folder.resolve() != Path.cwd():
        note(f"  cd {folder}")
    width = max(len(step.command) for step in steps)
    for step in steps:
        note(f"  {step.command:<{width}}  {step.what}")


def _steps_of(project: MadeProject) -> list[Step]:
    unset = project.variable if project.variable not in os.environ else None
    secret = [Step(f"export {unset}=…", f"the password of {project.user}, which is in no file")] if unset else []
    return [
        *secret,
        Step("odi plan", "what a run would read"),
        Step("odi run", f"load {counted(project.tables, 'table')}; again and again, for what is new"),
    ]


def _show_findings(folder: Path, project: MadeProject) -> None:
    file = folder / "odibi.yaml"
    if project.left_out:
        note(f"\nLeft out, as {file} says too:")
        for name, why in project.left_out.items():
            note(f"  {name}: {why}")
    if project.needs:
        note("\nMissing before the first run, and the statements that give it:")
        for need in project.needs:
            note(f"  {need.what}\n    {need.statement}")


def _chosen(text: str) -> Example:
    if text not in _EXAMPLES:
        raise ConfigError(f"there is no example `{text}`", fix=f"there are: {', '.join(_EXAMPLES)}")
    return Example(text)
