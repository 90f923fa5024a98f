"""``odi explain``: follows a key from landing file to table, and says where it was lost and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odi_assets.cli.explain import stream
from odi_assets.cli.explain.keys import asked
from odi_assets.cli.explain.options import KeysFromOption, KeysOption
from odi_assets.cli.run.command import quiet_libraries
from odi_assets.cli.terminal.options import JsonOption, NodeArgument, Settings
from odi_assets.cli.terminal.output import (
    Column,
    data,
    data_json,
    data_table,
    moment,
    short_id,
    short_value,
    stdout_kept_for_data,
)
from odi_assets.errors import ConfigError
from odi_assets.spark.session import open_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odi_assets.cli.explain.keys import Asked
    from odi_assets.config.graph import NodeKey
    from odi_assets.explain.places import KeyTrace, LoggedKeyChange
    from odi_assets.nodes.project import Project

_PLACES = (
    Column("  where", lambda place: f"  {place.name}"),
    Column("finding", lambda place: place.finding),
    Column("rows", lambda place: place.rows, "right"),
    Column("version", lambda place: None if place.version is None else str(place.version), "right"),
    Column("run", lambda place: short_id(place.run_id)),
    Column("files", lambda place: ", ".join(place.files), wrap=True),
)

_CHANGES = (
    Column("  n", lambda one: f"  {one.n}", "right"),
    Column("LSN", lambda one: one.lsn),
    Column("transaction", lambda one: None if one.xid is None else str(one.xid), "right"),
    Column("committed (UTC)", lambda one: one.committed_at and moment(one.committed_at)),
    Column("change", lambda one: one.op),
    Column("key", lambda one: _key_text(one), wrap=True),
    Column("changed", lambda one: _changed_text(one), wrap=True),
    Column("applied by", lambda one: ", ".join(one.applied_by) or "none yet", wrap=True),
)


def explain(
    settings: Settings,
    node: NodeArgument,
    key: KeysOption = None,
    keys_from: KeysFromOption = None,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="TABLE", help="Of a node that captures a log: the table, as public.orders."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a key from its source through each node to a table: where it is, or where and why it was lost."""
    project = settings.project()
    named = project.node_named(node)
    if project.graph.node(named).stream is not None:
        stream.explain(settings, node, key, keys_from, as_json=as_json)
        return
    quiet_libraries()
    names, known, of_log = _columns(project, named, table)
    wanted = asked(project, key or (), keys_from, names, known)
    traces: list[KeyTrace] = []
    with stdout_kept_for_data():
        handle = open_session(project.config.spark)
        try:
            from odi_assets.explain.batch import trace
            from odi_assets.explain.stream import key_text

            for columns, keys in _questions(wanted, names):
                texts = [key_text(parts) for parts in keys]
                traces += trace(project, handle.spark, project.open_state(), named, columns, texts, of_log)
        finally:
            handle.stop()
    if as_json:
        data_json([one.to_json() for one in traces])
        return
    for number, one in enumerate(traces):
        data(f"{chr(10) if number else ''}{', '.join(one.key)}: {one.finding}\n  {one.sentence}\n")
        data_table(_PLACES, one.places)
        if one.changes:
            data("")
            data_table(_CHANGES, one.changes)


def _key_text(change: LoggedKeyChange) -> str:
    after = ", ".join(change.key)
    return after if change.former is None else f"{', '.join(change.former)} → {after}"


def _changed_text(change: LoggedKeyChange) -> str:
    return ", ".join(
        f"{name}: {short_value(before)} → {short_value(after)}" for name, (before, after) in change.changed.items()
    )


def _questions(wanted: Asked, names: Sequence[str]) -> list[tuple[Sequence[str], list[tuple[str, ...]]]]:
    found: list[tuple[Sequence[str], list[tuple[str, ...]]]] = []
    if wanted.keys:
        found.append((names, list(wanted.keys)))
    return found + [([column], [(value,)]) for column, value in wanted.by_column]


def _columns(project: Project, key: NodeKey, table: str | None) -> tuple[Sequence[str], Sequence[str], str | None]:
    """The columns of a node's key, all that its table has, and of a node that captures a log the captured table."""
    from odi_assets.delta.table import TableHandle
    from odi_assets.explain.log import table_of_log
    from odi_assets.nodes.node import Node

    node = Node.of(project, key)
    if table is not None and not node.captures:
        raise ConfigError(f"{key} captures no log, and --table names a table of one", fix="leave --table out")
    handle = TableHandle.open(project.target(key))
    if node.captures:
        named, names = table_of_log(project, key, table)
        return names, names, named
    if not handle.exists:
        raise ConfigError(f"{key} has no table yet", fix=f"odi run {key.pipeline} --node {key.node}")
    names = tuple(node.config.write.keys) if node.applies is None else table_of_log(project, key, None)[1]
    return names, tuple(handle.columns), None
