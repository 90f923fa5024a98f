"""Which slots of a PostgreSQL server hold how much of its log."""

from __future__ import annotations

from dataclasses import dataclass

from odi_assets.sources.cdc.postgres.server import ServerSession


@dataclass(frozen=True)
class HeldLog:
    """A slot and the log that the server keeps for it.

    Attributes:
        active: somebody reads it now.
    """

    name: str
    plugin: str
    database: str
    active: bool
    bytes: int


def held_logs(session: ServerSession) -> list[HeldLog]:
    """All slots of the server that hold log, of any database and of any kind, those that hold most first."""
    listed = session.rows(
        "SELECT slot_name, COALESCE(plugin, slot_type), COALESCE(database, ''), active, "
        "pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots "
        "WHERE restart_lsn IS NOT NULL ORDER BY 5 DESC, 1"
    )
    return [HeldLog(str(name), str(kind), str(base), bool(on), int(held)) for name, kind, base, on, held in listed]
