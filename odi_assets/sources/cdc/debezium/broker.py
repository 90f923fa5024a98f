"""A session of Kafka: its topics, how far they reach, and their messages up to a bound."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from odi_assets.config.captured_tables import LEFT_OUT
from odi_assets.config.models.connections import KafkaConnection
from odi_assets.errors import ConfigError, SourceError
from odi_assets.sources.cdc.patterns import TablePatterns, named
from odi_assets.util.extras import install_command
from odi_assets.util.lazy import kafka, kafka_admin

_AT_ONCE = 5_000
_WAIT = 1.0
"""Seconds of one look for messages."""


@dataclass(frozen=True)
class Topic:
    """A topic.

    Attributes:
        id: another one for each topic that was made, whatever its name.
        partitions: their numbers.
    """

    id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class PartitionSpan:
    """The messages of a partition from an offset to another, which is out."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Message:
    """A message, or where a partition goes on behind what has none.

    Attributes:
        next: the offset from which the partition goes on.
        is_one: it is a message.
    """

    topic: str
    partition: int
    next: int
    is_one: bool = False
    offset: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass
class Broker:
    """An open session.

    Attributes:
        label: the source in words, for messages.
        complaints: what the client says of servers that do not answer.
    """

    connection: KafkaConnection
    label: str
    _admin: Any
    _consumer: Any
    complaints: list[str]

    def topics(self, patterns: Sequence[str]) -> dict[str, Topic]:
        """By name, the topics that ``patterns`` name.

        Raises:
            SourceError: one names none; the server does not answer.
        """
        with self._named():
            listed = self._admin.list_topics(timeout=self.connection.timeout).topics
            names = sorted(name for name in listed if not name.startswith("__"))
            entries = TablePatterns.of(patterns)
            for pattern in entries.wanted:
                if not named(pattern, names):
                    others = ", ".join(names[:10]) or "none"
                    raise SourceError(
                        f"{self.label}: no topic is named {pattern}; {self.connection.bootstrap_servers} has {others}",
                        fix="correct `topics`, or start the connector that makes it",
                        path=pattern,
                    )
            wanted = {name for pattern in entries.wanted for name in named(pattern, names)}
            asked = kafka.TopicCollection(entries.kept(sorted(wanted)))
            described = self._admin.describe_topics(asked, request_timeout=self.connection.timeout)
            descriptions = {name: future.result() for name, future in described.items()}
        return {
            name: Topic(str(description.topic_id), tuple(sorted(part.id for part in description.partitions)))
            for name, description in sorted(descriptions.items())
        }

    @staticmethod
    def is_left_out(patterns: Sequence[str], name: str) -> bool:
        """Whether an entry with `!` leaves a topic out."""
        return any(
            named(pattern.removeprefix(LEFT_OUT), [name]) for pattern in patterns if pattern.startswith(LEFT_OUT)
        )

    def reach(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that a partition has, and the one that its next message gets.

        Raises:
            SourceError: the server does not answer.
        """
        with self._named():
            topic_partition = kafka.TopicPartition(topic, partition)
            first, end = self._consumer.get_watermark_offsets(topic_partition, timeout=self.connection.timeout)
        return int(first), int(end)

    def messages(self, spans: Sequence[PartitionSpan], most: int) -> Iterator[Message]:
        """The messages of ``spans``; those of a partition in order. They end after ``most`` messages, about.

        Raises:
            SourceError: the server does not answer, or does not have a message that it had.
        """
        ends = {(span.topic, span.partition): span.end for span in spans if span.end > span.start}
        count, heard = 0, time.monotonic()
        with self._named():
            starts = [
                kafka.TopicPartition(span.topic, span.partition, span.start) for span in spans if span.end > span.start
            ]
            self._consumer.assign(starts)
            while ends and count < most:
                batch = self._consumer.consume(min(_AT_ONCE, most - count), timeout=_WAIT)
                if batch:
                    heard = time.monotonic()
                elif time.monotonic() - heard > self.connection.timeout:
                    raise self._silent()
                for received in batch:
                    message = self._message(received, ends)
                    if message is not None:
                        count += message.is_one
                        yield message

    def _message(self, received: Any, ends: dict[tuple[str, int], int]) -> Message | None:
        """A message that the client gives, or where a partition ends; None: it is above the bound.

        Args:
            ends: the bounds of partitions that are not read to their bounds; it loses those that are.
        """
        error, at = received.error(), (received.topic(), received.partition())
        if error is not None and error.code() != kafka.KafkaError._PARTITION_EOF:
            raise kafka.KafkaException(error)
        if at not in ends:
            return None
        end, offset = ends[at], int(received.offset())
        if error is not None or offset >= end:
            del ends[at]
            return Message(*at, min(offset, end))
        if offset == end - 1:
            del ends[at]
        return Message(*at, offset + 1, True, offset, received.key(), received.value(), received.headers() or ())

    def _silent(self) -> SourceError:
        self._admin.poll(0)
        said = f": {self.complaints[-1]}" if self.complaints else ""
        return SourceError(
            f"{self.label}: {self.connection.bootstrap_servers} does not answer{said}",
            fix="see that it runs, and that `bootstrap_servers`, `user`, `password` and `options` of the connection "
            "are right; nothing was written",
            path=self.connection.bootstrap_servers,
        )

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except kafka.KafkaException as error:
            code = error.args[0].code()
            silent = (kafka.KafkaError._TRANSPORT, kafka.KafkaError._TIMED_OUT, kafka.KafkaError._ALL_BROKERS_DOWN)
            if code in silent:
                raise self._silent() from error
            raise SourceError(
                f"{self.label}: {self.connection.bootstrap_servers} says: {error.args[0].str()}",
                fix="see the connection's `options`, and the rights of its user; then run the node again",
                path=self.connection.bootstrap_servers,
            ) from error


@contextmanager
def opened(connection: KafkaConnection, label: str) -> Iterator[Broker]:
    """A session of a server of Kafka. No offsets are kept there.

    Raises:
        ConfigError: the client is not installed, or does not know an option.
    """
    if find_spec("confluent_kafka") is None:
        raise ConfigError(f"{label}: topics are read with confluent-kafka", fix=f"run: {install_command('kafka')}")
    complaints: list[str] = []
    settings = {
        # Without the client's own lines on stderr; what it complains of is in the error.
        "log_level": 0,
        "error_cb": lambda error: complaints.append(error.str()),
        **connection.settings,
    }
    own = {"group.id": "odi", "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "error"}
    try:
        admin, consumer = kafka_admin.AdminClient(settings), kafka.Consumer({**settings, **own})
    except kafka.KafkaException as error:
        raise ConfigError(f"{label}: {error.args[0].str()}", fix="correct `options` of the connection") from error
    with closing(consumer):
        yield Broker(connection, label, admin, consumer, complaints)
