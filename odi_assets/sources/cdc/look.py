"""Short looks at a log: a sensor has seconds, and a transaction of millions of changes takes minutes to look at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

from odi_assets.errors import SourceError

LONGEST_LOOK = 4.0
"""Seconds. What is not known by then is learnt by a run."""
Event = TypeVar("Event")


class LookTooLongError(SourceError):
    """A look at the log was given up: it holds more than can be looked at in a moment."""


def within(events: Iterator[Event], seconds: float | None) -> Iterator[Event]:
    """``events``, as long as they come within some seconds; None: for as long as they come.

    Raises:
        LookTooLongError: they go on.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    for event in events:
        if deadline is not None and time.monotonic() > deadline:
            raise LookTooLongError(f"the log could not be looked through within {seconds} s")
        yield event
