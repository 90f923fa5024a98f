"""What a server or a role is set to changes nothing of what is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import ServerConnection
from odi_assets.nodes.node import Node
from odi_assets.sources.cdc.binlog.database import connected
from odi_assets.sources.reads import UnresolvedRead
from odi_assets.sources.sql.dialects import dialect_of
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.sql.conftest import Make
from odi_assets_tests.sources.sql.servers import ADMIN, DATABASE, PASSWORD, USER, MariadbServer, Server

POSTGRES = [
    ("extra_float_digits", "-15"),
    ("extra_float_digits", "0"),
    ("IntervalStyle", "sql_standard"),
    ("IntervalStyle", "iso_8601"),
    ("DateStyle", "German, DMY"),
    ("DateStyle", "SQL, DMY"),
    ("TimeZone", "<+1030>-10:30"),
    ("bytea_output", "escape"),
    ("statement_timeout", "300"),
    ("lock_timeout", "1"),
    # A reader turns it off in its first statement, within which a busy machine may pause for some milliseconds.
    ("idle_in_transaction_session_timeout", "200"),
    ("default_transaction_read_only", "on"),
    ("default_transaction_isolation", "serializable"),
    ("standard_conforming_strings", "on"),
    ("transform_null_equals", "on"),
    ("array_nulls", "off"),
    ("quote_all_identifiers", "on"),
]
MARIADB = [
    ("sql_select_limit", "2"),
    ("max_join_size", "1"),
    ("max_statement_time", "0.3"),
    ("group_concat_max_len", "4"),
    ("system_versioning_asof", "'2020-01-01'"),
    ("time_zone", "'+10:30'"),
    ("sql_mode", "'PAD_CHAR_TO_FULL_LENGTH'"),
    ("sql_mode", "'ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,NO_UNSIGNED_SUBTRACTION'"),
    ("sql_mode", "'ORACLE,EMPTY_STRING_IS_NULL,HIGH_NOT_PRECEDENCE'"),
]


@contextmanager
def changed(server: Server, name: str, value: str) -> Iterator[None]:
    """The server while new sessions begin with another value of a setting."""
    if not isinstance(server, MariadbServer):
        server.execute(f"ALTER ROLE {USER} SET {name} = '{value}'")
        try:
            yield
        finally:
            # On a busy machine even this takes longer than some of the settings allow.
            own = ("statement_timeout = 0", "lock_timeout = 0", "default_transaction_read_only = off")
            server.execute(*(f"SET {one}" for one in own), f"ALTER ROLE {USER} RESET ALL")
        return
    opened = server.connect(ADMIN)
    cursor = opened.cursor()
    cursor.execute(f"SELECT @@global.{name}")
    ((before,),) = cursor.fetchall()
    cursor.execute(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        text = str(before) if isinstance(before, int | float) else f"'{before}'"
        cursor.execute(f"SET GLOBAL {name} = {'DEFAULT' if name == 'system_versioning_asof' else text}")
        opened.close()


def values(make: Make, spark: SparkSession, what: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The rows of a source, and the mark of its cursor as a plain driver and as Spark finds it."""
    (source,) = Node.of(make(what).project, NodeKey("p", "events")).sources
    read = source.plan(None)
    with monkeypatch.context() as without:
        without.setattr("odi_assets.sources.sql.position.driver_of", lambda _: None)
        found = source.plan(None)
        assert isinstance(found, UnresolvedRead)
        by_spark = found.resolve(spark)
    assert by_spark.after == read.after
    rows = by_spark.load(spark)
    texts = rows.select([rows[name].cast("string") for name in rows.columns]).collect()
    return [read.after, rows.dtypes, sorted(map(tuple, texts), key=str)]


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
def test_no_setting_of_a_role_of_postgresql_changes_what_is_read(
    make: Make, server: Server, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute(
        "DROP TABLE IF EXISTS events",
        "CREATE TABLE events (id bigint PRIMARY KEY, at float8, f real, i interval, d date, t timestamp, "
        "z timestamptz, b bytea, c char(5), m money, r tstzrange, a float8[], n numeric, ti timetz)",
        "INSERT INTO events SELECT g, g * 0.1 + 0.2, g * 0.1 + 0.2, g * interval '-3 days 01:02:03.5', "
        "date '2024-03-02' + g, timestamp '2024-03-10 02:30:00.000001' + g * interval '1 hour', "
        "timestamptz '2024-03-10 02:30:00.000001+00' + g * interval '1 hour', "
        "decode('00275c' || to_hex(g + 16), 'hex'), "
        "'c' || g, g * 1000.5, tstzrange('2024-03-02 01:00+00', NULL), ARRAY[g * 0.1 + 0.2, NULL], g * 0.1, "
        "'10:00:00.5+02' FROM generate_series(1, 60) g",
    )
    slow = "(SELECT count(*) FROM (SELECT pg_sleep(0.5)) s)"
    for read in (
        "table: events, incremental: {mode: stateful, column: at}",
        f"query: 'SELECT id, t AS at, {slow} AS n FROM events', incremental: {{mode: stateful, column: at}}",
    ):
        settings = [one for one in POSTGRES if ("timeout" in one[0]) is ("pg_sleep" in read)]
        wanted = values(make, spark, read, monkeypatch)
        assert len(wanted[2]) == 60
        for name, value in settings:
            with changed(server, name, value):
                assert values(make, spark, read, monkeypatch) == wanted, (name, value)


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_no_setting_of_a_server_of_mariadb_changes_what_is_read(
    make: Make, server: Server, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute(
        "DROP TABLE IF EXISTS events",
        "CREATE TABLE events (id bigint PRIMARY KEY, at datetime(6), c char(5), z timestamp(6) NULL, x double, "
        "u bigint unsigned, e enum('a', ''), v varchar(9)) WITH SYSTEM VERSIONING",
        "INSERT INTO events SELECT seq, '2024-01-01' + INTERVAL seq SECOND, CONCAT('c', seq), "
        "'2024-01-01' + INTERVAL seq HOUR, seq * 0.1 + 0.2, 9223372036854775808 + seq, 'a', '' FROM seq_1_to_60",
    )
    slow = "CASE WHEN a.id = 1 THEN SLEEP(0.5) END AS s"
    columns = f"a.id, a.at, a.c, (SELECT GROUP_CONCAT(c ORDER BY id) FROM events) AS g, {slow}"
    for read in (
        "table: events, incremental: {mode: stateful, column: at}",
        f"query: 'SELECT {columns} FROM events a JOIN events b ON a.id = b.id', "
        "incremental: {mode: stateful, column: at}",
    ):
        wanted = values(make, spark, read, monkeypatch)
        assert len(wanted[2]) == 60
        for name, value in MARIADB:
            with changed(server, name, value):
                assert values(make, spark, read, monkeypatch) == wanted, (name, value)


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_limit_of_the_server_cuts_no_run_no_snapshot_and_no_session_of_a_capture(make: Make, server: Server) -> None:
    server.execute(
        "DROP TABLE IF EXISTS events",
        "CREATE TABLE events (id bigint PRIMARY KEY, at datetime(6))",
        "INSERT INTO events SELECT seq, '2024-01-01' + INTERVAL seq SECOND FROM seq_1_to_60",
    )
    with changed(server, "sql_select_limit", "5"):
        for follows in (
            ", incremental: {mode: stateful, column: id}",
            ", incremental: {mode: cursors, columns: [at], snapshot: {rows: 20}}",
            "",
        ):
            box = make(f"table: events{follows}", "mode: overwrite" if not follows else "mode: append")
            assert len(run(box)) == 60, follows
        place = {"host": "127.0.0.1", "port": server.port, "database": DATABASE, "user": USER, "password": PASSWORD}
        dialect = dialect_of(ServerConnection.model_validate({"type": "mysql", **place}))
        with connected(dialect, "db") as session:
            assert len(session.rows("SELECT id FROM events")) == 60


def run(box: Sandbox) -> list[tuple[Any, ...]]:
    """The rows of the node, read from their beginning."""
    box.run("events", full_refresh=True)
    return box.rows("events")
