"""How far a capture is behind its server's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from odi_assets.sources.cdc.mark import CaptureMark
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


@runtime_checkable
class CapturedLog(Protocol):
    """A source that captures a server's log, as those see it who ask how far it is behind.

    Attributes:
        label: the source's name in messages.
        slot: empty where there are no slots.
        warn_lag: the bytes by which it may be behind.
    """

    label: str

    @property
    def slot(self) -> str: ...

    @property
    def warn_lag(self) -> int: ...

    def lag(self, mark: CaptureMark) -> LogLag | None:
        """How far a capture at ``mark`` is behind; None if the log does not go on there."""
