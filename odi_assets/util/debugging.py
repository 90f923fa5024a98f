"""Whether somebody wants to see everything: stacks, and Spark's own log."""

from __future__ import annotations

import os

DEBUG_VARIABLE = "ODI_DEBUG"
"""When set, Spark logs as it does by itself, stacks and all. ``0`` and ``false`` count as not set."""


def debugging() -> bool:
    """Whether :data:`DEBUG_VARIABLE` asks for all output."""
    return os.environ.get(DEBUG_VARIABLE, "").lower() not in {"", "0", "false", "no"}
