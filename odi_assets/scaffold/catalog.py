"""What a database says of its tables: their columns, what identifies a row, and what they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from odi_assets.errors import ConfigError
from odi_assets.sources.sql.dialects import Dialect, Mysql
from odi_assets.sources.sql.keys import utf8_text
from odi_assets.sources.sql.position import Session
from odi_assets.sources.sql.statements import Ask

_Table = TypeVar("_Table", int, tuple[str, str])
_Index = tuple[object, bool]
"""An index, and whether a primary key has it."""
INHERITED = "others inherit from it, and their rows are among its rows"
"""Why a table has no key: its primary key says nothing of the rows of others."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    Attributes:
        declared: its type as the database writes it; of a domain, the type below it.
        dimensions: of an array, how many it is declared with.
        grows: the database gives each new row a greater number.
        moves: the database sets it to the present time with each change of a row.
        indexed: an index begins with it.
    """

    name: str
    declared: str
    nullable: bool
    dimensions: int = 0
    grows: bool = False
    moves: bool = False
    indexed: bool = False


@dataclass(frozen=True)
class CatalogTable:
    """A table as the database's catalog has it.

    Attributes:
        kind: what it is, where it is no table whose rows are here: ``a view``; None for a table.
        rows: about how many it has; 0 if the server does not know.
        key: the columns that identify a row, none of them NULL; none if there is no such key.
        is_primary: it is the primary key.
        why_no_key: what a table without a key has in the place of one.
    """

    schema: str
    name: str
    kind: str | None = None
    rows: int = 0
    columns: tuple[TableColumn, ...] = ()
    key: tuple[str, ...] = ()
    is_primary: bool = False
    why_no_key: str = "no primary key, and no unique index of columns that are NOT NULL"

    @property
    def identity(self) -> tuple[str, str]:
        return self.schema, self.name

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.name}"

    def with_key(self, index: tuple[_Index, tuple[str, ...]] | None) -> CatalogTable:
        """It with the key that an index of it is."""
        return self if index is None else replace(self, key=index[1], is_primary=index[0][1])

    def column(self, name: str) -> TableColumn:
        return next(column for column in self.columns if column.name == name)

    def in_sql(self, dialect: Dialect) -> str:
        """Its name in SQL."""
        return f"{dialect.quoted(self.schema)}.{dialect.quoted(self.name)}"

    @property
    def same_columns(self) -> str | None:
        """Two columns whose names differ in capitals alone, in words; None if there are none."""
        seen: dict[str, str] = {}
        for column in self.columns:
            if column.name.lower() in seen:
                return f"its columns {seen[column.name.lower()]} and {column.name} differ in capitals alone"
            seen[column.name.lower()] = column.name
        return None


@dataclass(frozen=True)
class Catalog:
    """The tables of some schemas.

    Attributes:
        schemas: all schemas of the database, in the order of their names.
    """

    schemas: tuple[str, ...]
    tables: tuple[CatalogTable, ...] = field(default=())

    def require(self, wanted: Sequence[str]) -> None:
        """Raises ConfigError if the database has no schema of a name."""
        for name in wanted:
            if name not in self.schemas:
                raise ConfigError(
                    f"the database has no schema `{name}`", fix=f"`--schema` takes one of: {', '.join(self.schemas)}"
                )


def read_catalog(session: Session, dialect: Dialect, schemas: Sequence[str]) -> Catalog:
    """The tables of ``schemas``, in the order of their names.

    Raises:
        ConfigError: there is no such schema.
    """
    return (_mysql if isinstance(dialect, Mysql) else _postgres)(session.rows, dialect, schemas)


_OURS = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"
_POSTGRES_KINDS = {
    **{"f": "a table of another server", "v": "a view", "m": "a materialized view"},
}
_ARRAY = "CASE WHEN t.typtype = 'd' THEN t.typndims ELSE a.attndims END"
_POSTGRES_COLUMNS = f"""
SELECT a.attrelid::bigint, a.attname,
  CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(a.atttypid, a.atttypmod) END,
  NOT a.attnotnull, {_ARRAY},
  EXISTS (SELECT FROM pg_depend d JOIN pg_sequence q ON q.seqrelid = d.objid WHERE d.refobjid = a.attrelid
    AND d.refobjsubid = a.attnum AND d.deptype IN ('a', 'i') AND q.seqincrement > 0 AND NOT q.seqcycle),
  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indkey[0] = a.attnum AND i.indpred IS NULL)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
  AND n.nspname IN (SCHEMAS) ORDER BY a.attrelid, a.attnum
"""
_POSTGRES_KEYS = """
SELECT i.indrelid::bigint, i.indexrelid::bigint, i.indisprimary, a.attname FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
  AND k.place <= i.indnkeyatts AND n.nspname IN (SCHEMAS)
  AND NOT EXISTS (SELECT FROM pg_attribute b WHERE b.attrelid = i.indrelid AND NOT b.attnotnull
    AND b.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1]))
ORDER BY i.indrelid, i.indisprimary DESC, i.indnkeyatts, i.indexrelid, k.place
"""


def _postgres(ask: Ask, dialect: Dialect, schemas: Sequence[str]) -> Catalog:
    catalog = Catalog(tuple(str(row[0]) for row in ask(f"SELECT nspname FROM pg_namespace n WHERE {_OURS} ORDER BY 1")))
    catalog.require(schemas)
    within = ", ".join(dialect.literal(name, "str") for name in schemas)
    columns: dict[int, list[TableColumn]] = {}
    for table, name, declared, nullable, dimensions, grows, indexed in ask(
        _POSTGRES_COLUMNS.replace("SCHEMAS", within)
    ):
        column = TableColumn(name, declared, nullable, int(dimensions), grows=grows, indexed=indexed)
        columns.setdefault(int(table), []).append(column)
    indexes = ask(_POSTGRES_KEYS.replace("SCHEMAS", within))
    keys = _first_of_each((int(table), (index, primary), str(name)) for table, index, primary, name in indexes)
    listed = ask(
        "SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, GREATEST(c.reltuples, 0)::bigint, "
        "c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = c.oid) "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') "
        f"AND NOT c.relispartition AND n.nspname IN ({within}) ORDER BY 2, 3"
    )
    tables = []
    for oid, schema, name, kind, rows, inherited in listed:
        table = CatalogTable(schema, name, _POSTGRES_KINDS.get(kind), int(rows), tuple(columns.get(int(oid), ())))
        tables.append(replace(table, why_no_key=INHERITED) if inherited else table.with_key(keys.get(int(oid))))
    return replace(catalog, tables=tuple(tables))


_MYSQL_OURS = "schema_name NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')"


def _mysql(ask: Ask, dialect: Dialect, schemas: Sequence[str]) -> Catalog:
    del dialect
    names = ask(f"SELECT schema_name FROM information_schema.schemata WHERE {_MYSQL_OURS} ORDER BY 1")
    catalog = Catalog(tuple(str(row[0]) for row in names))
    catalog.require(schemas)
    where = f"table_schema IN ({', '.join(map(utf8_text, schemas))})"
    # Of an index of expressions or of beginnings of texts, it is not the columns that are unique.
    usable = "SUM(column_name IS NULL OR sub_part IS NOT NULL OR nullable = 'YES') OVER (PARTITION BY table_schema, "
    usable += "table_name, index_name) = 0"
    indexes = [
        ((str(schema), str(table)), (str(index), index == "PRIMARY"), str(column), not non_unique and bool(usable))
        for schema, table, index, non_unique, usable, column in ask(
            f"SELECT table_schema, table_name, index_name, non_unique, {usable}, column_name "
            f"FROM information_schema.statistics WHERE {where} ORDER BY table_schema, table_name, "
            "index_name <> 'PRIMARY', non_unique, index_name, seq_in_index"
        )
    ]
    keys = _first_of_each(row[:3] for row in indexes if row[3])
    begins = {(table, index): column for table, index, column, _ in reversed(indexes)}
    indexed = {(table, column) for (table, _), column in begins.items()}
    columns: dict[tuple[str, str], list[TableColumn]] = {}
    for schema, table, name, declared, nullable, extra in ask(
        "SELECT table_schema, table_name, column_name, column_type, is_nullable = 'YES', LOWER(extra) "
        f"FROM information_schema.columns WHERE {where} ORDER BY table_schema, table_name, ordinal_position"
    ):
        identity = str(schema), str(table)
        column = TableColumn(
            str(name),
            str(declared),
            bool(nullable),
            grows="auto_increment" in extra,
            moves="on update current_timestamp" in extra,
            indexed=(identity, str(name)) in indexed,
        )
        columns.setdefault(identity, []).append(column)
    listed = ask(
        "SELECT table_schema, table_name, table_type, COALESCE(table_rows, 0) FROM information_schema.tables "
        f"WHERE {where} ORDER BY table_schema, table_name"
    )
    tables = []
    for schema, name, kind, rows in listed:
        identity = str(schema), str(name)
        shown = None if kind in ("BASE TABLE", "SYSTEM VERSIONED") else f"a {str(kind).lower()}"
        table = CatalogTable(schema, name, shown, int(rows), tuple(columns.get(identity, ())))
        tables.append(table.with_key(keys.get(identity)))
    return replace(catalog, tables=tuple(tables))


def _first_of_each(rows: Iterable[tuple[_Table, _Index, str]]) -> Mapping[_Table, tuple[_Index, tuple[str, ...]]]:
    """By table, its first index and its columns; rows are of one column each, in the order of tables and indexes."""
    index_by_table: dict[_Table, tuple[_Index, list[str]]] = {}
    for table, index, column in rows:
        first = index_by_table.setdefault(table, (index, []))
        if first[0] == index:
            first[1].append(column)
    return {table: (index, tuple(columns)) for table, (index, columns) in index_by_table.items()}
