"""``odi init --from``: the project that it makes runs as it is, again and again, and its tables are the database's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from deltalake import DeltaTable

from odi_assets_tests.as_shipped.installed import Installed
from odi_assets_tests.as_shipped.shop_databases import server_of
from odi_assets_tests.as_shipped.test_projects import require_hidden
from odi_assets_tests.jdbc import needs_drivers
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, USER, Server

_TABLES = (
    "CREATE TABLE {odd.orders} (id int PRIMARY KEY, v varchar(20), {Updated At} {time} NOT NULL)",
    "CREATE TABLE {odd Order.Lines} ({Order ID} int, {a.b} int, {größe} varchar(9), PRIMARY KEY ({a.b}, {Order ID}))",
    "CREATE TABLE {odd} (id int NOT NULL, {select} varchar(20), {say} varchar(20), UNIQUE (id))",
    "CREATE TABLE {ODD it's [1]*} (id int PRIMARY KEY, v numeric(9,2))",
    "CREATE TABLE {odd 日本} (id int PRIMARY KEY, v varchar(20))",
    "CREATE TABLE {odd$${{x}}} (id int PRIMARY KEY, v varchar(20))",
)
"""Names in braces are quoted as the server does it."""
_KEYS = {
    "postgres": "ALTER TABLE {odd} REPLICA IDENTITY USING INDEX {odd_id_key}",
    "mariadb": "ALTER TABLE {odd} ADD PRIMARY KEY (id)",
}
_ROWS = (
    "INSERT INTO {odd.orders} VALUES (1, 'a', {past}), (2, 'b', {past})",
    "INSERT INTO {odd Order.Lines} VALUES (1, 7, 'x'), (2, 6, NULL), (3, 5, 'z')",
    "INSERT INTO {odd} VALUES (1, 'a', 'b'), (2, NULL, 'c')",
    "INSERT INTO {ODD it's [1]*} VALUES (1, 1.25)",
    "INSERT INTO {odd 日本} VALUES (1, 'a')",
)
_CHANGES = (
    "UPDATE {odd.orders} SET v = 'c', {Updated At} = {now} WHERE id = 1",
    "INSERT INTO {odd.orders} VALUES (3, 'd', {now})",
    "DELETE FROM {odd Order.Lines} WHERE {Order ID} = 1",
    "UPDATE {odd Order.Lines} SET {a.b} = 60 WHERE {Order ID} = 2",
    "UPDATE {odd} SET {select} = 'z'",
    "INSERT INTO {odd$${{x}}} VALUES (1, 'new')",
)
Row = tuple[Any, ...]


@dataclass(frozen=True)
class OddDatabase:
    """A database of tables with odd names.

    Attributes:
        url: with its password.
        quote: a name in SQL.
        execute: runs statements, and returns the rows of the last one.
        words: what a statement says otherwise on another server.
    """

    url: str
    quote: Callable[[str], str]
    execute: Callable[..., list[Row]]
    words: Mapping[str, str]

    def run(self, *statements: str) -> list[Row]:
        return self.execute(*(self._said(one) for one in statements))

    def _said(self, statement: str) -> str:
        def said(found: re.Match[str]) -> str:
            name = found[1].replace("{{", "{").replace("}}", "}")
            return self.words.get(name) or self.quote(name)

        return re.sub(r"\{((?:[^{}]|\{\{|\}\})+)\}", said, statement)

    def rows(self, table: str) -> list[Row]:
        return sorted(self.run(f"SELECT * FROM {{{table}}}"), key=repr)


@contextmanager
def postgres(server: Server) -> Iterator[OddDatabase]:
    import psycopg

    name = "Odd Shop"

    def execute(*statements: str, database: str = name) -> list[Row]:
        place = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD, "dbname": database}
        iso = "-c datestyle=ISO -c timezone=UTC"
        with psycopg.connect(**place, autocommit=True, options=iso) as opened:  # type: ignore[arg-type]
            for statement in statements:
                cursor = opened.execute(statement.encode())
            return [tuple(row) for row in cursor] if cursor.description else []

    execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)', f'CREATE DATABASE "{name}"', database=DATABASE)
    words = {"time": "timestamptz", "past": "now() - interval '2 hours'", "now": "now()"}
    address = f"postgresql://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/{quote(name)}"
    try:
        yield OddDatabase(address, lambda one: '"' + one.replace('"', '""') + '"', execute, words)
    finally:
        drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
        execute(drop, f'DROP DATABASE "{name}" WITH (FORCE)', database=DATABASE)


@contextmanager
def mariadb(server: Server) -> Iterator[OddDatabase]:
    def execute(*statements: str) -> list[Row]:
        opened = server.connect()
        try:
            with opened.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return [tuple(row) for row in cursor.fetchall()]
        finally:
            opened.close()

    words = {"time": "datetime(6)", "past": "now(6) - interval 5 hour", "now": "now(6)"}
    address = f"mariadb://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/{DATABASE}"
    found = OddDatabase(address, lambda one: "`" + one.replace("`", "``") + "`", execute, words)
    yield found
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
    execute(*(f"DROP TABLE {found.quote(name)}" for (name,) in execute(tables) if name.lower().startswith("odd")))


KINDS = {"postgres": postgres, "mariadb": mariadb}
NODES = {
    "odd.orders": "odd_orders",
    "odd Order.Lines": "odd_Order_Lines",
    "odd": "public_odd",
    "ODD it's [1]*": "ODD_it_s_1",
    "odd 日本": "public_odd_2",
    "odd$${{x}}": "odd_x",
}


def nodes_of(kind: str) -> dict[str, str]:
    """By table, the name of its node: that of the schema is in some."""
    schema = "public_" if kind == "postgres" else f"{DATABASE}_"
    return {table: node.replace("public_", schema) for table, node in NODES.items()}


def held(folder: Path, node: str) -> list[Row]:
    """The rows of a node's table."""
    found = DeltaTable(str(folder / "lake" / node)).to_pyarrow_table().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def made(
    installed: Installed, folder: Path, database: OddDatabase, options: str = "", more: tuple[str, ...] = ()
) -> dict[str, str]:
    """Make the tables, by ``more`` statements too, and the project; the environment that its commands need."""
    database.run(*_TABLES, *more, *_ROWS)
    ended = installed.run(f'odi init made --from "{database.url}" --tables "odd*" --tables "ODD*" {options}', folder)
    assert ended.returncode == 0, ended.stderr
    (line,) = (line for line in ended.stderr.splitlines() if "export" in line)
    require_hidden((PASSWORD,), folder, ended.stdout + ended.stderr)
    return {line.split()[1].partition("=")[0]: PASSWORD}


def run(installed: Installed, folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Run the project; the status of each node."""
    printed = installed.done("odi run --json", folder, **variables)
    return {one["node"]: one["status"] for one in json.loads(printed)}


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize("kind", KINDS)
def test_a_capture_of_tables_with_odd_names_makes_the_tables_of_the_database(
    kind: str, databases: dict[str, Server | str], installed: Installed, tmp_path: Path
) -> None:
    with KINDS[kind](server_of(databases, kind)) as database:
        folder, variables = tmp_path / "made", made(installed, tmp_path, database, "--cdc", (_KEYS[kind],))
        installed.done("odi config check", folder, **variables)
        installed.done("odi plan", folder, **variables)
        assert set(run(installed, folder, variables).values()) == {"SUCCESS"}
        database.run(*_CHANGES)
        run(installed, folder, variables)
        # A log of MariaDB divides databases and tables by a point, and the tables with one are left out.
        nodes = {table: node for table, node in nodes_of(kind).items() if kind == "postgres" or "." not in table}
        for table, node in nodes.items():
            assert held(folder, node) == database.rows(table), table
        assert len(nodes) == len([*(folder / "lake").iterdir()]) - len(("changes", "system"))
        assert set(run(installed, folder, variables).values()) == {"NO_DATA"}
        installed.done("odi doctor", folder, **variables)
        require_hidden((PASSWORD,), tmp_path, "")


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize("kind", KINDS)
def test_tables_with_odd_names_are_read_each_run_as_the_database_has_them(
    kind: str, databases: dict[str, Server | str], installed: Installed, tmp_path: Path
) -> None:
    needs_drivers()
    with KINDS[kind](server_of(databases, kind)) as database:
        folder, variables = tmp_path / "made", made(installed, tmp_path, database)
        installed.done("odi config check", folder, **variables)
        installed.done("odi plan", folder, **variables)
        nodes = nodes_of(kind)
        for _ in range(2):
            assert set(run(installed, folder, variables).values()) <= {"SUCCESS", "NO_DATA"}
            for table, node in nodes.items():
                assert held(folder, node) == database.rows(table), table
        database.run(*_CHANGES)
        run(installed, folder, variables)
        for table, node in nodes.items():
            assert held(folder, node) == database.rows(table), table
        installed.done("odi doctor", folder, **variables)
        require_hidden((PASSWORD,), tmp_path, "")
