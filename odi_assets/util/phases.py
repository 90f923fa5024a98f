"""Where the time of a piece of work goes: seconds by phase, each second once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class PhaseClock:
    """Seconds of a piece of work by the name of its phase. While a phase is within another one, that one stands still.

    Example:
        >>> clock = PhaseClock()
        >>> with clock.running("compute"):
        ...     with phase("commit"):
        ...         pass
        >>> sorted(clock.seconds)
        ['commit', 'compute']
    """

    seconds: dict[str, float] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _since: float = 0.0

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """The block is the phase ``name`` of this work; :func:`phase` within it names others."""
        token = _CLOCK.set(self)
        try:
            with phase(name):
                yield
        finally:
            _CLOCK.reset(token)

    def _enter(self, name: str) -> None:
        self._count()
        self._open.append(name)
        self.seconds.setdefault(name, 0.0)

    def _leave(self) -> None:
        self._count()
        self._open.pop()

    def _count(self) -> None:
        now = time.monotonic()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


_CLOCK: ContextVar[PhaseClock | None] = ContextVar("odi_assets.phases", default=None)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """The block is the phase ``name`` of the work that is measured around it; nothing if none is."""
    clock = _CLOCK.get()
    if clock is None:
        yield
        return
    clock._enter(name)
    try:
        yield
    finally:
        clock._leave()
