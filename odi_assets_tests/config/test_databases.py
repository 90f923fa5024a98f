"""Databases in the project file: what a connection and a read of one take, and mistakes in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from odi_assets.config.models import ServerConnection
from odi_assets_tests.config.support import load, problem, project
from odi_assets_tests.config.test_json_schema import complaints

DB = "  db: {type: postgres, host: h, database: d, user: u, password: s3cret}\n"
NODE = "- {name: raw, read: {connection: db, format: sql, READ}, write: {connection: lake, path: raw}}\n"


def with_db(read: str = "table: sales.orders", connection: str = DB) -> str:
    return project(NODE.replace("READ", read)).replace("system:", f"{connection}system:")


def test_a_database_has_its_usual_port_and_keeps_its_secrets(tmp_path: Path) -> None:
    found = load(tmp_path, with_db()).config
    connection = found.connections["db"]
    assert isinstance(connection, ServerConnection)
    assert (connection.type, connection.port, connection.look_timeout) == ("postgres", 5432, 20)
    assert "s3cret" not in repr(found)
    read = found.pipelines[0].nodes[0].read
    assert read is not None
    assert (read.shown, read.place) == ("sales.orders", "sales/orders")
    other = load(tmp_path, with_db(connection="  db: {type: mysql, database: d, port: '${P}'}\n"), {"P": "3307"}).config
    mysql = other.connections["db"]
    assert isinstance(mysql, ServerConnection)
    assert (mysql.type, mysql.host, mysql.port) == ("mysql", "localhost", 3307)


@pytest.mark.parametrize(
    "read",
    [
        "query: SELECT 1 AS one, incremental: {mode: stateful, column: one}, pieces: 4",
        "table: orders, partition_column: id, pieces: 4, options: {fetchsize: 100}",
        "table: orders, incremental: {mode: rolling_window, column: at, lookback: 2}",
    ],
)
def test_a_table_or_a_query_is_read(tmp_path: Path, read: str) -> None:
    text = with_db(read)
    if "rolling" in read:
        text = text.replace("path: raw}", "path: raw, mode: overwrite}")
    assert load(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("table: sales.orders", "pieces: 1", "give what is read in a database: `table` or `query`, one of them"),
        ("table: sales.orders", "table: a, query: SELECT 1", "`table` or `query`, one of them"),
        ("table: sales.orders", "table: a, path: b", "a database has no paths: give `table` or `query`"),
        ("table: sales.orders", "table: a, schema: id INT", "a database has a schema of its own"),
        ("table: sales.orders", "table: a, pieces: 4", "says by no column how to cut: add `partition_column`"),
        (
            "table: sales.orders",
            "table: a, columns: {id: CAST(id AS text)}, incremental: {mode: stateful, column: id}",
            "`id` is what rows are ordered or cut by",
        ),
        ("table: sales.orders", "table: a, pieces: 0", "greater than or equal to 1"),
        ("table: sales.orders", "table: a, incremental: files", "a database is followed by a column, with `stateful`"),
        ("table: sales.orders", "table: a, incremental: version", "a database is followed by a column"),
        ("format: sql, table: sales.orders", "format: csv, path: in", "`db` is a database: write `format: sql`"),
        ("connection: db", "connection: lake", "`lake` is no database"),
        (
            "{connection: lake, path: raw}",
            "{connection: db, path: raw}",
            "`db` is a database, and Delta tables",
        ),
        ("system: {connection: lake}", "system: {connection: db}", "`db` is a database, and Delta tables"),
        ("type: postgres", "type: postgre", "`postgres`"),
        ("database: d", "database: d, port: 70000", "65535"),
        ("type: postgres, host: h, database: d", "type: sql, driver: d", "missing key `url`"),
    ],
)
def test_mistakes_are_named_where_they_are(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in with_db()
    assert message in str(problem(tmp_path, with_db().replace(old, new)))


def appending(read: str) -> str:
    return with_db(read).replace("path: raw}", "path: raw, mode: append}")


CURSORS = "incremental: {mode: cursors, columns: [a, b], snapshot: {by: id}}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "type: postgres",
            "type: mssql",
            "`cursors` is for postgres and mysql, and this is a connection of type mssql",
        ),
        ("mode: append", "mode: overwrite", "`cursors` writes a table in parts, and `overwrite` replaces"),
        ("columns: [a, b]", "columns: []", "must not be empty"),
        ("columns: [a, b]", "columns: [a, a]", "`a` is there twice"),
        ("columns: [a, b]", "colum: a", "unknown key `colum`, did you mean `columns`?"),
        ("columns: [a, b]", "columns: a, watermark_lag: 1h", "a lag reads rows again, and `append` would repeat them"),
        ("by: id", "by: [ctid, id]", "`ctid` is a key of a table, and the only one"),
        ("by: id", "rows: 0", "greater than or equal to 1"),
    ],
)
def test_mistakes_in_snapshots_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = appending(f"table: orders, {CURSORS}")
    assert load(tmp_path, text)
    assert old in text
    assert message in str(problem(tmp_path, text.replace(old, new)))


def test_files_have_no_snapshots_in_chunks(tmp_path: Path) -> None:
    text = appending(f"path: in, {CURSORS}").replace("connection: db, format: sql", "connection: lake, format: parquet")
    assert "`cursors` reads a table of a database in chunks, and `parquet` is none" in str(problem(tmp_path, text))
    text = appending(f"table: orders, {CURSORS}").replace("postgres", "mysql").replace("by: id", "by: ctid")
    assert "`ctid` is a key of PostgreSQL alone" in str(problem(tmp_path, text))


@pytest.mark.parametrize("key", ["table: t", "query: SELECT 1", "partition_column: id", "pieces: 2", "columns: {a: b}"])
def test_files_have_neither_tables_nor_pieces(tmp_path: Path, key: str) -> None:
    text = with_db("path: in").replace("connection: db, format: sql", f"connection: lake, format: csv, {key}")
    assert "is for `format: sql`" in str(problem(tmp_path, text))


def test_a_read_of_files_without_a_path_is_still_named_so(tmp_path: Path) -> None:
    text = with_db("options: {}").replace("connection: db, format: sql", "connection: lake, format: csv")
    assert "missing key `path`" in str(problem(tmp_path, text))


def test_editors_accept_databases() -> None:
    assert complaints(with_db()) == []
    assert complaints(with_db("query: SELECT 1")) == []
    assert complaints(with_db(f"table: orders, {CURSORS}")) == []
    assert complaints(with_db("table: orders, incremental: {mode: cursors, columns: at}")) == []
    assert complaints(with_db("table: orders, incremental: {mode: cursors, columns: []}"))
    assert complaints(with_db("pieces: 2"))
    assert complaints(with_db("options: {}").replace("format: sql", "format: csv"))
