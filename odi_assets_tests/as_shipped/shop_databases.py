"""The database of docs/sql.md: `shop` with the user `reader`, and the tables of `sales`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from odi_assets.sources.sql.dialects import Mysql, Postgres
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, USER, Server

_TABLES = (
    "CREATE TABLE {sales}orders (id bigint PRIMARY KEY, amount {amount}, changed_at {time} NOT NULL, ref uuid)",
    "CREATE TABLE {sales}customers (id int, name varchar(20), active boolean)",
    "CREATE TABLE {sales}shipments (id bigint PRIMARY KEY, delivered_at {time}, sent_at {time} NOT NULL)",
)
_ROWS = (
    (
        "INSERT INTO {sales}shipments VALUES (1, NULL, {past}), (2, {past}, {past}), (3, NULL, {past})",
        "INSERT INTO {sales}orders VALUES (1, 2.5, {past}, {ref}), (2, 3.5, {past}, NULL)",
        "INSERT INTO {sales}customers VALUES (1, 'a', true), (2, 'b', false), (9, 'c', true)",
    ),
    (
        "INSERT INTO {sales}shipments VALUES (4, NULL, {now})",
        "INSERT INTO {sales}orders VALUES (3, 4.5, {now}, {ref})",
    ),
)


@dataclass(frozen=True)
class ShopDatabase:
    """A database with the tables of the page.

    Attributes:
        execute: runs statements in it.
        words: what stands for the parts of a statement in which servers differ.
        edits: of the page's project file: what stands there, and what has to, for this server.
        variables: the environment that the project file asks for.
    """

    execute: Callable[..., None]
    words: Mapping[str, str]
    variables: Mapping[str, str]
    edits: tuple[tuple[str, str], ...] = ()

    def project(self, text: str) -> str:
        """The page's project file, for this server."""
        for there, wanted in self.edits:
            assert there in text
            text = text.replace(there, wanted)
        return text

    def make(self) -> ShopDatabase:
        """Make the tables."""
        self.execute(*(statement.format(**self.words) for statement in _TABLES))
        return self

    def deliver(self, part: int) -> None:
        """Add rows."""
        self.execute(*(statement.format(**self.words) for statement in _ROWS[part]))


def server_of(databases: Mapping[str, Server | str], kind: str) -> Server:
    """A server that runs, or the test is skipped with the reason."""
    found = databases[kind]
    if isinstance(found, str):
        pytest.skip(found)
    return found


def of_postgres(server: Server) -> ShopDatabase:
    """The page's own database."""
    secret = PASSWORD.replace("'", "''")
    server.execute(
        "DROP DATABASE IF EXISTS shop",
        "DROP ROLE IF EXISTS reader",
        f"CREATE ROLE reader LOGIN PASSWORD E'{secret}'",
        "CREATE DATABASE shop OWNER reader",
    )
    words = {
        **{"sales": "sales.", "time": "timestamptz", "past": "now() - interval '2 hours'", "now": "now()"},
        **{"amount": "numeric(50,10)", "ref": "gen_random_uuid()"},
    }
    shop = ShopDatabase(lambda *statements: _in_shop(server, statements), words, _variables(server))
    _in_shop(server, ["CREATE SCHEMA sales"])
    return shop.make()


def of_mariadb(server: Server) -> ShopDatabase:
    """The same tables in MariaDB, which has no schemas in databases."""
    server.execute(*(f"DROP TABLE IF EXISTS {name}" for name in ("orders", "customers", "shipments")))
    words = {
        **{"sales": "", "time": "datetime(6)", "past": "now(6) - interval 2 hour", "now": "now(6)"},
        **{"amount": "decimal(10,2)", "ref": "uuid()"},
    }
    edits = (
        ("type: postgres", "type: mysql"),
        (Postgres.package, Mysql.package),
        ("database: shop", f"database: {DATABASE}"),
        ("user: reader", f"user: {USER}"),
        ("sales.", ""),
    )
    return ShopDatabase(server.execute, words, _variables(server), edits).make()


def _variables(server: Server) -> dict[str, str]:
    return {"SHOP_DB_HOST": "127.0.0.1", "SHOP_DB_PORT": str(server.port), "SHOP_DB_PASSWORD": PASSWORD}


def _in_shop(server: Server, statements: Any) -> None:
    import psycopg

    place = {"host": "127.0.0.1", "port": server.port, "user": "reader", "password": PASSWORD, "dbname": "shop"}
    with psycopg.connect(**place, autocommit=True) as opened:  # type: ignore[arg-type]
        for statement in statements:
            opened.execute(statement)
