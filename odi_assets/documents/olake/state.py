"""The state objects of an OLake document: log positions of each source, snapshot chunks, cursor columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from math import inf
from typing import Any

from odi_assets.documents.findings import Findings
from odi_assets.documents.model import ABSENT, FINISHED, NO_CURSORS, CursorChunk, CursorSnapshot, SnapshotStatus
from odi_assets.documents.positions import (
    BinlogPosition,
    ConsumerGroup,
    LogPosition,
    PostgresLsn,
    ResumeToken,
    SqlServerLsn,
    UnknownPosition,
    lsn_of,
)
from odi_assets.documents.values import Scalar, kind_of, shown
from odi_assets.util.exact_json import JsonPath, write

TOKEN_KEYS = ("_data", "resume_token", "_cdc_resume_token")
"""Where MongoDB's resume token is kept; ``resume_token`` holds it as an object with ``_data``."""
_BINLOG_KEYS = ("binlog_file", "binlog_position")
POSITION_KEYS = frozenset({*TOKEN_KEYS, *_BINLOG_KEYS, "lsn"})

_IN_FLIGHT = re.compile(r"olake_next_cursor_.+|next_data|next_cdc_pos|processing")
"""Keys of versions with two-phase commits, written before a commit: the position to be reached, not the present one."""

_OWN_KEYS = {name.replace("_", ""): name for name in (*POSITION_KEYS, "chunks", "server_id")}
"""Keys that are no columns, by how they may be misspelled."""
_SHARED_STATE_KEYS = frozenset({"lsn", "server_id", "state", "consumer_group_id", "position"})
_BINLOG_FILE = re.compile(r"(.+)\.(\d{1,18})", flags=re.ASCII)
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+", flags=re.ASCII)
_MSSQL = re.compile(r"(?:0x)?[0-9A-Fa-f]{20}", flags=re.ASCII)
_WHOLE = re.compile(r"-?\d{1,400}", flags=re.ASCII)
_EXACT = 2**53
_MOST_SERVER_ID = 2**32 - 1


def read_snapshot(state: Mapping[str, Any], at: JsonPath, findings: Findings) -> CursorSnapshot:
    """The snapshot of a stream's state: absent without ``chunks``, finished when that list is empty."""
    if "chunks" not in state:
        return ABSENT
    chunks = state["chunks"]
    if not isinstance(chunks, list):
        findings.add(
            (*at, "chunks"),
            f"must be a list, but is {kind_of(chunks)}: OLake takes that for no chunks and starts the snapshot again",
            "write [] if the snapshot is finished, or remove the key if it has to start again",
        )
        return ABSENT
    if not chunks:
        return FINISHED
    read: dict[CursorChunk, int] = {}
    for index, item in enumerate(chunks):
        chunk = _read_chunk(item, at, index, findings)
        if chunk in read:
            findings.warn((*at, "chunks", index), "is the same chunk as one before it", "remove it")
        elif chunk is not None:
            read[chunk] = index
    for index, other in _overlapping(chunks, read.values()):
        text = f"overlaps chunks[{other}]: OLake reads the rows that are in both twice"
        findings.warn((*at, "chunks", index), text, "let each chunk begin where the one before it ends")
    return CursorSnapshot(SnapshotStatus.PENDING, frozenset(read))


def _overlapping(chunks: list[Any], indexes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The indexes of chunks of whole numbers that overlap one before them, in the order of their bounds, with the index
    of that one. Other keys have the order of the database."""
    bounds = [
        (chunk_index, _number(chunks[chunk_index]["min"]), _number(chunks[chunk_index]["max"]))
        for chunk_index in indexes
    ]
    ranges = [
        (-inf if low is None else low, inf if high is None else high, chunk_index)
        for chunk_index, low, high in bounds
        if "text" not in (low, high)
    ]
    end, last = -inf, -1
    for low, high, index in sorted(chunk_range for chunk_range in ranges if chunk_range[0] < chunk_range[1]):
        if last >= 0 and low < end:
            yield index, last
        if last < 0 or high > end:
            end, last = high, index


def _number(bound: Any) -> Any:
    """A bound as a whole number; None of an open one, ``text`` of another one."""
    if isinstance(bound, str) and _WHOLE.fullmatch(bound):
        return int(bound)
    return bound if bound is None or type(bound) is int else "text"


def _read_chunk(item: Any, at: JsonPath, index: int, findings: Findings) -> CursorChunk | None:
    if not isinstance(item, dict):
        findings.add(
            (*at, "chunks", index),
            f"must be an object with min and max, but is {kind_of(item)}",
            "remove it, or write its bounds",
        )
        return None
    missing = [name for name in ("min", "max") if name not in item]
    if missing:
        findings.add(
            (*at, "chunks", index),
            f"has no {' and no '.join(missing)}: OLake reads on without that bound",
            "write the bound, or null if the chunk is open on that side",
        )
        return None
    low, high = item["min"], item["max"]
    if _holds_nothing(low, high):
        findings.warn((*at, "chunks", index), "holds nothing: its max is not above its min", "check its bounds")
    return CursorChunk(_bound(low), _bound(high))


def _bound(value: Any) -> str:
    return "null" if value is None else write(value, sort=True)


def _holds_nothing(low: Any, high: Any) -> bool:
    if isinstance(low, str) and isinstance(high, str) and _WHOLE.fullmatch(low) and _WHOLE.fullmatch(high):
        low, high = int(low), int(high)
    return type(low) is int and type(high) is int and low >= high


def read_columns(
    state: Mapping[str, Any], at: JsonPath, findings: Findings
) -> tuple[Mapping[str, Scalar], Mapping[str, str]]:
    """The cursor columns of a stream's state, and what else it holds, as canonical JSON."""
    cursors: dict[str, Scalar] = {}
    other: dict[str, str] = {}
    for key, value in state.items():
        role, meant = _role(key)
        if role == "own" and (key != "lsn" or type(value) is str):
            continue
        if role == "in flight" or (key == "server_id" and not state.keys().isdisjoint(_BINLOG_KEYS)):
            continue
        is_column = type(value) is not dict and type(value) is not list
        if meant is not None and meant not in state:
            _mistyped(meant, value, (*at, key), findings)
        if not is_column:
            other[key] = write(value, sort=True)
            continue
        cursors[key] = value
        if type(value) is int and not -_EXACT <= value <= _EXACT:
            text = "is above 2^53: OLake reads it back rounded, and then reads rows again or leaves some out"
            findings.warn((*at, key), text, "let OLake follow another column, or one of text")
    return cursors or NO_CURSORS, other or NO_CURSORS


@lru_cache(maxsize=4096)
def _role(key: str) -> tuple[str, str | None]:
    """What a key of a stream's state is, ``own``, ``in flight`` or ``column``, and what a column's may be meant for."""
    if key == "chunks" or key in POSITION_KEYS:
        return "own", None
    if _IN_FLIGHT.fullmatch(key):
        return "in flight", None
    meant = _OWN_KEYS.get(key.lower().replace("_", ""))
    return "column", meant if meant != key else None


def _mistyped(meant: str, value: Any, at: JsonPath, findings: Findings) -> None:
    is_column = not isinstance(value, dict | list)
    text = f"looks like `{meant}` mistyped, and OLake takes it for " + ("a cursor column" if is_column else "nothing")
    if not is_column or _fits(meant, value):
        findings.add(at, text, f"write `{meant}`", of_key=True)
    else:
        findings.warn(at, text, f"write `{meant}`, unless the table has such a column", of_key=True)


def _fits(key: str, value: Any) -> bool:
    """Whether a value is a log position as it would stand under ``key``."""
    if not isinstance(value, str):
        return False
    if key == "lsn":
        return lsn_of(value) is not None or _MSSQL.fullmatch(value) is not None
    if key in TOKEN_KEYS:
        return value.startswith("82") and _HEX.fullmatch(value) is not None
    return key == "binlog_file" and _BINLOG_FILE.fullmatch(value) is not None


def read_stream_position(state: Mapping[str, Any], at: JsonPath, findings: Findings) -> LogPosition | None:
    """The log position in a stream's own state."""
    if "binlog_file" in state or "binlog_position" in state:
        return _read_binlog(state, _BINLOG_KEYS, state.get("server_id"), (*at, "server_id"), at, findings)
    for key in TOKEN_KEYS:
        if key in state:
            return _read_token(state[key], (*at, key), findings)
    return _read_lsn(state["lsn"], (*at, "lsn"), findings) if isinstance(state.get("lsn"), str) else None


def read_shared_position(shared: Mapping[str, Any], at: JsonPath, findings: Findings) -> LogPosition | None:
    """The log position in ``global``: MySQL's in either nesting, PostgreSQL's, or a Kafka consumer group."""
    state = shared.get("state")
    if state is None or state == {}:
        findings.warn((*at, "state"), "is missing or empty: no stream has a log position", "restore it from a copy")
        return None
    if not isinstance(state, dict):
        findings.add(
            (*at, "state"),
            f"must be an object, but is {kind_of(state)}",
            'write the state that OLake keeps there, such as {"lsn": …}, or null',
        )
        return None
    findings.of_keys((*at, "state"), state, _SHARED_STATE_KEYS)
    if "lsn" in state:
        return _read_lsn(state["lsn"], (*at, "state", "lsn"), findings)
    if isinstance(state.get("consumer_group_id"), str):
        return ConsumerGroup(state["consumer_group_id"])
    return _read_shared_binlog(shared, state, at, findings)


def _read_shared_binlog(
    shared: Mapping[str, Any], state: Mapping[str, Any], at: JsonPath, findings: Findings
) -> LogPosition:
    inner = state.get("state")
    nested = isinstance(inner, dict)
    holder, holder_at = (inner, (*at, "state", "state")) if isinstance(inner, dict) else (state, (*at, "state"))
    position = holder.get("position", holder)
    position_at = (*holder_at, "position") if "position" in holder else holder_at
    in_state = nested or "server_id" in state
    server_id, server_at = (state if in_state else shared).get("server_id"), (*at, *(["state"] if in_state else []))
    server = (server_id, (*server_at, "server_id"))
    log_position: LogPosition | None = None
    if isinstance(position, str):
        file, _, offset = position.rpartition(":")
        number = int(offset) if re.fullmatch(r"\d{1,18}", offset, flags=re.ASCII) else None
        log_position = _binlog(file, number, *server, position_at, findings)
    elif isinstance(position, dict):
        for names in (("Name", "Pos"), ("name", "pos")):
            if log_position is None and any(name in position for name in names):
                log_position = _read_binlog(position, names, *server, position_at, findings)
    if log_position is None:
        return UnknownPosition(write({key: value for key, value in shared.items() if key != "streams"}, sort=True))
    if server_id is None:
        findings.add(
            server[1],
            "is missing, and without it OLake stops: “invalid global state; server_id is missing”",
            "write the number under which OLake read the log, from a copy of the document",
        )
    return log_position


def _read_binlog(
    holder: Mapping[str, Any],
    names: tuple[str, str],
    server_id: Any,
    server_at: JsonPath,
    at: JsonPath,
    findings: Findings,
) -> LogPosition:
    return _binlog(holder.get(names[0]), holder.get(names[1]), server_id, server_at, at, findings)


def _binlog(
    file: Any, offset: Any, server_id: Any, server_at: JsonPath, at: JsonPath, findings: Findings
) -> LogPosition:
    match = _BINLOG_FILE.fullmatch(file) if isinstance(file, str) else None
    is_offset = isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0
    if match is None or not is_offset:
        wrong = [
            f"the {what} is {write(value) if isinstance(value, str | int) else kind_of(value)}"
            for what, value, is_right in (("file", file, match is not None), ("byte", offset, is_offset))
            if not is_right
        ]
        findings.add(
            at,
            "is not a MySQL binary log position: that is a file name ending in a number and a byte, 0 or more; "
            + ", ".join(wrong),
            "take both from `SHOW BINARY LOG STATUS` on the server, such as mysql-bin.000003 and 1027",
        )
    is_number = isinstance(server_id, int) and not isinstance(server_id, bool)
    is_server = server_id is None or (is_number and 1 <= server_id <= _MOST_SERVER_ID)
    if not is_server:
        what = str(server_id) if is_number else kind_of(server_id)
        findings.add(
            server_at,
            f"must be a whole number of 1 to {_MOST_SERVER_ID}, but is {what}",
            "write the number under which OLake read the log",
        )
    if match is None or not is_offset or not is_server:
        return UnknownPosition("null")
    return BinlogPosition(match[1], int(match[2]), offset, file, server_id)


def _read_token(value: Any, at: JsonPath, findings: Findings) -> LogPosition | None:
    if isinstance(value, dict):
        value, at = value.get("_data"), (*at, "_data")
    if value is None:
        findings.warn(at, "is null, so the stream has no position in its log", "restore it from a copy of the document")
        return None
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        findings.add(
            at,
            f"must be a MongoDB resume token, hexadecimal digits in pairs, but is {shown(value)}",
            "restore the token from a copy of the document, or remove the key to start the snapshot again",
        )
        return None
    return ResumeToken(value.upper())


def _read_lsn(value: Any, at: JsonPath, findings: Findings) -> LogPosition | None:
    remedy = "take it from `SELECT confirmed_flush_lsn FROM pg_replication_slots`, or from a copy of the document"
    lsn = lsn_of(value) if isinstance(value, str) else None
    if lsn is not None:
        if not lsn:
            findings.warn(at, "is 0/0, which is no position of any log", remedy)
        return PostgresLsn(lsn)
    digits = value.removeprefix("0x") if isinstance(value, str) else ""
    if _HEX.fullmatch(digits):
        return SqlServerLsn(digits.lower())
    what = "empty" if value == "" else shown(value)
    findings.add(at, f"must be a log sequence number such as 0/198C935, but is {what}", remedy)
    return None
