"""The state objects of Airbyte's connectors: states of its database sources are known, others are taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from odi_assets.documents.findings import Findings
from odi_assets.documents.model import ABSENT, FINISHED, CursorSnapshot, CursorStream, SnapshotStatus
from odi_assets.documents.nested import Leaf, leaves, sorted_out
from odi_assets.documents.positions import (
    BinlogPosition,
    LogPosition,
    PostgresLsn,
    ResumeToken,
    SqlServerLsn,
    UnknownPosition,
)
from odi_assets.documents.values import kind_of
from odi_assets.util.exact_json import JsonPath, write
from odi_assets.util.json_scan import is_deeper, read_strict

_BOOKKEEPING = frozenset(
    {
        "version",
        "state_type",
        "stream_name",
        "stream_namespace",
        "cursor_field",
        "cursor_record_count",
        "incremental_state",
        "lookback_window",
        "use_global_cursor",
        "legacy",
        "__ab_full_refresh_sync_complete",
        "__ab_full_refresh_state_message",
        "__ab_no_cursor_state_message",
        "relation_filenode",
    }
)
"""Keys that say nothing of how far a stream was read."""
_MONGO_KEYS = frozenset({"id", "status", "id_type"})
"""The state of a MongoDB collection: the last document that its snapshot read, and whether that is complete."""
_BY_KEY = {
    "ctid": ("ctid",),
    "primary_key": ("pk_name", "pk_val"),
    "ordered_column": ("ordered_col", "ordered_col_val"),
}
"""By ``state_type``, the keys of a snapshot that is read in the order of something, and is not at its end."""
_BINLOG_FILE = re.compile(r"(.+)\.(\d{1,18})", flags=re.ASCII)
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+", flags=re.ASCII)
_MSSQL = re.compile(r"([0-9A-Fa-f]{8}):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{4})", flags=re.ASCII)
_OFFSETS = ("state", "mysql_cdc_offset", "mssql_cdc_offset", "cdc")


def read_stream(names: tuple[str, str, str], state: Any, at: JsonPath, findings: Findings) -> CursorStream:
    """How far a stream was read, from its state.

    Args:
        names: its id, namespace and name.

    A state that says nothing, ``{}``, means that nothing of the stream was read, or that it is read whole each time.
    """
    if state is None:
        findings.warn(at, "is missing or null: Airbyte reads the stream from its start", "restore it, if that is wrong")
        return CursorStream(*names, "", ABSENT)
    if not isinstance(state, dict):
        findings.add(at, f"must be an object, but is {kind_of(state)}", "restore it, or write {}")
        return CursorStream(*names, "", ABSENT)
    _check_columns(state, at, findings)
    cursors, other = sorted_out(cursor_leaves(state))
    return CursorStream(*names, "", _snapshot(state), None, cursors, other)


def _snapshot(state: Mapping[str, Any]) -> CursorSnapshot:
    kind = state.get("state_type")
    keys = _BY_KEY.get(kind) if isinstance(kind, str) else None
    if keys is not None:
        reached = {key: state[key] for key in keys if key in state}
        return CursorSnapshot(SnapshotStatus.PENDING, reached=write(reached, sort=True))
    key = state.get("primary_key")
    if isinstance(key, dict) and key:
        return CursorSnapshot(SnapshotStatus.PENDING, reached=write(key, sort=True))
    if _is_of_mongodb(state) and state["status"] == "IN_PROGRESS":
        return CursorSnapshot(SnapshotStatus.PENDING, reached=write(state["id"], sort=True))
    return FINISHED if state else ABSENT


def _is_of_mongodb(state: Mapping[str, Any]) -> bool:
    return state.keys() == _MONGO_KEYS


def cursor_leaves(state: Mapping[str, Any]) -> Iterator[Leaf]:
    """The cursors in a stream's state and, where its connector is not known, whatever else it holds."""
    at: JsonPath = ()
    if isinstance(state.get("incremental_state"), dict):
        # A snapshot is under way, and this is where reading goes on when it is done.
        state, at = state["incremental_state"], ("incremental_state",)
    columns = _columns(state)
    if columns:
        if not isinstance(state.get("cursor"), dict | list):
            yield Leaf(".".join(columns), (*at, "cursor"), state.get("cursor"))
    elif isinstance(state.get("cursors"), dict):
        yield from leaves(state["cursors"], at=(*at, "cursors"))
    elif state.get("state_type") == "xmin" and isinstance(state.get("xmin_raw_value"), int):
        yield Leaf("xmin", (*at, "xmin_raw_value"), state["xmin_raw_value"])
    elif not _is_of_mongodb(state):
        kind = state.get("state_type")
        keys = _BY_KEY.get(kind, ()) if isinstance(kind, str) else ()
        nothing = {"cursor"} if isinstance(state.get("cursor_field"), list) and state.get("cursor") is None else set()
        yield from leaves(state, _BOOKKEEPING | {*keys, *nothing, "primary_key", "cursors"}, at=at)


def _columns(state: Mapping[str, Any]) -> list[str]:
    """The path of the cursor column, as database sources give it."""
    columns = state.get("cursor_field")
    named = isinstance(columns, list) and all(isinstance(column, str) for column in columns)
    return list(columns) if named and columns else []


def _check_columns(state: Mapping[str, Any], at: JsonPath, findings: Findings) -> None:
    inner = state.get("incremental_state")
    if isinstance(inner, dict):
        state, at = inner, (*at, "incremental_state")
    value = state.get("cursor")
    if _columns(state):
        if isinstance(value, dict | list):
            findings.add((*at, "cursor"), f"must be one value, but is {kind_of(value)}", "restore it")
    elif isinstance(state.get("cursor_field"), list) and value is not None:
        findings.warn((*at, "cursor_field"), "names no column for the cursor beside it", "name the cursor column")


def read_shared(state: Any, at: JsonPath, findings: Findings) -> LogPosition | None:
    """The log position in a shared state: the offset that Debezium keeps, JSON in a text, or MongoDB's token."""
    if state is None or state == {}:
        findings.warn(at, "is missing or empty: no stream has a log position", "restore it, if the source reads a log")
        return None
    for offset in _offsets(state):
        position = _position(offset)
        if position is not None:
            return position
    return UnknownPosition(write(state, sort=True))


def _offsets(state: Any) -> list[Mapping[str, Any]]:
    """Every object that may be an offset, outermost first."""
    offsets: list[Mapping[str, Any]] = []
    pending = [(state, 0)]
    while pending:
        value, depth = pending.pop(0)
        if isinstance(value, str) and value[:1] == "{":
            value = _json(value)
        if isinstance(value, dict):
            offsets.append(value)
            if depth < 4:
                names = [name for name in _OFFSETS if name in value] or list(value)
                pending += [(value[name], depth + 1) for name in names]
    return offsets


def _json(text: str) -> Any:
    try:
        value = read_strict(text)
    except (ValueError, ArithmeticError, RecursionError):
        # A text like any other, if it is no JSON.
        return None
    return None if is_deeper(value, 8) else value


def _position(offset: Mapping[str, Any]) -> LogPosition | None:
    lsn, commit, token = offset.get("lsn"), offset.get("commit_lsn"), offset.get("resume_token")
    file, pos = offset.get("file"), offset.get("pos")
    if type(lsn) is int and 0 <= lsn < 2**64:
        return PostgresLsn(lsn)
    log = _BINLOG_FILE.fullmatch(file) if isinstance(file, str) else None
    if log and type(pos) is int and pos >= 0:
        server = offset.get("server_id")
        return BinlogPosition(log[1], int(log[2]), pos, str(file), server if type(server) is int else None)
    change = _MSSQL.fullmatch(commit) if isinstance(commit, str) else None
    if change:
        return SqlServerLsn("".join(change.groups()).lower())
    if isinstance(token, str) and _HEX.fullmatch(token):
        return ResumeToken(token.upper())
    return None
