"""Messages that Debezium itself made of a PostgreSQL server's changes make the tables that the server has."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
import pytest
from pyspark.sql import SparkSession

from odi_assets.state.records import RunStatus
from odi_assets_tests.jars import kafka_jars
from odi_assets_tests.sources.cdc.conftest import rows_of
from odi_assets_tests.sources.cdc.debezium.engine import Debezium, why_unavailable
from odi_assets_tests.sources.cdc.debezium.server import kafka_server
from odi_assets_tests.sources.cdc.debezium.support import held, lines, project, run_all
from odi_assets_tests.sources.sql.servers import PostgresServer

TYPES = (
    "id int PRIMARY KEY, small smallint, big bigint, whole numeric(20), money numeric(12,2), real real, double float8, "
    "yes boolean, word varchar(20), body text, data bytea, day date, local timestamp, short timestamp(3), "
    "instant timestamptz, name uuid, doc jsonb, tags text[]"
)
VALUES = (
    "g, g, 9007199254740993 + g, 12345678901234567890 - g, g * 1.25 - 3, g / 7.0, g / 3.0, g % 2 = 0, 'wörd ' || g, "
    "repeat(chr(9731) || '\"' || E'\\n', 900) || g, decode(lpad(to_hex(g), 4, '0'), 'hex'), date '2024-02-29' + g, "
    "timestamp '1969-12-31 23:59:59.999999' + g * interval '1 day', timestamp '2024-03-31 02:30:00.123' + g * "
    "interval '1 hour', timestamptz '2024-10-27 01:30:00.5+02' + g * interval '1 hour', "
    "md5(g::text)::uuid, json_build_object('n', g, 'e', null)::jsonb, ARRAY['a', NULL, g::text]"
)


@pytest.fixture(autouse=True)
def _available() -> None:
    why = why_unavailable()
    if why is not None:
        pytest.skip(why)


@pytest.fixture
def table(database: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    database.execute(f"CREATE TABLE things ({TYPES})")
    database.execute("ALTER TABLE things ALTER body SET STORAGE EXTERNAL")
    database.execute("CREATE TABLE done (id serial PRIMARY KEY)")
    database.execute(f"INSERT INTO things SELECT {VALUES} FROM generate_series(1, 6) g")
    database.execute("INSERT INTO things (id) VALUES (100)")
    return database


def engine(server: PostgresServer, folder: Path, **settings: str) -> Debezium:
    exact = {"decimal_handling_mode": "precise", "skipped_operations": "none"}
    return Debezium(server, folder / "debezium", ("public.things", "public.done"), **exact, **settings)


def messages(debezium: Debezium, database: psycopg.Connection[Any]) -> list[dict[str, Any]]:
    """What Debezium has written up to now."""
    database.execute("INSERT INTO done DEFAULT VALUES")
    return debezium.messages("done")


def wanted(database: psycopg.Connection[Any]) -> dict[Any, dict[str, Any]]:
    """The rows of the server, as the types of the lake hold them."""
    return {
        key: {name: _in_lake(name, value) for name, value in row.items()}
        for key, row in rows_of(database, "things").items()
    }


def _in_lake(name: str, value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value)
    if name == "real" and value is not None:
        # The server writes the shortest digits that mean this number of 32 bits.
        return np.float32(value).item()
    return str(value) if isinstance(value, UUID) else value


def in_lake(rows: dict[Any, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Rows of the lake; the texts of JSON in one form."""
    return {
        key: {
            name: json.dumps(json.loads(value)) if name in ("doc", "tags") and value is not None else value
            for name, value in row.items()
        }
        for key, row in rows.items()
    }


def test_a_snapshot_and_the_changes_after_it_make_the_rows_of_the_server_type_by_type(
    tmp_path: Path, spark: SparkSession, server: PostgresServer, table: psycopg.Connection[Any]
) -> None:
    debezium, box = engine(server, tmp_path), project(tmp_path, spark, "things")
    box.land("topics/1.json", lines(*messages(debezium, table)))
    run_all(box)
    assert in_lake(held(box, "things")) == wanted(table)
    table.execute("UPDATE things SET money = money + 1, word = NULL WHERE id = 1")
    table.execute("UPDATE things SET id = 60 WHERE id = 2")
    table.execute("DELETE FROM things WHERE id = 3")
    table.execute("UPDATE things SET body = 'short' WHERE id = 4")
    table.execute(f"INSERT INTO things SELECT {VALUES} FROM generate_series(3, 3) g")
    box.land("topics/2.json", lines(*messages(debezium, table)))
    run_all(box)
    assert in_lake(held(box, "things")) == wanted(table)
    assert box.run("changes").status is RunStatus.NO_DATA


def test_what_topics_of_kafka_hold_makes_them_too(
    tmp_path: Path, spark: SparkSession, server: PostgresServer, table: psycopg.Connection[Any]
) -> None:
    if importlib.util.find_spec("confluent_kafka") is None or not kafka_jars():
        pytest.skip("no server of Kafka can be fetched")
    with kafka_server(tmp_path) as kafka:
        topic = "shop.public.things"
        kafka.make(topic, 2)
        read = 'connection: queue, format: debezium, topics: ["shop.public.*"]'
        box = project(tmp_path, spark, "things", read=read, connections=kafka.connection)
        debezium = engine(server, tmp_path)
        for statement in ("UPDATE things SET word = 'w'", "DELETE FROM things WHERE id < 3"):
            table.execute(statement)
            sent = messages(debezium, table)
            kafka.send(topic, [(one["key"], one["value"], one["key"]["payload"]["id"] % 2) for one in sent])
            run_all(box)
            assert in_lake(held(box, "things")) == wanted(table)


@pytest.mark.parametrize("seed", range(2))
def test_random_changes_in_several_files_make_the_rows_of_the_server(
    tmp_path: Path, spark: SparkSession, server: PostgresServer, table: psycopg.Connection[Any], seed: int
) -> None:
    debezium, box, draw = engine(server, tmp_path), project(tmp_path, spark, "things"), random.Random(seed)
    for number in range(3):
        for _ in range(draw.randrange(5, 25)):
            _change(table, draw)
        if number == 1:
            table.execute("TRUNCATE things")
            table.execute(f"INSERT INTO things SELECT {VALUES} FROM generate_series(1, 9) g")
            table.execute("ALTER TABLE things ADD COLUMN later int")
            table.execute("UPDATE things SET later = id WHERE id % 2 = 0")
        box.land(f"topics/{number}.json", lines(*messages(debezium, table)))
        run_all(box)
        assert in_lake(held(box, "things")) == wanted(table), number


def _change(database: psycopg.Connection[Any], draw: random.Random) -> None:
    """One to four changes in a transaction, some of them rolled back."""
    with database.transaction(force_rollback=draw.random() < 0.2):
        for _ in range(draw.randint(1, 4)):
            id_, other = draw.randint(1, 12), draw.randint(1, 12)
            statement = draw.choice(
                [
                    f"INSERT INTO things SELECT {VALUES} FROM generate_series({id_}, {id_}) g ON CONFLICT DO NOTHING",
                    f"UPDATE things SET money = coalesce(money, 0) + 1 WHERE id = {id_}",
                    f"UPDATE things SET body = repeat('y', {draw.choice([3, 4000])}), doc = NULL WHERE id = {id_}",
                    f"UPDATE things SET id = {other} WHERE id = {id_} AND {other} <> ALL (SELECT id FROM things)",
                    f"DELETE FROM things WHERE id = {id_}",
                ]
            )
            database.execute(statement)
