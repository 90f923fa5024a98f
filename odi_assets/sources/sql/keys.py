"""Keys of tables as PostgreSQL and MySQL order them: what chunks of a snapshot are ranges of.

A bound of a chunk is compared by the database alone, in the column's own order and collation, so that an index serves
it; nothing here has to order keys as state does. Bounds are texts, as the database writes the values.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from odi_assets.config.models import CTID
from odi_assets.sources.sql.dialects import BYTES, DECIMAL, FLOAT, INT, Dialect, Mysql
from odi_assets.sources.sql.marks import Chunk

HEX = "0x"
"""What a bound of bytes begins with, as MySQL's keys are written out."""


@dataclass(frozen=True)
class KeyColumn:
    """A key column in SQL. ``kind`` is that of its values; None for a type that no cursor has, as a UUID."""

    sql: str
    kind: str | None


@dataclass(frozen=True)
class Keys(ABC):
    """How one database writes and compares keys."""

    dialect: Dialect

    def column(self, name: str, kind: str | None) -> KeyColumn:
        """The key column ``name``."""
        return KeyColumn(self.dialect.quoted(name), kind)

    @abstractmethod
    def text(self, key: KeyColumn) -> str:
        """The value of a key written out, so that :meth:`constant` gives it back."""

    @abstractmethod
    def constant(self, text: str, kind: str | None) -> str:
        """A key that was written out, as a constant of its column's type."""

    @abstractmethod
    def primary_key(self, table: str) -> str:
        """The query for the columns of a table's primary key, in their order.

        Args:
            table: its name in the project file.
        """

    @abstractmethod
    def estimate(self, table: str) -> str:
        """The query for about how many rows a table has; 0 or less if the server does not know."""

    def within(self, chunk: Chunk, keys: Sequence[KeyColumn]) -> str:
        """Whether a row is in ``chunk``."""
        bounds = []
        if chunk.low is not None:
            bounds.append(self._from(keys, chunk.low))
        if chunk.high is not None:
            bounds.append(self._before(keys, chunk.high))
        inside = " AND ".join(bounds) or "1 = 1"
        # NULL is neither below nor above a bound: all rows that have one are in the chunk that is open below.
        if chunk.low is None:
            nulls = [f"{key.sql} IS NULL" for key in keys] if chunk.high is not None else []
            return " OR ".join([f"({inside})", *nulls])
        filled = [f"{key.sql} IS NOT NULL" for key in keys] if len(keys) > 1 else []
        return " AND ".join([inside, *filled])

    def above(self, keys: Sequence[KeyColumn], bound: Sequence[str]) -> str:
        """Whether the key of a row is greater than ``bound``."""
        return self._beyond(keys, bound, ">", ">")

    def _from(self, keys: Sequence[KeyColumn], bound: Sequence[str]) -> str:
        return self._beyond(keys, bound, ">", ">=")

    def _before(self, keys: Sequence[KeyColumn], bound: Sequence[str]) -> str:
        return self._beyond(keys, bound, "<", "<")

    def _beyond(self, keys: Sequence[KeyColumn], bound: Sequence[str], sign: str, last: str) -> str:
        """The order of several columns: the first that differs decides."""
        pairs = [(key.sql, self.constant(text, key.kind)) for key, text in zip(keys, bound, strict=False)]
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
    """Keys of PostgreSQL. A text without a type is taken for one of the type that it is compared with."""

    def column(self, name: str, kind: str | None) -> KeyColumn:
        return KeyColumn(CTID, None) if name == CTID else super().column(name, kind)

    def text(self, key: KeyColumn) -> str:
        return f"CAST({key.sql} AS text)"

    def constant(self, text: str, kind: str | None) -> str:
        del kind
        escaped = text.replace("\\", "\\\\").replace("'", "''")
        return f"E'{escaped}'"

    def primary_key(self, table: str) -> str:
        return (
            "SELECT a.attname AS name FROM pg_index i JOIN pg_attribute a "
            "ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
            f"WHERE i.indisprimary AND i.indrelid = CAST({self._name(table)} AS regclass) "
            "ORDER BY array_position(CAST(i.indkey AS int2[]), a.attnum)"
        )

    def estimate(self, table: str) -> str:
        return (
            "SELECT CAST(CAST(SUM(GREATEST(c.reltuples, 0)) AS numeric(38,0)) AS text) AS rows, "
            "CAST(SUM(c.relpages) AS text) AS pages "
            f"FROM {self._parts(table)} JOIN pg_class c ON c.oid = p.relid WHERE c.relkind <> 'p'"
        )

    def storage(self, table: str) -> str:
        """The query for what names a table's rows as they are stored, and for the pages of its longest part."""
        pages = "pg_relation_size(p.relid) / CAST(current_setting('block_size') AS bigint)"
        return (
            "SELECT string_agg(CAST(pg_relation_filenode(p.relid) AS text), ',' ORDER BY p.relid) AS storage, "
            f"CAST(MAX({pages}) AS text) AS pages FROM {self._parts(table)}"
        )

    def _parts(self, table: str) -> str:
        # A partitioned table has no rows and no file of its own; one without partitions has no tree.
        itself = f"CAST({self._name(table)} AS regclass)"
        return f"(SELECT relid FROM pg_partition_tree({itself}) UNION SELECT {itself}) p"

    def _name(self, table: str) -> str:
        return self.constant(self.dialect.table(table), None)


class MysqlKeys(Keys):
    """Keys of MySQL and MariaDB."""

    def text(self, key: KeyColumn) -> str:
        return f"CONCAT('{HEX}', HEX({key.sql}))" if key.kind == BYTES else f"CAST({key.sql} AS CHAR)"

    def constant(self, text: str, kind: str | None) -> str:
        if kind in (INT, DECIMAL):
            return f"({format(Decimal(text), 'f')})"
        if kind == FLOAT:
            return f"({float(text)!r})"
        # A constant with a character set of its own takes the collation of what it is compared with.
        return f"X'{text.removeprefix(HEX)}'" if kind == BYTES else f"_utf8mb4 X'{text.encode().hex()}'"

    def primary_key(self, table: str) -> str:
        return (
            "SELECT column_name AS name FROM information_schema.key_column_usage "
            f"WHERE constraint_name = 'PRIMARY' AND {self._of(table)} ORDER BY ordinal_position"
        )

    def estimate(self, table: str) -> str:
        return f"SELECT CAST(table_rows AS CHAR) AS n FROM information_schema.tables WHERE {self._of(table)}"

    def _of(self, table: str) -> str:
        found = re.findall(r"`((?:[^`]|``)+)`|([^`.]+)", table)
        *schema, name = [(quoted or plain).replace("``", "`") for quoted, plain in found]
        where = self.constant(schema[0], None) if schema else "DATABASE()"
        return f"table_schema = {where} AND table_name = {self.constant(name, None)}"


def keys_of(dialect: Dialect) -> Keys:
    """How the database of ``dialect`` writes and compares keys."""
    return MysqlKeys(dialect) if isinstance(dialect, Mysql) else PostgresKeys(dialect)
