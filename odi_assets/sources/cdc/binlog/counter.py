"""How many transactions of a binary log fill a window."""

from __future__ import annotations

import numpy as np

from odi_assets.sources.cdc.binlog.events import ChangedRows, Committed
from odi_assets.sources.cdc.binlog.rows import grouped, joined

_COUNTED_BYTES = 1 << 20
"""Rows are counted when there are as many bytes of them: an event does not say how many it has."""
_MOST_BYTES = 256 << 20
"""Rows of a window, about: they are held in memory."""


class ChangeCounter:
    """Counts the changes of transactions, up to where a window is full.

    Args:
        most: how many changes fill a window; None: a window is never full.
    """

    def __init__(self, most: int | None) -> None:
        self._most, self._changes, self._done, self._all_bytes = most, 0, 0, 0
        self._waiting: list[Committed] = []
        self._bytes, self._entries = 0, 0

    def full_with(self, transaction: Committed) -> int | None:
        """How many of the transactions are enough, in changes or in bytes, once there are as many; None before."""
        if self._most is None:
            return None
        self._waiting.append(transaction)
        self._entries += len(transaction.entries)
        self._bytes += sum(len(entry.rows) for entry in transaction.entries if isinstance(entry, ChangedRows))
        is_counted = self._bytes >= _COUNTED_BYTES or self._changes + self._entries >= self._most
        return self.full() if is_counted else None

    def full(self) -> int | None:
        """What :meth:`full_with` says, once all transactions are counted."""
        if self._most is None:
            return None
        for count in self._counts():
            self._changes += count
            self._done += 1
            if self._changes >= self._most:
                return self._done
        self._all_bytes += self._bytes
        self._waiting, self._bytes, self._entries = [], 0, 0
        return self._done if self._all_bytes >= _MOST_BYTES else None

    def _counts(self) -> list[int]:
        """The changes of each transaction that waits."""
        entries = [(number, entry) for number, transaction in enumerate(self._waiting) for entry in transaction.entries]
        rows = [(number, entry) for number, entry in entries if isinstance(entry, ChangedRows)]
        data, ends = joined([event for _, event in rows])
        owners = np.array([number for number, _ in rows], np.int64)
        counts = np.zeros(len(self._waiting), np.int64)
        for group in grouped([event for _, event in rows], np.arange(len(rows)), owners, data, ends):
            np.add.at(counts, group.transaction[group.walk.event], 1)
        for number, entry in entries:
            counts[number] += not isinstance(entry, ChangedRows)
        return [int(count) for count in counts]
