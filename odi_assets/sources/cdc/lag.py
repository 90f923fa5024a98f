"""How far a capture is behind its server's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odi_assets.util.words import counted


@dataclass(frozen=True)
class LogLag:
    """How far a capture is behind.

    Attributes:
        bytes: of the log above what is captured, whatever tables they are of.
        seconds: the age of the oldest change that is not captured; 0 if there is none, None if it was not looked for.
        slot_bytes: of the log that the server keeps for the slot; 0 where there are no slots.
    """

    bytes: int
    seconds: int | None
    slot_bytes: int

    @property
    def metrics(self) -> Mapping[str, Any]:
        metrics = {"lag_bytes": self.bytes, "lag_seconds": self.seconds, "slot_bytes": self.slot_bytes}
        return {name: value for name, value in metrics.items() if value is not None}

    def __str__(self) -> str:
        age = "" if self.seconds is None else f", its oldest change {counted(self.seconds, 'second')} old"
        return f"{counted(self.bytes, 'byte')}{age if self.seconds else ''}"
