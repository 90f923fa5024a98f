"""The HWM of a node: the marks of its sources together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odi_assets.errors import IncrementError
from odi_assets.sources.marks import READ, UNRESOLVED, Mark, Unresolved, hwm_text
from odi_assets.state.values import to_json

if TYPE_CHECKING:
    from odi_assets.state.records import HwmEntry


@dataclass(frozen=True)
class NodeMark:
    """How far a node has read its sources. A node that has read nothing has none: None stands for it.

    Attributes:
        value: as state and commits store it. If only ``read`` keeps a mark: the value of that mark. Else the values of
            all marks, by source.

    Example:
        >>> str(NodeMark({"orders": {"version": 4, "table_id": None}, "rates": 7}))
        'orders version 4, rates 7'
    """

    value: Any

    @classmethod
    def of(cls, marks: Mapping[str, Mark | Unresolved], following: Sequence[str]) -> NodeMark | None:
        """The mark made of ``marks``, by source.

        Args:
            following: the names of all sources that keep a mark.
        """
        values: dict[str, Any] = {}
        for name, mark in marks.items():
            if isinstance(mark, Unresolved):
                return UNTIL_READ
            values[name] = mark.value
        return cls.of_value(values.get(READ) if list(following) == [READ] else values)

    @classmethod
    def of_value(cls, value: Any) -> NodeMark | None:
        """The mark that state or a commit stores as ``value``."""
        return None if value is None else cls(value)

    @classmethod
    def in_state(cls, entry: HwmEntry | None) -> NodeMark | None:
        """The mark that an entry of state holds."""
        return None if entry is None or entry.deleted else cls.of_value(entry.value)

    def __str__(self) -> str:
        return str(self.value) if isinstance(self.value, Unresolved) else hwm_text(self.value) or ""

    def of_source(self, name: str, following: Sequence[str], node: str) -> Any:
        """The value of the mark of one source; None if that source has none.

        Raises:
            IncrementError: the mark does not say which source it is of.
        """
        if list(following) == [READ]:
            return self.value
        if not isinstance(self.value, Mapping):
            raise IncrementError(
                f"{node}: its HWM {self.value!r} does not say which input it is of",
                fix=f"set it as {json.dumps({name: to_json(self.value)[0]})} with odi state set, or run the node with "
                "--full-refresh",
                node=node,
            )
        return self.value.get(name)

    def ledger_parts(self) -> Iterator[str]:
        """The names of the parts of ledgers of loaded files that it counts on."""
        yield from _ledger_parts(self.value)

    def snapshot_left(self) -> str | None:
        """What is left of snapshots, in a few words; None if all that began are complete."""
        return _snapshot_left(self.value)


UNTIL_READ = NodeMark(UNRESOLVED)
"""The mark that a plan will reach, if only reading its sources can find it."""


def mark_text(mark: NodeMark | None) -> str | None:
    """A mark in a few words; None if there is none."""
    return None if mark is None else str(mark)


def _ledger_parts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            if name == "ledger" and isinstance(part, Sequence):
                yield from (str(entry[0]) for entry in part)
            else:
                yield from _ledger_parts(part)


def _snapshot_left(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("cursors"), Mapping):
        return hwm_text(value) if value.get("snapshot") else None
    return next((text for part in value.values() if (text := _snapshot_left(part)) is not None), None)
