"""The commands of ``odi``. Their modules import nothing heavy before they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from odi_assets.cli import config, doctor, init, plan, sample, store, system, tables
from odi_assets.cli.checkpoint import explain as explain_key
from odi_assets.cli.checkpoint import files as checkpoint_files
from odi_assets.cli.checkpoint import health as checkpoint_health
from odi_assets.cli.checkpoint import state as checkpoint_state
from odi_assets.cli.cursors import change as change_cursors
from odi_assets.cli.cursors import inspect as inspect_cursors
from odi_assets.cli.cursors import transfer as transfer_cursors
from odi_assets.cli.explain import batch as explain_batch
from odi_assets.cli.explain import stream as explain_stream
from odi_assets.cli.project import nodes, show
from odi_assets.cli.run import command as run
from odi_assets.cli.runs import list as list_runs
from odi_assets.cli.runs import show as show_runs
from odi_assets.cli.runs import stats as run_stats
from odi_assets.cli.state import adopt, inspect, odibi, revisions, rewind, transfer
from odi_assets.cli.stream import run as run_stream
from odi_assets.cli.terminal.options import ConfigOption, DebugOption, EnvOption, read_settings, with_settings
from odi_assets.cli.terminal.output import data

_HELP = {"help_option_names": ["-h", "--help"]}

_HELP_TEXT = "Run and look after pipelines of Spark and Delta Lake that never lose a row and never repeat one."
_GROUPS: dict[str, tuple[str, dict[str, Callable[..., None]]]] = {
    "": (
        _HELP_TEXT,
        {
            "init": init.init,
            "run": run.run,
            "plan": plan.plan,
            "ls": nodes.ls,
            "graph": nodes.graph,
            "show": show.show,
            "explain": explain_batch.explain,
            "doctor": doctor.doctor,
        },
    ),
    "state": (
        "High-water marks: how far each node has read.",
        {
            "list": inspect.list_,
            "get": inspect.get,
            "set": inspect.set_,
            "history": revisions.history,
            "reset": revisions.reset,
            "delete": revisions.delete,
            "export": transfer.export,
            "import": transfer.import_,
            "migrate": transfer.migrate,
            "rewind": rewind.rewind,
            "recover": doctor.recover,
            "accept": doctor.accept,
            "adopt": adopt.adopt,
        },
    ),
    "runs": (
        "What ran, and how it ended.",
        {"list": list_runs.list_, "stats": run_stats.stats, "show": show_runs.show, "last": show_runs.last},
    ),
    "store": (
        "State stores: versioned keys and values, of nodes and of programs.",
        {
            "list": store.list_,
            "versions": store.versions,
            "get": store.get,
            "scan": store.scan,
            "check": store.check,
            "rewind": store.rewind,
        },
    ),
    "stream": (
        "Stream nodes: queries that go on from their checkpoints.",
        {"run": run_stream.run, "explain": explain_stream.explain},
    ),
    "checkpoint": (
        "Checkpoints of streaming queries: what is in them, what they are good for, how the query is doing.",
        {
            "metadata": checkpoint_files.metadata,
            "read": checkpoint_state.read,
            "changes": checkpoint_state.changes,
            "timers": checkpoint_state.timers,
            "files": checkpoint_files.files,
            "health": checkpoint_health.health,
            "explain": explain_key.explain,
        },
    ),
    "cursors": (
        "Cursor documents: how far OLake, Airbyte, Singer and dlt have read.",
        {
            "check": inspect_cursors.check,
            "show": inspect_cursors.show,
            "diff": inspect_cursors.diff,
            "fingerprint": inspect_cursors.fingerprint,
            "convert": change_cursors.convert,
            "import": transfer_cursors.import_,
            "export": transfer_cursors.export,
            "set": change_cursors.set_,
            "reset": change_cursors.reset,
        },
    ),
    "system": (
        "The system tables: high-water marks and run history.",
        {"maintain": system.maintain, "share": system.share},
    ),
    "catalog": (
        "Commands as Odibi has them.",
        {"state": odibi.state, "runs": odibi.runs, "nodes": odibi.nodes, "tables": odibi.tables, "stats": odibi.stats},
    ),
    "tables": ("The nodes' Delta tables.", {"maintain": tables.maintain}),
    "config": ("The project file.", {"check": config.check, "schema": config.schema}),
    "sample": (
        "The sample's landing zone: flights out of New York in 2013.",
        {"arrive": sample.arrive, "reset": sample.reset},
    ),
}

app = typer.Typer(
    name="odi",
    help=_HELP_TEXT,
    no_args_is_help=True,
    add_completion=True,
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
    env: EnvOption = None,
    debug: DebugOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    read_settings(context, config, env, debug)


for _name, (_text, _commands) in _GROUPS.items():
    _group = app
    if _name:
        _group = typer.Typer(help=_text, no_args_is_help=True, context_settings=_HELP)
        _group.callback()(read_settings)
        app.add_typer(_group, name=_name)
    for _member, _command in _commands.items():
        # The value of `odi state set` may be a negative number, which looks like an option.
        _unknown = {"ignore_unknown_options": True} if _command is inspect.set_ else {}
        _takes_settings = "settings" in _command.__annotations__
        _add = _group.command(_member, context_settings=_HELP | _unknown)
        _add(with_settings(_command) if _takes_settings else _command)
