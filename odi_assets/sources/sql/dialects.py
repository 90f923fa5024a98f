"""What databases say each in their own way: addresses, names, constants, and the order of values.

A cursor is compared by the database, and by us when state is compared with a bound. Both have to order values alike:
numbers by all their digits, text by its code points whatever the collation, times as instants whatever the session's
zone. So every constant, comparison and maximum that is sent to a database is written here, and values that come back
are written out as text that says them exactly.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any, ClassVar
from urllib.parse import quote

from odi_assets.config.models import (
    JdbcConnection,
    ServerConnection,
    SqlConnection,
)

INT, DECIMAL, FLOAT, STR, BYTES, DATE = "int", "decimal", "float", "str", "bytes", "date"
INSTANT, LOCAL_TIME = "datetime with a zone", "datetime without a zone"
"""Kinds of values, as the state layer calls them."""


@dataclass(frozen=True)
class Unordered:
    """The type of a column whose values the database does not order as state does.

    Attributes:
        name: what the database, or its driver, calls the type.
    """

    name: str


@dataclass(frozen=True)
class Dialect(ABC):
    """How one database is spoken to.

    ``expression`` stands for SQL: a quoted column, or several in COALESCE.
    """

    connection: SqlConnection

    driver: ClassVar[str]
    """Class of the JDBC driver."""
    package: ClassVar[str]
    """Maven coordinates of the JARs that hold it."""
    extra: ClassVar[str | None] = None
    """The extra of this package that installs the plain Python driver; None: there is none."""
    session: ClassVar[str | None] = None
    """The statement that every session begins with: nothing that the server or the user's role is set to may change,
    cut or stop what is read."""
    kinds: ClassVar[frozenset[str]] = frozenset({INT, DECIMAL, FLOAT, STR, BYTES, DATE, INSTANT, LOCAL_TIME})
    """The kinds of values that it orders as we do."""
    ordered: ClassVar[frozenset[str] | None] = None
    """The types of which that is known, as its driver calls them; None: the kinds alone decide. The values of others
    come over as texts or numbers too, and may be ordered otherwise."""

    unknown_types: ClassVar[frozenset[str]] = frozenset()
    """Declared types of columns that Spark does not know; there may be more."""

    double: ClassVar[str] = "DOUBLE PRECISION"
    """Its type of floats of 64 bits, in CAST."""

    selects_without_from: ClassVar[bool] = True
    """It takes a SELECT of subqueries alone."""

    clock: ClassVar[str | None] = None
    """Its clock as SQL, in UTC, written out as :func:`parsed` reads times without a zone; None: it is not asked."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The JDBC address, without secrets."""

    @property
    def uri(self) -> str:
        """The database in words, without secrets."""
        return self.url.removeprefix("jdbc:").partition("?")[0].partition(";")[0]

    @property
    def database(self) -> str:
        """The database's name, the same wherever it is moved to."""
        return "" if isinstance(self.connection, JdbcConnection) else self.connection.database

    @property
    def driver_class(self) -> str:
        """The class of the JDBC driver to use."""
        return self.connection.driver or self.driver

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the JDBC driver: those without which values would come as others than they are stored, and
        those that have it send numbers as they are, which is quicker than as text."""
        return {}

    def quoted(self, name: str) -> str:
        """A name as SQL."""
        return '"' + name.replace('"', '""') + '"'

    def table(self, name: str) -> str:
        """A table with its schema as SQL; a name that has quotes already is left as it is."""
        if any(mark in name for mark in '"`['):
            return name
        return ".".join(self.quoted(part) for part in name.split("."))

    @abstractmethod
    def text(self, expression: str, kind: str | None) -> str:
        """A value written out: times in ISO 8601, instants in UTC, numbers with all digits."""

    def written(self, expression: str) -> str:
        """A value of any type written out, as the database does it."""
        return self.text(expression, None)

    def no_plain_array(self, expression: str, depth: int, element: str) -> str | None:
        """The condition of arrays that no array of Spark holds; None where there are no arrays.

        Args:
            depth: how many dimensions Spark's has.
            element: the type of its elements, as Spark calls it.
        """
        del expression, depth, element
        return None

    def cursor(self, expression: str, kind: str) -> str:
        """A value so that the database orders it as we do; NULL for NaN and infinity, which order nothing."""
        del kind
        return expression

    def below_all(self, cursor: str, kind: str) -> str | None:
        """The condition of values that no HWM holds and that are below all others; None where there are none.

        No increment would read them, and :meth:`greatest` does not show them.
        """
        del cursor, kind
        return None

    def greatest(self, cursor: str, kind: str, function: str = "MAX") -> str:
        """The greatest (or ``MIN``, the least) of a cursor, written out; text and bytes in hexadecimal."""
        return self.text(f"{function}({cursor})", kind)

    def number(self, expression: str) -> str:
        """A bit string as a number; the expression itself where it needs no change."""
        return expression

    @abstractmethod
    def literal(self, value: Any, kind: str) -> str:
        """A value of a cursor as a constant that means the same in every session."""


class Postgres(Dialect):
    """PostgreSQL. Text is compared in the collation "C", by code points (its manual, "Collation Support")."""

    driver = "org.postgresql.Driver"
    package = "org.postgresql:postgresql:42.7.8"
    extra = "postgres"
    settings: ClassVar[Mapping[str, str]] = {
        "TimeZone": "UTC",
        "DateStyle": "ISO, MDY",
        "IntervalStyle": "postgres",
        # Below 1, floats lose digits: as a cursor, such a text is above or below the value that it is of.
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "lc_monetary": "C",
        # Limits of roles are made for short queries. A read is idle in its transaction while its rows are written.
        **dict.fromkeys(("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"), "0"),
    }
    """What sessions are set to."""
    # Of settings of later versions, those that are there.
    session = (
        "SELECT set_config(s.name, v.setting, false) FROM pg_catalog.pg_settings s JOIN (VALUES "
        + ", ".join(f"('{name}', '{value}')" for name, value in {**settings, "transaction_timeout": "0"}.items())
        + ") v(name, setting) ON s.name = v.name"
    )
    ordered = frozenset(
        {"int2", "int4", "int8", "smallserial", "serial", "bigserial", "numeric", "float4", "float8"}
        | {"text", "varchar", "bpchar", "name", "citext", "bytea", "uuid"}
        | {"date", "time", "timestamp", "timestamptz"}
    )
    clock = "CAST(CURRENT_TIMESTAMP AT TIME ZONE 'UTC' AS text)"
    unknown_types = frozenset({"refcursor", "money[]"})
    connection: ServerConnection

    @property
    def url(self) -> str:
        server = self.connection
        return f"jdbc:postgresql://{_host(server.host)}:{server.port}/{quote(server.database, safe='')}"

    @property
    def properties(self) -> dict[str, str]:
        return {"prepareThreshold": "-1"}

    def text(self, expression: str, kind: str | None) -> str:
        if kind == INSTANT:
            expression = f"({expression}) AT TIME ZONE 'UTC'"
        elif kind == FLOAT:
            expression = f"CAST({expression} AS float8)"
        return f"CAST({expression} AS text)"

    def no_plain_array(self, expression: str, depth: int, element: str) -> str | None:
        others = [f"array_ndims({expression}) <> {depth}"]
        others += [f"array_lower({expression}, {number}) <> 1" for number in range(1, depth + 1)]
        number = re.fullmatch(r"decimal\((\d+),(\d+)\)", element)
        if number:
            digits, scale = int(number[1]), int(number[2])
            odd = f"odi_item = 'NaN' OR abs(odi_item) >= 1e{digits - scale} OR odi_item <> round(odi_item, {scale})"
            others.append(f"EXISTS (SELECT 1 FROM unnest({expression}) odi_item WHERE {odd})")
        # An empty array has no dimensions.
        return f"COALESCE({' OR '.join(others)}, FALSE)"

    def cursor(self, expression: str, kind: str) -> str:
        if kind == STR:
            return f'CAST({expression} AS text) COLLATE "C"'
        if kind != FLOAT:
            return expression
        # It orders NaN above all numbers: as an HWM, it would end the increments. -Infinity is below all of them: a
        # first run alone would read it.
        return f"NULLIF(NULLIF(NULLIF({expression}, 'NaN'), 'Infinity'), '-Infinity')"

    def below_all(self, cursor: str, kind: str) -> str | None:
        if kind == DECIMAL:
            # Versions before 14 have no infinity of numbers to compare with; no finite number reaches beyond this.
            return f"{cursor} < -9e131071"
        return f"{cursor} = '-infinity'" if kind in (DATE, INSTANT, LOCAL_TIME) else None

    def greatest(self, cursor: str, kind: str, function: str = "MAX") -> str:
        if kind == STR:
            return f"encode(convert_to({function}({cursor}), 'UTF8'), 'hex')"
        # It has no max(bytea) before version 18; hexadecimal text has the order of its bytes.
        return (
            f"{function}(encode({cursor}, 'hex') COLLATE \"C\")"
            if kind == BYTES
            else self.text(f"{function}({cursor})", kind)
        )

    def literal(self, value: Any, kind: str) -> str:
        if kind == STR:
            return f"convert_from(decode('{value.encode().hex()}', 'hex'), 'UTF8')"
        if kind == BYTES:
            return f"decode('{value.hex()}', 'hex')"
        if kind == FLOAT:
            return f"CAST('{value!r}' AS float8)"
        if kind == INSTANT:
            return f"TIMESTAMPTZ '{_time(value)}+00'"
        return _standard(value, kind)


def _without(*modes: str) -> str:
    """The `sql_mode` of a server of MySQL without some of its words; MySQL compares no date 0000-00-00 with others."""
    return reduce(lambda text, mode: f"REPLACE({text}, '{mode}', '')", modes, "@@sql_mode")


class Mysql(Dialect):
    """MySQL and MariaDB. Text is compared as bytes of UTF-8: collations may ignore capitals and spaces at the end."""

    driver = "org.mariadb.jdbc.Driver"
    package = "org.mariadb.jdbc:mariadb-java-client:3.5.6"
    extra = "mysql"
    # A TIMESTAMP is an instant that is written, and compared, in the session's zone. DEFAULT would mean what the server
    # is set to. Of `sql_mode`, the language that queries are written in stays. In the comments is what MariaDB, or
    # MySQL, knows alone.
    session = (
        "SET time_zone = '+00:00', sql_select_limit = 18446744073709551615, sql_big_selects = 1, "
        f"sql_mode = {_without('PAD_CHAR_TO_FULL_LENGTH', 'TRADITIONAL', 'NO_ZERO_IN_DATE', 'NO_ZERO_DATE')}, "
        "group_concat_max_len = CAST(GREATEST(@@group_concat_max_len, 1048576) AS UNSIGNED) "
        "/*M!100101 , max_statement_time = 0 */ /*M!100304 , system_versioning_asof = DEFAULT */ "
        "/*!50708 , max_execution_time = 0 */ /*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
    )
    ordered = frozenset(
        {"tinyint", "smallint", "mediumint", "int", "integer", "bigint", "decimal", "float", "double", "bit"}
        | {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
        | {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
        | {"date", "datetime", "timestamp"}
    )
    double = "DOUBLE"
    clock = "CAST(UTC_TIMESTAMP(6) AS CHAR)"
    unknown_types = frozenset({"uuid"})
    connection: ServerConnection

    @property
    def url(self) -> str:
        server = self.connection
        # Spark recognizes MySQL by the address: otherwise it would write names in quotes, which MySQL reads as text.
        return f"jdbc:mysql://{_host(server.host)}:{server.port}/{server.database}?permitMysqlScheme"

    @property
    def properties(self) -> dict[str, str]:
        is_mysql = self.driver_class.startswith("com.mysql.")
        sent_as_they_are = {"useCursorFetch": "true"} if is_mysql else {"useServerPrepStmts": "true"}
        # Spark asks for the columns of a query before its session begins.
        first = {"sessionVariables": "sql_big_selects=1"}
        return {"tinyInt1isBit": "false", "yearIsDateType": "false", **sent_as_they_are, **first}

    def quoted(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def text(self, expression: str, kind: str | None) -> str:
        if kind in (INT, DECIMAL):
            # In a sum, bits are a number; MySQL would write their bytes.
            expression = f"{expression} + 0"
        return f"CAST({f'CAST({expression} AS DOUBLE)' if kind == FLOAT else expression} AS CHAR)"

    def cursor(self, expression: str, kind: str) -> str:
        return f"CAST(CONVERT({expression} USING utf8mb4) AS BINARY)" if kind == STR else expression

    def greatest(self, cursor: str, kind: str, function: str = "MAX") -> str:
        best = f"{function}({cursor})"
        return f"HEX({best})" if kind in (STR, BYTES) else self.text(best, kind)

    def number(self, expression: str) -> str:
        return f"CAST({expression} AS UNSIGNED)"

    def literal(self, value: Any, kind: str) -> str:
        if kind in (STR, BYTES):
            return f"X'{(value.encode() if kind == STR else value).hex()}'"
        if kind == FLOAT:
            return _exponent(value)
        return f"TIMESTAMP '{_time(value)}'" if kind == INSTANT else _standard(value, kind)


class Mssql(Dialect):
    """SQL Server, 2019 and later. Text is compared as bytes of UTF-8."""

    driver = "com.microsoft.sqlserver.jdbc.SQLServerDriver"
    package = "com.microsoft.sqlserver:mssql-jdbc:13.2.1.jre11"
    extra = "mssql"
    ordered = frozenset(
        {"bigint", "int", "smallint", "tinyint", "decimal", "numeric", "money", "smallmoney", "real", "float"}
        | {"char", "varchar", "nchar", "nvarchar", "text", "ntext", "binary", "varbinary", "timestamp", "rowversion"}
        | {"date", "datetime", "datetime2", "smalldatetime", "datetimeoffset"}
    )
    clock = "CONVERT(nvarchar(40), CAST(SYSUTCDATETIME() AS datetime2(6)), 121)"
    connection: ServerConnection

    @property
    def url(self) -> str:
        server = self.connection
        name = server.database.replace("}", "}}")
        return f"jdbc:sqlserver://{_host(server.host)}:{server.port};databaseName={{{name}}}"

    @property
    def uri(self) -> str:
        return f"sqlserver://{_host(self.connection.host)}:{self.connection.port}/{self.connection.database}"

    def quoted(self, name: str) -> str:
        return "[" + name.replace("]", "]]") + "]"

    def text(self, expression: str, kind: str | None) -> str:
        if kind == INSTANT:
            return f"CONVERT(nvarchar(40), CAST(SWITCHOFFSET({expression}, '+00:00') AS datetime2(6)), 121)"
        if kind in (DATE, LOCAL_TIME):
            # Style 121 is `yyyy-mm-dd hh:mi:ss.fffffff`; of a date, its first ten characters.
            return f"CONVERT(nvarchar(40), CAST({expression} AS {'date' if kind == DATE else 'datetime2(6)'}), 121)"
        # Style 3 of floats: 17 digits, which tell each from all others.
        return f"CONVERT(nvarchar(4000), {expression}{', 3' if kind == FLOAT else ''})"

    def written(self, expression: str) -> str:
        return f"CONVERT(nvarchar(max), {expression})"

    def cursor(self, expression: str, kind: str) -> str:
        if kind in (INSTANT, LOCAL_TIME):
            # Its seventh digit of a second is one more than Spark and state hold.
            return f"CAST({expression} AS {'datetimeoffset' if kind == INSTANT else 'datetime2'}(6))"
        utf8 = f"CAST({expression} AS nvarchar(4000)) COLLATE Latin1_General_100_BIN2_UTF8"
        return f"CAST(CAST({utf8} AS varchar(8000)) AS varbinary(8000))" if kind == STR else expression

    def greatest(self, cursor: str, kind: str, function: str = "MAX") -> str:
        best = f"{function}({cursor})"
        return f"CONVERT(varchar(8000), {best}, 2)" if kind in (STR, BYTES) else self.text(best, kind)

    def literal(self, value: Any, kind: str) -> str:
        if kind in (STR, BYTES):
            return f"0x{(value.encode() if kind == STR else value).hex()}"
        if kind == FLOAT:
            return f"CAST({_exponent(value)} AS float)"
        if kind == INSTANT:
            return f"CAST('{_time(value)} +00:00' AS datetimeoffset(6))"
        if kind == LOCAL_TIME:
            return f"CAST('{_time(value)}' AS datetime2(6))"
        return f"CAST('{value.isoformat()}' AS date)" if kind == DATE else _standard(value, kind)


class Standard(Dialect):
    """Any other database, as far as the SQL standard goes."""

    package = "the Maven coordinates of its JDBC driver"
    kinds = frozenset({INT, DECIMAL, DATE, LOCAL_TIME})
    selects_without_from = False
    connection: JdbcConnection

    @property
    def url(self) -> str:
        return self.connection.url

    @property
    def driver_class(self) -> str:
        return self.connection.driver

    def text(self, expression: str, kind: str | None) -> str:
        # How values are written differs from database to database: the JDBC driver hands them over.
        del kind
        return expression

    def literal(self, value: Any, kind: str) -> str:
        return _standard(value, kind)


_DIALECTS: Mapping[str, type[Dialect]] = {"postgres": Postgres, "mysql": Mysql, "mssql": Mssql, "sql": Standard}


def dialect_of(connection: SqlConnection) -> Dialect:
    """How the database of ``connection`` is spoken to."""
    return _DIALECTS[connection.type](connection)


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _standard(value: Any, kind: str) -> str:
    """A number, a date or a time without a zone as the SQL standard has it."""
    if kind == DATE:
        return f"DATE '{value.isoformat()}'"
    if kind == LOCAL_TIME:
        return f"TIMESTAMP '{_time(value)}'"
    return f"({format(Decimal(value), 'f')})"


def _exponent(value: float) -> str:
    """A float as SQL has it: with an exponent, or it would be a decimal."""
    text = repr(value)
    return f"({text})" if "e" in text else f"({text}e0)"


def _time(value: datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return value.isoformat(sep=" ", timespec="microseconds")


def parsed(text: str | None, kind: str) -> Any:
    """The value that :meth:`Dialect.greatest` wrote out; None for NULL.

    Raises:
        ValueError: no HWM holds it.
    """
    if text is None:
        return None
    if kind == INT:
        return int(text)
    if kind == DECIMAL:
        return _finite(Decimal(text))
    if kind == FLOAT:
        return float(text)
    if kind == STR:
        return bytes.fromhex(text).decode()
    if kind == BYTES:
        return bytes.fromhex(text)
    if kind == DATE:
        return date.fromisoformat(text[:10]) if text[10:] in ("", " 00:00:00.0000000") else date.fromisoformat(text)
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if kind == INSTANT else moment


def _finite(number: Decimal) -> Decimal:
    if not number.is_finite():
        raise ValueError(f"{number} is no number")
    return number


def constant(value: Any, kind: str, *, is_upper: bool = False) -> Any:
    """A bound of a window as a value of the cursor's kind.

    Ranges and rolling windows are bounded by instants. A day lies in them by its midnight; the day that a window begins
    in belongs to it.
    """
    if kind == LOCAL_TIME and isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if kind == INSTANT and isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    if kind != DATE or not isinstance(value, datetime):
        return value
    moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo is not None else value
    begins_a_day = moment.time() == datetime.min.time()
    return moment.date() if begins_a_day or not is_upper else date.fromordinal(moment.toordinal() + 1)
