"""``odi dev``: Dagster's UI and daemon over the project of this folder."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from odi_assets.cli.terminal.options import Settings
from odi_assets.cli.terminal.output import note
from odi_assets.errors import OdiError
from odi_assets.nodes.project import ENVIRONMENT_VARIABLE, PROJECT_VARIABLE
from odi_assets.spark.jvm.java import find_java
from odi_assets.util.extras import has_ui, install_command

if TYPE_CHECKING:
    from odi_assets.nodes.project import Project

_MODULE = "odi_assets.definitions"


def dev(
    settings: Settings,
    host: Annotated[str, typer.Option("--host", "-h", help="The address that the UI listens on.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=1, max=65535, help="The UI's port; 3000, or a free one, if none.")
    ] = None,
) -> None:
    """Start Dagster's UI and daemon for the project, until Ctrl-C. Needs the extra `ui`."""
    from odi_assets.orchestration.runs.instance import HOME_VARIABLE, lasting_home

    if not has_ui():
        raise OdiError(
            "Dagster's UI needs the package dagster-webserver, and it is not installed", fix=install_command("ui")
        )
    project = settings.project()
    if not project.config.spark.remote:
        find_java()
    home = lasting_home(project.root)
    note(f"{HOME_VARIABLE} is {home}: runs and their logs are kept there, `odi run`'s too. Ctrl-C ends all.")
    arguments = ["-m", _MODULE, "--host", host, *(["--port", str(port)] if port else [])]
    _become_dagster(project, arguments, {HOME_VARIABLE: str(home)})


def _become_dagster(project: Project, arguments: list[str], environment: dict[str, str]) -> NoReturn:
    """Let this process be ``dagster dev``, in the folder of the project, so that signals go to it alone."""
    named = {PROJECT_VARIABLE: str(project.root.resolve() / project.path.name), ENVIRONMENT_VARIABLE: project.chosen}
    given = {name: value for name, value in named.items() if value}
    os.chdir(project.root)
    sys.stdout.flush()
    sys.stderr.flush()
    # Dagster advises its other command, which wants a project of its own kind.
    quiet = "ignore:Function `dev_command` is superseded"
    command = [sys.executable, "-W", quiet, "-m", "dagster", "dev", *arguments]
    os.execve(sys.executable, command, {**os.environ, **given, **environment})
