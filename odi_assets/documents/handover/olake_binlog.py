"""Where OLake stopped in the binary log of MySQL or MariaDB, and where a capture of it stands."""

from __future__ import annotations

import zlib
from dataclasses import replace

from odi_assets.documents import BinlogPosition, CursorDocument
from odi_assets.errors import IdentityMismatchError, SourceError
from odi_assets.sources.cdc.binlog.database import BinlogDatabase
from odi_assets.sources.cdc.look import LookTooLongError
from odi_assets.sources.cdc.mark import BinlogPlace, CaptureMark, TableMark, binlog_of

_FIRST_SERVER, _SERVERS = 1000, 9000
"""OLake makes up the number of a replica that it reads the log as."""


def mark_at(
    database: BinlogDatabase, patterns: tuple[str, ...], position: BinlogPosition, left_out: tuple[str, ...]
) -> tuple[CaptureMark, list[str]]:
    """The mark of a capture that begins at a position, and the tables that are captured.

    Raises:
        SourceError: the server's log does not go on there.
    """
    place = binlog_of(str(position))
    with database.opened() as log:
        log.require(None)
        tables = list(log.tables(patterns))
        mark = CaptureMark(place, place, 1, log.system, left_out=left_out, binlog=BinlogPlace(position.prefix))
        try:
            mark = log.recognized(mark)
            log.require(mark)
            # A position in the middle of a transaction is found by its rows.
            log.first_above(replace(mark, tables=dict.fromkeys(tables, TableMark(()))), log.log_end())
        except LookTooLongError:
            return mark, tables
        except (IdentityMismatchError, SourceError) as error:
            raise SourceError(
                error.message,
                fix="correct the connection, or give the state.json of OLake's last sync; or begin with new snapshots: "
                f"odi run {database.node.replace('.', ' --node ')}",
                label=database.label,
            ) from error
    return mark, tables


def position_at(
    database: BinlogDatabase, mark: CaptureMark, document: CursorDocument | None
) -> tuple[BinlogPosition, str]:
    """The position up to which a log is captured, and what OLake does with it.

    Raises:
        IdentityMismatchError: the server's log does not go on there.
    """
    with database.opened() as log:
        log.require(mark)
    file, _, offset = mark.text(mark.end).rpartition(":")
    before = document.shared.position if document is not None and document.shared is not None else None
    server_id = before.server_id if isinstance(before, BinlogPosition) else None
    if server_id is None:
        server_id = _FIRST_SERVER + zlib.crc32(database.node.encode()) % _SERVERS
    prefix, _, number = file.rpartition(".")
    position = BinlogPosition(prefix, int(number), int(offset), file, server_id)
    return position, f"OLake goes on at {position}, as the replica {server_id}"
