"""``odi explain``: follows a key from landing file to table, and says where it was lost and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.cli.explain import stream
from odi_assets.cli.explain.keys import asked
from odi_assets.cli.explain.options import KeysFromOption, KeysOption
from odi_assets.cli.run.command import quiet_libraries
from odi_assets.cli.terminal.options import JsonOption, NodeArgument, Settings
from odi_assets.cli.terminal.output import Column, data, data_json, data_table, short_id, stdout_kept_for_data
from odi_assets.errors import ConfigError
from odi_assets.spark.session import open_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odi_assets.cli.explain.keys import Asked
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.explain.places import KeyTrace
    from odi_assets.nodes.project import Project

_PLACES = (
    Column("  where", lambda place: f"  {place.name}"),
    Column("finding", lambda place: place.finding),
    Column("rows", lambda place: place.rows, "right"),
    Column("version", lambda place: None if place.version is None else str(place.version), "right"),
    Column("run", lambda place: short_id(place.run_id)),
    Column("files", lambda place: ", ".join(place.files), wrap=True),
)


def explain(
    settings: Settings,
    node: NodeArgument,
    key: KeysOption = None,
    keys_from: KeysFromOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a key from the landing files through each node to a table: where it is, or where and why it was lost."""
    project = settings.project()
    named = project.node_named(node)
    if project.graph.node(named).stream is not None:
        stream.explain(settings, node, key, keys_from, as_json=as_json)
        return
    quiet_libraries()
    names, known = _columns(project, named)
    wanted = asked(project, key or (), keys_from, names, known)
    traces: list[KeyTrace] = []
    with stdout_kept_for_data():
        handle = open_session(project.config.spark)
        try:
            from odi_assets.nodes.explain.batch import trace
            from odi_assets.nodes.explain.stream import key_text

            for columns, keys in _questions(wanted, names):
                texts = [key_text(parts) for parts in keys]
                traces += trace(project, handle.spark, project.open_state(), named, columns, texts)
        finally:
            handle.stop()
    if as_json:
        data_json([one.to_json() for one in traces])
        return
    for number, one in enumerate(traces):
        data(f"{chr(10) if number else ''}{', '.join(one.key)}: {one.finding}\n  {one.sentence}\n")
        data_table(_PLACES, one.places)


def _questions(wanted: Asked, names: Sequence[str]) -> list[tuple[Sequence[str], list[tuple[str, ...]]]]:
    found: list[tuple[Sequence[str], list[tuple[str, ...]]]] = []
    if wanted.keys:
        found.append((names, list(wanted.keys)))
    return found + [([column], [(value,)]) for column, value in wanted.by_column]


def _columns(project: Project, key: NodeKey) -> tuple[Sequence[str], Sequence[str]]:
    """The columns of a node's key, and all that its table has."""
    from odi_assets.delta.table import TableHandle

    config = project.graph.node(key)
    handle = TableHandle.open(project.target(key))
    if not handle.exists:
        raise ConfigError(f"{key} has no table yet", fix=f"odi run {key.pipeline} --node {key.node}")
    return tuple(config.write.keys), tuple(handle.columns)
