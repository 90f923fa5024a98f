"""Nodes that capture the log of a database, and nodes that apply one: what they cannot have beside that."""

from __future__ import annotations

from collections.abc import Iterator

from odi_assets.config.checks.view import NodeView, ProjectView
from odi_assets.config.diagnostics.mistakes import Mistake, about
from odi_assets.config.models import ServerConnection, SqlConnection, WriteMode

_ALONE = ("inputs", "stream", "cursor", "transform", "partition")
"""What neither kind of node has; ``inputs`` of a node that applies a log are written out by its model."""
_APPLIED = "changes"


def logs(project: ProjectView) -> Iterator[Mistake]:
    """Find captures and applications of logs that have other parts, another write mode, or no log."""
    for node in project.nodes:
        if node.config.captures:
            yield from _of_capture(project, node)
        elif node.config.apply is not None:
            yield from _of_application(project, node)


def _of_capture(project: ProjectView, node: NodeView) -> Iterator[Mistake]:
    config = node.config
    for name in (*_ALONE, "apply"):
        if getattr(config, name):
            yield Mistake("is nothing for a node that captures a log", at=(*node.path, name), where="key")
    if config.write.mode is not WriteMode.APPEND:
        text = f"`{config.write.mode}` would lose changes: a log is written with `append`"
        yield Mistake(text, at=(*node.path, "write", "mode"))
    if config.write.partition_by != ("table",):
        text = "a change log is partitioned by `table`, so that one table is read without the others"
        yield Mistake(text, at=(*node.path, "write", "partition_by"))
    connection = project.connection(config.read.connection) if config.read is not None else None
    at = (*node.path, "read", "connection")
    if isinstance(connection, SqlConnection) and connection.type not in ("postgres", "mysql"):
        text = "has no log that can be captured: name a connection of postgres, or of mysql"
        yield about(str(connection.type), text, at=at)
    elif isinstance(connection, ServerConnection) and connection.type == "postgres" and connection.log is None:
        text = "does not say how its log is read: add `log: {slot: odi_NAME, create: true}` to the connection"
        yield about(config.read.connection if config.read else "", text, at=at)


def _of_application(project: ProjectView, node: NodeView) -> Iterator[Mistake]:
    config = node.config
    for name in ("read", *_ALONE):
        part = getattr(config, name)
        if part and (name != "inputs" or set(part) != {_APPLIED}):
            text = "is nothing for a node that applies a log: let a node below it do that"
            yield Mistake(text, at=(*node.path, name), where="key")
    if config.apply is None:
        return
    wanted = WriteMode.APPEND if config.apply.history else WriteMode.UPSERT
    if config.write.mode is not wanted:
        text = f"`{config.write.mode}` does not apply a log: leave `mode` out, it is `{wanted}`"
        yield Mistake(text, at=(*node.path, "write", "mode"))
    source = project.find(node, config.apply.changes)
    if source is not None and not source.config.captures:
        text = "captures no log: name a node that reads `format: cdc` or `format: debezium`"
        yield about(config.apply.changes, text, at=(*node.path, "apply", "changes"))
