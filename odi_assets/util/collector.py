"""Python's garbage collector, out of the way while many objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY_OBJECTS = 50_000
_MOST_AT_START = 8
_aged = 0


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector.

    Reading 100,000 streams, or a project file of 1,000 nodes, takes half the time without a search for cycles among
    what was read. Where that many objects were made, all objects count as old afterwards, so the next passes do not
    begin with them. Python then never looks for cycles among them, unless it is asked to: so a process does this a few
    times, when it starts.
    """
    was_on = gc.isenabled()
    before = gc.get_count()[0]
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_count()[0] - before > _MANY_OBJECTS and not gc.get_freeze_count():
                _age_all_objects()
            gc.enable()


def _age_all_objects() -> None:
    """Move all objects to the oldest generation, without a look at any of them."""
    global _aged
    if _aged < _MOST_AT_START:
        _aged += 1
        gc.freeze()
        gc.unfreeze()
