"""Checkpoints of Structured Streaming queries: what is in them, what they are good for, and how queries are doing.

:func:`inspect`, :func:`judge`, :func:`check_files` and :func:`read_schemas` read files alone. Everything else needs a
Spark session when it is called, and is imported when it is first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from odi_assets.checkpoints.inspect import Checkpoint, MicroBatch, Operator, StateVariable, StoreInfo, inspect

if TYPE_CHECKING:
    from odi_assets.checkpoints.compare import CheckpointDifference, DifferenceEffect, check_against
    from odi_assets.checkpoints.copies import copy_of_remote, local_copy
    from odi_assets.checkpoints.files import CheckpointFiles, FileFault, StoreVersions, check_files
    from odi_assets.checkpoints.health import BatchHealth, Excess, Health, StoreHealth, excesses, measure
    from odi_assets.checkpoints.reader import CheckpointReader
    from odi_assets.checkpoints.schemas import StateSchema, read_schemas
    from odi_assets.checkpoints.verdict import CheckpointVerdict, judge

_PLACES = {
    "compare": ("CheckpointDifference", "DifferenceEffect", "check_against"),
    "copies": ("copy_of_remote", "local_copy"),
    "files": ("CheckpointFiles", "FileFault", "StoreVersions", "check_files"),
    "health": ("BatchHealth", "Excess", "Health", "StoreHealth", "excesses", "measure"),
    "reader": ("CheckpointReader",),
    "schemas": ("StateSchema", "read_schemas"),
    "verdict": ("CheckpointVerdict", "judge"),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "BatchHealth",
    "Checkpoint",
    "CheckpointDifference",
    "CheckpointFiles",
    "CheckpointReader",
    "CheckpointVerdict",
    "DifferenceEffect",
    "Excess",
    "FileFault",
    "Health",
    "MicroBatch",
    "Operator",
    "StateSchema",
    "StateVariable",
    "StoreHealth",
    "StoreInfo",
    "StoreVersions",
    "check_against",
    "check_files",
    "copy_of_remote",
    "excesses",
    "inspect",
    "judge",
    "local_copy",
    "measure",
    "read_schemas",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
