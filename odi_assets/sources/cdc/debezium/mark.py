"""What marks of Debezium's envelopes keep beside the place where their source stands: how far the change log is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odi_assets.errors import IncrementError
from odi_assets.sources.cdc.debezium.envelopes import LoggedTable
from odi_assets.sources.copies import fields_of
from odi_assets.sources.marks import FilesMark, Identity


@dataclass(frozen=True)
class LogState:
    """The change log as its mark knows it.

    Attributes:
        next_n: the number of its next row.
        tables: by name.
        binlog: what the names of the binary log's files begin with; empty if changes are of none.
        patterns: what `tables` was in the runs that made the log.
    """

    next_n: int = 1
    tables: Mapping[str, LoggedTable] = field(default_factory=dict)
    binlog: str = ""
    patterns: tuple[tuple[str, ...], ...] = ()

    @property
    def value(self) -> dict[str, Any]:
        tables = {
            name: {"key": list(table.key), "origin": table.origin, "position": table.position}
            for name, table in self.tables.items()
            if table.key is not None
        }
        stored: dict[str, Any] = {"next_n": self.next_n, "tables": tables, "patterns": [*map(list, self.patterns)]}
        return {**stored, "positions_of": {"base": self.binlog}} if self.binlog else stored

    @classmethod
    def of(cls, value: Any, label: str) -> LogState:
        """The state that the value of a mark stores.

        Raises:
            IncrementError: it stores none.
        """
        try:
            tables = {
                str(name): LoggedTable(tuple(map(str, table["key"])), str(table["origin"]), table["position"])
                for name, table in value["tables"].items()
            }
            patterns = tuple(tuple(map(str, group)) for group in value["patterns"])
            return cls(int(value["next_n"]), tables, str(value.get("positions_of", {}).get("base", "")), patterns)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise IncrementError(
                f"the HWM of {label} is {str(value)[:200]}; the HWM of a change log needs `next_n` and `tables`",
                fix="go back to an earlier one with odi state rewind NODE --list; or make the change log again with "
                "odi run --node NODE --full-refresh --yes",
                label=label,
            ) from error


@dataclass(frozen=True)
class EnvelopeFilesMark(FilesMark):
    """The files of envelopes that are in the change log."""

    log: LogState = field(default_factory=LogState)

    @property
    def value(self) -> dict[str, Any]:
        return {**super().value, **self.log.value, "shown": self.path}

    @classmethod
    def of(cls, value: Any, label: str) -> EnvelopeFilesMark:
        files = FilesMark.of(value, label)
        return cls.made(files, LogState.of(value, label))

    @classmethod
    def made(cls, files: FilesMark, log: LogState) -> EnvelopeFilesMark:
        """A mark of the same files."""
        return cls(**fields_of(FilesMark, files), log=log)


@dataclass(frozen=True)
class TopicMark:
    """How far a topic was read.

    Attributes:
        id: of the topic: one that was made again has another.
        offsets: by partition, the offset that comes next.
    """

    id: str
    offsets: Mapping[int, int]


@dataclass(frozen=True)
class TopicsMark:
    """The messages of topics that are in the change log."""

    topics: Mapping[str, TopicMark]
    log: LogState = field(default_factory=LogState)
    measures: Identity | None = field(default=None, compare=False)

    @property
    def value(self) -> dict[str, Any]:
        topics = {
            name: {"id": topic.id, "offsets": {str(number): at for number, at in sorted(topic.offsets.items())}}
            for name, topic in sorted(self.topics.items())
        }
        return {"topics": topics, **self.log.value, "shown": offsets_text(self.topics)}

    @classmethod
    def of(cls, value: Any, label: str) -> TopicsMark:
        """The mark that ``value`` stores.

        Raises:
            IncrementError: it stores none.
        """
        log = LogState.of(value, label)
        try:
            topics = {
                str(name): TopicMark(
                    str(topic["id"]), {int(number): int(at) for number, at in topic["offsets"].items()}
                )
                for name, topic in value["topics"].items()
            }
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise IncrementError(
                f"the HWM of {label} is {str(value)[:200]}; the HWM of topics needs an `id` and `offsets` of each",
                fix="go back to an earlier one with odi state rewind NODE --list",
                label=label,
            ) from error
        return cls(topics, log)


def offsets_text(topics: Mapping[str, TopicMark]) -> str:
    """How far topics were read, in a few words: ``shop.public.orders 0:42 1:17``."""
    shown = [
        " ".join([name, *(f"{number}:{at}" for number, at in sorted(topic.offsets.items()))])
        for name, topic in sorted(topics.items())
    ]
    return ", ".join(shown) if len(shown) <= 3 else f"{', '.join(shown[:3])} and {len(shown) - 3} other topics"
