"""A source that a node read before its definition led elsewhere: what the former definition would still read of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from odi_assets.config.models import (
    CursorsIncrement,
    FilesIncrement,
    Increment,
    ReadConfig,
    StatefulIncrement,
    VersionIncrement,
)
from odi_assets.config.models.reads import kind_of
from odi_assets.connections.location import Location
from odi_assets.delta.errors import cannot_look
from odi_assets.delta.table import TableHandle
from odi_assets.errors import (
    ConfigError,
    IdentityMismatchError,
    IncrementError,
    NoCursorColumnError,
    SourceError,
)
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.identity import same_order, same_source
from odi_assets.nodes.recovery.renamed_cursor import Session, resolved
from odi_assets.nodes.remedies import remedies_named
from odi_assets.sources.marks import READ, Identity
from odi_assets.sources.reads import PlannedRead
from odi_assets.sources.registry import source_of, table_source
from odi_assets.sources.source import Source
from odi_assets.util.words import counted

_MOST_NAMED = 3
_FORMAT = "csv"
"""Files that are followed as files are listed, whatever their format."""


def require_all_loaded(
    node: Node, source: Source, then: Identity, value: Any, ties: Mapping[str, Any], spark: Session
) -> list[str]:
    """Sees to it that the former definition of a source would read nothing more, here and at its former place.

    Args:
        ties: the loaded rows that are tied with the HWM, if the commit remembers any.

    Returns:
        What is not known of that, in words.

    Raises:
        IdentityMismatchError: it would.
        NoCursorColumnError: the column that it was followed by is gone.
        SourceError, TableError: the former place cannot be looked at.
    """
    increment, former_value = _increment_of(then), source.unmarked(value)
    here = source.followed_by(increment).unwaited
    if same_source(then, source.identity, moved=True):
        _require_read_out(node, here, former_value, ties, spark)
        return []
    unknown = [f"whether all of {then.place or then.source} was loaded is not looked at"]
    former = _former_source(node, source, then, increment)
    try:
        if former is not None and not _require_read_out(node, former, former_value, ties, spark).snapshot.is_empty:
            unknown = []
    except SourceError as error:
        if cannot_look(error):
            raise
        # It is gone, and the former definition would read nothing.
    if not same_order(then, source.identity):
        _require_nothing_new_here(node, here, then, former_value, spark)
    return unknown


def _require_nothing_new_here(node: Node, here: Source, then: Identity, value: Any, spark: Session) -> None:
    """Raises IdentityMismatchError if the place of now holds what the former way of following would read there.

    Args:
        here: the source at its place of now, followed as it was.
    """
    again = (
        "change one after the other, and adopt each: first the place, and run the node "
        f"(odi run {node.command}); then how it is followed; or rebuild the table from its sources: "
        f"odi run {node.command} --full-refresh"
    )
    if here.identity.kind != then.kind or isinstance(here.increment, VersionIncrement):
        # A mark of one table says nothing of another one's versions.
        return
    if not isinstance(here.increment, FilesIncrement):
        # Of rows without the column that they were followed by, it says nothing.
        with suppress(NoCursorColumnError):
            _require_read_out(node, here, value, {}, spark, again)
        return
    mark = here.mark(value, {})
    with remedies_named(node):
        known = None if mark is None else here.moved_here(mark, then)
    # Where no file is known again, the files hold the loaded rows in another form.
    others = () if known is None else known.others
    text = f"{counted(len(others), 'file')}, {', '.join(others[:_MOST_NAMED])}" if others else ""
    if text:
        raise _not_all_loaded(node, here, text, again)


def _require_read_out(
    node: Node, former: Source, value: Any, ties: Mapping[str, Any], spark: Session, again: str | None = None
) -> PlannedRead:
    """A read of a run of the ``former`` definition above an HWM of ``value``.

    Args:
        again: the way on where there is something to read.

    Raises:
        IdentityMismatchError: there is.
    """
    mark = former.mark(value, {})
    again = again or (
        f"put the former definition back, run it once (odi run {node.command}), change it again and adopt; "
        f"or rebuild the table from its sources: odi run {node.command} --full-refresh"
    )
    try:
        read = resolved(former.plan(mark), spark)
    except NoCursorColumnError:
        raise
    except IncrementError as error:
        raise IdentityMismatchError(
            f"{node}: whether all of {former.label} is loaded is not known: as it was followed before, the next run "
            f"would stop: {error.message}",
            fix=again,
            node=str(node),
        ) from error
    unread = "" if read.nothing_new else read.summary
    if not unread and mark is not None and ties.get("ties"):
        tied: Mapping[str, int] = getattr(former.with_ties(mark, spark()), "ties", None) or {}
        more = sum(tied.values()) - sum(ties["ties"].values())
        unread = f"{counted(more, 'row')} tied with the HWM that came later" if more > 0 else ""
    if unread:
        raise _not_all_loaded(node, former, unread, again)
    return read


def _not_all_loaded(node: Node, former: Source, unread: str, again: str) -> IdentityMismatchError:
    return IdentityMismatchError(
        f"{node}: not all of {former.label} is loaded: as it was followed before, the next run would read {unread}",
        fix=again,
        node=str(node),
    )


def _former_source(node: Node, source: Source, then: Identity, increment: Increment) -> Source | None:
    """What a mark of ``then`` measures, as the project file leads to it now; None if it does not lead there, or if its
    rows cannot be read by what the mark and the project file say of them.

    Args:
        source: what the node reads now. Rows of the same kind of source are read in the same way.
        increment: how the former one was followed.

    Raises:
        TableError: a table cannot be looked at.
    """
    if then.kind == "delta":
        return _table(node, then, increment)
    connection, read = node.project.config.connections.get(then.connection), _read(node, source, then, increment)
    if connection is None or read is None:
        return None
    try:
        former = source_of(read, node.target, connection, node.project.location)
    except ConfigError:
        # The connection is of another kind now.
        return None
    return former if former.identity.place == then.place else None


def _table(node: Node, then: Identity, increment: Increment) -> Source | None:
    project = node.project
    targets = {project.target(key).uri: (str(key), project.target(key)) for key in project.graph.nodes}
    label, location = targets.get(then.place, (then.place, _location(node, then)))
    if location is None or not TableHandle.open(location).exists:
        return None
    return table_source(READ, label, node.target, increment, location)


def _location(node: Node, then: Identity) -> Location | None:
    """Where the table is: below its connection, which has the credentials of its store."""
    local = Location(then.place)
    if local.is_local:
        return local
    if then.connection not in node.project.config.connections:
        return None
    base = node.project.location(then.connection, ".")
    path = then.place.removeprefix(base.uri.rstrip("/") + "/")
    return None if path == then.place else node.project.location(then.connection, path)


def _read(node: Node, source: Source, then: Identity, increment: Increment) -> ReadConfig | None:
    """The settings of a ``read`` that leads to ``then``."""
    place: dict[str, Any] = {"connection": then.connection, "path": then.source}
    if then.kind == "sql":
        table = then.source.partition(":")[2]
        if table.startswith("query "):
            # Of a query, a mark has a digest.
            return None
        place = {"connection": then.connection, "table": table, "query": None}
    now = node.config.read
    if now is not None and source.identity.kind == then.kind:
        return now.model_copy(update={**place, "incremental": increment})
    if then.kind == "files" and increment.mode == "files":
        settings = {**place, "format": _FORMAT, "incremental": increment.model_dump(exclude_defaults=True)}
        return kind_of(_FORMAT).settings.model_validate(settings)
    return None


def _increment_of(then: Identity) -> Increment:
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
