"""How a source was read that a node read before: what its mark says of that, and where the project file leads."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from odi_assets.config.models import (
    CursorsIncrement,
    FilesIncrement,
    Increment,
    LocalConnection,
    ReadConfig,
    StatefulIncrement,
    VersionIncrement,
)
from odi_assets.config.models.reads import kind_of
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.node import Node
from odi_assets.sources.marks import READ, Identity
from odi_assets.sources.reading import WHOLE_NUMBER, digest_of
from odi_assets.sources.registry import source_of, table_source
from odi_assets.sources.source import Source

_ANY_FORMAT = "csv"
"""Files are listed whatever their format is."""

_REST = "__odi_rest"
"""Keeps the columns that are not looked at."""


class NotKnownError(Exception):
    """What a mark and the project file say of a former source does not lead to its rows."""


def former_source(node: Node, source: Source, then: Identity) -> tuple[Source | None, str]:
    """What a mark of ``then`` measures, and why its rows cannot be read, if they cannot. None: a table is gone.

    Args:
        source: what the node reads now.

    Raises:
        NotKnownError: nothing leads there any more.
        TableError: a table cannot be looked at.
    """
    increment = increment_of(then)
    if then.kind == "delta":
        return _table(node, then, increment), ""
    if then.kind == "files":
        return _files(node, source, then, increment)
    return _in_database(node, source, then, increment), ""


# -- Delta tables ------------------------------------------------------------------------------------------------------


def _table(node: Node, then: Identity, increment: Increment) -> Source | None:
    project = node.project
    targets = {project.target(key).uri: (str(key), project.target(key)) for key in project.graph.nodes}
    label, location = targets.get(then.place) or (then.place, _below(node, then))
    if not TableHandle.open(location).exists:
        return None
    return table_source(READ, label, node.target, increment, location)


def _below(node: Node, then: Identity) -> Location:
    """Where a table is: below its connection, which has the credentials of its store."""
    local = Location(then.place)
    if local.is_local:
        return local
    base = _base(node, then)
    path = "" if base is None else then.place.removeprefix(base.uri.rstrip("/") + "/")
    if base is None or path == then.place:
        raise _no_way()
    return base.child(path)


def _base(node: Node, then: Identity) -> Location | None:
    """Where its connection leads to now; None if it is no store any more."""
    if then.connection not in node.project.config.connections:
        return None
    try:
        return node.project.location(then.connection, "")
    except ConfigError:
        return None


def _no_way() -> NotKnownError:
    return NotKnownError(
        "nothing in the project file leads there any more: keep its connection until the node is adopted"
    )


# -- files -------------------------------------------------------------------------------------------------------------


def _files(node: Node, source: Source, then: Identity, increment: Increment) -> tuple[Source, str]:
    base, local = _base(node, then), Location(then.place.removesuffix(f"/{posixpath.normpath(then.source)}"))
    if base is None or (then.place and base.true_path(then.source) != then.place):
        base = local if then.place and local.is_local else None
    if base is None:
        raise _no_way()
    folder, unclear = base, ""
    place = {"connection": then.connection or READ, "path": then.source}
    if increment.mode == "files":
        read = _settings({**place, "format": _ANY_FORMAT}, increment)
    elif _is_read_alike(source, then, increment) and node.config.read is not None:
        read = node.config.read.model_copy(update={**place, "incremental": increment})
    else:
        try:
            read = _settings({**place, **_reading_of(node, then)}, increment)
        except NotKnownError as error:
            read, unclear = _settings({**place, "format": _ANY_FORMAT}, None), str(error)
    connection = LocalConnection()
    return source_of(read, node.target, connection, lambda _, path: folder.child(path)), unclear


def _is_read_alike(source: Source, then: Identity, increment: Increment) -> bool:
    """Whether rows of such files are read now as they were, as far as the mark says it."""
    now, before = source.followed_by(increment).unwaited.identity, (then.reading or {}).get("cursor")
    return now.kind == then.kind and before is not None and (now.reading or {}).get("cursor") == before


def _reading_of(node: Node, then: Identity) -> dict[str, Any]:
    """The settings of a ``read`` of the cursor columns alone, as the mark has them.

    Raises:
        NotKnownError: it does not say all that is needed.
    """
    kept: Mapping[str, Any] = (then.reading or {}).get("cursor") or {}
    if kept.get("read.format") is None:
        raise NotKnownError("its mark is older than the facts that say in which format it was read")
    options = {
        name.removeprefix("read.options."): _option(node, name, value)
        for name, value in kept.items()
        if name.startswith("read.options.") and value is not None
    }
    types = {name.removeprefix("read.schema: "): kind for name, kind in kept.items() if name.startswith("read.schema")}
    columns = ", ".join(f"`{name}` {'BIGINT' if kind == WHOLE_NUMBER else kind}" for name, kind in types.items())
    is_csv = kept["read.format"] == "csv"
    if is_csv and types and options.get("header") != "true":
        raise NotKnownError("its files have no header, and its mark does not say the order of their columns")
    settings = {"format": kept["read.format"], "options": options, "strict": kept.get("read.strict") != "false"}
    settings |= {"schema": columns} if columns else {}
    return settings | ({"rescued": _REST} if columns and kept["read.format"] != "parquet" else {})


def _option(node: Node, name: str, value: str) -> str:
    """The value of an option, of which a mark may have a digest."""
    if not value.startswith("#"):
        return value
    now = getattr(node.config.read, "options", None) or {}
    candidates = ("true", "false", *map(str, now.values()))
    for candidate in candidates:
        if digest_of(candidate) == value:
            return candidate
    raise NotKnownError(f"its mark does not say the value of `{name}`")


def _settings(settings: dict[str, Any], increment: Increment | None) -> ReadConfig:
    """The ``read`` that has these settings.

    Raises:
        NotKnownError: there is none.
    """
    followed = {} if increment is None else {"incremental": increment.model_dump(exclude_defaults=True)}
    try:
        return kind_of(settings["format"]).settings.model_validate({**settings, **followed})
    except ValueError as error:
        raise NotKnownError("what its mark says of how it was read makes no `read`") from error


# -- databases ---------------------------------------------------------------------------------------------------------


def _in_database(node: Node, source: Source, then: Identity, increment: Increment) -> Source:
    connection, table = node.project.config.connections.get(then.connection), then.source.partition(":")[2]
    if then.kind != "sql" or table.startswith("query "):
        raise NotKnownError(
            "its mark does not say by which query it was read" if then.kind == "sql" else "it was a log"
        )
    if connection is None:
        raise _no_way()
    now, place = node.config.read, {"connection": then.connection, "table": table, "query": None}
    if now is not None and source.identity.kind == then.kind:
        read = now.model_copy(update={**place, "incremental": increment})
    else:
        read = _settings({**place, "format": "sql"}, increment)
    try:
        former = source_of(read, node.target, connection, node.project.location)
    except (ConfigError, AssertionError):
        raise _no_way() from None
    if former.identity.place != then.place:
        raise _no_way()
    return former


# -- how it was followed -----------------------------------------------------------------------------------------------


def increment_of(then: Identity) -> Increment:
    """How a source was followed, as far as that says what a run would still read. Rows ahead of the clock are unread
    like any other, whether the former definition held them or stopped at them."""
    mode = then.increment or {"file": "files", "version": "version"}.get(then.cursor, "stateful")
    left_out = (then.reading or {}).get("left_out") or {}
    if mode == "files":
        return FilesIncrement(mode="files", on_change=left_out.get("on_change"))
    if mode == "version":
        return VersionIncrement(mode="version")
    settings = {"mode": mode, "max_ahead": "none", "on_null": "exclude" if leaves_out_nulls(then) else "raise"}
    if mode == "cursors":
        return CursorsIncrement.model_validate({**settings, "columns": then.cursor.split(", ")})
    column, _, fallback = then.cursor.partition(", else ")
    as_dates = (then.reading or {}).get("date_format")
    texts = {"column": column, "fallback_column": fallback or None, "date_format": as_dates, "type": "text"}
    return StatefulIncrement.model_validate({**settings, **texts})


def leaves_out_nulls(then: Identity) -> bool:
    """Whether rows without a cursor did not stop a run. Marks of before do not say it; then they are taken for such."""
    is_cursor = then.increment in ("stateful", "cursors") or then.cursor not in ("file", "version")
    return is_cursor and ((then.reading or {}).get("left_out") or {}).get("on_null") != "raise"
