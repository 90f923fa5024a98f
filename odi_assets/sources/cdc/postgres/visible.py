"""What a snapshot of a PostgreSQL database sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Visible:
    """The transactions that a snapshot of the database sees, by 64-bit number.

    Attributes:
        xmin: all below it have ended.
        xmax: none from it on is seen.
        running: those between that are not seen.
    """

    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def of(cls, text: str) -> Visible:
        low, high, listed = text.split(":")
        return cls(int(low), int(high), frozenset(int(xid) for xid in listed.split(",") if xid))

    def whole(self, xid: Any) -> Any:
        """The 64-bit numbers of transactions of which the log has 32 bits; they are near this snapshot."""
        near = np.asarray(xid, np.int64)
        distance = (near - (self.xmax & 0xFFFFFFFF) + 0x80000000) % 0x100000000 - 0x80000000
        return self.xmax + distance

    def sees(self, xid: Any) -> Any:
        """Whether it sees transactions, by 64-bit number; those that rolled back do not come into question."""
        whole = np.asarray(xid, np.int64)
        running = np.fromiter(self.running, np.int64, len(self.running))
        return (whole < self.xmin) | ((whole < self.xmax) & ~np.isin(whole, running))
