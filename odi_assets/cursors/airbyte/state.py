"""The state objects of Airbyte's connectors: those of its database sources are known, others are taken apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from odi_assets.cursors.findings import Findings
from odi_assets.cursors.model import ABSENT, FINISHED, CursorStream, Snapshot, SnapshotStatus
from odi_assets.cursors.nested import flatten
from odi_assets.cursors.positions import (
    BinlogPosition,
    LogPosition,
    PostgresLsn,
    ResumeToken,
    SqlServerLsn,
    UnknownPosition,
)
from odi_assets.cursors.values import Scalar, kind_of
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
    """
    if state is None:
        findings.warn(at, "is missing or null: Airbyte reads the stream from its start", "restore it, if that is wrong")
        return CursorStream(*names, "", ABSENT)
    if not isinstance(state, dict):
        findings.add(at, f"must be an object, but is {kind_of(state)}", "restore it, or write {}")
        return CursorStream(*names, "", ABSENT)
    snapshot = _snapshot(state)
    inner = state.get("incremental_state")
    cursors, other = _cursors(inner if isinstance(inner, dict) else state, at, findings)
    return CursorStream(*names, "", snapshot, None, cursors, other)


def _snapshot(state: Mapping[str, Any]) -> Snapshot:
    kind = state.get("state_type")
    keys = _BY_KEY.get(kind) if isinstance(kind, str) else None
    if keys is not None:
        reached = {key: state[key] for key in keys if key in state}
        return Snapshot(SnapshotStatus.PENDING, reached=write(reached, sort=True))
    key = state.get("primary_key")
    if isinstance(key, dict) and key:
        return Snapshot(SnapshotStatus.PENDING, reached=write(key, sort=True))
    return FINISHED


def _cursors(
    state: Mapping[str, Any], at: JsonPath, findings: Findings
) -> tuple[Mapping[str, Scalar], Mapping[str, str]]:
    columns = state.get("cursor_field")
    if isinstance(columns, list) and columns and all(isinstance(column, str) for column in columns):
        value = state.get("cursor")
        if isinstance(value, dict | list):
            findings.add((*at, "cursor"), f"must be one value, but is {kind_of(value)}", "restore it")
            return {}, {}
        return {".".join(columns): value}, {}
    if isinstance(columns, list) and state.get("cursor") is not None:
        findings.warn((*at, "cursor_field"), "names no column for the cursor beside it", "name the cursor column")
    if isinstance(state.get("cursors"), dict):
        return flatten(state["cursors"])
    if state.get("state_type") == "xmin" and isinstance(state.get("xmin_raw_value"), int):
        return {"xmin": state["xmin_raw_value"]}, {}
    keys = _BY_KEY.get(state["state_type"], ()) if isinstance(state.get("state_type"), str) else ()
    return flatten(state, _BOOKKEEPING | {*keys, "primary_key", "cursors"})


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
    found: list[Mapping[str, Any]] = []
    pending = [(state, 0)]
    while pending:
        value, depth = pending.pop(0)
        if isinstance(value, str) and value[:1] == "{":
            value = _json(value)
        if isinstance(value, dict):
            found.append(value)
            if depth < 4:
                names = [name for name in _OFFSETS if name in value] or list(value)
                pending += [(value[name], depth + 1) for name in names]
    return found


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
