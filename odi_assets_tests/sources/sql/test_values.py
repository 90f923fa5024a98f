"""Values come over as they are stored, whatever the zones of server, session and JVM; or not at all."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, SourceError
from odi_assets.nodes.node import Node
from odi_assets_tests.sources.sql.conftest import Make
from odi_assets_tests.sources.sql.servers import Server

GAP = datetime(2024, 3, 10, 2, 30, 0, 123456)
"""A time that New York's clocks leave out."""

POSTGRES = {
    "a": ("smallint", "1", "smallint", 1),
    "b": ("numeric", "1.000000000000000001", "decimal(38,18)", Decimal("1.000000000000000001")),
    "c": ("numeric(12,2)", "1.50", "decimal(12,2)", Decimal("1.50")),
    "d": ("real", "0.1", "float", 0.10000000149011612),
    "e": ("char(5)", "'ab'", "string", "ab"),
    "f": ("bytea", "decode('00ff', 'hex')", "binary", bytearray(b"\x00\xff")),
    "g": ("date", "DATE '1500-01-01'", "date", date(1500, 1, 1)),
    "h": (
        "timestamp",
        "TIMESTAMP '2024-03-10 02:30:00.123456'",
        "timestamp_ntz",
        datetime(2024, 3, 10, 2, 30, 0, 123456),
    ),
    "i": ("timestamptz", "TIMESTAMPTZ '1500-01-01 00:00:00.000001+00'", "timestamp", "1500-01-01 00:00:00.000001"),
    "j": ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "string", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "k": ("jsonb", """'{"a": 1}'""", "string", '{"a": 1}'),
    "l": ("time", "TIME '12:00:01.5'", "string", "12:00:01.5"),
    "m": ("timestamp[]", "ARRAY[TIMESTAMP '2024-03-10 02:30:00']", "string", '{"2024-03-10 02:30:00"}'),
    "n": ("int[]", "ARRAY[1, 2]", "array<int>", [1, 2]),
    '"O o"': ("boolean", "true", "boolean", True),
}
MARIADB = {
    "a": ("tinyint(1)", "2", "tinyint", 2),
    "b": ("bigint unsigned", "18446744073709551615", "decimal(20,0)", Decimal(2**64 - 1)),
    "c": ("decimal(65,30)", "1.125", "decimal(38,3)", Decimal("1.125")),
    "d": ("float", "0.1", "float", 0.10000000149011612),
    "e": ("char(5)", "'ab'", "string", "ab"),
    "f": ("binary(3)", "X'00ff'", "binary", bytearray(b"\x00\xff\x00")),
    "g": ("date", "'1500-01-01'", "date", date(1500, 1, 1)),
    "h": ("datetime(6)", "'2024-03-10 02:30:00.123456'", "timestamp_ntz", GAP),
    "i": ("timestamp(6)", "'2024-03-10 02:30:00.123456'", "timestamp", "2024-03-10 02:30:00.123456"),
    "j": ("year", "2024", "int", 2024),
    "k": ("json", """'{"a": 1}'""", "string", '{"a": 1}'),
    "l": ("time(1)", "'100:00:01.5'", "string", "100:00:01.5"),
    "m": ("bit(12)", "b'101'", "decimal(20,0)", Decimal(5)),
    "n": ("enum('a', 'long')", "'a'", "string", "a"),
    "`O o`": ("boolean", "true", "tinyint", 1),
}


@pytest.mark.parametrize(
    ("server", "columns"),
    [("postgres", POSTGRES), ("mariadb", MARIADB)],
    indirect=["server"],
    ids=["postgres", "mariadb"],
)
def test_each_type_comes_over_as_it_is_stored(
    make: Make, server: Server, spark: SparkSession, columns: dict[str, tuple[str, str, str, object]]
) -> None:
    server.execute(
        "DROP TABLE IF EXISTS kinds",
        f"CREATE TABLE kinds ({', '.join(f'{name} {kind}' for name, (kind, *_) in columns.items())})",
        f"INSERT INTO kinds VALUES ({', '.join(value for _, value, *_ in columns.values())})",
        f"INSERT INTO kinds VALUES ({', '.join(['NULL'] * len(columns))})" if server.type == "postgres" else "SELECT 1",
    )
    (source,) = Node.of(make("table: kinds").project, NodeKey("p", "events")).sources
    rows = source.whole().load(spark)
    assert [field.dataType.simpleString() for field in rows.schema] == [kind for _, _, kind, _ in columns.values()]
    assert all(not field.metadata for field in rows.schema)
    # Collected as it is, an instant would take on the zone of this machine.
    instants = {field.name for field in rows.schema if field.dataType.simpleString() == "timestamp"}
    shown = [F.col(f"`{name}`").cast("string") if name in instants else F.col(f"`{name}`") for name in rows.columns]
    found = [tuple(row) for row in rows.select(shown).collect()]
    assert tuple(value for *_, value in columns.values()) in found
    assert server.type == "mysql" or (None,) * len(columns) in found


@pytest.mark.parametrize(
    ("server", "kind", "value", "shown"),
    [
        ("postgres", "numeric", "0.0000000000000000001", "0.0000000000000000001, which is no decimal(38,18)"),
        ("postgres", "numeric", "'NaN'", "NaN, which is no decimal"),
        ("postgres", "date", "'infinity'", "infinity, which is no date"),
        ("postgres", "timestamptz", "'0044-03-15 00:00:00+00 BC'", "BC, which is no timestamp"),
        ("mariadb", "date", "'0000-00-00'", "0000-00-00, which is no date"),
        ("mariadb", "datetime", "'2024-00-15'", "2024-00-15 00:00:00, which is no timestamp_ntz"),
    ],
    indirect=["server"],
)
def test_a_value_that_no_type_of_spark_holds_stops_the_run(
    make: Make, server: Server, kind: str, value: str, shown: str
) -> None:
    insert = f"INSERT INTO odd VALUES ({value})"
    if server.type == "mysql":
        insert = f"SET STATEMENT sql_mode = '' FOR {insert}"
    server.execute("DROP TABLE IF EXISTS odd", f"CREATE TABLE odd (o {kind})", insert)
    with pytest.raises(SourceError, match="db:odd: column `o` holds ") as caught:
        make("table: odd").run("events")
    assert shown in str(caught.value)


@pytest.mark.parametrize("server", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("kind", "first", "value", "remedy"),
    [
        ("numeric", "1", "1e30", 'CAST("o" AS DECIMAL(38,7)) AS "o"'),
        ("numeric", "1234567890123456789", "1e-19", 'CAST("o" AS DECIMAL(38,19)) AS "o"'),
        ("numeric", "99999999999999999999", f"1.{'0' * 36}1", 'CAST("o" AS DOUBLE PRECISION) AS "o"'),
        ("numeric", "1", "1e40", 'CAST("o" AS DOUBLE PRECISION) AS "o"'),
        ("timestamp", "'2024-01-01'", "'0044-03-15 BC'", 'NULLIF("o", \'0044-03-15 00:00:00 BC\') AS "o"'),
    ],
)
def test_a_cursor_that_no_type_of_spark_holds_is_led_to_a_query_that_keeps_its_order(
    make: Make, server: Server, kind: str, first: str, value: str, remedy: str
) -> None:
    """`columns` is refused for it, and as text `10` comes before `9`."""
    server.execute("DROP TABLE IF EXISTS odd", f"CREATE TABLE odd (id int PRIMARY KEY, o {kind})")
    server.execute(f"INSERT INTO odd VALUES (1, {first}), (2, {value})")
    follows = "incremental: {mode: stateful, column: o, on_null: exclude}"
    with pytest.raises(SourceError, match="db:odd: column `o` holds ") as caught:
        make(f"table: odd, {follows}").run("events")
    assert f"`{remedy}`" in str(caught.value.fix)
    assert "columns" not in str(caught.value.fix)
    query = f"SELECT id, {remedy} FROM odd".replace("'", "''")
    assert make(f"query: '{query}', {follows}").run("events").rows_written == (1 if "NULLIF" in remedy else 2)


def test_instants_do_not_move_with_the_confs_of_the_session(make: Make, server: Server, spark: SparkSession) -> None:
    server.execute(
        "DROP TABLE IF EXISTS moments",
        "CREATE TABLE moments (m timestamptz)",
        "INSERT INTO moments VALUES ('2024-11-03 05:30:00.5+00')",
    )
    (source,) = Node.of(make("table: moments").project, NodeKey("p", "events")).sources
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rows = source.whole().load(spark).select(F.unix_micros("m").alias("m")).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert rows[0].m == int(datetime(2024, 11, 3, 5, 30, 0, 500_000, tzinfo=UTC).timestamp() * 1_000_000)


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_column_of_a_type_that_spark_does_not_know_does_not_stop_its_table(
    make: Make, server: Server, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute(
        "DROP TABLE IF EXISTS odd",
        "CREATE TABLE odd (a int, u uuid, b int)",
        "INSERT INTO odd VALUES (1, '00000000-0000-0000-0000-00000000000f', 2)",
    )

    def read(what: str) -> list[tuple[object, ...]]:
        (source,) = Node.of(make(what).project, NodeKey("p", "events")).sources
        return [tuple(row) for row in source.whole().load(spark).collect()]

    rows = [(1, "00000000-0000-0000-0000-00000000000f", 2)]
    assert read("table: odd") == rows
    assert read("query: SELECT * FROM odd") == rows
    assert read('table: odd, columns: {u: "LEFT(u, 1)", b: b + 1}') == [(1, "0", 3)]
    with pytest.raises(ConfigError, match="db:odd has no column `v`; it has a, u, b"):
        read("table: odd, columns: {v: u}")
    monkeypatch.setattr("odi_assets.sources.sql.position.driver_of", lambda _: None)
    assert read("table: odd") == rows
    with pytest.raises(SourceError, match="of a type that Spark does not know") as caught:
        read("query: SELECT * FROM odd")
    assert "read with a `query` that casts it to text" in str(caught.value)
    assert read("query: 'SELECT a, CAST(u AS CHAR) AS u, b FROM odd'") == rows
