"""State whose shape is a connector's own affair: its single values, and what else it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odi_assets.cursors.values import Scalar
from odi_assets.util.exact_json import write

_PARTITION_KEYS = ("partition", "context")
"""Where the elements of a list of partitions say which partition they are of."""


def flatten(
    state: Mapping[str, Any], skipped: frozenset[str] = frozenset()
) -> tuple[dict[str, Scalar], dict[str, str]]:
    """The single values of a nested state, by the dotted path to each, and what else it holds, as canonical JSON.

    The elements of a list of partitions are told apart by the partition, not by their places in the list.

    Args:
        skipped: keys, at any depth, that are left out.
    """
    cursors: dict[str, Scalar] = {}
    other: dict[str, str] = {}
    _flatten(state, "", skipped, cursors, other)
    return cursors, other


def _flatten(
    state: Mapping[str, Any], prefix: str, skipped: frozenset[str], cursors: dict[str, Scalar], other: dict[str, str]
) -> None:
    for key, value in state.items():
        if key in skipped:
            continue
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            _flatten(value, f"{name}.", skipped, cursors, other)
        elif isinstance(value, list) and _are_partitions(value):
            for item in value:
                which = next(part for part in _PARTITION_KEYS if part in item)
                inner = f"{name}[{write(item[which], sort=True)}]."
                _flatten(item, inner, skipped | {which}, cursors, other)
        elif isinstance(value, dict | list | bool):
            other[name] = write(value, sort=True)
        else:
            cursors[name] = value


def _are_partitions(items: list[Any]) -> bool:
    return bool(items) and all(
        isinstance(item, dict) and any(isinstance(item.get(part), dict) for part in _PARTITION_KEYS) for item in items
    )
