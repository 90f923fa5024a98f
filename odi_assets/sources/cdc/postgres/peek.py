"""Peeks at a slot: what the log has that is not acknowledged, fetched in parts through a cursor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from odi_assets.errors import SourceError
from odi_assets.sources.cdc.look import LookTooLongError
from odi_assets.sources.cdc.postgres.waiting import TAKEN_FIX, SlotTakenError
from odi_assets.sources.sql.keys import postgres_text
from odi_assets.util.lazy import psycopg

if TYPE_CHECKING:
    from odi_assets.sources.cdc.postgres.server import ServerSession

_FIRST_BLOCK, _LARGEST_BLOCK = 1_000, 50_000
_BLOCK_BYTES, _PART_BYTES = 2 << 20, 4 << 20
"""Messages that are fetched at a time."""
COMMAND_OK, TUPLES, COPY_OUT = 1, 2, 3
"""libpq's ExecStatusType."""


class PublicationGapError(SourceError):
    """A part of the log is of a time at which there was no publication of this name: it cannot be read over."""


def peeked(
    session: ServerSession, slot: str, publication: str, upto: int, most: int | None, seconds: float | None
) -> Iterator[list[bytes]]:
    """See :meth:`ServerSession.peek`."""
    connection = session.opened.pgconn
    bound = f"{upto >> 32:X}/{upto & 0xFFFFFFFF:X}"
    query = (
        "DECLARE odi_peek BINARY NO SCROLL CURSOR FOR SELECT data FROM pg_logical_slot_peek_binary_changes("
        f"{postgres_text(slot)}, '{bound}', {'NULL' if most is None else most}, 'proto_version', '1', "
        f"'publication_names', {postgres_text(identifier(publication))})"
    )
    with session.opened.transaction():
        session.rows(query)
        if seconds is not None:
            session.rows(f"SET LOCAL statement_timeout = {max(1, int(seconds * 1000))}")
        part: list[bytes] = []
        held, block = 0, _FIRST_BLOCK
        while True:
            result = connection.exec_params(f"FETCH {block} FROM odi_peek".encode(), [], result_format=1)
            if result.status != TUPLES:
                raise _failed_peek(result, session.label, is_short=seconds is not None)
            value, count = result.get_value, result.ntuples
            fetched = [value(row, 0) for row in range(count)]
            part += fetched
            size = sum(map(len, fetched))
            held += size
            if count < block:
                break
            if held > _PART_BYTES:
                yield part
                part, held = [], 0
            # Rows may be large.
            block = max(1, min(_LARGEST_BLOCK, _BLOCK_BYTES * count // max(size, 1)))
        session.rows("CLOSE odi_peek")
    if part:
        yield part


def _failed_peek(result: Any, label: str, *, is_short: bool) -> Exception:
    """The error that a peek has ended with. The server's words may be of any language."""
    error = as_error(result)
    fields = psycopg.pq.DiagnosticField
    code, function = (result.error_field(field) for field in (fields.SQLSTATE, fields.SOURCE_FUNCTION))
    if code == b"55006":
        return SlotTakenError(f"{label}: {error}", fix=TAKEN_FIX, label=label)
    if code == b"57014" and is_short:
        return LookTooLongError(f"{label}: {error}")
    # The server says the same of slots.
    if code == b"42704" and (function or b"").startswith(b"get_publication"):
        return PublicationGapError(f"{label}: {error}")
    return error


def as_error(result: Any) -> Exception:
    text = result.error_message.decode(errors="replace") if result.error_message else "no answer"
    return psycopg.DatabaseError(text.strip())


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
