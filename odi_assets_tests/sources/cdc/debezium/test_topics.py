"""Debezium's envelopes in topics of Kafka: offsets are in the commit of the changes."""

from __future__ import annotations

import importlib.util
import json
import random
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, LossError, SourceError
from odi_assets.orchestration.automation.source_lag import look, watched_nodes
from odi_assets.sources.cdc.debezium import topics
from odi_assets.state.records import RunStatus
from odi_assets_tests.jars import kafka_jars
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.debezium.model import Life
from odi_assets_tests.sources.cdc.debezium.server import KafkaServer, kafka_server
from odi_assets_tests.sources.cdc.debezium.support import described, envelope, held, project, run_all
from odi_assets_tests.sources.cdc.debezium.test_many_changes import POINTS
from odi_assets_tests.sources.sql.test_kills import kill_at
from odi_assets_tests.sources.sql.test_snapshots import Killed

TOPIC = "shop.public.orders"
READ = f"connection: queue, format: debezium, topics: [{TOPIC}]"


@pytest.fixture(scope="module")
def of_module() -> Iterator[KafkaServer]:
    if importlib.util.find_spec("confluent_kafka") is None:
        pytest.skip("confluent-kafka is not installed")
    if not kafka_jars():
        pytest.skip("no server of Kafka can be fetched")
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder, kafka_server(Path(folder)) as server:
        yield server


@pytest.fixture
def server(of_module: KafkaServer) -> Iterator[KafkaServer]:
    """The server, without what a test before has left."""
    yield of_module
    for name in of_module.admin.list_topics(timeout=10).topics:
        if not name.startswith("__"):
            of_module.drop(name)


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession, server: KafkaServer) -> Sandbox:
    server.make(TOPIC)
    return project(tmp_path, spark, "orders", read=READ, connections=server.connection)


def order(id_: int, state: str = "new") -> dict[str, Any]:
    return {"id": id_, "state": state, "note": None}


def change(op: str, id_: int, state: str = "new", *, lsn: int, partition: int = 0) -> tuple[Any, Any, int]:
    row = order(id_, state)
    value = envelope(op, row if op == "d" else None, None if op == "d" else row, lsn=lsn)
    return {"id": id_}, described(value), partition


def test_a_run_takes_what_came_and_the_next_one_goes_on_there(box: Sandbox, server: KafkaServer) -> None:
    server.send(TOPIC, [change("c", 1, lsn=10), change("c", 2, lsn=20)])
    run_all(box)
    assert held(box, "orders") == {1: order(1), 2: order(2)}
    assert box.run("changes").status is RunStatus.NO_DATA
    plan = box.plan("changes")
    assert "no new messages" in plan.summary
    server.send(TOPIC, [change("u", 1, "paid", lsn=30), change("d", 2, lsn=40), ({"id": 2}, None, 0)])
    run_all(box)
    assert held(box, "orders") == {1: order(1, "paid")}
    assert box.hwm("changes")["topics"][TOPIC]["offsets"] == {"0": 5}


def test_the_bound_of_a_run_is_fixed_as_it_begins(
    box: Sandbox, server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MOST_MESSAGES", 2)
    server.send(TOPIC, [change("c", n, lsn=n) for n in range(1, 6)])
    logged = topics.Topics.logged

    def later(self: topics.Topics, read: topics.NewTopicMessages) -> Any:
        server.send(TOPIC, [change("c", 99, lsn=99)])
        return logged(self, read)

    with monkeypatch.context() as patched:
        patched.setattr(topics.Topics, "logged", later)
        box.run("changes")
    box.run("orders")
    # In commits of two messages each.
    assert box.table("changes").version == 2
    assert sorted(held(box, "orders")) == [1, 2, 3, 4, 5]
    run_all(box)
    assert sorted(held(box, "orders")) == [1, 2, 3, 4, 5, 99]


def test_partitions_that_are_added_go_on_in_the_databases_order(box: Sandbox, server: KafkaServer) -> None:
    server.send(TOPIC, [change("c", 1, lsn=10), change("c", 2, lsn=20)])
    run_all(box)
    server.send(TOPIC, [change("u", 1, "paid", lsn=30)])
    server.grow(TOPIC, 3)
    server.send(TOPIC, [change("u", 1, "sent", lsn=40, partition=2), change("d", 1, lsn=50, partition=2)])
    server.send(TOPIC, [change("u", 2, "paid", lsn=60, partition=1)])
    run_all(box)
    assert held(box, "orders") == {2: order(2, "paid")}


def test_messages_that_were_deleted_before_they_were_read_stop_the_run(box: Sandbox, server: KafkaServer) -> None:
    server.send(TOPIC, [change("c", n, lsn=n) for n in range(1, 4)])
    run_all(box)
    server.forget(TOPIC, 2)
    server.send(TOPIC, [change("c", n, lsn=n) for n in range(4, 8)])
    # What was read may go.
    run_all(box)
    server.send(TOPIC, [change("c", n, lsn=n) for n in range(8, 11)])
    server.forget(TOPIC, 9)
    with pytest.raises(SourceError, match=r"orders\[0\] begins at offset 9, and was read up to 7: 2 messages"):
        box.run("changes")
    with pytest.raises(LossError, match=r"changes of shop\.public\.orders that the topic does not have"):
        box.run("changes", full_refresh=True)
    box.run("changes", full_refresh=True, accept_loss=True)
    box.run("orders")
    assert sorted(held(box, "orders")) == [10]


def test_a_topic_that_was_made_again_or_is_gone_stops_the_run(box: Sandbox, server: KafkaServer) -> None:
    server.send(TOPIC, [change("c", 1, lsn=10)])
    run_all(box)
    server.drop(TOPIC)
    with pytest.raises(SourceError, match=f"no topic is named {TOPIC}"):
        box.run("changes")
    server.make(TOPIC)
    server.send(TOPIC, [change("c", 2, lsn=10)])
    with pytest.raises(SourceError, match=f"the topic {TOPIC} was made again"):
        box.run("changes")
    box.run("changes", full_refresh=True, accept_loss=True)
    box.run("orders")
    assert sorted(held(box, "orders")) == [2]


def test_topics_are_named_by_patterns_and_one_that_is_gone_may_be_left_out(
    tmp_path: Path, spark: SparkSession, server: KafkaServer
) -> None:
    read = 'connection: queue, format: debezium, topics: ["shop.*"ALSO]'
    for name in (TOPIC, "shop.other"):
        server.make(name)
    server.send(TOPIC, [change("c", 1, lsn=10)])
    server.send("shop.other", [({"id": 1}, described(envelope("c", None, order(7), table="other", lsn=1)), 0)])
    box = project(tmp_path, spark, "orders", "other", read=read.replace("ALSO", ""), connections=server.connection)
    run_all(box)
    assert (held(box, "orders"), held(box, "other")) == ({1: order(1)}, {7: order(7)})
    server.drop("shop.other")
    with pytest.raises(SourceError, match=r"the topic shop\.other is gone, which was read up to shop\.other 0:1"):
        box.run("changes")
    server.send(TOPIC, [change("c", 2, lsn=20)])
    read = read.replace("ALSO", ', "!shop.other"')
    box = project(tmp_path, spark, "orders", "other", read=read, connections=server.connection)
    run_all(box)
    assert sorted(held(box, "orders")) == [1, 2]


def test_a_truncation_needs_one_partition_and_a_compacted_delete_is_missed(
    tmp_path: Path, spark: SparkSession, server: KafkaServer
) -> None:
    server.make(TOPIC, 2)
    box = project(tmp_path, spark, "orders", read=READ, connections=server.connection)
    server.send(TOPIC, [change("c", 1, lsn=10), ({"id": 9}, None, 0), (None, envelope("t", lsn=20), 1)])
    with pytest.raises(SourceError, match=r"orders\[1\], offset 0, empties public.orders"):
        box.run("changes")
    server.forget(TOPIC, 1, 1)
    box.run("changes")
    server.send(TOPIC, [({"id": 1}, None, 0), ({"id": 1}, None, 0)])
    # It stands behind what was read.
    box.run("changes")
    server.send(TOPIC, [change("c", 2, lsn=30), ({"id": 1}, None, 0)])
    with pytest.raises(SourceError, match=r"offset 5, marks a row as gone, and the change that deleted it is not"):
        box.run("changes")


def test_what_is_wrong_is_named_with_its_offset_and_a_server_that_is_away_with_its_address(
    tmp_path: Path, spark: SparkSession, box: Sandbox, server: KafkaServer
) -> None:
    server.send(TOPIC, [change("c", 1, lsn=10), ({"id": 1}, {"id": 1}, 0)])
    with pytest.raises(SourceError, match=rf"{TOPIC}\[0\], offset 1, is no envelope"):
        box.run("changes")
    away = "  queue: {type: kafka, bootstrap_servers: '127.0.0.1:9', timeout: 1}\n"
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:9 does not answer: .*Connection refused"):
        project(tmp_path, spark, read=READ, connections=away).run("changes")
    odd = "  queue: {type: kafka, bootstrap_servers: '127.0.0.1:9', options: {no.such: 1}}\n"
    with pytest.raises(ConfigError, match=r"no\.such"):
        project(tmp_path, spark, read=READ, connections=odd).run("changes")


def test_a_sensor_sees_messages_that_came(box: Sandbox, server: KafkaServer) -> None:
    server.send(TOPIC, [change("c", 1, lsn=10)])
    run_all(box)
    key = NodeKey("p", "changes")
    assert key in watched_nodes(box.project, "p")
    assert key not in look(box.project, "p", 30).ahead
    server.send(TOPIC, [change("c", 2, lsn=20)])
    assert key in look(box.project, "p", 30).ahead


def test_runs_that_are_killed_at_every_step_have_each_change_once(
    tmp_path: Path, spark: SparkSession, server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MOST_MESSAGES", 10)
    server.make(TOPIC, 3)
    box = project(tmp_path, spark, "orders", read=READ, connections=server.connection)
    draw = random.Random(5)
    life, count = Life(draw, truncates=False), 0
    points = [one for one in POINTS if "ledger" not in one[0]]
    for function, moment in points:
        life.go_on(15)
        sent = life.taken()
        headers = {n: message["headers"] for n, (_, message) in enumerate(sent) if "headers" in message}
        old = {n: json.loads(one["__debezium.oldkey"]) for n, one in headers.items()}
        messages = [(message["key"], message["value"], int(id_ or 0) % 3) for id_, message in sent]
        server.send(TOPIC, messages, old)
        count += sum(value is not None for _, value, _ in messages)
        with pytest.MonkeyPatch.context() as patched:
            kill_at(patched, function, moment, draw.choice((1, 2)))
            with suppress(Killed):
                box.run("changes")
        run_all(box)
        log = box.table("changes").table.to_pyarrow_table().to_pylist()
        assert sum(row["op"] != "s" for row in log) == count, (function, moment)
        assert held(box, "orders") == life.rows, (function, moment)
