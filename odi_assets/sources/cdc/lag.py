"""How far a capture is behind its server's log, and which slots of the server hold how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odi_assets.sources.cdc.server import ServerSession
from odi_assets.util.words import counted


@dataclass(frozen=True)
class LogLag:
    """How far a capture is behind.

    Attributes:
        bytes: of the log above what is captured, whatever tables they are of.
        seconds: the age of the oldest change that is not captured; 0 if there is none, None if it was not looked for.
        slot_bytes: of the log that the server keeps for the slot.
    """

    bytes: int
    seconds: int | None
    slot_bytes: int

    @property
    def metrics(self) -> Mapping[str, Any]:
        found = {"lag_bytes": self.bytes, "lag_seconds": self.seconds, "slot_bytes": self.slot_bytes}
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        age = "" if self.seconds is None else f", its oldest change {counted(self.seconds, 'second')} old"
        return f"{counted(self.bytes, 'byte')}{age if self.seconds else ''}"


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


def age_seconds(session: ServerSession, committed_us: int) -> int:
    """How long ago a time was, by the server's clock."""
    now = int(session.one("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"))
    return max(0, (now - committed_us) // 1_000_000)
