"""MariaDB: what its server is asked, and how a snapshot of it and its log meet.

``START TRANSACTION WITH CONSISTENT SNAPSHOT`` takes the lock under which transactions become visible in the order of
the log, for an instant, and notes as ``binlog_snapshot_file`` and ``binlog_snapshot_position`` up to where the log has
what the snapshot sees: exactly the transactions that end at or below. So nothing is locked while a chunk is read, and
nothing is written.

The promise does not hold for transactions of XA: ``XA COMMIT`` is in the log before they become visible, and a
snapshot in between does not wait. So such transactions are waited for after the log was read, and a chunk that is read
then counts as if it saw the log only up to before the next one of them. What comes from there on is applied to its rows
once more: the log has whole rows, and the last change of a row decides.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from odi_assets.errors import IdentityMismatchError, SourceError
from odi_assets.sources.cdc.binlog.binary_log import PATIENCE, BinaryLog, LogPart
from odi_assets.sources.cdc.binlog.session import BinlogSession
from odi_assets.sources.cdc.mark import CaptureMark
from odi_assets.sources.sql.keys import utf8_text

_OLDEST = (10, 5)
"""Since this version, the log may name columns, and a right of its own lets users see where it stands."""
_COLLATIONS_APART = (10, 10)
_LONGEST_READ = 64 << 20
"""Bytes of its log that a server is asked to read, to say which transaction ends at a position."""


class MariadbSession(BinlogSession):
    """A session of MariaDB with fixed settings."""

    SETTINGS = (
        "SET time_zone = '+00:00', sql_mode = '', max_statement_time = 0, net_write_timeout = 600",
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    )
    SECTION = "mariadbd"
    BEFORE_DUMP = "SET @mariadb_slave_capability = 4, @master_binlog_checksum = @@global.binlog_checksum"
    REPLICAS = "SHOW SLAVE HOSTS"
    PREPARED = "XA RECOVER FORMAT='SQL'"
    RIGHTS = "REPLICATION SLAVE, BINLOG MONITOR"
    RIGHTS_OF_REPLICAS = "REPLICATION MASTER ADMIN"

    @property
    def status_query(self) -> str:
        return "SHOW MASTER STATUS"

    @property
    def why_too_old(self) -> str | None:
        if self.version >= _OLDEST:
            return None
        return (
            f"the server is too old ({self.shown_version}): before version {'.'.join(map(str, _OLDEST))}, the log of "
            "MariaDB does not say what columns are called"
        )

    @property
    def is_replica(self) -> bool:
        (row,) = self.rows("SHOW GLOBAL STATUS LIKE 'Slaves_running'")
        return int(row[1]) > 0

    def system(self) -> str:
        return self.variable("server_uid") or f"server_id {self.variable('server_id')}"

    @cached_property
    def charsets(self) -> dict[int, str]:
        apart = self.version >= _COLLATIONS_APART
        return self._charsets_in("collation_character_set_applicability" if apart else "collations")


class MariadbLog(BinaryLog):
    """The binary log of a MariaDB server."""

    def require(self, mark: CaptureMark | None) -> None:
        super().require(mark)
        gtid = "" if mark is None or mark.binlog is None else mark.binlog.gtid
        if mark is None or not gtid:
            return
        file, _, offset = mark.text(mark.lsn).rpartition(":")
        # The server reads the file up to there.
        if file not in self._session.files() or int(offset) > _LONGEST_READ:
            return
        # The last transaction of each domain up to there; NULL where no transaction ends.
        (row,) = self._session.rows(f"SELECT BINLOG_GTID_POS({utf8_text(file)}, {offset})")
        if gtid not in str(row[0] or "").split(","):
            raise IdentityMismatchError(
                f"{self._label}: the transaction {gtid} was captured at {mark.text(mark.lsn)}, and the log has "
                "another one there: it was put back from an older copy of its data",
                fix=self._database.again,
            )

    def _first_position(self, end: int) -> int:
        with self._seen_from(0) as (_, seen):
            # The log may end behind what any snapshot sees: it has more than transactions.
            return min(seen, end)

    def _settle(self, part: LogPart) -> None:
        of_xa = [transaction for transaction in part.transactions if transaction.xa]
        self._await_ended({transaction.xa for transaction in of_xa}, "are in the log, and not seen by anybody")
        self.of_xa = [transaction.position for transaction in of_xa]
        if part.transactions:
            self.settled = max(self.settled, part.transactions[-1].position)

    @contextmanager
    def _snapshot(self, mark: CaptureMark) -> Iterator[tuple[BinlogSession, int]]:
        with self._seen_from(mark.lsn) as snapshot:
            yield snapshot

    @contextmanager
    def _seen_from(self, least: int) -> Iterator[tuple[BinlogSession, int]]:
        deadline = time.monotonic() + PATIENCE
        with self._another() as session:
            while True:
                session.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                seen = dict(session.rows("SHOW STATUS LIKE 'binlog_snapshot_%'"))
                file, offset = seen["Binlog_snapshot_file"], seen["Binlog_snapshot_position"]
                position = int(str(file).rpartition(".")[2]) << 32 | int(offset)
                if position >= least:
                    break
                session.rows("ROLLBACK")
                if time.monotonic() > deadline:
                    raise SourceError(
                        f"{self._label}: a transaction that is in the log is not seen by anybody, for {PATIENCE:.0f} "
                        "seconds now: its commit waits for a replica",
                        fix="SHOW PROCESSLIST shows what it waits for; the next run tries again",
                        label=self._label,
                    )
                time.sleep(0.05)
            yield session, position
            session.rows("ROLLBACK")
