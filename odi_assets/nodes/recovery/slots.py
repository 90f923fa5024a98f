"""What doctor finds of captures: how far they are behind their servers' logs, and slots that nobody may need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import ServerConnection
from odi_assets.errors import OdiError
from odi_assets.nodes.commit_facts import HwmOrigin
from odi_assets.nodes.history.capture_lag import lag_of
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.findings import Disagreement, Kind
from odi_assets.sources.cdc.postgres.database import PostgresDatabase
from odi_assets.sources.cdc.postgres.held import HeldLog, held_logs
from odi_assets.sources.cdc.postgres.server import connected
from odi_assets.sources.cdc.source import LogSource
from odi_assets.sources.sql.dialects import Dialect, dialect_of
from odi_assets.state.backend import StateBackend
from odi_assets.util.words import counted


def lag_found(project: Project, state: StateBackend, key: NodeKey) -> Iterator[Disagreement]:
    """The finding about a capture that is behind by more than its limit."""
    try:
        capture_lag = lag_of(project, state, key)
    except OdiError:
        # The looks at its source and its slot name it.
        return
    if capture_lag is not None and capture_lag.lag is not None and capture_lag.is_beyond:
        command = Node.of(project, key).command
        remedy = f"odi run {command}; or a greater `log.warn_lag` of the connection, if that is meant"
        yield Disagreement(key, Kind.LOG_BEHIND, capture_lag.text, remedy)


def slots_found(project: Project, state: StateBackend, keys: Sequence[NodeKey]) -> Iterator[Disagreement]:
    """Slots that hold log of the servers whose log is captured, or was: of captures that left the project, and of
    others that nobody reads now."""
    captures = [
        _source(Node.of(project, key)) for key in project.graph.order() if project.graph.node(key).captures_server
    ]
    captures = [source for source in captures if isinstance(source.database, PostgresDatabase)]
    used = {source.uri for source in captures}
    left = _left_slots(project, state, used)
    servers = {source.dialect.uri: source.dialect for source in captures if _is_of(source, keys)}
    known = _servers_of(project) if left else {}
    for slot in left:
        if slot.server in known:
            servers[slot.server] = known[slot.server]
        else:
            text = f"the slot `{slot.name}` at {slot.server}, of {slot.node}, which left the project"
            yield Disagreement(None, Kind.NOT_LOOKED_AT, text, "No connection of the project leads there")
    for uri, dialect in servers.items():
        try:
            with connected(dialect, uri) as session:
                held = held_logs(session)
        except OdiError as error:
            yield Disagreement(None, Kind.NOT_LOOKED_AT, f"the slots of {uri}: {error.message}", error.fix or "")
            continue
        yield from _of_server(uri, held, used, [slot for slot in left if slot.server == uri])


def _is_of(source: LogSource, keys: Sequence[NodeKey]) -> bool:
    return source.target.node in map(str, keys)


def _of_server(uri: str, held: Sequence[HeldLog], used: set[str], left: Sequence[_LeftSlot]) -> Iterator[Disagreement]:
    nodes = {left_slot.name: left_slot.node for left_slot in left}
    for slot in held:
        if f"{uri}/{slot.name}" in used or slot.active or not slot.bytes:
            continue
        size, drop = counted(slot.bytes, "byte"), f"SELECT pg_drop_replication_slot('{slot.name}')"
        if slot.name in nodes:
            text = f"the slot `{slot.name}` of {nodes[slot.name]}, which left the project, holds {size} of {uri}'s log"
            yield Disagreement(None, Kind.SLOT_LEFT, text, f"{drop}; or put the node back")
        else:
            of = f" of the database {slot.database}" if slot.database else ""
            text = f"the slot `{slot.name}` ({slot.plugin}){of} is none of this project, is read by nobody now, and "
            text += f"holds {size} of {uri}'s log"
            yield Disagreement(None, Kind.SLOT_HELD, text, f"If nobody needs it: {drop}")


def _source(node: Node) -> LogSource:
    source = node.sources[0]
    assert isinstance(source, LogSource)
    return source


@dataclass(frozen=True)
class _LeftSlot:
    """A slot of a capture that is no more in the project, as state remembers it."""

    name: str
    server: str
    node: str


def _left_slots(project: Project, state: StateBackend, used: set[str]) -> list[_LeftSlot]:
    root, slots = str(project.root.resolve()), []
    for entry in state.list_hwms():
        try:
            origin = HwmOrigin.from_json(entry.origin)
        except OdiError:
            continue
        if origin is None or (origin.project, origin.root) != (project.config.project, root):
            continue
        for identity in origin.measures.values():
            server, _, name = identity.place.rpartition("/")
            if (identity.kind, identity.cursor) == ("cdc", "lsn") and identity.place not in used:
                slots.append(_LeftSlot(name, server, origin.node or entry.key))
    return slots


def _servers_of(project: Project) -> dict[str, Dialect]:
    """The PostgreSQL servers to which connections of the project lead, by URI."""
    connections = project.config.connections.values()
    servers = [
        connection
        for connection in connections
        if isinstance(connection, ServerConnection) and connection.type == "postgres"
    ]
    dialects = [dialect_of(server) for server in servers]
    return {dialect.uri: dialect for dialect in dialects}
