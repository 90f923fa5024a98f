"""``odi explain``: follows a key through nodes and streams, or looks for it in a checkpoint alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.cli.checkpoint.place import find_place, open_reader
from odi_assets.cli.explain.answers import show
from odi_assets.cli.explain.keys import KeysFromOption, KeysOption, NamedKeys
from odi_assets.cli.run.command import quiet_libraries
from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import note, stdout_kept_for_data
from odi_assets.delta.table import TableHandle
from odi_assets.errors import CheckpointError, ConfigError
from odi_assets.explain.batch import trace, with_places_above
from odi_assets.explain.checkpoint import explain_key, key_names
from odi_assets.explain.log import table_of_log
from odi_assets.explain.stream import StreamExplainer, key_text
from odi_assets.explain.verdicts import KeyExplanation
from odi_assets.nodes.node import Node
from odi_assets.spark.session import open_session
from odi_assets.streams.kind import StreamKind

if TYPE_CHECKING:
    from odi_assets.nodes.project import Project

_COMPARED = 100

_Node = Annotated[str | None, typer.Argument(metavar="[NODE]", help="PIPELINE.NODE, or NODE if one pipeline has it.")]
_Table = Annotated[
    str | None,
    typer.Option("--table", metavar="TABLE", help="Of a node that captures a log: the table, as public.orders."),
]
_State = Annotated[
    bool | None,
    typer.Option(
        "--state/--no-state",
        help="Of a stream: compare the answers with the query's state; by default, for up to 100 keys.",
    ),
]
_Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="PATH",
        help="Ask the checkpoint of a query that joins two streams, and nothing else: a folder, a URI, "
        "CONNECTION:PATH, or a stream node.",
    ),
]
_Operator = Annotated[
    int | None,
    typer.Option("--operator", "-o", metavar="N", min=0, help="Of a checkpoint: which stateful operator, or 0."),
]
_Since = Annotated[
    int | None,
    typer.Option("--since", metavar="N", min=0, help="Of a checkpoint: look at the changes from this batch on."),
]


def explain(
    settings: Settings,
    node: _Node = None,
    key: KeysOption = None,
    keys_from: KeysFromOption = None,
    table: _Table = None,
    state: _State = None,
    checkpoint: _Checkpoint = None,
    operator: _Operator = None,
    since: _Since = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a key from its source through each node to a table: where it is, or where and why it was lost.

    Of a stream node: what became of each of its rows. Of a checkpoint alone: whether it waits on either side of a join.
    """
    quiet_libraries()
    of_node = {"NODE": node, "--table": table, "--state": state}
    others = of_node if checkpoint else {"--operator": operator, "--since": since}
    alien = [name for name, value in others.items() if value is not None]
    if alien:
        goes = "does not go" if checkpoint else "goes only"
        raise ConfigError(f"{alien[0]} {goes} with --checkpoint", fix=f"leave out {alien[0]}")
    keys = NamedKeys(key or (), keys_from)
    if checkpoint is not None:
        place = find_place(settings, checkpoint)
        with open_reader(place) as reader:
            asked = keys.asked(place.project, key_names(reader, operator or 0))
            answers = [explain_key(reader, parts, operator=operator or 0, since_batch=since) for parts in asked.keys]
    elif node is not None:
        project = settings.project()
        answers = _of_node(project, Node.of(project, project.node_named(node)), keys, table, state)
    else:
        raise ConfigError("no node is named", fix="odi explain NODE --key KEY, or --checkpoint PATH in place of NODE")
    show(answers, as_json)


def _of_node(
    project: Project, node: Node, keys: NamedKeys, table: str | None, state: bool | None
) -> list[KeyExplanation]:
    is_stream = isinstance(node.kind, StreamKind)
    if table is not None and not node.captures:
        raise ConfigError(f"{node} captures no log, and --table names a table of one", fix="leave --table out")
    if state is not None and not is_stream:
        raise ConfigError(f"{node} is no stream, and has no state to compare with", fix="leave --state out")
    names, known, of_log = ((), (), None) if is_stream else _columns(project, node, table)
    asked = None if is_stream else keys.asked(project, names, known)
    with stdout_kept_for_data():
        handle = open_session(project.config.spark)
        try:
            if asked is None:
                return _of_stream(StreamExplainer.of(project, node.key, handle.spark), keys, state)
            questions = [(names, asked.keys)] if asked.keys else []
            questions += [((column,), ((value,),)) for column, value in asked.by_column]
            return [
                answer
                for columns, parts in questions
                for answer in trace(
                    project, handle.spark, project.open_state(), node.key, columns, [*map(key_text, parts)], of_log
                )
            ]
        finally:
            handle.stop()


def _of_stream(explainer: StreamExplainer, named: NamedKeys, state: bool | None) -> list[KeyExplanation]:
    asked = named.asked(explainer.node.project, explainer.definition.key_names, explainer.columns)
    keys, answers = [key_text(parts) for parts in asked.keys], list[KeyExplanation]()
    for column, value in asked.by_column:
        of_rows, without_key = explainer.keys_where(column, value)
        keys += of_rows
        answers += without_key
        if not of_rows and not without_key:
            note(f"No row that has landed has {column} = {value}.")
    explanations = list(explainer.explain(keys)) if keys else []
    if state or (state is None and len(explanations) <= _COMPARED):
        try:
            explanations = explainer.confirmed(explanations)
        except CheckpointError as error:
            # The answers need no state: one that cannot be read is an error only if it was asked for.
            if state:
                raise
            note(f"These answers are not compared with the query's state: {error.message}")
    return [*with_places_above(explainer, explanations), *answers]


def _columns(project: Project, node: Node, table: str | None) -> tuple[Sequence[str], Sequence[str], str | None]:
    """The columns of a node's key, all that its table has, and of a node that captures a log the captured table."""
    if node.captures:
        named, names = table_of_log(project, node.key, table)
        return names, names, named
    handle = TableHandle.open(project.target(node.key))
    if not handle.exists:
        raise ConfigError(f"{node} has no table yet", fix=f"odi run {node.command}")
    names = tuple(node.config.write.keys) if node.applies is None else table_of_log(project, node.key, None)[1]
    return names, tuple(handle.columns), None
