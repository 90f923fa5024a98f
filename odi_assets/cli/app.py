"""The commands of ``odi``, by their names. A command's module is imported when it runs or shows its help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from odi_assets.cli.terminal.options import ConfigOption, DebugOption, EnvOption, read_settings, with_settings
from odi_assets.cli.terminal.output import data

_HELP = {"help_option_names": ["-h", "--help"]}
_HELP_TEXT = "Run and look after pipelines of Spark and Delta Lake that never lose a row and never repeat one."
_GROUPS: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "": (
        _HELP_TEXT,
        {
            "init": (
                "init:init",
                "Make a small project that runs, or the project for a database. Overwrites nothing.",
            ),
            "run": ("run.command:run", "Run nodes: read what is new, write it, and remember how far that was."),
            "plan": ("plan:plan", "Show what a run would read and write. Nothing is run."),
            "metrics": (
                "metrics:metrics",
                "Print figures of all nodes for Prometheus: lag, rows, failures, state of streams. Nothing is run.",
            ),
            "ls": (
                "project.nodes:ls",
                "List the nodes, in the order they run: what they read, how they are written, and where their "
                "tables are.",
            ),
            "graph": ("project.nodes:graph", "Print which nodes need which: as text, for Mermaid, or for Graphviz."),
            "lineage": (
                "project.lineage:lineage",
                "Print what a column is made of, up to what sources deliver, or what is made of it.",
            ),
            "show": (
                "project.show:show",
                "Print rows of a node's table. Which ones comes as it may: a table has no order.",
            ),
            "explain": (
                "explain.command:explain",
                "Follow a key from its source through each node to a table: where it is, or where and why it was lost.",
            ),
            "audit": (
                "audit:audit",
                "Compare a node's table with its sources, by ranges. Exit code 1 if some differ, each with its repair.",
            ),
            "checks": (
                "checks:checks",
                "Evaluate the checks of a node over its table as it is. Exit code 1 if one of severity `error` fails.",
            ),
            "dev": (
                "dev.command:dev",
                "Start Dagster's UI and daemon for the project, until Ctrl-C. Needs the extra `ui`.",
            ),
            "doctor": (
                "doctor:doctor",
                "Report where tables, state and run history disagree, each with its remedy. Exit code 1 if they do.",
            ),
        },
    ),
    "state": (
        "High-water marks: how far each node has read.",
        {
            "list": ("state.inspect:list_", "List the high-water mark of each key."),
            "get": (
                "state.inspect:get",
                "Print a high-water mark as JSON; `odi state set` reads back what this prints, with its type.",
            ),
            "set": ("state.inspect:set_", "Set a high-water mark, back or forward; the next run reads on from there."),
            "history": (
                "state.revisions:history",
                "List the revisions of a high-water mark, newest first: what it was, since when, and which run "
                "wrote it.",
            ),
            "reset": (
                "state.revisions:reset",
                "Set a high-water mark back to an earlier revision, to a value, or to nothing.",
            ),
            "delete": (
                "state.revisions:delete",
                "Delete a high-water mark: its node loads everything at its next run. Its history stays.",
            ),
            "export": (
                "state.transfer:export",
                "Write all high-water marks, with their types, as one JSON document that `odi state import` reads.",
            ),
            "import": (
                "state.transfer:import_",
                "Take over the high-water marks (and runs) of a document of `odi state export`, all or none.",
            ),
            "migrate": (
                "state.transfer:migrate",
                "Copy state from one store to another: all environments, revisions and runs; doing it twice "
                "changes nothing.",
            ),
            "rewind": (
                "state.rewind:rewind",
                "Put a node's table and its HWM back together, in one commit, as a new version.",
            ),
            "recover": (
                "doctor:recover",
                "Bring state and run history up to what the tables' logs say, as each node's next run would.",
            ),
            "accept": (
                "doctor:accept",
                "Go on above the HWM with a table that was dropped, restored or emptied: what it lost is not "
                "loaded again.",
            ),
            "adopt": (
                "state.adopt:adopt",
                "Go on with a table whose node, project or source was renamed or is followed in another way: its "
                "rows are the same.",
            ),
        },
    ),
    "runs": (
        "What ran, and how it ended.",
        {
            "list": ("runs.list:list_", "List what ran, newest first."),
            "stats": (
                "runs.stats:stats",
                "Success rates and durations of each node. Nodes that a run skipped, cancelled ones and rewinds do "
                "not count.",
            ),
            "show": (
                "runs.show:show",
                "Show one run: each attempt of each node, in the order they ended, with errors and metrics.",
            ),
            "last": ("runs.show:last", "Show the last attempt of each node of a pipeline, whichever run it was of."),
        },
    ),
    "store": (
        "State stores: versioned keys and values, of nodes and of programs.",
        {
            "list": ("store:list_", "List the state stores in a folder and below it."),
            "versions": (
                "store:versions",
                "List the versions of a store: those that can be read and, with the reason, those that cannot.",
            ),
            "get": ("store:get", "Print the value of one key."),
            "scan": (
                "store:scan",
                "Print keys and values in order of the keys, or what versions changed; a removed key has no value.",
            ),
            "check": (
                "store:check",
                "Read all files of a store, and compare them with what was committed. Exits with 1 if something is "
                "damaged.",
            ),
            "rewind": (
                "store:rewind",
                "Withdraw all versions after one; the next commit makes the version after it. This cannot be undone.",
            ),
        },
    ),
    "stream": (
        "Stream nodes: queries that go on from their checkpoints.",
        {
            "run": (
                "stream.run:run",
                "Run a stream node until SIGTERM or Ctrl-C, which end it after the batch that it computes.",
            ),
        },
    ),
    "checkpoint": (
        "Checkpoints of streaming queries: what is in them, what they are good for, how the query is doing.",
        {
            "metadata": (
                "checkpoint.files:metadata",
                "Show a query's id, batches, watermark, stateful operators, stores and settings. Needs no Spark.",
            ),
            "read": ("checkpoint.state:read", "Print the state of an operator after a batch."),
            "changes": (
                "checkpoint.state:changes",
                "Print what each batch put into the state of an operator, and removed from it.",
            ),
            "timers": ("checkpoint.state:timers", "Print the timers that transformWithState has registered."),
            "files": (
                "checkpoint.files:files",
                "Read every file of a checkpoint and tell whether its query would restart, which batches can be read, "
                "and what is missing or torn. Needs no Spark.",
            ),
            "health": (
                "checkpoint.health:health",
                "Tell how a query is doing. With limits in a stream node's `health`, exits with 1 if they are passed.",
            ),
        },
    ),
    "cursors": (
        "Cursor documents: how far OLake, Airbyte, Singer and dlt have read.",
        {
            "check": (
                "cursors.inspect:check",
                "Report everything that is wrong with documents. Exits with 1 if something is, with 2 if one "
                "cannot be read.",
            ),
            "show": ("cursors.inspect:show", "Show how far each stream was read."),
            "diff": ("cursors.inspect:diff", "Compare two documents stream by stream, by what positions mean."),
            "fingerprint": (
                "cursors.inspect:fingerprint",
                "Print a fingerprint of each document: it is the same for equal documents, whatever their order "
                "and spacing.",
            ),
            "convert": (
                "cursors.change:convert",
                "Make the document of another tool of what carries over to it, and tell stream by stream what does "
                "not.",
            ),
            "import": (
                "cursors.transfer:import_",
                "Put the position of every stream of a document into state: typed, with history, a key for each.",
            ),
            "export": (
                "cursors.transfer:export",
                "Write the document that state has: as it was imported, with each stream where its key is now.",
            ),
            "set": (
                "cursors.change:set_",
                "Set the position of one stream in a document. Everything else in it stays, byte for byte.",
            ),
            "reset": (
                "cursors.change:reset",
                "Take streams out of a document: the tool reads them from their start. All others stay, byte for byte.",
            ),
        },
    ),
    "system": (
        "The system tables: high-water marks and run history.",
        {
            "maintain": (
                "system:maintain",
                "Complete run history, drop old runs, compact small files and remove those that nothing refers to.",
            ),
            "share": (
                "system:share",
                "Give `meta_state` and `meta_runs` Odibi's columns, so that Odibi can use them beside this tool.",
            ),
        },
    ),
    "catalog": (
        "Commands as Odibi has them.",
        {
            "state": (
                "state.odibi:state",
                "List high-water marks as `odibi catalog state` does; `odi state list` shows more.",
            ),
            "runs": ("state.odibi:runs", "List runs as `odibi catalog runs` does; `odi runs list` shows more."),
            "nodes": ("state.odibi:nodes", "List the nodes as `odibi catalog nodes` does; `odi ls` is the same."),
            "tables": ("state.odibi:tables", "List the tables of the nodes: version, rows, files and size."),
            "stats": ("state.odibi:stats", "Success rates and durations; `odi runs stats` is the same."),
        },
    ),
    "tables": (
        "The nodes' Delta tables.",
        {
            "maintain": (
                "tables:maintain",
                "Compact small files, write a checkpoint, and delete files that no version needs any more.",
            ),
            "repair": (
                "tables:repair",
                "Set aside what a power cut tore of tables' logs, and put each node's mark back to the last whole "
                "version.",
            ),
        },
    ),
    "config": (
        "The project file.",
        {
            "check": (
                "config:check",
                "Check the project file and list all its mistakes, a line each: FILE:LINE:COLUMN: KEY: what is wrong.",
            ),
            "schema": ("config:schema", "Print the JSON Schema of project files, for editors."),
        },
    ),
    "java": (
        "The Java that Spark runs on, and the archive of classes that it starts from.",
        {
            "show": (
                "java:show",
                "Say which Java runs Spark, and which archive of classes it starts from, or why there is none.",
            ),
            "prepare": ("java:prepare", "Make the archive of classes now. A run without one makes it behind itself."),
        },
    ),
    "sample": (
        "The sample's landing zone: flights out of New York in 2013.",
        {
            "arrive": ("sample:arrive", "Land the next days of 2013."),
            "reset": (
                "sample:reset",
                "Drop the sample's tables and high-water marks, and put its landing zone back to January.",
            ),
        },
    ),
}
"""By name of the group: its help; by name of its commands, where each is (`module:function` of this package), and the
first paragraph of its docstring, which a list of commands shows."""


_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    # The value may be a negative number, which looks like an option.
    "state.inspect:set_": {"ignore_unknown_options": True},
    # As of `dagster dev`, -h is the host.
    "dev.command:dev": {"help_option_names": ["--help"]},
}
_DEFAULTS = {"java": "show"}
"""By group, the command that its name alone runs."""


class _Group(TyperGroup):
    """A group that knows the names of its commands, and loads the one that is asked for."""

    members: ClassVar[Mapping[str, tuple[str, str]]]
    default: ClassVar[str | None] = None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=text) for name, (_, text) in self.members.items()}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """``args``, with the name of the default command before them where they name none."""
        names_none = not args or (args[0].startswith("-") and {"-h", "--help", *self.members}.isdisjoint(args))
        if self.default is not None and names_none:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that ``args`` name, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self.loaded(str(command.name)), rest

    def loaded(self, name: str) -> Any:
        """The command of that name, with its options."""
        function_path, _ = self.members[name]
        if not function_path:
            return group(name)
        module, _, function = function_path.partition(":")
        command: Callable[..., None] = getattr(import_module(f"odi_assets.cli.{module}"), function)
        settings = {**_HELP, **_SETTINGS.get(function_path, {})}
        if "settings" in command.__annotations__:
            command = with_settings(command)
        typer_app = typer.Typer(add_completion=False)
        typer_app.command(name, context_settings=settings)(command)
        return get_command(typer_app)


def group(name: str = "") -> Any:
    """``odi`` itself, or its group of commands of that name."""
    text, commands = _GROUPS[name]
    groups = {} if name else {other: ("", about) for other, (about, _) in _GROUPS.items() if other}

    class Group(_Group):
        members: ClassVar = {**commands, **groups}
        default = _DEFAULTS.get(name)

    made = typer.Typer(
        name=name or "odi",
        cls=Group,
        help=text,
        no_args_is_help=True,
        add_completion=not name,
        context_settings=_HELP,
    )
    made.callback()(read_settings if name else root)
    return get_command(made)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        data(f"odi_assets {version('odi_assets')}")
        raise typer.Exit


def root(
    context: typer.Context,
    config: ConfigOption = None,
    env: EnvOption = None,
    debug: DebugOption = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keep what the options before the name of a command say."""
    del version
    read_settings(context, config, env, debug)
