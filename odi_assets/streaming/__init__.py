"""Structured Streaming checkpoints: what is in them, and why a row is missing.

:func:`inspect` reads the files alone. :func:`state_metadata`, :func:`read_state` and :func:`why_missing` need a Spark
session, and are imported when they are first named, so that ``inspect`` answers without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from odi_assets.streaming.checkpoint import Batch, Checkpoint, Operator, StoreInfo, inspect

if TYPE_CHECKING:
    from odi_assets.streaming.missing_rows import KeyStatus, SideOfKey, WhyMissing, why_missing
    from odi_assets.streaming.state_reader import read_state, state_metadata

_NEEDS_SPARK = {
    "KeyStatus": "missing_rows",
    "SideOfKey": "missing_rows",
    "WhyMissing": "missing_rows",
    "why_missing": "missing_rows",
    "read_state": "state_reader",
    "state_metadata": "state_reader",
}

__all__ = [
    "Batch",
    "Checkpoint",
    "KeyStatus",
    "Operator",
    "SideOfKey",
    "StoreInfo",
    "WhyMissing",
    "inspect",
    "read_state",
    "state_metadata",
    "why_missing",
]


def __getattr__(name: str) -> Any:
    if name in _NEEDS_SPARK:
        return getattr(import_module(f"{__name__}.{_NEEDS_SPARK[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
