"""What the catalog of a PostgreSQL server says of the definitions of tables."""

from __future__ import annotations

from collections.abc import Iterable

from odi_assets.sources.cdc.definition import TableDefinition
from odi_assets.sources.cdc.postgres.server import ServerSession
from odi_assets.sources.cdc.postgres.tables import PostgresTable

_KNOWS_MULTIRANGES = 140_000
_COLUMNS = "a.attnum > 0 AND NOT a.attisdropped"


def definitions(session: ServerSession, tables: Iterable[PostgresTable]) -> dict[str, TableDefinition]:
    """By table, its definition.

    The number of the transaction that wrote a row of the catalog stands for what the row says: it changes with each
    ALTER, and stays when the catalog is vacuumed.
    """
    of = {table.oid: table for table in tables}
    columns: dict[int, list[tuple[str, str]]] = {oid: [] for oid in of}
    files: dict[int, str] = {}
    for oid, file, name, column in session.rows(
        "SELECT c.oid::bigint, c.relfilenode::text, a.attname::text, a.attnum || '/' || a.atttypid || '/' || a.xmin "
        f"FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND {_COLUMNS} AND a.attgenerated = '' "
        "WHERE c.oid = ANY(%s::oid[]) ORDER BY c.oid, a.attnum",
        [list(of)],
    ):
        files[int(oid)] = str(file)
        columns[int(oid)].append((str(name), str(column)))
    types = _types(session, list(of))
    return {
        table.name: TableDefinition(
            files.get(oid, ""),
            [column for _, column in columns[oid]],
            [column for name, column in columns[oid] if name in table.key],
            types.get(oid, {}),
        )
        for oid, table in of.items()
    }


def _types(session: ServerSession, tables: list[int]) -> dict[int, dict[str, list[str]]]:
    """By table and type of its values, labels of enums, oldest first, and attributes of composite types."""
    multirange = " OR g.rngmultitypid = t.oid" if session.opened.info.server_version >= _KNOWS_MULTIRANGES else ""
    types: dict[int, dict[str, list[str]]] = {}
    for table, kind, text in session.rows(
        "WITH RECURSIVE used(tab, typ) AS ("
        f"SELECT a.attrelid, a.atttypid FROM pg_attribute a WHERE a.attrelid = ANY(%s::oid[]) AND {_COLUMNS} "
        "UNION SELECT u.tab, x.typ FROM used u JOIN pg_type t ON t.oid = u.typ CROSS JOIN LATERAL ("
        "SELECT t.typelem WHERE t.typelem <> 0 UNION ALL SELECT t.typbasetype WHERE t.typbasetype <> 0 "
        f"UNION ALL SELECT g.rngsubtype FROM pg_range g WHERE g.rngtypid = t.oid{multirange} "
        f"UNION ALL SELECT a.atttypid FROM pg_attribute a WHERE t.typrelid <> 0 AND a.attrelid = t.typrelid "
        f"AND {_COLUMNS}) x(typ)) "
        "SELECT tab::bigint, typ::text, text FROM ("
        "SELECT u.tab, u.typ, e.oid::bigint AS place, e.enumlabel::text AS text FROM used u "
        "JOIN pg_enum e ON e.enumtypid = u.typ UNION ALL "
        "SELECT u.tab, u.typ, 0, string_agg(a.attnum || ':' || a.atttypid, ',' ORDER BY a.attnum) FROM used u "
        f"JOIN pg_type t ON t.oid = u.typ JOIN pg_attribute a ON a.attrelid = t.typrelid AND {_COLUMNS} "
        "WHERE t.typrelid <> 0 GROUP BY 1, 2) parts ORDER BY tab, typ, place",
        [tables],
    ):
        types.setdefault(int(table), {}).setdefault(str(kind), []).append(str(text))
    return types
