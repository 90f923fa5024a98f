"""A capture goes on in the log where OLake stopped, and the reverse.

OLake's rows are in OLake's files and not in the change log, so each table gets a new snapshot: a table that is made of
the log alone can be made again from it. The log itself goes on without a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odi_assets.config.graph import NodeKey
from odi_assets.documents import (
    BinlogPosition,
    CursorDocument,
    CursorSnapshot,
    CursorStream,
    LogPosition,
    PostgresLsn,
    SharedPosition,
    SnapshotStatus,
    Tool,
    olake_text,
    parse,
)
from odi_assets.documents.editing import with_shared, with_stream
from odi_assets.documents.handover.olake_binlog import mark_at, position_at
from odi_assets.errors import ConfigError, CursorDocumentError, SourceError, StateError
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.identity import origin_now
from odi_assets.nodes.planning.start import table_and_start
from odi_assets.nodes.project import Project
from odi_assets.nodes.remedies import remedies_named
from odi_assets.sources.cdc.binlog.database import BinlogDatabase
from odi_assets.sources.cdc.database import LoggedDatabase
from odi_assets.sources.cdc.mark import CaptureMark, lsn_text
from odi_assets.sources.cdc.postgres.database import PostgresDatabase, PostgresLog
from odi_assets.sources.cdc.postgres.server import ServerSession, Slot
from odi_assets.sources.cdc.source import LogSource
from odi_assets.state.backend import StateBackend
from odi_assets.state.records import NO_TABLE
from odi_assets.util.lazy import psycopg
from odi_assets.util.words import counted


@dataclass(frozen=True)
class LogTakeover:
    """A capture that goes on where OLake stopped.

    Attributes:
        mark: the capture's mark from now on.
        notes: what becomes of each table, in words.
    """

    mark: CaptureMark
    notes: tuple[str, ...]


def take_over_log(
    project: Project, state: StateBackend, key: NodeKey, document: CursorDocument, *, dry_run: bool = False
) -> LogTakeover:
    """Let a capture go on at the position up to which OLake has read.

    Raises:
        ConfigError: it is no capture.
        CursorDocumentError: the document has no position that its streams share.
        StateError: the node has a position, or a change log.
        StateConflictError: somebody else changed its position at the same time.
        SourceError: the server, the slot or the publication does not have the log from there on.
    """
    node = Node.of(project, key)
    source = _source(node)
    position = _position_of(document, source)
    target, start = table_and_start(node, state)
    if start.hwm is not None or target.exists:
        what = "a position" if start.hwm is not None else "a change log"
        raise StateError(
            f"{node} has {what} of its own, and a log that begins in the middle of another one would have changes "
            "twice or never",
            fix="let a new node with a path of its own go on from OLake",
            key=node.state_key,
        )
    # Tables that OLake has read begin empty in the log: a table that holds OLake's rows becomes what the database has.
    left_out, database = tuple(sorted(_of_log(document))), source.database
    if isinstance(database, BinlogDatabase) and isinstance(position, BinlogPosition):
        mark, tables = mark_at(database, source.patterns, position, left_out)
    elif isinstance(database, PostgresDatabase) and isinstance(position, PostgresLsn):
        with database.opened() as log:
            log.session.require_logical()
            tables = list(log.tables(source.patterns))
            # The record that commits a transaction may begin exactly there.
            mark = CaptureMark(position.value - 1, position.value, 1, log.session.system(), left_out=left_out)
            _require_log_above(database, log, mark)
    else:
        raise AssertionError(f"{database} has no positions such as {position}")
    if not dry_run:
        state.compare_and_set(
            node.state_key,
            mark.value,
            expected_revision=start.current.revision if start.current else None,
            target_commit=NO_TABLE,
            origin=origin_now(node).to_json(),
        )
    return LogTakeover(mark, tuple(_notes(document, tables)))


def _source(node: Node) -> LogSource:
    source = node.sources[0] if node.captures else None
    if not isinstance(source, LogSource):
        raise ConfigError(f"{node} captures no log", fix="name a node that reads `format: cdc`", node=str(node))
    return source


def _position_of(document: CursorDocument, source: LogSource) -> PostgresLsn | BinlogPosition:
    """Up to where OLake has read the log, as its documents say it of this kind of database."""
    shared = document.shared.position if document.tool == Tool.OLAKE and document.shared is not None else None
    own = [stream.position for stream in document.streams if isinstance(stream.position, BinlogPosition)]
    # Where each stream has a position of its own, the change log begins at the lowest.
    position = shared or min(own, key=lambda each: (each.number, each.offset), default=None)
    of_postgres = isinstance(source.database, PostgresDatabase)
    if of_postgres and isinstance(position, PostgresLsn) and position.value:
        return position
    if not of_postgres and isinstance(position, BinlogPosition):
        return position
    what = "`global.state.lsn`" if of_postgres else "file and position of a binary log in `global.state`"
    raise CursorDocumentError(
        f"the document has no {what}, so it does not say how far OLake has read the log",
        fix="give the state.json of a sync with CDC; to begin without one, run the node: it makes new snapshots",
        path=document.path,
    )


def _of_log(document: CursorDocument) -> dict[str, CursorStream]:
    """The streams that OLake reads from the log."""
    listed = document.shared.streams if document.shared is not None else None
    return {stream.id: stream for stream in document.streams if stream.id in (listed or ()) or not stream.cursors}


def _require_log_above(database: PostgresDatabase, log: PostgresLog, mark: CaptureMark) -> None:
    """Raises SourceError if slot and publication do not have all of the log above ``mark``."""
    name, end, label = database.slot, log.log_end(), database.label
    node = database.node.replace(".", " --node ")
    copy = f"or a copy of it: SELECT pg_copy_logical_replication_slot('OLAKE_SLOT', '{name}', false, 'pgoutput')"
    slot = log.slot
    if end < mark.end:
        raise SourceError(
            f"{label}: OLake has read up to {lsn_text(mark.end)}, and the log of this server ends at "
            f"{lsn_text(end)}: it is another server, or was put back from a copy",
            fix=f"correct the connection; or begin with new snapshots: odi run {node}",
        )
    if slot is None or slot.plugin != "pgoutput":
        why = "the server has no such slot" if slot is None else f"it is one of the plugin {slot.plugin}"
        fix = f"name OLake's slot (its `replication_slot`) in `log.slot`, {copy}"
        raise SourceError(f"{label}: the slot `{name}` does not have the log that OLake has not read: {why}", fix=fix)
    if slot.confirmed > mark.end:
        raise SourceError(
            f"{label}: the slot `{name}` stands at {lsn_text(slot.confirmed)}, above {lsn_text(mark.end)}, up to which "
            "OLake has read: the changes between are lost to it",
            fix=f"odi run {node} begins at the slot, with new snapshots: no row is lost, but histories lack what "
            "happened between",
        )
    log.require_slot(mark)
    _require_publication(database, log.session, slot, end)


def _require_publication(database: PostgresDatabase, session: ServerSession, slot: Slot, end: int) -> None:
    """Raises SourceError if the slot cannot be read through the publication from where it stands."""
    why = "the server has no such publication"
    if session.published(database.publication) is not None:
        try:
            # One that was made later is not known to this part of the log.
            next(session.peek(slot.name, database.publication, end, 1), None)
        except psycopg.Error as error:
            why = str(error)
        else:
            return
    raise SourceError(
        f"{database.label}: the log above {lsn_text(slot.confirmed)} cannot be read through the publication "
        f"`{database.publication}`: {why}",
        fix="name the publication through which OLake reads in `log.publication` of the connection",
    )


def _notes(document: CursorDocument, tables: Sequence[str]) -> list[str]:
    streams, notes = _of_log(document), []
    for table in tables:
        stream = streams.pop(table, None)
        if stream is None:
            what = "OLake has not read it"
        elif stream.snapshot.status is SnapshotStatus.PENDING:
            what = f"OLake has {counted(len(stream.snapshot.chunks), 'chunk')} of its own left"
        else:
            what = "OLake's rows are not in the change log"
        notes.append(f"{table}: a new snapshot; {what}")
    return notes + [f"{name}: not captured, for `tables` of the node does not name it" for name in sorted(streams)]


def given_out_log(
    project: Project, state: StateBackend, key: NodeKey, document: CursorDocument | None
) -> tuple[CursorDocument, str]:
    """OLake's document with which it goes on at the LSN of a capture, and what OLake has to be set to.

    OLake stops unless its slot of PostgreSQL stands exactly at its LSN, so the slot is moved to what is captured.

    Args:
        document: the document that is there; its streams that are followed by cursors stay byte for byte.

    Raises:
        ConfigError: it is no capture.
        CursorDocumentError: the document has streams that would lose changes.
        StateError: the node has no position, or snapshots to complete.
        SourceError, IdentityMismatchError: the slot does not go on where the capture is.
    """
    node = Node.of(project, key)
    source = _source(node)
    _, start = table_and_start(node, state)
    with remedies_named(node):
        mark = None if start.hwm is None else CaptureMark.of(start.hwm.value, source.label)
    left = ["all tables"] if mark is None or not mark.tables else mark.snapshots_left
    if mark is None or left:
        raise StateError(
            f"{node} has not completed the snapshots of {', '.join(left)}, and OLake would take them for complete",
            fix=f"run it first: odi run {node.command}",
            key=node.state_key,
        )
    position, said = _given_position(source.database, mark, document)
    names = frozenset(mark.tables)
    shared = SharedPosition(position, names)
    streams = [_finished(name, position) for name in sorted(names)]
    if document is None:
        return parse(olake_text(streams, shared), tool=Tool.OLAKE), said
    others = sorted(_of_log(document).keys() - names)
    if others:
        raise CursorDocumentError(
            f"the document has streams that share OLake's position and that {node} does not capture: "
            f"{', '.join(others)}; they would lose changes",
            fix="write into another file; or add them to `tables` of the node, and run it",
            path=document.path,
        )
    document = with_shared(document, shared)
    for stream in streams:
        document = with_stream(document, stream)
    return document, said


def _given_position(
    database: LoggedDatabase, mark: CaptureMark, document: CursorDocument | None
) -> tuple[LogPosition, str]:
    """Up to where a log is captured, as OLake writes it, and what OLake has to be set to."""
    if isinstance(database, PostgresDatabase):
        position = PostgresLsn(_moved(database, mark))
        names = f"its `replication_slot` is {database.slot}, its `publication` {database.publication}"
        return position, f"OLake goes on at {position}: {names}"
    if isinstance(database, BinlogDatabase):
        return position_at(database, mark, document)
    raise AssertionError(f"{database} has no positions that OLake knows")


def _finished(table: str, position: LogPosition) -> CursorStream:
    namespace, _, name = table.partition(".")
    return CursorStream(table, namespace, name, "", CursorSnapshot(SnapshotStatus.FINISHED, frozenset()), position)


def _moved(database: PostgresDatabase, mark: CaptureMark) -> int:
    """Where the slot stands, once all that is captured is acknowledged."""
    with database.opened() as log:
        log.require_slot(mark)
        if log.slot is not None and log.slot.confirmed < mark.end:
            log.acknowledge(mark)
        return mark.end
