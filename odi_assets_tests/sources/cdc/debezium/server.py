"""A server of Kafka for tests: one process, without anything beside it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyspark

from odi_assets.util.lazy import kafka, kafka_admin
from odi_assets_tests.jars import kafka_jars

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SECONDS = 90


@dataclass(frozen=True)
class KafkaServer:
    """A running server."""

    place: str

    @property
    def connection(self) -> str:
        """The connection of a project file."""
        return f"  queue: {{type: kafka, bootstrap_servers: '{self.place}', timeout: 10}}\n"

    @cached_property
    def admin(self) -> Any:
        """A client, which has to live as long as what it is asked for."""
        return kafka_admin.AdminClient({"bootstrap.servers": self.place, "log_level": 0})

    def make(self, topic: str, partitions: int = 1) -> None:
        self.admin.create_topics([kafka_admin.NewTopic(topic, partitions, 1)])[topic].result()

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self.admin.create_partitions([kafka_admin.NewPartitions(topic, partitions)])[topic].result()

    def drop(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result()
        while topic in self.admin.list_topics(timeout=10).topics:
            time.sleep(0.05)

    def forget(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the messages of a partition below an offset, as retention does."""
        place = kafka.TopicPartition(topic, partition, before)
        # Another client would know the partitions of a topic that was there before.
        admin = kafka_admin.AdminClient({"bootstrap.servers": self.place, "log_level": 0})
        admin.delete_records([place])[place].result()

    def send(
        self, topic: str, messages: Iterable[tuple[Any, Any, int]], headers: Mapping[int, Any] | None = None
    ) -> None:
        """Write messages: key, value, and the number of the partition.

        Args:
            headers: by place in ``messages``, what a header says of the old key.
        """
        producer = kafka.Producer({"bootstrap.servers": self.place, "log_level": 0})
        for number, (key, value, partition) in enumerate(messages):
            old = (headers or {}).get(number)
            producer.produce(
                topic,
                key=None if key is None else json.dumps(key),
                value=None if value is None else json.dumps(value),
                partition=partition,
                headers=None if old is None else [("__debezium.oldkey", json.dumps(old).encode())],
            )
        producer.flush()


@contextmanager
def kafka_server(folder: Path) -> Iterator[KafkaServer]:
    """A new server with its data in ``folder``."""
    port, controller = _free_ports()
    settings = folder / "server.properties"
    settings.write_text(_SETTINGS.format(port=port, controller=controller, folder=folder), encoding="utf-8")
    # Spark fetches no Scala: its own is there.
    scala = Path(pyspark.__file__).parent.joinpath("jars").glob("scala-library-*.jar")
    classes = os.pathsep.join(map(str, [*kafka_jars(), *scala]))
    java = [str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if "JAVA_HOME" in os.environ else "java", *_JAVA]
    made = [*java, "-cp", classes, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ"]
    subprocess.run([*made, "-c", str(settings)], check=True, capture_output=True, cwd=folder)
    with (folder / "server.log").open("wb") as log:
        command = [*java, "-cp", classes, "kafka.Kafka", str(settings)]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            found = KafkaServer(f"127.0.0.1:{port}")
            _when_it_answers(found, process)
            yield found
        finally:
            process.kill()
            process.wait()


def _when_it_answers(server: KafkaServer, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            server.admin.list_topics(timeout=1)
            return
        except kafka.KafkaException:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
