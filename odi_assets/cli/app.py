"""The commands of ``odi``. Their modules import nothing heavy before they are called."""

from __future__ import annotations

from typing import Annotated

import typer

from odi_assets.cli import config, doctor, plan, sample, system, tables
from odi_assets.cli.options import ConfigOption, DebugOption, common, settings
from odi_assets.cli.output import data
from odi_assets.cli.run import command as run
from odi_assets.cli.runs import list as runs
from odi_assets.cli.runs import show as runs_show
from odi_assets.cli.state import (
    inspect as state,
)
from odi_assets.cli.state import (
    odibi as catalog,
)
from odi_assets.cli.state import (
    revisions as state_mending,
)
from odi_assets.cli.state import (
    rewind,
)
from odi_assets.cli.state import (
    transfer as state_moving,
)

_HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="odi",
    help="Run and look after pipelines of Spark and Delta Lake that never lose a row and never repeat one.",
    no_args_is_help=True,
    add_completion=False,
    context_settings=_HELP,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        data(f"odi_assets {version('odi_assets')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    config: ConfigOption = None,
    debug: DebugOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    settings(context, config, debug)


def _group(name: str, help_text: str) -> typer.Typer:
    group = typer.Typer(help=help_text, no_args_is_help=True, context_settings=_HELP)
    group.callback()(common)
    app.add_typer(group, name=name)
    return group


app.command("run")(run.run)
app.command("plan")(plan.plan)
app.command("doctor")(doctor.doctor)

_state = _group("state", "High-water marks: how far each node has read.")
_state.command("list")(state.list_)
_state.command("get")(state.get)
# A value may be a negative number, which looks like an option.
_state.command("set", context_settings={**_HELP, "ignore_unknown_options": True})(state.set_)
_state.command("history")(state_mending.history)
_state.command("reset")(state_mending.reset)
_state.command("delete")(state_mending.delete)
_state.command("export")(state_moving.export)
_state.command("import")(state_moving.import_)
_state.command("migrate")(state_moving.migrate)
_state.command("rewind")(rewind.rewind)
_state.command("recover")(doctor.recover)
_state.command("accept")(doctor.accept)

_runs = _group("runs", "What ran, and how it ended.")
_runs.command("list")(runs.list_)
_runs.command("show")(runs_show.show)
_runs.command("last")(runs_show.last)

_system = _group("system", "The system tables: high-water marks and run history.")
_system.command("maintain")(system.maintain)

_catalog = _group("catalog", "Commands as Odibi has them.")
_catalog.command("state")(catalog.state)

_tables = _group("tables", "The nodes' Delta tables.")
_tables.command("maintain")(tables.maintain)

_config = _group("config", "The project file.")
_config.command("check")(config.check)
_config.command("schema")(config.schema)

_sample = _group("sample", "The sample's landing zone: flights out of New York in 2013.")
_sample.command("arrive")(sample.arrive)
_sample.command("reset")(sample.reset)
