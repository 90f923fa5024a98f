"""Reads the state objects of an OLake document: log positions of each source, snapshot chunks, cursor columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from odi_assets.cursors.model import Chunk, Snapshot, SnapshotStatus
from odi_assets.cursors.positions import (
    BinlogPosition,
    ConsumerGroup,
    LogPosition,
    PostgresLsn,
    ResumeToken,
    SqlServerLsn,
    UnknownPosition,
)
from odi_assets.cursors.problems import Problems
from odi_assets.cursors.values import Scalar
from odi_assets.util.exact_json import JsonPath, write

TOKEN_KEYS = ("_data", "resume_token", "_cdc_resume_token")
"""Where MongoDB's resume token is kept; ``resume_token`` holds it as an object with ``_data``."""

_IN_FLIGHT = re.compile(r"olake_next_cursor_.+|next_data|next_cdc_pos|processing")
"""Keys of versions with two-phase commits, written before a commit: the position to be reached, not the present one."""

_PG_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", flags=re.ASCII)
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+", flags=re.ASCII)
_BINLOG_FILE = re.compile(r"(.+)\.(\d{1,18})", flags=re.ASCII)


def kind_of(value: Any) -> str:
    """A JSON value's type in words: ``null``, ``a list`` …"""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {str: "a text", dict: "an object", list: "a list"}
    return next((name for known, name in names.items() if isinstance(value, known)), "a number")


def read_snapshot(state: Mapping[str, Any], at: JsonPath, problems: Problems) -> Snapshot:
    """The snapshot of a stream's state: absent without ``chunks``, finished when that list is empty."""
    if "chunks" not in state:
        return Snapshot(SnapshotStatus.ABSENT)
    chunks = state["chunks"]
    if not isinstance(chunks, list):
        problems.add(
            (*at, "chunks"),
            f"must be a list, but is {kind_of(chunks)}: OLake takes that for no chunks and starts the snapshot again",
            "write [] if the snapshot is finished, or remove the key if it has to start again",
        )
        return Snapshot(SnapshotStatus.ABSENT)
    read = frozenset(
        chunk for index, item in enumerate(chunks) if (chunk := _read_chunk(item, (*at, "chunks", index), problems))
    )
    return Snapshot(SnapshotStatus.PENDING if chunks else SnapshotStatus.FINISHED, read)


def _read_chunk(item: Any, at: JsonPath, problems: Problems) -> Chunk | None:
    if not isinstance(item, dict):
        problems.add(
            at, f"must be an object with min and max, but is {kind_of(item)}", "remove it, or write its bounds"
        )
        return None
    missing = [name for name in ("min", "max") if name not in item]
    if missing:
        problems.add(
            at,
            f"has no {' and no '.join(missing)}: OLake reads on without that bound",
            "write the bound, or null if the chunk is open on that side",
        )
        return None
    return Chunk(write(item["min"], sort=True), write(item["max"], sort=True))


def read_cursors(state: Mapping[str, Any], known: frozenset[str]) -> dict[str, Scalar]:
    """The cursor columns of a stream's state: every scalar value whose key is not in ``known``."""
    return {
        name: value
        for name, value in state.items()
        if name not in known and not _IN_FLIGHT.fullmatch(name) and not isinstance(value, dict | list)
    }


def read_stream_position(
    state: Mapping[str, Any], at: JsonPath, problems: Problems
) -> tuple[LogPosition | None, frozenset[str]]:
    """The log position in a stream's own state, and the keys of the state that it was read from."""
    if "binlog_file" in state or "binlog_position" in state:
        keys = frozenset({"binlog_file", "binlog_position", "server_id"})
        return _read_binlog(state, ("binlog_file", "binlog_position"), state.get("server_id"), at, problems), keys
    for key in TOKEN_KEYS:
        if key in state:
            return _read_token(state[key], (*at, key), problems), frozenset({key})
    if isinstance(state.get("lsn"), str):
        return _read_lsn(state["lsn"], (*at, "lsn"), problems), frozenset({"lsn"})
    return None, frozenset()


def read_shared_position(shared: Mapping[str, Any], at: JsonPath, problems: Problems) -> LogPosition | None:
    """The log position in ``global``: MySQL's in either nesting, PostgreSQL's, or a Kafka consumer group."""
    state = shared.get("state")
    if state is None or state == {}:
        return None
    if not isinstance(state, dict):
        problems.add(
            (*at, "state"),
            f"must be an object, but is {kind_of(state)}",
            'write the state that OLake keeps there, such as {"lsn": …}, or null',
        )
        return None
    if "lsn" in state:
        return _read_lsn(state["lsn"], (*at, "state", "lsn"), problems)
    if isinstance(state.get("consumer_group_id"), str):
        return ConsumerGroup(state["consumer_group_id"])
    return _read_shared_binlog(shared, state, at, problems)


def _read_shared_binlog(
    shared: Mapping[str, Any], state: Mapping[str, Any], at: JsonPath, problems: Problems
) -> LogPosition:
    inner = state.get("state")
    nested = isinstance(inner, dict)
    holder, holder_at = (inner, (*at, "state", "state")) if isinstance(inner, dict) else (state, (*at, "state"))
    position = holder.get("position", holder)
    position_at = (*holder_at, "position") if "position" in holder else holder_at
    server_id = state.get("server_id") if nested or "server_id" in state else shared.get("server_id")
    if isinstance(position, str):
        file, _, offset = position.rpartition(":")
        number = int(offset) if re.fullmatch(r"\d{1,18}", offset, flags=re.ASCII) else None
        return _binlog(file, number, server_id, position_at, problems)
    if isinstance(position, dict):
        for names in (("Name", "Pos"), ("name", "pos")):
            if any(name in position for name in names):
                return _read_binlog(position, names, server_id, position_at, problems)
    return UnknownPosition(write({key: value for key, value in shared.items() if key != "streams"}, sort=True))


def _read_binlog(
    holder: Mapping[str, Any], names: tuple[str, str], server_id: Any, at: JsonPath, problems: Problems
) -> LogPosition:
    return _binlog(holder.get(names[0]), holder.get(names[1]), server_id, at, problems)


def _binlog(file: Any, offset: Any, server_id: Any, at: JsonPath, problems: Problems) -> LogPosition:
    match = _BINLOG_FILE.fullmatch(file) if isinstance(file, str) else None
    is_offset = isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0
    if match is None or not is_offset:
        problems.add(
            at,
            "is not a MySQL binary log position: that is a file name ending in a number and a byte, 0 or more",
            "take both from `SHOW BINARY LOG STATUS` on the server, such as mysql-bin.000003 and 1027",
        )
        return UnknownPosition("null")
    if server_id is not None and (not isinstance(server_id, int) or isinstance(server_id, bool)):
        problems.add(at, f"has a server_id that is {kind_of(server_id)}", "write the replica id as a whole number")
        return UnknownPosition("null")
    return BinlogPosition(match[1], int(match[2]), offset, file, server_id)


def _read_token(value: Any, at: JsonPath, problems: Problems) -> LogPosition | None:
    if isinstance(value, dict):
        value, at = value.get("_data"), (*at, "_data")
    if value is None:
        return None
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        problems.add(
            at,
            f"must be a MongoDB resume token, hexadecimal digits in pairs, but is {_shown(value)}",
            "restore the token from a copy of the document, or remove the key to start the snapshot again",
        )
        return None
    return ResumeToken(value.upper())


def _read_lsn(value: Any, at: JsonPath, problems: Problems) -> LogPosition | None:
    if isinstance(value, str):
        match = _PG_LSN.fullmatch(value)
        if match:
            return PostgresLsn(int(match[1], 16) << 32 | int(match[2], 16))
        digits = value.removeprefix("0x")
        if _HEX.fullmatch(digits):
            return SqlServerLsn(digits.lower())
    if value is None or value == "":
        return None
    problems.add(
        at,
        f"must be a log sequence number such as 0/198C935, but is {_shown(value)}",
        "take it from `SELECT confirmed_flush_lsn FROM pg_replication_slots`, or from a copy of the document",
    )
    return None


def _shown(value: Any) -> str:
    if not isinstance(value, str):
        return kind_of(value)
    return repr(value) if len(value) <= 40 else f"{value[:40]!r}… ({len(value)} characters)"
