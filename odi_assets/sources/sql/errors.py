"""What databases and their drivers say when something is wrong, as errors of ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from odi_assets.errors import IncrementError, NothingThereError, SourceError
from odi_assets.sources.sql.dialects import Dialect, Mysql, Postgres, Unordered

_LONGEST = 400
MOST_DIGITS = 38
"""The most digits of a decimal in Spark."""


class UnknownTypeError(SourceError):
    """A column has a type that Spark does not know."""


@dataclass(frozen=True)
class _Failure:
    pattern: re.Pattern[str]
    what: str
    fix: str
    error: type[SourceError]


def _failure(pattern: str, what: str, fix: str, error: type[SourceError] = SourceError) -> _Failure:
    return _Failure(re.compile(pattern, re.IGNORECASE), what, fix, error)


_FAILURES = (
    _failure(
        r"ClassNotFoundException|No suitable driver|Did not find registered driver|ClassNotFound.*Driver",
        "Spark has no JDBC driver {driver}",
        "add `spark: {{packages: [{package}]}}` to the project file, for a session that this project starts; "
        "or put the driver's JAR on the class path of the cluster",
    ),
    _failure(
        r"RSA public key is not available",
        "{uri} refuses the login: the server takes a password over an encrypted connection, or with its key",
        "check `user` and `password` of the connection; if they are right, add `options: {{sslMode: trust}}` to it, or "
        "`options: {{allowPublicKeyRetrieval: true}}` where nobody listens in between",
    ),
    _failure(
        r"password authentication failed|Access denied for user '[^']*'@'[^']*' \(using|Login failed|"
        r"no pg_hba\.conf entry|no password (was )?supplied|"
        r"role \"[^\"]*\" (does not exist|is not permitted)|"
        r"Unable to load authentication",
        "{uri} refuses the login",
        "check `user` and `password` of the connection",
    ),
    _failure(
        r"database \"[^\"]*\" does not exist|Unknown database|Cannot open database|"
        r"Access denied for user \S+ to database",
        "{uri}: there is no such database, or the user may not open it",
        "check `database` of the connection, and what its user may do",
    ),
    _failure(
        r"query would be affected by row-level security policy",
        "a policy hides rows of it from the user, and `row_security` is off for the user",
        "let the user see all of its rows (BYPASSRLS), or have what the policy shows: ALTER ROLE … SET row_security = "
        "on",
    ),
    _failure(
        r"permission denied|command denied to user|permission was denied|access denied",
        "the user may not read it",
        "let the connection's user SELECT from it",
    ),
    _failure(
        r"statement timeout|max_statement_time|maximum statement execution time|timed out.*read|read.*timed out|"
        r"canceling statement|Lost connection to .* during query \([^)]*timed out",
        "it did not answer in time",
        "an index makes it fast, of the cursor or of what a snapshot is cut by; or set `look_timeout` of the "
        "connection: 0 leaves it to Spark",
    ),
    _failure(
        r"Connection ?Refused|could not connect|Can't connect|connection timeout expired|connection attempt failed|"
        r"UnknownHost|Name or service not known|could not (translate|resolve) host|No route to host|"
        r"Socket fail to connect|connect(ion)? timed out|TCP/IP connection to the host|Unable to connect|"
        r"Adaptive Server connection failed|Failed to connect|server closed the connection|Connection reset|"
        r"connection (is|was|has been) (lost|closed)|Lost connection to|terminating connection|"
        r"Communications link failure|I/O error occurred while sending|server has gone away",
        "{uri} cannot be reached",
        "check `host` and `port` of the connection, and that the server runs; if only Spark can reach it from where it "
        "runs, set `look_timeout: 0`",
    ),
    _failure(
        r"Duplicate column name|was specified multiple times|No column name was specified|"
        r"column reference \S+ is ambiguous|\[COLUMN_ALREADY_EXISTS\]",
        "two of its columns have one name, or one has none (capitals do not count)",
        "name each column by an alias of its own in the `query`, or read the table by one: SELECT id, b AS b2 FROM …",
    ),
    _failure(
        r"column \S+ does not exist|Unknown column|Invalid column name|UNRESOLVED_COLUMN",
        "it has no such column",
        "correct the names of columns in `read`",
    ),
    _failure(
        r"relation \"[^\"]*\" does not exist|schema \"[^\"]*\" does not exist|Table '[^']*' doesn't exist|"
        r"Invalid object name|TABLE_OR_VIEW_NOT_FOUND|Table \"[^\"]*\" not found",
        "there is no such table",
        "check `table`, with its schema, or the query; if it was renamed in the database, write its name there, and "
        "odi state adopt NODE goes on with the mark",
        NothingThereError,
    ),
    _failure(
        r"could not identify an ordering operator|operator does not exist",
        "the database has no order for a column that it is to be ordered by",
        "name other columns: as cursors, or to cut chunks by (`incremental.snapshot.by`)",
    ),
    _failure(
        r"Table definition has changed, please retry",
        "its columns were changed while it was read",
        "nothing of that read was kept, and the next run tries again",
    ),
    _failure(
        r"syntax error|SQL syntax|Incorrect syntax|SQLSyntaxErrorException",
        "the database does not understand the query",
        "correct `query`: a SELECT in the database's own SQL, which has to work in brackets after FROM",
    ),
)
_OF_A_DATABASE = re.compile(
    r"\[FAILED_JDBC|org\.postgresql\.|org\.mariadb\.|com\.mysql\.|com\.microsoft\.sqlserver\.|java\.sql\.|\[ODI_VALUE\]"
)
_UNKNOWN_TYPE = re.compile(r"UNRECOGNIZED_SQL_TYPE|Decimal scale \(\d+\) cannot be greater than precision")
_COLUMN = re.compile(r"column `(.*?)` holds (.*), which is no (\S+)", re.DOTALL)
# In a plan, the words stand in a call.
_VALUE = re.compile(r"(?<!concat\()\[ODI_VALUE\] (.*?) \[/ODI_VALUE\]", re.DOTALL)
VALUE = "[ODI_VALUE] {} [/ODI_VALUE]"
"""How a worker of Spark reports a value that cannot be represented."""


def refused_value(text: str) -> str | None:
    """What a text of Spark's says of a value that its type does not hold; None if it is about something else."""
    match = _VALUE.search(text)
    return None if match is None else match[1]


def same_names(text: str, dialect: Dialect, label: str) -> SourceError | None:
    """The error over columns that Spark cannot tell by their names; None if its text is about something else."""
    return database_error(text, dialect, label) if "[COLUMN_ALREADY_EXISTS]" in text else None


def of_spark(text: str, dialect: Dialect, label: str, ordered_by: Collection[str] = frozenset()) -> SourceError | None:
    """The error that a text of Spark's means, if it is about a database.

    Args:
        ordered_by: the columns that rows are ordered or cut by.
    """
    if _UNKNOWN_TYPE.search(text):
        return UnknownTypeError(f"{label} has a column of a type that Spark does not know", label=label)
    if not _OF_A_DATABASE.search(text) and not _FAILURES[0].pattern.search(text):
        return None
    value = refused_value(text)
    if value is not None:
        return SourceError(f"{label}: {value}", fix=_way_on(value, dialect, ordered_by), label=label)
    return database_error(text, dialect, label)


def _way_on(what: str, dialect: Dialect, ordered_by: Collection[str]) -> str:
    """What to do about a value that Spark's type does not hold."""
    column = _COLUMN.search(what)
    name = column[1] if column else ""
    if column and name in ordered_by:
        return (
            f"rows are ordered or cut by `{name}`: correct it at the source; or read a `query` that selects "
            f"{_in_order(column[2], column[3], dialect, name)}"
        )
    shown = name if re.fullmatch(r"\w+", name) else "'" + name.replace("'", "''") + "'"
    sql = dialect.written(dialect.quoted(name)).replace("'", "''")
    return (
        f"correct it at the source; or ask for something else in `read`: `columns: {{{shown}: '{sql}'}}` reads the "
        "column as text, and an expression of its own type (CASE, NULLIF) keeps the type that the node's table has"
    )


def _in_order(value: str, kind: str, dialect: Dialect, name: str) -> str:
    """What to select in the place of a column: it as one of a type that holds a value and keeps the order; or it
    without the value, which none holds.

    Args:
        kind: the type that does not hold it.
    """
    column = dialect.quoted(name)
    number = re.fullmatch(r"[+-]?(\d+)(?:\.(\d+))?", value) if kind.startswith("decimal") else None
    if number is None:
        return f"`NULLIF({column}, '{value}') AS {column}` in its place, which keeps the order"
    before, after = len(number[1].lstrip("0")), len(number[2] or "")
    _, scale = (int(part) for part in re.findall(r"\d+", kind))
    # What is too long behind the point leaves the other digits to what is before it, and the other way round.
    scale = after if after > scale else MOST_DIGITS - before
    as_double = f"`CAST({column} AS {dialect.double}) AS {column}` in its place, which keeps the order"
    if before + scale > MOST_DIGITS or scale < 0:
        return as_double
    return (
        f"`CAST({column} AS DECIMAL({MOST_DIGITS},{scale})) AS {column}` in its place, if no value has more than "
        f"{MOST_DIGITS - scale} digits before the point, or {scale} after it; or else {as_double}, and makes ties of "
        "values with the same first 15 digits (as a `stateful` cursor, with `boundary: closed`)"
    )


_MONTHS = "(extract(year FROM {0}) * 12 + extract(month FROM {0})) * 2592000"
_POSTGRES_ORDERS: Mapping[str, str] = {
    "xid8": "CAST(CAST({0} AS text) AS numeric(20,0))",
    "pg_lsn": "CAST({0} - '0/0' AS numeric(20,0))",
    "oid": "CAST({0} AS bigint)",
    "money": "CAST({0} AS numeric(38,2))",
    # PostgreSQL compares intervals with months of 30 days; the epoch of a year has a quarter of a day more.
    "interval": f"CAST({_MONTHS} + extract(epoch FROM {{0}} - date_trunc('month', {{0}})) AS numeric(38,6))",
    "timetz": "CAST(extract(epoch FROM {0}) AS numeric(38,6))",
    **dict.fromkeys(("macaddr", "macaddr8", "bit", "varbit"), "CAST({0} AS text)"),
}
_MYSQL_ORDERS: Mapping[str, str] = {
    **dict.fromkeys(("enum", "set", "enum or set"), "CAST({0} AS UNSIGNED)"),
    "time": "TIME_TO_SEC({0})",
    "inet": "INET6_ATON({0})",
}
"""By type, what orders its values as the database does, and is of a type that can be a cursor."""


def no_order(column: str, kind: Unordered, dialect: Dialect, label: str) -> IncrementError:
    """The error for a cursor of a type whose values the database orders otherwise than state does, or not at all."""
    name, others = dialect.quoted(column), "choose a column of numbers, text, bytes, dates or times"
    expression = {Postgres: _POSTGRES_ORDERS, Mysql: _MYSQL_ORDERS}.get(type(dialect), {}).get(kind.name)
    if expression is not None:
        fix = f"read a `query` that selects `{expression.format(name)} AS {name}` in its place, which keeps the order"
    elif isinstance(dialect, Postgres):
        fix = (
            f"read a `query` with a cast that keeps the order: of an ENUM, `array_position(enum_range({name}), {name})`"
        )
    else:
        fix = "read a `query` with a cast to one of them that keeps the order"
    return IncrementError(
        f"`{column}` of {label} is {kind.name}, and no cursor: it does not put rows in an order that state has too",
        fix=f"{fix}; or {others}" if expression or isinstance(dialect, Postgres) else f"{others}; or {fix}",
        column=column,
    )


def database_error(text: str, dialect: Dialect, label: str) -> SourceError:
    """The error that a text of a database or its driver means."""
    shown = " ".join(_without_password(text, dialect).split())
    for failure in _FAILURES:
        if failure.pattern.search(text):
            names = {"uri": dialect.uri, "driver": dialect.driver_class, "package": dialect.package}
            what = f"{failure.what.format(**names)}: {_telling(shown, failure.pattern)}"
            return failure.error(f"{label}: {what}", fix=failure.fix.format(**names), label=label)
    return SourceError(f"{label} cannot be read: {shown[:_LONGEST]}", fix="see what the database says", label=label)


def _telling(text: str, pattern: re.Pattern[str]) -> str:
    """What is around the words that tell."""
    match = pattern.search(text)
    start = max(0, match.start() - _LONGEST // 4) if match else 0
    return text[start : start + _LONGEST].strip()


def _without_password(text: str, dialect: Dialect) -> str:
    password = dialect.connection.password
    return text if password is None else text.replace(password.get_secret_value(), "***")
