"""Reads the state of Singer taps: their bookmarks, in a STATE message or alone, and as Meltano keeps them.

Forms: ``state`` is the value alone, ``message`` a STATE message, ``messages`` what a tap or a target prints, as JSON
Lines, of which the last state counts; ``meltano`` is what `meltano state get` shows: ``singer_state``, or ``completed``
and ``partial``, of which the partial one counts where both name a stream.

The value may be anything that the tap likes. Those without ``bookmarks`` keep a member for each stream, mostly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from odi_assets.documents.findings import Findings
from odi_assets.documents.model import (
    ABSENT,
    FINISHED,
    CursorDocument,
    CursorSnapshot,
    CursorStream,
    SnapshotStatus,
    StateType,
    Tool,
)
from odi_assets.documents.nested import Leaf, leaves, sorted_out
from odi_assets.documents.positions import BinlogPosition, LogPosition, PostgresLsn, SqlServerLsn, lsn_of
from odi_assets.documents.values import kind_of, shown
from odi_assets.util.exact_json import JsonPath, write

_VALUE_KEYS = frozenset({"bookmarks", "currently_syncing"})
_KNOWN = frozenset(
    {
        "replication_key",
        "replication_key_value",
        "replication_key_signpost",
        "starting_replication_value",
        "progress_markers",
        "partitions",
        "version",
        "last_replication_method",
        "lsn",
        "xmin",
        "log_file",
        "log_pos",
        "gtid",
        "last_pk_fetched",
        "max_pk_values",
        "last_lsn_fetched",
        "max_lsn_values",
        "initial_full_table_complete",
        "current_log_version",
    }
)
_NO_COLUMNS = _KNOWN - {"partitions", "current_log_version", "xmin"}
"""Keys of a bookmark that are no positions by themselves."""
POSITION_KEYS = frozenset({"lsn", "log_file", "log_pos"})
"""Keys of the position in a log."""
_BINLOG_FILE = re.compile(r"(.+)\.(\d{1,18})", flags=re.ASCII)
_MSSQL = re.compile(r"(?:0x)?([0-9A-Fa-f]{20})", flags=re.ASCII)


def form_of(content: Any) -> str | None:
    """The form of the document, or None if it does not look like one of Singer."""
    if isinstance(content, list):
        if not content or not all(isinstance(item, dict) for item in content):
            return None
        return "messages" if any(map(_is_message, content)) or all("bookmarks" in item for item in content) else None
    if not isinstance(content, dict):
        return None
    if _is_message(content):
        return "message"
    if isinstance(content.get("singer_state"), dict) or _is_meltano(content):
        return "meltano"
    return "state" if "bookmarks" in content and "sources" not in content else None


def _is_message(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "STATE" and "value" in item


def _is_meltano(content: Mapping[str, Any]) -> bool:
    parts = [content[key] for key in ("completed", "partial") if key in content]
    return bool(parts) and all(isinstance(part, dict) and "singer_state" in part for part in parts if part)


def values(content: Any, form: str) -> Iterator[tuple[Any, JsonPath]]:
    """The state values in a document, and where they are; of two that name a stream the later one counts."""
    if form == "messages":
        messages = [index for index, item in enumerate(content) if _is_message(item)]
        if messages:
            yield content[messages[-1]]["value"], (messages[-1], "value")
        else:
            # What a target printed: the states alone.
            yield content[-1], (len(content) - 1,)
    elif form == "message":
        yield content["value"], ("value",)
    elif form == "meltano":
        if "singer_state" in content:
            yield content["singer_state"], ("singer_state",)
        for part in ("completed", "partial"):
            if isinstance(content.get(part), dict) and "singer_state" in content[part]:
                yield content[part]["singer_state"], (part, "singer_state")
    else:
        yield content, ()


def read(content: Any, findings: Findings) -> CursorDocument | None:
    """The document of a JSON value; None if there is none to be seen in it. What is wrong goes to ``findings``."""
    if content == {}:
        return CursorDocument(Tool.SINGER, StateType.STREAM, 0, (), None, content)
    form = form_of(content) or ("state" if isinstance(content, dict) else None)
    if form is None:
        text = f"must be a Singer state with `bookmarks`, but is {kind_of(content)} of another shape"
        findings.add((), text, "give the value of the tap's last STATE message")
        return None
    streams: dict[str, CursorStream] = {}
    for value, at in values(content, form):
        streams |= _read_value(value, at, findings)
    ordered = tuple(streams[name] for name in sorted(streams))
    return CursorDocument(Tool.SINGER, StateType.STREAM, 0, ordered, None, content, form)


def _read_value(value: Any, at: JsonPath, findings: Findings) -> dict[str, CursorStream]:
    if not isinstance(value, dict):
        findings.add(at, f"must be an object, but is {kind_of(value)}", "restore the state")
        return {}
    findings.of_keys(at, value, _VALUE_KEYS)
    syncing = value.get("currently_syncing")
    if syncing is not None and not isinstance(syncing, str | dict):
        findings.add((*at, "currently_syncing"), f"must be a text or null, but is {kind_of(syncing)}", "write null")
    bookmarks = value.get("bookmarks")
    if bookmarks is not None and not isinstance(bookmarks, dict):
        text = f"must be an object with a bookmark for each stream, but is {kind_of(bookmarks)}"
        findings.add((*at, "bookmarks"), text, "restore it, or write {}")
        return {}
    if bookmarks is None and "bookmarks" in value:
        findings.warn((*at, "bookmarks"), "is null: the tap reads every stream from its start", "restore it")
    elif bookmarks is None and value:
        text = "is missing: each member is taken for the state of a stream, as some taps keep it"
        findings.warn((*at, "bookmarks"), text, "restore it, if the tap keeps bookmarks")
    return {name: _read_stream(name, mark, path, findings) for name, mark, path in _marks(value, at)}


def marks(content: Any, form: str) -> Iterator[tuple[str, Any, JsonPath]]:
    """Each stream's bookmark in a document without findings, and where it is."""
    for value, at in values(content, form):
        yield from _marks(value, at)


def _marks(value: Mapping[str, Any], at: JsonPath) -> Iterator[tuple[str, Any, JsonPath]]:
    if "bookmarks" in value:
        for name, mark in (value["bookmarks"] or {}).items():
            yield name, mark, (*at, "bookmarks", name)
        return
    for name, mark in value.items():
        if name not in _VALUE_KEYS:
            yield name, mark, (*at, name)


def _read_stream(name: str, mark: Any, at: JsonPath, findings: Findings) -> CursorStream:
    if not name:
        findings.add(at, "names no stream", "write the stream's id as the key", of_key=True)
    if mark is None:
        findings.warn(at, "is null: the tap reads the stream from its start", "restore it, or remove it")
        return CursorStream(name, "", name, "", ABSENT)
    if isinstance(mark, list):
        findings.add(at, "must be an object, but is a list", "restore it, or remove it")
        return CursorStream(name, "", name, "", ABSENT)
    if not isinstance(mark, dict):
        return CursorStream(name, "", name, "", FINISHED, None, {"bookmark": mark})
    findings.of_keys(at, mark, _KNOWN, free=True)
    method = mark.get("last_replication_method")
    mode = method.lower() if isinstance(method, str) else ""
    position = _position(mark, at, findings)
    _check_cursors(mark, at, findings)
    cursors, other = sorted_out(cursor_leaves(mark))
    if mark.get("gtid") is not None:
        # Its parts are numbers of servers and of transactions, without an order as text.
        other["gtid"] = write(mark["gtid"], sort=True)
    snapshot = _snapshot(mark)
    if position is None and not other and all(value is None for value in cursors.values()) and snapshot is FINISHED:
        snapshot = ABSENT
    return CursorStream(name, "", name, mode, snapshot, position, cursors, other)


def _snapshot(mark: Mapping[str, Any]) -> CursorSnapshot:
    reached = mark.get("last_pk_fetched", mark.get("last_lsn_fetched"))
    under_way = mark.get("max_pk_values") or mark.get("max_lsn_values") or reached
    if mark.get("initial_full_table_complete") is True or (
        not under_way and mark.get("initial_full_table_complete") is not False
    ):
        return FINISHED
    return CursorSnapshot(SnapshotStatus.PENDING, reached="" if reached is None else write(reached, sort=True))


def cursor_leaves(mark: Mapping[str, Any]) -> Iterator[Leaf]:
    """The cursors in a bookmark, and whatever else it holds that may be a position."""
    cursors = list(_cursor_leaves(mark, "", ()))
    if not cursors and type(mark.get("version")) is int and mark.get("lsn") is None and mark.get("log_file") is None:
        # A full table: each reading of it has a version of its own.
        cursors.append(Leaf("version", ("version",), mark["version"]))
    yield from cursors


def _cursor_leaves(mark: Mapping[str, Any], prefix: str, at: JsonPath) -> Iterator[Leaf]:
    free = {key: value for key, value in mark.items() if key not in _NO_COLUMNS and value is not None}
    partitions = free.pop("partitions", None)
    yield from leaves(free, prefix=prefix, at=at)
    key, value = mark.get("replication_key"), mark.get("replication_key_value")
    progress = mark.get("progress_markers")
    if isinstance(key, str) and not isinstance(value, dict | list):
        yield Leaf(f"{prefix}{key}", (*at, "replication_key_value"), value)
    elif key is None and value is not None and not isinstance(value, dict | list):
        yield Leaf(f"{prefix}replication_key_value", (*at, "replication_key_value"), value)
    elif key is None and isinstance(progress, dict) and isinstance(progress.get("replication_key"), str):
        # Progress of a run that did not end is not resumed: the tap has no value yet.
        yield Leaf(f"{prefix}{progress['replication_key']}", (*at, "replication_key_value"), None)
    for index, item in enumerate(partitions if isinstance(partitions, list) else ()):
        if isinstance(item, dict) and isinstance(item.get("context"), dict):
            inner = {name: value for name, value in item.items() if name != "context"}
            which = f"{prefix}partitions[{write(item['context'], sort=True)}]."
            yield from _cursor_leaves(inner, which, (*at, "partitions", index))


def _check_cursors(mark: Mapping[str, Any], at: JsonPath, findings: Findings) -> None:
    key, value, progress = (mark.get(name) for name in ("replication_key", "replication_key_value", "progress_markers"))
    if key is not None and not isinstance(key, str):
        findings.add((*at, "replication_key"), f"must be a text, but is {kind_of(key)}", "name the column")
    elif isinstance(value, dict | list):
        text = f"must be one value, but is {kind_of(value)}"
        findings.add((*at, "replication_key_value"), text, "restore it")
    elif value is not None and key is None:
        findings.warn((*at, "replication_key"), "is missing: it is not known whose value this is", "name the column")
    elif value is None and (key is not None and not isinstance(progress, dict)):
        text = "is missing: the tap reads the stream from its start"
        findings.warn((*at, "replication_key_value"), text, "restore it, if that is wrong")
    partitions = mark.get("partitions")
    if partitions is not None:
        _check_partitions(partitions, (*at, "partitions"), findings)


def _check_partitions(partitions: Any, at: JsonPath, findings: Findings) -> None:
    if not isinstance(partitions, list):
        findings.add(at, f"must be a list, but is {kind_of(partitions)}", "write a list of partitions, or remove it")
        return
    seen: set[str] = set()
    for index, item in enumerate(partitions):
        context = item.get("context") if isinstance(item, dict) else None
        if not isinstance(context, dict):
            findings.add((*at, index), "has no context that says which partition it is", "write it, or remove this one")
            continue
        text = write(context, sort=True)
        if text in seen:
            findings.add((*at, index), "is given more than once, on which the tap fails", "keep the right one")
        seen.add(text)


def _position(mark: Mapping[str, Any], at: JsonPath, findings: Findings) -> LogPosition | None:
    if mark.get("log_file") is not None or mark.get("log_pos") is not None:
        file, pos = mark.get("log_file"), mark.get("log_pos")
        match = _BINLOG_FILE.fullmatch(file) if isinstance(file, str) else None
        if match is None or type(pos) is not int or pos < 0:
            text = "has no MySQL binary log position: log_file must end in a number, log_pos be a byte, 0 or more"
            findings.add(at, text, "take both from `SHOW BINARY LOG STATUS`, or restore them")
            return None
        return BinlogPosition(match[1], int(match[2]), pos, str(file))
    lsn = mark.get("lsn")
    if lsn is None:
        return None
    if type(lsn) is int and 0 <= lsn < 2**64:
        return PostgresLsn(lsn)
    if isinstance(lsn, str):
        number, change = lsn_of(lsn), _MSSQL.fullmatch(lsn)
        if number is not None:
            return PostgresLsn(number)
        if change:
            return SqlServerLsn(change[1].lower())
    what = shown(lsn) if not isinstance(lsn, int) else str(lsn)
    findings.add((*at, "lsn"), f"must be a log sequence number, of 64 bits, but is {what}", "restore it from a copy")
    return None
