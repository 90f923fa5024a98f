"""State whose shape is a connector's own affair: its single values, and what else it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from odi_assets.documents.values import Scalar
from odi_assets.util.exact_json import JsonPath, write

_PARTITION_KEYS = ("partition", "context")
"""Where the elements of a list of partitions say which partition they are of."""


class Leaf(NamedTuple):
    """A value that no rule takes apart any further: its name, where it is in the state, and itself."""

    name: str
    at: JsonPath
    value: Any


def leaves(
    state: Mapping[str, Any], skipped: frozenset[str] = frozenset(), *, prefix: str = "", at: JsonPath = ()
) -> Iterator[Leaf]:
    """The values of a nested state, each named by the dotted path to it.

    The elements of a list of partitions are identified by the partition, not by their places in the list.

    Args:
        skipped: keys, at any depth, that are left out.
        prefix: what every name begins with.
        at: where the state is.
    """
    for key, value in state.items():
        if key in skipped:
            continue
        name, here = f"{prefix}{key}", (*at, key)
        if isinstance(value, dict) and value:
            yield from leaves(value, skipped, prefix=f"{name}.", at=here)
        elif isinstance(value, list) and _are_partitions(value):
            for index, item in enumerate(value):
                which = next(part for part in _PARTITION_KEYS if part in item)
                inner = f"{name}[{write(item[which], sort=True)}]."
                yield from leaves(item, skipped | {which}, prefix=inner, at=(*here, index))
        else:
            yield Leaf(name, here, value)


def sorted_out(state_leaves: Iterator[Leaf]) -> tuple[dict[str, Scalar], dict[str, str]]:
    """The single values of a state, which are cursors, and what else it holds, as canonical JSON."""
    cursors: dict[str, Scalar] = {}
    other: dict[str, str] = {}
    for name, _, value in state_leaves:
        if isinstance(value, dict | list | bool):
            other[name] = write(value, sort=True)
        else:
            cursors[name] = value
    return cursors, other


def _are_partitions(items: list[Any]) -> bool:
    return bool(items) and all(
        isinstance(item, dict) and any(isinstance(item.get(part), dict) for part in _PARTITION_KEYS) for item in items
    )
