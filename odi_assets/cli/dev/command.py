"""``odi dev``: Dagster's UI and daemon over the project of this folder."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from odi_assets.cli.dev.server import MODULE, READY
from odi_assets.cli.terminal.options import Settings
from odi_assets.cli.terminal.output import note
from odi_assets.errors import ConfigError, OdiError
from odi_assets.nodes.project import ENVIRONMENT_VARIABLE, PROJECT_VARIABLE
from odi_assets.spark.jvm.java import find_java
from odi_assets.spark.shared_server import SERVER_VARIABLE, new_address
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
    connect: Annotated[
        bool,
        typer.Option(
            "--connect",
            help="Start a Spark Connect server that all runs share, and replace it when it dies. Runs with a stream "
            "node, or with a function that uses the JVM (sparkContext, RDDs), start a JVM of their own as before.",
        ),
    ] = False,
) -> None:
    """Start Dagster's UI and daemon for the project, until Ctrl-C. Needs the extra `ui`."""
    from odi_assets.orchestration.runs.daemons import take_home
    from odi_assets.orchestration.runs.instance import HOME_VARIABLE, lasting_home

    if not has_ui():
        raise OdiError(
            "Dagster's UI needs the package dagster-webserver, and it is not installed", fix=install_command("ui")
        )
    project = settings.project()
    if connect:
        _require_no_other_server(project)
    if not project.config.spark.remote:
        find_java()
    home = lasting_home(project.root)
    take_home(home)
    if port:
        _require_free(host, port)
    note(f"{HOME_VARIABLE} is {home}: runs and their logs are kept there, `odi run`'s too. Ctrl-C ends all.")
    arguments = ["-m", _MODULE, "--host", host, *(["--port", str(port)] if port else [])]
    environment = {**_named(project), HOME_VARIABLE: str(home)}
    os.chdir(project.root)
    _become_dagster(arguments, {**environment, **(_server(environment) if connect else {})})


def _require_no_other_server(project: Project) -> None:
    if project.config.spark.remote:
        raise ConfigError(
            f"{project.path}: all runs share the server that `spark.remote` names, so --connect has nothing to start",
            fix="leave out --connect; or take `spark.remote` out of the project file",
        )


def _require_free(host: str, port: int) -> None:
    """Raises OdiError if another process listens there: Dagster would go on without its UI."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OdiError(
                f"the UI cannot listen on {host}:{port}: {error.strerror or error}",
                fix="give another --port, or none: then a free one is taken",
            ) from error


def _named(project: Project) -> dict[str, str]:
    """What leads the processes below to the project and its environment."""
    named = {PROJECT_VARIABLE: str(project.root.resolve() / project.path.name), ENVIRONMENT_VARIABLE: project.chosen}
    return {name: value for name, value in named.items() if value}


def _server(environment: dict[str, str]) -> dict[str, str]:
    """Start the server, wait until it answers, and say where it is.

    It ends when the pipe to it closes, which Dagster's process, this one, holds, and none that it starts.
    """
    variables = {SERVER_VARIABLE: new_address()}
    note("The Spark Connect server is started; all runs share it.")
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE],
        env={**os.environ, **environment, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout as said:
        if said.readline() != READY:
            # It has said why.
            raise typer.Exit(process.wait())
    os.set_inheritable(process.stdin.fileno(), True)
    return variables


def _become_dagster(arguments: list[str], environment: dict[str, str]) -> NoReturn:
    """Let this process be ``dagster dev``, so that signals go to it alone."""
    sys.stdout.flush()
    sys.stderr.flush()
    # Dagster advises its other command, which wants a project of its own kind.
    quiet = "ignore:Function `dev_command` is superseded"
    command = [sys.executable, "-W", quiet, "-m", "dagster", "dev", *arguments]
    os.execve(sys.executable, command, {**os.environ, **environment})
