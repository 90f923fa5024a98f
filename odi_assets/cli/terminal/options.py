"""Options that every command takes, before or after its name, and the project they lead to."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.terminal.output import note
from odi_assets.errors import ConfigError
from odi_assets.nodes.request import Bounds
from odi_assets.util.debugging import DEBUG_VARIABLE

if TYPE_CHECKING:
    from odi_assets.nodes.project import Project

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="Project file; else $ODI_PROJECT, else odibi.yaml of this folder."
    ),
]
EnvOption = Annotated[
    str | None,
    typer.Option("--env", metavar="NAME", help="One of the file's `environments`; else $ODI_ENV, else the file as is."),
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show stack traces and Spark's own log; so does ODI_DEBUG=1.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, nothing else.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")]
NodeOption = Annotated[
    list[str] | None, typer.Option("--node", "-n", metavar="NAME", help="Only this node; may be given again.")
]
FullRefreshOption = Annotated[
    bool, typer.Option("--full-refresh", help="Read sources from the beginning and replace the tables.")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Leave out the nodes that succeeded in the last run, if nothing changed since.")
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help="Run the range that begins here, a date or a UTC time; needs --to. High-water marks stay where they are.",
    ),
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="Where the range ends; this moment is not in it.")
]
PartitionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--partition",
        metavar="VALUE",
        help="Run this partition of a column of values; may be given again. High-water marks stay where they are.",
    ),
]
DownstreamOption = Annotated[
    bool, typer.Option("--downstream", help="Every node below those as well, in other pipelines too.")
]
EveryOption = Annotated[
    str | None,
    typer.Option(
        "--every",
        metavar="TIME",
        help="As a service, until SIGTERM or Ctrl-C: look as often as this, `10s` or `1m`, and run what has new data.",
    ),
]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="PIPELINE.NODE, or NODE if one pipeline has it.")]
PipelineArgument = Annotated[
    str | None, typer.Argument(metavar="[PIPELINE]", help="All pipelines, in order, unless one is named.")
]


def bounds_of(start: str | None, end: str | None) -> Bounds | None:
    """The range of ``--from`` and ``--to``; None without them.

    Raises:
        ConfigError: one stands alone, is not a time, or they hold nothing.
    """
    if start is None and end is None:
        return None
    if start is None or end is None:
        present, missing = ("--from", "--to") if end is None else ("--to", "--from")
        raise ConfigError(f"{present} stands alone", fix=f"a range needs both: give {missing} too")
    return Bounds.of(start, end)


@dataclass
class Settings:
    """What the options that every command takes said so far; the last word counts."""

    config: Path | None = None
    env: str | None = None

    def at(self, file: Path | None) -> Settings:
        """Return these settings with another project file, if one is given."""
        return Settings(file or self.config, self.env)

    @property
    def environment(self) -> str | None:
        """The environment that was named."""
        from odi_assets.nodes.project import ENVIRONMENT_VARIABLE

        return self.env or os.environ.get(ENVIRONMENT_VARIABLE) or None

    @property
    def project_file(self) -> Path:
        """The project file that was named, or found in the current folder.

        Raises:
            ConfigError: none was named, and the current folder has none.
        """
        from odi_assets.nodes.project import DEFAULT_PROJECT_FILE, PROJECT_VARIABLE

        named = self.config or os.environ.get(PROJECT_VARIABLE)
        if named:
            return Path(named)
        if not Path(DEFAULT_PROJECT_FILE).exists():
            raise ConfigError(
                f"there is no {DEFAULT_PROJECT_FILE} in {Path.cwd()}, and no other folder is looked in",
                fix=f"go to the project's folder, or name the file: -c FILE, or {PROJECT_VARIABLE}",
            )
        return Path(DEFAULT_PROJECT_FILE)

    def project(self) -> Project:
        """The project; its warnings are printed on stderr.

        Raises:
            ConfigErrors: all mistakes of the project file.
        """
        from odi_assets.nodes.project import Project

        project = Project.load(self.project_file, self.env)
        for warning in project.warnings:
            note(warning)
        return project


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with ``--config``, ``--env`` and ``--debug`` after its own options; it gets the settings in
    their place."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    common = inspect.signature(read_settings, eval_str=True).parameters.values()
    context, *added = common
    parameters = [context, *list(own)[1:], *added]

    @wraps(command)
    def run(context: typer.Context, config: Path | None, env: str | None, debug: bool, **options: Any) -> None:
        command(read_settings(context, config, env, debug), **options)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def read_settings(
    context: typer.Context, config: ConfigOption = None, env: EnvOption = None, debug: DebugOption = False
) -> Settings:
    """Return the settings of this invocation, with what these options add."""
    root = context.find_root()
    settings: Settings = root.obj if isinstance(root.obj, Settings) else Settings()
    root.obj = settings
    settings.config = config or settings.config
    settings.env = env or settings.env
    if debug:
        # Spark's session and Dagster's loggers read the environment too.
        os.environ[DEBUG_VARIABLE] = "1"
    return settings
