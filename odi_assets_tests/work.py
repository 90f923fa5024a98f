"""How much work a call does, counted and not timed: to tell work that grows with the input from work that grows with
its square."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

_PACKAGE = "odi_assets."
_BYTES_OF_AN_ITEM = 8
"""What an item takes in a copy of a tuple: such a copy is one line, and as many steps as it has items."""


def steps(call: Callable[[], object]) -> int:
    """How many lines of the package ``call`` runs through, and how much these lines copy."""
    lines = copied = before = 0

    def count(frame: FrameType, *_: Any) -> Any:
        nonlocal lines, copied, before
        if not str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
            return None
        now, most = tracemalloc.get_traced_memory()
        lines, copied, before = lines + 1, copied + max(0, most - before), now
        tracemalloc.reset_peak()
        return count

    traced = sys.gettrace()
    tracemalloc.start()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(traced)
        tracemalloc.stop()
    return lines + copied // _BYTES_OF_AN_ITEM


def grows_with_the_input(work: Callable[[int], int], size: int) -> bool:
    """Whether four times the input is about four times the work; with its square, it would be sixteen times."""
    small, large = work(size), work(4 * size)
    return 0 < large <= 4.5 * small
