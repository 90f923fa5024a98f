"""Where a database's cursor stands, asked over a plain Python driver: no Spark, and no JVM.

The drivers are extras of this package; without one, Spark asks the same. What is sent is made by ``dialects`` and
``statements`` either way.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

from odi_assets.config.models import SqlConnection
from odi_assets.sources.cursor.digits import MOST
from odi_assets.sources.cursor.types import TypeName
from odi_assets.sources.sql.columns import sized
from odi_assets.sources.sql.dialects import Dialect, Mssql, Mysql, Postgres
from odi_assets.sources.sql.errors import database_error
from odi_assets.sources.sql.keys import invisible_columns

CONNECT_SECONDS = 5

_POSTGRES_TYPES: Mapping[int, str] = {
    # By the OIDs of pg_type.dat.
    **{17: "binary", 20: "long", 21: "short", 23: "integer", 700: "float", 701: "double", 1700: "decimal(38,18)"},
    **{25: "string", 1042: "string", 1043: "string", 2950: "string"},
    **{1082: "date", 1114: "timestamp_ntz", 1184: "timestamp"},
}
_POSTGRES_NUMERIC, _POSTGRES_TEXTS, _MOST_OF_SECONDS = 1700, (25, 1042, 1043), 6
_MYSQL_TYPES: Mapping[int, str] = {
    # By MySQL's enum_field_types.
    **{0: "decimal(38,18)", 246: "decimal(38,18)", 1: "byte", 2: "short", 3: "integer", 8: "long", 9: "integer"},
    **{4: "float", 5: "double", 7: "timestamp", 10: "date", 12: "timestamp_ntz"},
    **{252: "string", 253: "string", 254: "string"},
}
_MYSQL_UNSIGNED: Mapping[int, str] = {4: "double", 8: "decimal(20,0)"}
_MYSQL_TEXTS, _BINARY_CHARSET, _UNSIGNED = {252, 253, 254}, 63, 32
_NO_PLAIN_TEXT = _UNSIGNED | 256 | 2048
"""Flags of texts that are ordered otherwise: of `inet6`, `inet4` and `uuid`, of ENUM and of SET."""
_MSSQL_TYPES: Mapping[str, str] = {
    # By the names of sys.types.
    **{"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "short", "real": "float", "float": "double"},
    **dict.fromkeys(("decimal", "numeric", "money", "smallmoney"), "decimal(38,18)"),
    **dict.fromkeys(("char", "varchar", "nchar", "nvarchar", "text", "ntext"), "string"),
    **dict.fromkeys(("binary", "varbinary"), "binary"),
    **dict.fromkeys(("datetime", "datetime2", "smalldatetime"), "timestamp_ntz"),
    **{"date": "date", "datetimeoffset": "timestamp"},
}


@dataclass(frozen=True)
class Driver:
    """A plain driver.

    Attributes:
        module: what it is imported as.
        connect: opens a connection with a deadline for each statement, in seconds.
        columns: the columns of a table in SQL, and their types; None for a type that it does not tell exactly.
    """

    module: str
    connect: Callable[[Any, SqlConnection, float], Any]
    columns: Callable[[Any, str], dict[str, TypeName | None]]

    installed: ClassVar[dict[str, bool]] = {}

    @property
    def is_installed(self) -> bool:
        if self.module not in self.installed:
            self.installed[self.module] = importlib.util.find_spec(self.module) is not None
        return self.installed[self.module]


@dataclass(frozen=True)
class Session:
    """An open connection of a plain driver."""

    opened: Any
    driver: Driver

    def columns(self, relation: str) -> dict[str, TypeName | None]:
        """The columns of a relation, and their types as Spark writes them in JSON; None for any other type."""
        with closing(self.opened.cursor()) as cursor:
            return self.driver.columns(cursor, relation)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a small query."""
        with closing(self.opened.cursor()) as cursor:
            cursor.execute(query)
            return [tuple(row) for row in cursor.fetchall()]


def driver_of(dialect: Dialect) -> Driver | None:
    """The plain driver of a database, if it is installed and may be used."""
    return installed_driver(dialect) if dialect.connection.look_timeout > 0 else None


def installed_driver(dialect: Dialect) -> Driver | None:
    """The plain driver of a database, if it is installed."""
    driver = _DRIVERS.get(type(dialect))
    return driver if driver is not None and driver.is_installed else None


def ask(dialect: Dialect, driver: Driver, label: str, question: Callable[[Session], Any]) -> Any:
    """The answer to ``question``, on a connection of its own.

    Raises:
        SourceError: the database cannot be reached, or does not answer.
    """
    module = importlib.import_module(driver.module)
    try:
        with closing(driver.connect(module, dialect.connection, dialect.connection.look_timeout)) as opened:
            return question(Session(opened, driver))
    except (module.Error, OSError) as error:
        raise database_error(f"{type(error).__name__}: {error}", dialect, label) from None


def _credentials(connection: SqlConnection) -> dict[str, str]:
    password = connection.password.get_secret_value() if connection.password is not None else None
    credentials = {"user": connection.user, "password": password}
    return {name: value for name, value in credentials.items() if value is not None}


def _postgres(module: Any, connection: Any, seconds: float) -> Any:
    settings = {"statement_timeout": int(seconds * 1000), "default_transaction_read_only": "on"}
    return postgres_connection(module, connection, settings)


def postgres_connection(module: Any, connection: Any, settings: Mapping[str, Any]) -> Any:
    """A connection of psycopg with the settings of all sessions, and further ones."""
    settings = {name.lower(): value for name, value in Postgres.settings.items()} | dict(settings)
    of_libpq = ("sslmode", "sslrootcert", "sslcert", "sslkey")
    return module.connect(
        host=connection.host,
        port=connection.port,
        dbname=connection.database,
        connect_timeout=CONNECT_SECONDS,
        client_encoding="utf8",
        options=" ".join(f"-c {name}={str(value).replace(' ', '')}" for name, value in settings.items()),
        autocommit=True,
        **_credentials(connection),
        **{name: connection.options[name] for name in of_libpq if name in connection.options},
    )


def _postgres_columns(cursor: Any, relation: str) -> dict[str, TypeName | None]:
    cursor.execute(f"SELECT * FROM {relation} odi WHERE 1 = 0")
    return {column.name: _postgres_type(column) for column in cursor.description}


def _postgres_type(column: Any) -> TypeName | None:
    name = _POSTGRES_TYPES.get(column.type_code)
    if column.type_code == _POSTGRES_NUMERIC:
        return sized(name, MOST if column.scale is None else column.scale)
    if column.type_code in _POSTGRES_TEXTS:
        return sized(name, MOST if column.display_size is None else column.display_size)
    return sized(name, _MOST_OF_SECONDS if column.precision is None else column.precision)


def _mysql(module: Any, connection: Any, seconds: float) -> Any:
    return mysql_connection(module, connection, seconds)


def mysql_connection(module: Any, connection: Any, seconds: float) -> Any:
    """A connection of PyMySQL, which begins as all sessions do.

    Args:
        seconds: the longest time that the server may say nothing.
    """
    wants_tls = connection.options.get("sslMode", "disable").lower() not in ("disable", "disabled")
    return module.connect(
        host=connection.host,
        port=connection.port,
        database=connection.database,
        connect_timeout=CONNECT_SECONDS,
        read_timeout=seconds,
        write_timeout=seconds,
        charset="utf8mb4",
        init_command=Mysql.session,
        autocommit=True,
        ssl={"ca": connection.options.get("serverSslCert")} if wants_tls else None,
        **_credentials(connection),
    )


def _mysql_columns(cursor: Any, relation: str) -> dict[str, TypeName | None]:
    invisible = []
    if not relation.startswith("("):
        cursor.execute(invisible_columns(relation))
        invisible = [f"`{str(row[0]).replace('`', '``')}`" for row in cursor.fetchall()]
    cursor.execute(f"SELECT {', '.join(['*', *invisible])} FROM {relation} odi WHERE 1 = 0")
    # Of what the server says of a column, DB-API's description has neither its character set nor its sign.
    return {field.name: _mysql_type(field) for field in cursor._result.fields}


def _mysql_type(field: Any) -> TypeName | None:
    if field.type_code in _MYSQL_TEXTS and field.charsetnr == _BINARY_CHARSET:
        return "binary"
    if field.type_code in _MYSQL_TEXTS and field.flags & _NO_PLAIN_TEXT:
        return None
    if field.type_code in _MYSQL_UNSIGNED and field.flags & _UNSIGNED:
        # Spark's type, which has a sign.
        return _MYSQL_UNSIGNED[field.type_code]
    # Of a text, four bytes for each character: sessions have UTF-8.
    kept = field.length // 4 if field.type_code in _MYSQL_TEXTS else field.scale
    return sized(_MYSQL_TYPES.get(field.type_code), kept)


def _mssql(module: Any, connection: Any, seconds: float) -> Any:
    return module.connect(
        server=connection.host,
        port=str(connection.port),
        database=connection.database,
        login_timeout=CONNECT_SECONDS,
        timeout=max(1, int(seconds)),
        charset="UTF-8",
        autocommit=True,
        **_credentials(connection),
    )


def _mssql_columns(cursor: Any, relation: str) -> dict[str, TypeName | None]:
    query = f"SELECT * FROM {relation} odi".replace("'", "''")
    cursor.execute(f"SELECT name, system_type_name FROM sys.dm_exec_describe_first_result_set(N'{query}', NULL, 0)")
    return {name: _mssql_type(str(kind)) for name, kind in cursor.fetchall()}


def _mssql_type(kind: str) -> TypeName | None:
    # `decimal(10,2)`, `datetime2(3)`: the last number is of digits after the point.
    digits = re.search(r"(\d+)\)$", kind)
    return sized(_MSSQL_TYPES.get(kind.partition("(")[0]), int(digits[1]) if digits else None)


_DRIVERS: Mapping[type[Dialect], Driver] = {
    Postgres: Driver("psycopg", _postgres, _postgres_columns),
    Mysql: Driver("pymysql", _mysql, _mysql_columns),
    Mssql: Driver("pymssql", _mssql, _mssql_columns),
}
