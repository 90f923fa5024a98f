"""A node's position as the position of an OLake stream, and the reverse: each goes on where the other stopped."""

from __future__ import annotations

from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import ServerConnection
from odi_assets.documents import (
    CursorChunk,
    CursorDocument,
    CursorSnapshot,
    CursorStream,
    SnapshotStatus,
    Tool,
    olake_text,
    parse,
)
from odi_assets.documents.editing import states_of, with_stream
from odi_assets.errors import ConfigError, CursorDocumentError, StateError
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.identity import origin_now
from odi_assets.nodes.planning.start import table_and_start
from odi_assets.nodes.project import Project
from odi_assets.sources.marks import READ, Mark
from odi_assets.sources.source import Source
from odi_assets.sources.sql.marks import SnapshotMark
from odi_assets.sources.sql.source import CursorTableSource
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import NO_TABLE, HwmEntry
from odi_assets.util.exact_json import write
from odi_assets.util.json_scan import read_strict

_SCHEMA = "public"


def stream_of(node: Node) -> str:
    """OLake's name of the stream that a node reads: ``namespace.table``."""
    source, table = _source(node), _source(node).table or ""
    if "." in table:
        return table
    connection = source.dialect.connection
    is_mysql = isinstance(connection, ServerConnection) and connection.type == "mysql"
    return f"{source.dialect.database if is_mysql else _SCHEMA}.{table}"


def take_over(
    project: Project,
    state: StateBackend,
    key: NodeKey,
    document: CursorDocument,
    *,
    stream: str | None = None,
    force: bool = False,
    dry_run: bool = False,
) -> tuple[Mark, HwmEntry | None]:
    """Let a node go on where OLake stopped: with the chunks that are left of a snapshot, or above its cursors.

    OLake wrote the rows that it read to its own destination. All rows in the node's table count as these rows.

    Args:
        stream: the stream's name; by default, the name of the node's table.
        force: also if the node has a position of its own.

    Returns:
        The mark, and the HWM in state before.

    Raises:
        ConfigError: no such node, or it does not follow a table by cursors.
        CursorDocumentError: the document has no such stream, or its state does not fit the node.
        StateError: the node has a position.
        StateConflictError: somebody else changed it at the same time.
        SourceError: the database does not answer.
    """
    node = Node.of(project, key)
    source, name = _source(node), stream or stream_of(node)
    if document.tool != Tool.OLAKE:
        raise CursorDocumentError(
            f"this is a document of {document.tool}, and a node takes over what OLake began",
            fix="convert it first: odi cursors convert FILE --to olake",
        )
    states = states_of(document)
    if name not in states:
        raise CursorDocumentError(
            f"the document has no state of {name}, which {node} reads",
            fix=f"it has {', '.join(sorted(states)) or 'none at all'}: name one with --stream",
        )
    target, start = table_and_start(node, state)
    if start.hwm is not None and not force:
        raise StateError(
            f"{node} has a position of its own, and would lose or repeat rows from another one",
            fix=f"delete it first (odi state delete {node.state_key}), or say --force",
            key=node.state_key,
        )
    taken = source.taken_over(read_strict(states[name]))
    mark = _read(node).wrapped_mark(taken, start.hwm.value if start.hwm else None) or taken
    if not dry_run:
        state.compare_and_set(
            node.state_key,
            mark.value,
            expected_revision=start.current.revision if start.current else None,
            target_commit=NO_TABLE if target.version is None else target.version,
            origin=origin_now(node, target.table_id if target.exists else None).to_json(),
        )
    return mark, start.current


def given_out(
    project: Project, state: StateBackend, keys: list[NodeKey], document: CursorDocument | None
) -> CursorDocument:
    """OLake's document with the positions of nodes; all other streams of ``document`` stay byte for byte.

    Raises:
        ConfigError: a node does not follow a table by cursors.
        CursorDocumentError: OLake would read rows twice or never; or ``document`` is one of another tool.
        StateError: a node has no position yet.
    """
    streams = [_stream(Node.of(project, key), state) for key in keys]
    if document is None:
        return parse(olake_text(streams), tool=Tool.OLAKE)
    for stream in streams:
        document = with_stream(document, stream)
    return document


def _stream(node: Node, state: StateBackend) -> CursorStream:
    source = _source(node)
    if source.table is None:
        raise ConfigError(f"{node} reads a query, and OLake's streams are tables", fix="name a `table`", node=str(node))
    _, start = table_and_start(node, state)
    if start.hwm is None:
        raise StateError(f"{node} has no position yet", fix=f"run it first: odi run {node.command}", key=node.state_key)
    written = source.stream_state(SnapshotMark.of(_read(node).unmarked(start.hwm.value), source.label))
    chunks = frozenset(CursorChunk(write(one["min"]), write(one["max"])) for one in written.pop("chunks"))
    namespace, _, name = stream_of(node).rpartition(".")
    status = SnapshotStatus.PENDING if chunks else SnapshotStatus.FINISHED
    exact: dict[str, Any] = {column: read_strict(write(value)) for column, value in written.items()}
    return CursorStream(f"{namespace}.{name}", namespace, name, "", CursorSnapshot(status, chunks), cursors=exact)


def _read(node: Node) -> Source:
    return next(source for source in node.sources if source.name == READ)


def _source(node: Node) -> CursorTableSource:
    found = next((source.unwaited for source in node.sources if source.name == READ), None)
    if not isinstance(found, CursorTableSource) or node.following != (READ,):
        raise ConfigError(
            f"{node} does not read a table of a database by cursors, as OLake does",
            fix="give its `read` the increment `{mode: cursors, columns: […]}`",
            node=str(node),
        )
    return found
