"""Rows of tables as a consistent snapshot of a server has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odi_assets.sources.cdc.binlog.session import BinlogSession
from odi_assets.sources.cdc.changes import Transactions, Values
from odi_assets.sources.cdc.database import CapturedTable, SnapshotReader
from odi_assets.sources.cdc.log import Shape

if TYPE_CHECKING:
    from odi_assets.sources.cdc.binlog.binary_log import BinaryLog


class BinlogReader(SnapshotReader):
    """A consistent snapshot of a MariaDB server, and the position of the log that it sees."""

    def __init__(self, session: BinlogSession, position: int, log: BinaryLog) -> None:
        self._session, self._position, self._log = session, position, log
        self._settled = log.settled

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._session.rows(query)

    def sees(self, transactions: Transactions) -> Any:
        unknown = [position for position in self._log.of_xa if position > self._settled]
        return transactions.lsn <= min([self._position, *(position - 1 for position in unknown)])

    def log_end(self) -> int:
        return self._position

    def shape(self, table: CapturedTable) -> Shape:
        # From now on, no statement changes the columns of the table; if one has since the snapshot, this is an error.
        self._session.rows(f"SELECT 1 FROM {table.quoted} LIMIT 1")
        return self._session.shapes([table])[table.name]

    def publishing(self, table: CapturedTable) -> str:
        del table
        return ""

    def texts(self, relation: str, shape: Shape, where: str) -> tuple[Any, Values]:
        return self._session.texts(relation, shape, where)
