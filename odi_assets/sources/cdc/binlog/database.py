"""A server of MariaDB or MySQL whose binary log is captured.

The log is read as `mysqlbinlog` reads it: from a position to the end that it has then, without waiting, and without a
number of its own unless one is given. The server keeps nothing for such a reader, and no replica is disturbed: it is
replicas with one number that drive each other out. All values are written by sessions with fixed settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from odi_assets.config.models.databases import LogSettings, ServerConnection
from odi_assets.errors import ConfigError
from odi_assets.sources.cdc.binlog.binary_log import BinaryLog
from odi_assets.sources.cdc.binlog.mariadb import MariadbLog, MariadbSession
from odi_assets.sources.cdc.binlog.mysql import MysqlLog, MysqlSession
from odi_assets.sources.cdc.binlog.session import BinlogSession
from odi_assets.sources.cdc.database import LoggedDatabase
from odi_assets.sources.sql import position as plain
from odi_assets.sources.sql.dialects import Dialect
from odi_assets.sources.sql.errors import database_error
from odi_assets.util.extras import install_command
from odi_assets.util.lazy import pymysql

_SILENCE_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class BinlogDatabase(LoggedDatabase):
    """A server whose binary log is captured.

    Attributes:
        log: how the log is read.
    """

    log: LogSettings

    @property
    def warn_lag(self) -> int:
        return self.log.warn_lag

    @property
    def name(self) -> str:
        return f"{self.dialect.database}:binlog"

    @property
    def cursor_name(self) -> str:
        return "binlog"

    @property
    def uri(self) -> str:
        return f"{self.dialect.uri}/binlog"

    @contextmanager
    def opened(self) -> Iterator[BinaryLog]:
        with connected(self.dialect, self.label) as session:
            kind = MysqlLog if isinstance(session, MysqlSession) else MariadbLog
            yield kind(self, session, self.log.server_id or 0, lambda: connected(self.dialect, self.label))


@contextmanager
def connected(dialect: Dialect, label: str) -> Iterator[BinlogSession]:
    """A session of a server of MariaDB or MySQL.

    Raises:
        ConfigError: the driver is not installed.
        SourceError: the server cannot be reached, or refuses what is asked of it.
    """
    if plain.installed_driver(dialect) is None:
        raise ConfigError(f"{label}: its log is read with PyMySQL", fix=f"run: {install_command('mysql')}")
    connection = dialect.connection
    if not isinstance(connection, ServerConnection):
        raise AssertionError("logs are captured from servers")
    try:
        with closing(plain.mysql_connection(pymysql, connection, _SILENCE_SECONDS)) as opened:
            kind = MariadbSession if "mariadb" in _version(opened).lower() else MysqlSession
            session = kind(opened, dialect, label)
            # A server that is too old may not know them.
            for setting in kind.SETTINGS if session.why_too_old is None else ():
                session.rows(setting)
            yield session
    except (pymysql.Error, OSError) as error:
        raise database_error(f"{type(error).__name__}: {error}", dialect, label) from None


def _version(opened: Any) -> str:
    # What a server says of itself when it is connected to may be a proxy's.
    with closing(opened.cursor()) as cursor:
        cursor.execute("SELECT VERSION()")
        return str(cursor.fetchone()[0])
