"""Keys of tables as PostgreSQL and MySQL order them: what chunks of a snapshot are ranges of.

A bound of a chunk is compared by the database alone, in the column's own order and collation, so that an index serves
it; nothing here has to order keys as state does. Bounds are texts, as the database writes the values.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from odi_assets.config.models import CTID
from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.digits import MOST
from odi_assets.sources.sql.dialects import BYTES, DECIMAL, FLOAT, INT, STR, Dialect, Mysql
from odi_assets.sources.sql.marks import TableChunk, of_length

HEX, NUMBER = "0x", "#"
"""What a bound of bytes begins with, and one of a value that is known by its number, of MySQL."""
OURS = re.compile(r"0x[0-9A-F]*|#\d+", re.DOTALL)
"""A bound that is no text of a value."""
BIT = "boolean"
"""The kind of a key of one bit."""
CODE = "code"
"""The kind of keys that MySQL orders by their numbers: members of ENUM and SET, and bits."""


@dataclass(frozen=True)
class KeyColumn:
    """A key column in SQL. ``kind`` is the kind of the values that bounds are compared with; None if bounds are texts
    that the database reads as values of the column's type. ``order`` is what puts its values in order, in words; empty
    if that is not known."""

    sql: str
    kind: str | None
    order: str = ""


@dataclass(frozen=True)
class Keys(ABC):
    """How one database writes and compares keys."""

    dialect: Dialect

    def column(self, name: str, kind: str | None, declared: str | None) -> KeyColumn:
        """The key column ``name``.

        Args:
            kind: the kind of its values as Spark reads them.
            declared: its type in the result of :meth:`columns`; None for a column of a query.

        Raises:
            IncrementError: the database has no order for it.
        """
        del declared
        return KeyColumn(self.dialect.quoted(name), kind)

    @abstractmethod
    def text(self, key: KeyColumn) -> str:
        """The value of a key written out, so that :meth:`constant` gives it back."""

    @abstractmethod
    def constant(self, text: str, key: KeyColumn) -> str:
        """A key that was written out, as a constant of its column's type."""

    @abstractmethod
    def is_null(self, key: KeyColumn) -> str:
        """Whether a row has no key."""

    @abstractmethod
    def columns(self, table: str) -> str:
        """The query for the names of a table's columns, their types without and with their lengths, and what else puts
        the values of each in order: a collation with its version, or the members of the type."""

    @abstractmethod
    def columns_of_query(self, query: str, names: Sequence[str]) -> str:
        """The same for columns of a query in brackets, which is not evaluated; their lengths are not known."""

    @abstractmethod
    def primary_key(self, table: str) -> str:
        """The query for the columns of a table's primary key, in their order.

        Args:
            table: its name in the project file.
        """

    def within(self, chunk: TableChunk, keys: Sequence[KeyColumn]) -> str:
        """Whether a row is in ``chunk``."""
        bounds = []
        if chunk.low is not None:
            bounds.append(self._from(keys, chunk.low))
        if chunk.high is not None:
            bounds.append(self._before(keys, chunk.high))
        inside = " AND ".join(bounds) or "1 = 1"
        # NULL is neither below nor above a bound: all rows that have one are in the chunk that is open below.
        if chunk.low is None:
            nulls = [self.is_null(key) for key in keys] if chunk.high is not None else []
            return " OR ".join([f"({inside})", *nulls])
        return " AND ".join([inside, *([self.filled(keys)] if len(keys) > 1 else [])])

    def filled(self, keys: Sequence[KeyColumn]) -> str:
        """Whether a row has all of ``keys``."""
        return " AND ".join(f"NOT ({self.is_null(key)})" for key in keys)

    def above(self, keys: Sequence[KeyColumn], bound: Sequence[str]) -> str:
        """Whether the key of a row is greater than ``bound``."""
        return self._beyond(keys, bound, ">", ">")

    def _from(self, keys: Sequence[KeyColumn], bound: Sequence[str]) -> str:
        return self._beyond(keys, bound, ">", ">=")

    def _before(self, keys: Sequence[KeyColumn], bound: Sequence[str]) -> str:
        return self._beyond(keys, bound, "<", "<")

    def _beyond(self, keys: Sequence[KeyColumn], bound: Sequence[str], sign: str, last: str) -> str:
        """The order of several columns: the first that differs decides."""
        pairs = [(key.sql, self.constant(text, key)) for key, text in zip(keys, bound, strict=False)]
        first, text = pairs[0]
        if len(pairs) == 1:
            return f"{first} {last} {text}"
        condition = ""
        for name, value in reversed(pairs):
            further = f" OR ({name} = {value} AND {condition})" if condition else ""
            condition = f"({name} {sign if condition else last} {value}{further})"
        # Says nothing more; an index of the first column serves it.
        return f"{first} {sign}= {text} AND {condition}"


class PostgresKeys(Keys):
    """Keys of PostgreSQL, of any type that has an order."""

    def column(self, name: str, kind: str | None, declared: str | None) -> KeyColumn:
        return KeyColumn(CTID, None) if name == CTID else super().column(name, kind, declared)

    def text(self, key: KeyColumn) -> str:
        return f"CAST({key.sql} AS text)"

    def constant(self, text: str, key: KeyColumn) -> str:
        # The planner leaves the text alone over, as a constant of the column's type, whichever that is.
        return f"COALESCE({postgres_text(text)}, {key.sql})"

    def is_null(self, key: KeyColumn) -> str:
        # A row of which a part is NULL neither IS NULL nor IS NOT NULL.
        return f"{key.sql} IS NOT DISTINCT FROM NULL"

    def columns(self, table: str) -> str:
        return (
            "SELECT attname AS name, CAST(CAST(atttypid AS regtype) AS text) AS declared, "
            # Text is as long as varchar without a length; MySQL's is not.
            "regexp_replace(format_type(atttypid, atttypmod), '^text$', 'character varying') AS with_length, COALESCE("
            f"{_MEMBERS.format('COALESCE(NULLIF(t.typbasetype, 0), t.oid)')}, "
            "(SELECT concat_ws(' ', '', quote_ident(c.collname), CASE c.collprovider WHEN 'd' THEN (SELECT datcollate "
            "FROM pg_database WHERE datname = current_database()) END, pg_collation_actual_version(c.oid)) "
            "FROM pg_collation c WHERE c.oid = attcollation), '') AS ordering "
            "FROM pg_attribute JOIN pg_type t ON t.oid = atttypid "
            f"WHERE attrelid = CAST({self._name(table)} AS regclass) AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attnum"
        )

    def columns_of_query(self, query: str, names: Sequence[str]) -> str:
        each = []
        for name in names:
            key = f"odi.{self.dialect.quoted(name)}"
            kind = f"CAST(pg_typeof({key}) AS text)"
            each.append(
                f"SELECT {postgres_text(name)} AS name, {kind} AS declared, '' AS with_length, "
                f"COALESCE(CASE WHEN {kind} IN "
                f"('text', 'character varying', 'character', 'name') THEN ' ' || pg_collation_for({key}) "
                f"ELSE {_MEMBERS.format(f'pg_typeof({key})')} END, '') AS ordering "
                f"FROM (SELECT 1 AS odi_one) odi_none LEFT JOIN {query} odi ON FALSE"
            )
        return " UNION ALL ".join(each)

    def primary_key(self, table: str) -> str:
        return (
            "SELECT a.attname AS name FROM pg_index i JOIN pg_attribute a "
            "ON a.attrelid = i.indrelid AND a.attnum = ANY((CAST(i.indkey AS int2[]))[0:i.indnkeyatts - 1]) "
            f"WHERE i.indisprimary AND i.indrelid = CAST({self._name(table)} AS regclass) "
            "ORDER BY array_position(CAST(i.indkey AS int2[]), a.attnum)"
        )

    def storage(self, table: str) -> str:
        """The query for what names a table's rows as they are stored, and for the pages of its longest part and of all
        of its parts."""
        pages = "pg_relation_size(p.relid) / CAST(current_setting('block_size') AS bigint)"
        # A partitioned table has no rows and no file of its own; one without partitions has no tree.
        itself = f"CAST({self._name(table)} AS regclass)"
        return (
            "SELECT string_agg(CAST(pg_relation_filenode(p.relid) AS text), ',' ORDER BY p.relid) AS storage, "
            f"CAST(MAX({pages}) AS text) AS pages, CAST(SUM({pages}) AS text) AS all_pages "
            f"FROM (SELECT relid FROM pg_partition_tree({itself}) UNION SELECT {itself}) p"
        )

    def _name(self, table: str) -> str:
        return postgres_text(self.dialect.table(table))


_MEMBERS = (
    "(SELECT '(' || string_agg(quote_literal(enumlabel), ',' ORDER BY enumsortorder) || ')' FROM pg_enum "
    "WHERE enumtypid = {})"
)
"""The members of an ENUM of PostgreSQL; NULL for another type."""


def postgres_text(text: str) -> str:
    """A text of PostgreSQL, whatever its settings are."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


_WHOLE_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
_MYSQL_KINDS = {
    **dict.fromkeys(_WHOLE_NUMBERS, INT),
    "decimal": DECIMAL,
    **dict.fromkeys(("bit", "enum", "set"), CODE),
    **dict.fromkeys(("float", "double"), FLOAT),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), BYTES),
}
"""How keys of MySQL are compared, by their declared types; keys of other types are compared as texts."""
_UNORDERED = frozenset(
    {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
    | {"geometrycollection", "geomcollection"}
)


class MysqlKeys(Keys):
    """Keys of MySQL and MariaDB."""

    def column(self, name: str, kind: str | None, declared: str | None) -> KeyColumn:
        sql = self.dialect.quoted(name)
        if declared in _UNORDERED:
            raise IncrementError(
                f"`{name}` is {declared}, of which no value comes before another: no chunks can be cut by it",
                fix="name other columns in `incremental.snapshot.by`",
                column=name,
            )
        if declared is None:
            # A text of a query may be a member of an ENUM: written out, it is ordered as it is compared.
            return KeyColumn(f"CONCAT({sql})" if kind == STR else sql, DECIMAL if kind == BIT else kind)
        if declared == "set":
            # The number of a SET with 64 members is negative where it is compared by itself.
            sql = f"CAST({sql} AS UNSIGNED)"
        return KeyColumn(sql, _MYSQL_KINDS.get(declared))

    def text(self, key: KeyColumn) -> str:
        if key.kind == BYTES:
            return f"CONCAT('{HEX}', HEX({key.sql}))"
        if key.kind == FLOAT:
            return self.dialect.text(key.sql, FLOAT)
        if key.kind == CODE:
            return f"CONCAT('{NUMBER}', {key.sql} + 0)"
        # In a sum, bits are a number.
        return f"CAST({f'{key.sql} + 0' if key.kind in (INT, DECIMAL) else key.sql} AS CHAR)"

    def constant(self, text: str, key: KeyColumn) -> str:
        if key.kind == BYTES:
            return f"X'{text.removeprefix(HEX)}'"
        if key.kind not in (INT, DECIMAL, FLOAT, CODE):
            return utf8_text(text)
        is_code = key.kind == CODE
        try:
            if text.startswith(NUMBER) is not is_code:
                raise ValueError(text)
            number = Decimal(text.removeprefix(NUMBER))
        except (ValueError, ArithmeticError) as error:
            raise IncrementError(
                f"chunks that are left are cut at {text!r}, and {key.sql} is compared by its number",
                fix="begin the snapshot again with odi run --full-refresh",
                column=key.sql,
            ) from error
        return f"({float(number)!r})" if key.kind == FLOAT else f"({format(number, 'f')})"

    def is_null(self, key: KeyColumn) -> str:
        # The date 0000-00-00 of a column that is NOT NULL "IS NULL", and is not equal to NULL.
        return f"{key.sql} <=> NULL"

    def columns(self, table: str) -> str:
        return (
            "SELECT column_name AS name, data_type AS declared, column_type AS with_length, "
            "CASE WHEN data_type IN ('enum', 'set') "
            "THEN SUBSTRING(column_type, CHAR_LENGTH(data_type) + 1) ELSE COALESCE(CONCAT(' ', collation_name), '') "
            f"END AS ordering FROM information_schema.columns WHERE {self._of(table)} ORDER BY ordinal_position"
        )

    def columns_of_query(self, query: str, names: Sequence[str]) -> str:
        # Its types are those that whoever reads it has seen.
        each = (
            f"SELECT {utf8_text(name)} AS name, 'collation' AS declared, '' AS with_length, "
            f"CONCAT(' ', COLLATION(odi.{self.dialect.quoted(name)})) AS ordering "
            f"FROM (SELECT 1 AS odi_one) odi_none LEFT JOIN {query} odi ON 1 = 0"
            for name in names
        )
        return " UNION ALL ".join(each)

    def primary_key(self, table: str) -> str:
        return (
            "SELECT column_name AS name FROM information_schema.key_column_usage "
            f"WHERE constraint_name = 'PRIMARY' AND {self._of(table)} ORDER BY ordinal_position"
        )

    def _of(self, table: str) -> str:
        return _of_mysql(table)


def _of_mysql(table: str) -> str:
    parts = re.findall(r"`((?:[^`]|``)+)`|([^`.]+)", table)
    *schema, name = [(quoted or plain).replace("``", "`") for quoted, plain in parts]
    where = utf8_text(schema[0]) if schema else "DATABASE()"
    return f"table_schema = {where} AND table_name = {utf8_text(name)}"


def invisible_columns(table: str) -> str:
    """The query for the columns of a table of MySQL that ``SELECT *`` leaves out."""
    return (
        f"SELECT column_name AS name FROM information_schema.columns WHERE {_of_mysql(table)} "
        "AND extra LIKE '%INVISIBLE%' ORDER BY ordinal_position"
    )


def utf8_text(text: str) -> str:
    """A text of MySQL that takes the collation of what it is compared with."""
    return f"_utf8mb4 X'{text.encode().hex()}'"


def keys_of(dialect: Dialect) -> Keys:
    """How the database of ``dialect`` writes and compares keys."""
    return MysqlKeys(dialect) if isinstance(dialect, Mysql) else PostgresKeys(dialect)


_ORDERED_ALIKE = {
    **dict.fromkeys(("smallint", "integer", *_WHOLE_NUMBERS - {"year"}), "whole number"),
    **dict.fromkeys(("character varying", "varchar", "tinytext", "mediumtext", "longtext"), "text"),
}
"""Types whose values stay in order when a column gets another one of them."""
_LONGEST = 300


def order_of(declared: str, with_length: str, ordering: str, digits: int | None = None) -> str:
    """What puts the values of a column in order, as marks of snapshots keep it: a short text.

    Args:
        declared, with_length, ordering: as in the result of :meth:`Keys.columns`.
        digits: how many digits after the point its values have, where ``with_length`` does not say it.
    """
    text = f"{_ORDERED_ALIKE.get(declared, declared)}{ordering}"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}… ({hashlib.sha256(text.encode()).hexdigest()[:12]})"
    return f"{text}{of_length(_length(with_length) if with_length else digits)}"


_LENGTHS = {
    **{"tinytext": 2**8 - 1, "text": 2**16 - 1, "mediumtext": 2**24 - 1, "longtext": 2**32 - 1},
    **{"tinyblob": 2**8 - 1, "blob": 2**16 - 1, "mediumblob": 2**24 - 1, "longblob": 2**32 - 1},
    **dict.fromkeys(("datetime", "timestamp", "time"), 0),
    **dict.fromkeys(("timestamp without time zone", "timestamp with time zone", "interval"), 6),
    **dict.fromkeys(("time without time zone", "time with time zone"), 6),
    **dict.fromkeys(("numeric", "character varying", "bit varying"), MOST),
}
"""How long values of a type are without a length of its own."""


def _length(with_length: str) -> int | None:
    """How many characters, or digits after the point, values of a type have at most; None where nothing is cut off."""
    name, _, rest = with_length.partition("(")
    if name in (*_WHOLE_NUMBERS, "enum", "set"):
        return None
    match = re.match(r"(?:\d+,)?(-?\d+)\)", rest)
    return int(match[1]) if match else _LENGTHS.get(name)
