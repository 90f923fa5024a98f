"""What a capture of a binary log can have, and what the server or its user lacks before it can begin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from odi_assets.errors import ConfigError, SourceError
from odi_assets.scaffold.capture import Need
from odi_assets.sources.cdc.binlog.database import connected
from odi_assets.sources.cdc.binlog.session import BinlogSession, ServerTable


def require_log(session: BinlogSession) -> None:
    """Raises ConfigError if the server is of a kind, or a version, whose log is not captured."""
    try:
        session.require_version()
    except SourceError as error:
        raise ConfigError(
            error.message, fix="leave `--cdc` out: tables are read by snapshots and increments then"
        ) from None


def why_not_in_log(table: ServerTable, left_out: str | None) -> str | None:
    """Why a table cannot be captured; None if it can.

    Args:
        left_out: the setting that keeps its database out of the server's log; None if the log has it.
    """
    if table.refused is not None:
        why, fix = table.refused
        return f"it {why}; {fix}"
    return None if left_out is None else f"the server leaves its database out of its log (`{left_out}`)"


def needs_of_log(session: BinlogSession) -> Iterator[Need]:
    """What is missing before tables can be captured."""
    for what, statement in session.lacking():
        yield Need(what, statement)
    if session.variable("log_bin") != "ON":
        return
    try:
        file, *_ = session.status()
        session.files()
        session.prepared()
        with (
            connected(session.dialect, session.label) as reader,
            closing(reader.events(file, 4, 0, again="type the command again")) as events,
        ):
            next(events, None)
    except SourceError as error:
        yield Need(error.message.removeprefix(f"{session.label}: "), str(error.fix))
