"""A node's position as the position of an OLake stream, and the reverse: each goes on where the other stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
from odi_assets.sources.marks import READ, Mark, hwm_text
from odi_assets.sources.source import Source
from odi_assets.sources.sql.marks import SnapshotMark
from odi_assets.sources.sql.source import CursorTableSource
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import NO_TABLE, HwmEntry
from odi_assets.util.exact_json import write
from odi_assets.util.json_scan import read_strict
from odi_assets.util.words import counted

_SCHEMA = "public"


def stream_of(node: Node) -> str:
    """OLake's name of the stream that a node reads: ``namespace.table``."""
    source, table = _source(node), _source(node).table or ""
    if "." in table:
        return table
    connection = source.dialect.connection
    is_mysql = isinstance(connection, ServerConnection) and connection.type == "mysql"
    return f"{source.dialect.database if is_mysql else _SCHEMA}.{table}"


@dataclass(frozen=True)
class Takeover:
    """A node that is to go on where OLake stopped.

    Attributes:
        mark: its mark from then on.
        before: its HWM in state; None if it has none.
        again: in words, what is read again that the node has read already.
        never: in words, what is never read; or what cannot be compared.
        apply: writes the mark. It raises StateConflictError if somebody else changed it since.
    """

    mark: Mark
    before: HwmEntry | None
    again: tuple[str, ...]
    never: tuple[str, ...]
    apply: Callable[[], object]


def _state_in(document: CursorDocument, name: str, node: Node) -> Any:
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
    return states[name]


def plan_takeover(
    project: Project,
    state: StateBackend,
    key: NodeKey,
    document: CursorDocument,
    *,
    stream: str | None = None,
    force: bool = False,
) -> Takeover:
    """Let a node go on where OLake stopped: with the chunks that are left of a snapshot, or above its cursors.

    Nothing is written before it is applied.

    OLake wrote the rows that it read to its own destination. All rows in the node's table count as these rows.

    Args:
        stream: the stream's name; by default, the name of the node's table.
        force: also if the node has a position of its own.

    Raises:
        ConfigError: no such node, or it does not follow a table by cursors.
        CursorDocumentError: the document has no such stream, or its state does not fit the node.
        StateError: the node has a position.
        SourceError: the database does not answer.
    """
    node = Node.of(project, key)
    source, name = _source(node), stream or stream_of(node)
    state_in_document = _state_in(document, name, node)
    target, start = table_and_start(node, state)
    if start.hwm is not None and not force:
        raise StateError(
            f"{node} has a position of its own, and would lose or repeat rows from another one",
            fix="say --force to set it all the same; with --dry-run, it shows which rows these are and changes nothing",
            key=node.state_key,
        )
    taken = source.taken_over(read_strict(state_in_document))
    mark = _read(node).wrapped_mark(taken, start.hwm.value if start.hwm else None) or taken
    then = None if start.hwm is None else SnapshotMark.of(_read(node).unmarked(start.hwm.value), source.label)
    apply = partial(
        state.compare_and_set,
        node.state_key,
        mark.value,
        expected_revision=start.current.revision if start.current else None,
        target_commit=NO_TABLE if target.version is None else target.version,
        origin=origin_now(node, target.table_id if target.exists else None).to_json(),
    )
    return Takeover(mark, start.current, *(((), ()) if then is None else _moves(then, taken)), apply)


def _shown(value: Any) -> str:
    return hwm_text(value) or "no value"


def _moves(then: SnapshotMark, now: SnapshotMark) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is read again and what is never read if ``now`` takes the place of ``then``, in words."""
    again, never = [], []
    for column, value in now.cursors.items():
        old = then.cursors.get(column)
        text = f"`{column}` {_shown(old)} → {_shown(value)}"
        try:
            if value is None or (old is not None and value < old):
                again += [] if old is None else [f"{text} goes back: rows above it are read again"]
            elif old is None or old < value:
                never.append(f"{text} goes forward: rows up to it that were not read are never read")
        except TypeError:
            never.append(f"{text} cannot be compared: rows may be read again, or never")
    left_then, left_now = ({*(mark.chunks.left if mark.chunks else ())} for mark in (then, now))
    loaded, left_out = len(left_now - left_then), len(left_then - left_now)
    if loaded and left_out:
        never.append("its snapshot has other chunks, which cannot be compared: rows may be read again, or never")
    elif loaded:
        again.append(f"{counted(loaded, 'chunk')} of its snapshot, read before: their rows are read again")
    elif left_out:
        never.append(f"{counted(left_out, 'chunk')} of its snapshot, not read yet: their rows are never read")
    return tuple(again), tuple(never)


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
    chunks = frozenset(CursorChunk(write(chunk["min"]), write(chunk["max"])) for chunk in written.pop("chunks"))
    namespace, _, name = stream_of(node).rpartition(".")
    status = SnapshotStatus.PENDING if chunks else SnapshotStatus.FINISHED
    exact: dict[str, Any] = {column: read_strict(write(value)) for column, value in written.items()}
    return CursorStream(f"{namespace}.{name}", namespace, name, "", CursorSnapshot(status, chunks), cursors=exact)


def _read(node: Node) -> Source:
    return next(source for source in node.sources if source.name == READ)


def _source(node: Node) -> CursorTableSource:
    table_source = next((source.unwaited for source in node.sources if source.name == READ), None)
    if not isinstance(table_source, CursorTableSource) or node.following != (READ,):
        raise ConfigError(
            f"{node} does not read a table of a database by cursors, as OLake does",
            fix="give its `read` the increment `{mode: cursors, columns: […]}`",
            node=str(node),
        )
    return table_source
