"""Topics of Kafka with Debezium's envelopes as a source of a change log: offsets by partition are the mark."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odi_assets.config.models.connections import KafkaConnection
from odi_assets.errors import ConfigError, NothingThereError, OdiError, SourceError
from odi_assets.sources.cdc.debezium.broker import Broker, Message, PartitionSpan, Topic, opened
from odi_assets.sources.cdc.debezium.envelopes import EnvelopeReader, EnvelopeRules
from odi_assets.sources.cdc.debezium.mark import LogState, TopicMark, TopicsMark, offsets_text
from odi_assets.sources.cdc.debezium.reads import LoggedMessages, NewMessages
from odi_assets.sources.cdc.debezium.rows import NumberedRows
from odi_assets.sources.cdc.log import Op
from odi_assets.sources.cdc.log_reads import ChangesSnapshot
from odi_assets.sources.losses import Loss
from odi_assets.sources.marks import Identity, Mark
from odi_assets.sources.reads import NothingNew, PlannedRead, Read
from odi_assets.sources.snapshot import Position, SourceSnapshot
from odi_assets.sources.source import Source
from odi_assets.util.words import counted

if TYPE_CHECKING:
    pass

MOST_MESSAGES = 500_000
"""Messages of one commit, about, of topics of one partition."""
Ends = Mapping[str, Mapping[int, int]]
"""By topic and partition, the offset that the next message gets."""
_SNAPSHOT = "let Debezium make a new snapshot of its tables (a signal `execute-snapshot`)"


@dataclass(frozen=True, kw_only=True)
class Topics(Source):
    """Topics that Debezium writes.

    Attributes:
        ends: where the topics ended when the run began, if it began with an earlier step.
    """

    rules: EnvelopeRules
    server: KafkaConnection
    ends: Ends | None = None

    @property
    def identity(self) -> Identity:
        return Identity("kafka", self.server.bootstrap_servers, "offset", "log", self.connection, self.uri)

    @property
    def uri(self) -> str:
        return f"kafka://{self.server.bootstrap_servers}"

    @property
    def watchable(self) -> bool:
        return True

    @property
    def follows(self) -> bool:
        return True

    def bounded(self, until: Any) -> Topics:
        return self if until is None else replace(self, ends=until)

    def snapshot(self) -> SourceSnapshot:
        with opened(self.server, self.label) as broker:
            topics = broker.topics(self.rules.read.topics)
            return self._snapshot(topics, _ends(self._reach(broker, topics, None)))

    def _snapshot(self, topics: Mapping[str, Topic], ends: Ends) -> SourceSnapshot:
        position = {
            name: {"id": topics[name].id, "ends": {str(number): at for number, at in sorted(offsets.items())}}
            for name, offsets in sorted(ends.items())
        }
        return TopicsSnapshot(
            name=self.name, label=self.label, format="debezium", identity=self.identity, stood=position
        )

    def position(self) -> Position:
        return self.snapshot().position

    def change_since(self, then: Position | None) -> str | None:
        if then is None:
            return "what they held was not recorded"
        return None if then == self.position() else "messages have come"

    def mark(self, value: Any, remembered: Mapping[str, Any], *, typed: bool = True) -> Mark:
        del remembered, typed
        return TopicsMark.of(value, self.label)

    def whole(self) -> Read:
        raise ConfigError(
            f"{self.label}: a change log has the changes of all messages, in their order, and takes no range of them",
            fix=f"{self.rules.again} makes it again, of what the topics still have",
            node=self.rules.node,
        )

    def why_unreachable(self, mark: Mark) -> str | None:
        before = mark if isinstance(mark, TopicsMark) else None
        try:
            with opened(self.server, self.label) as broker:
                self._spans(broker, broker.topics(self.rules.read.topics), before)
        except OdiError as error:
            return error.message.removeprefix(f"{self.label}: ")
        return None

    def losses(self, mark: Mark | None, then: Position | None, since: int | None) -> Iterable[Loss]:
        del then, since
        if not isinstance(mark, TopicsMark):
            return
        with opened(self.server, self.label) as broker:
            topics = broker.topics(self.rules.read.topics)
            firsts = {at: first for at, (first, _) in self._reach(broker, topics, mark).items()}
        for name, known in mark.topics.items():
            is_other = name not in topics or topics[name].id != known.id
            if is_other or any(firsts.get((name, number), 0) > 0 for number in known.offsets):
                yield Loss(f"changes of {name} that the topic does not have any more", for_good=True)

    def plan(self, mark: Mark | None) -> PlannedRead:
        before = mark if isinstance(mark, TopicsMark) else None
        with opened(self.server, self.label) as broker:
            topics = broker.topics(self.rules.read.topics)
            spans = self._spans(broker, topics, before)
        new = sum(max(0, span.end - span.start) for span in spans)
        read = NewTopicMessages(
            snapshot=self._snapshot(topics, _ends(_bounds(spans))),
            summary=f"up to {counted(new, 'new message')} of {counted(len(topics), 'topic')}",
            before=before,
            follows=True,
            source=self,
            spans=spans,
            topics=topics,
        )
        return read if new else NothingNew.of(read, "no new messages", before)

    def _reach(
        self, broker: Broker, topics: Mapping[str, Topic], before: TopicsMark | None
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """By partition, the first offset and the end. Those that were added come first: what a key had in another one
        before is below the end of that."""
        known = {} if before is None else before.topics
        places = [(name, number) for name, topic in topics.items() for number in topic.partitions]
        is_old = {at: at[0] in known and at[1] in known[at[0]].offsets for at in places}
        return {at: broker.reach(*at) for at in sorted(places, key=lambda at: (is_old[at], at))}

    def _spans(
        self, broker: Broker, topics: Mapping[str, Topic], before: TopicsMark | None
    ) -> tuple[PartitionSpan, ...]:
        """What is to be read of each partition.

        Raises:
            SourceError: messages above the mark are gone.
        """
        known = {} if before is None else before.topics
        for name, mark in known.items():
            if name not in topics and not broker.is_left_out(self.rules.read.topics, name):
                raise SourceError(
                    f"{self.label}: the topic {name} is gone, which was read up to {offsets_text({name: mark})}",
                    fix=f"leave it out, if all of it was read: `!{name}` in `topics`",
                    path=name,
                )
            if name in topics and topics[name].id != mark.id:
                raise self._lost(f"the topic {name} was made again since it was read", name)
        spans = []
        for (name, number), (first, last) in self._reach(broker, topics, before).items():
            start = known[name].offsets.get(number, 0) if name in known else first
            if start < first:
                text = f"{name}[{number}] begins at offset {first}, and was read up to {start}: "
                raise self._lost(f"{text}{counted(first - start, 'message')} went before they were read", name)
            if start > last:
                text = f"{name}[{number}] ends at offset {last}, and was read up to {start}: it lost messages"
                raise self._lost(text, name)
            end = last if self.ends is None else self.ends.get(name, {}).get(number)
            if end is not None:
                # Without an end, it was added after the run began.
                spans.append(PartitionSpan(name, number, start, end))
        return tuple(spans)

    def _lost(self, text: str, topic: str) -> SourceError:
        fix = f"{_SNAPSHOT}, and make the change log again, of what the topics have then: {self.rules.again}"
        return SourceError(f"{self.label}: {text}", fix=fix, path=topic)

    def logged(self, read: NewTopicMessages) -> LoggedMessages:
        """The rows of the change log that new messages make.

        Raises:
            NothingThereError: there is no message.
            SourceError: a message is no envelope, or the server does not answer.
        """
        before = read.before if isinstance(read.before, TopicsMark) else None
        if not any(span.end > span.start for span in read.spans):
            raise NothingThereError(
                f"{self.label}: the topics have no message", fix="see that Debezium writes them", path=self.uri
            )
        log = LogState() if before is None else before.log
        reader, rows = EnvelopeReader(self.rules, dict(log.tables), log.binlog, log.patterns), NumberedRows(log.next_n)
        known = {} if before is None else before.topics
        partitions = _Partitions(reader, rows, read.topics, known)
        reached = {(span.topic, span.partition): span.start for span in read.spans}
        # What several partitions have of a key is in one order only if all of it is here.
        is_one = all(len(topic.partitions) == 1 for topic in read.topics.values())
        most, count = MOST_MESSAGES if is_one else sys.maxsize, 0
        with opened(self.server, self.label) as broker:
            for message in broker.messages(read.spans, most):
                reached[message.topic, message.partition] = message.next
                if message.is_one:
                    count += 1
                    partitions.add(message)
        reader.require_whole()
        finished_rows = rows.finished()
        # What is not read any more keeps its place: it may come back.
        topics = {name: replace(mark, offsets=dict(mark.offsets)) for name, mark in known.items()}
        for (name, number), at in reached.items():
            offsets = topics[name].offsets if name in topics else {}
            topics[name] = TopicMark(read.topics[name].id, {**offsets, number: at})
        after = TopicsMark(
            topics,
            LogState(log.next_n + finished_rows.num_rows, reader.tables, reader.binlog, reader.all_patterns),
            self.identity,
        )
        return LoggedMessages(
            snapshot=read.snapshot,
            summary=f"{counted(finished_rows.num_rows, 'row')} of the topics, up to {offsets_text(topics)}",
            before=before,
            after=after,
            follows=True,
            rows=finished_rows,
            more=count >= most,
            bound=_ends(_bounds(read.spans)),
        )


@dataclass
class _Partitions:
    """Adds messages of partitions to the rows of the log.

    Attributes:
        known: how far topics were read before.
    """

    reader: EnvelopeReader
    rows: NumberedRows
    topics: Mapping[str, Topic]
    known: Mapping[str, TopicMark]
    _last: dict[tuple[str, int], tuple[bytes | None, bool]] = field(default_factory=dict)

    def add(self, message: Message) -> None:
        stream = f"{message.topic}[{message.partition}]"
        where = f"{stream}, offset {message.offset},"
        at = (message.topic, message.partition)
        if message.value is None:
            self._require_delete(message, at, where)
            self._last[at] = (message.key, True)
            return
        is_delete = False
        for change in self.reader.changes(message.value, stream, where, message.key, message.headers):
            if change.op is Op.TRUNCATE and len(self.topics[message.topic].partitions) > 1:
                raise SourceError(
                    f"{self.reader.rules.label}: {where} empties {change.table}, and which changes of the topic's "
                    "other partitions come before that is not known",
                    fix="give the topic one partition, or set `skipped.operations: t` in the connector; then let "
                    f"Debezium make a new snapshot in a new topic, and run: {self.reader.rules.again}",
                    path=where,
                )
            is_delete = change.op is Op.DELETE
            self.rows.add(change, stream)
        self._last[at] = (message.key, is_delete)

    def _require_delete(self, message: Message, at: tuple[str, int], where: str) -> None:
        """A tombstone stands behind the message that deletes its row. Compaction takes that one away, and leaves the
        tombstone; a first read needs neither."""
        topic, number = at
        if topic not in self.known or self._last.get(at) == (message.key, True):
            return
        if at not in self._last and message.offset == self.known[topic].offsets.get(number):
            # The message before it was the last one of an earlier run.
            return
        raise SourceError(
            f"{self.reader.rules.label}: {where} marks a row as gone, and the change that deleted it is not before it: "
            "the topic was compacted",
            fix=f"set its `cleanup.policy` to `delete`; {_SNAPSHOT}, and run: {self.reader.rules.again}",
            path=where,
        )


@dataclass(frozen=True, kw_only=True)
class NewTopicMessages(NewMessages):
    """Messages of topics that are not in the change log."""

    source: Topics
    spans: tuple[PartitionSpan, ...]
    topics: Mapping[str, Topic]

    def logged(self) -> LoggedMessages:
        return self.source.logged(self)


@dataclass(frozen=True, kw_only=True)
class TopicsSnapshot(ChangesSnapshot):
    """Where topics ended."""

    stood: Position

    @property
    def position(self) -> Position:
        return self.stood

    @property
    def summary(self) -> str:
        return "the topics"


def _bounds(spans: Iterable[PartitionSpan]) -> dict[tuple[str, int], tuple[int, int]]:
    return {(span.topic, span.partition): (span.start, span.end) for span in spans}


def _ends(reach: Mapping[tuple[str, int], tuple[int, int]]) -> dict[str, dict[int, int]]:
    ends: dict[str, dict[int, int]] = {}
    for (name, number), (_, end) in reach.items():
        ends.setdefault(name, {})[number] = end
    return ends
