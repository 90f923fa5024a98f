"""The partitions of a table whose date or time lies in a range, however many of them there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from odi_assets.delta.partition_values import PartitionValues

TIMES = ("date", "timestamp", "timestamp_ntz")
"""Delta's types of dates and times."""


class PartitionChoice(Protocol):
    """Some partitions of a table, known by their values once the types of its columns are."""

    def among(self, partitions: Iterable[PartitionValues], kinds: Mapping[str, Any]) -> list[PartitionValues]:
        """Those of ``partitions`` that are meant, each once."""


@dataclass(frozen=True)
class Span:
    """``start <= column < end``, for a partition column of dates or times; the bounds are in UTC.

    Example:
        >>> day = Span("at", datetime(2024, 1, 1), datetime(2024, 1, 2))
        >>> day.holds("2024-01-01 10:15:00", "timestamp"), day.holds("2024-01-02 00:00:00", "timestamp")
        (True, False)
    """

    column: str
    start: datetime
    end: datetime

    def holds(self, value: str | None, kind: Any) -> bool:
        """Whether a value of the type ``kind``, as Delta's log writes it, lies in it. False for other types."""
        if value is None or kind not in TIMES:
            return False
        try:
            moment = _plain(datetime.fromisoformat(value))
        except ValueError:
            # A year that Python does not have: no range begins or ends there.
            return False
        return _plain(self.start) <= moment < _plain(self.end)

    def __str__(self) -> str:
        return f"{self.column} from {self.start} until before {self.end}"

    def texts(self, kind: str) -> tuple[str, str]:
        """The bounds as texts that Spark casts to ``kind``, in any time zone of a session."""
        zone = "Z" if kind == "timestamp" else ""
        start, end = (_plain(bound).isoformat(sep=" ") for bound in (self.start, self.end))
        return f"{start}{zone}", f"{end}{zone}"

    def among(self, partitions: Iterable[PartitionValues], kinds: Mapping[str, Any]) -> list[PartitionValues]:
        """Those of a table's ``partitions`` that lie in it, each once, by its column alone.

        Args:
            kinds: the types of the table's columns.
        """
        found, kind = {partition.get(self.column) for partition in partitions}, kinds.get(self.column)
        return [{self.column: value} for value in sorted(filter(None, found)) if self.holds(value, kind)]


def _plain(moment: datetime) -> datetime:
    """A time in UTC, without its zone."""
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
