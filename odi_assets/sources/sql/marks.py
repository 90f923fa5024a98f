"""Marks of tables that are read in chunks first, and by their cursor columns then."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.digits import MOST
from odi_assets.sources.marks import Identity


@dataclass(frozen=True)
class TableChunk:
    """The rows of a table with ``low <= key < high``.

    A bound has a text for each key column, as the database writes its value; None is open. The chunk that is open below
    has the rows without a key too.
    """

    low: tuple[str, ...] | None
    high: tuple[str, ...] | None

    @property
    def value(self) -> list[Any]:
        """The chunk as marks store it: its two bounds; a bound of a single column is plain text."""
        return [
            bound if bound is None else bound[0] if len(bound) == 1 else [*bound] for bound in (self.low, self.high)
        ]

    @classmethod
    def of(cls, value: Any) -> TableChunk:
        """The chunk that ``value`` stores.

        Raises:
            ValueError, TypeError: it stores none.
        """
        low, high = value
        return cls(_bound(low), _bound(high))


_LENGTH = re.compile(r" of (?:(-?\d+) characters or digits|any length)$")


def of_length(length: int | None) -> str:
    """What the order of a key says of the greatest length of its values; nothing for None, if it is not known."""
    return "" if length is None else " of any length" if length >= MOST else f" of {length} characters or digits"


def _reordered(then: str, now: str) -> tuple[str, str] | None:
    """How the order of values changed, in words; None if they keep it. Members that are appended to a type change
    nothing between the others, and values that may be longer stay as they are."""
    (before, least), (after, most) = _by_length(then), _by_length(now)
    if after != before and not (before.endswith("')") and after.startswith(f"{before[:-1]},")):
        return before, after
    return (then, now) if least is not None and most is not None and most < least else None


def _by_length(order: str) -> tuple[str, int | None]:
    match = _LENGTH.search(order)
    return (order, None) if match is None else (order[: match.start()], MOST if match[1] is None else int(match[1]))


def _bound(value: Any) -> tuple[str, ...] | None:
    if value is None or isinstance(value, str):
        return None if value is None else (value,)
    if isinstance(value, list) and value and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise TypeError(f"{value!r} is no bound")


@dataclass(frozen=True)
class Chunks:
    """What is left of a snapshot that is read in chunks.

    Attributes:
        by: the key columns.
        left: the chunks that are not in the target yet, in the order of their keys.
        count: how many chunks the snapshot has.
        storage: what names the table's rows as they are stored; for chunks of storage places, which mean nothing once
            the table is rewritten.
        order: by key column, what put its values in order when they were cut; empty if that was not noted.
    """

    by: tuple[str, ...]
    left: tuple[TableChunk, ...]
    count: int
    storage: str | None = None
    order: tuple[str, ...] = field(default=(), compare=False)

    @property
    def value(self) -> dict[str, Any]:
        stored: dict[str, Any] = {"by": list(self.by), "left": [chunk.value for chunk in self.left], "of": self.count}
        if self.storage is not None:
            stored["storage"] = self.storage
        return {**stored, "order": list(self.order)} if self.order else stored

    @classmethod
    def of(cls, value: Any) -> Chunks:
        """The chunks that ``value`` stores.

        Raises:
            ValueError, TypeError, KeyError: it stores none.
        """
        by, left = tuple(value["by"]), tuple(TableChunk.of(chunk) for chunk in value["left"])
        bounds = [bound for chunk in left for bound in (chunk.low, chunk.high) if bound is not None]
        if not by or any(not isinstance(name, str) for name in by) or any(len(bound) > len(by) for bound in bounds):
            raise ValueError("the bounds have more values than there are key columns")
        order = tuple(str(text) for text in value.get("order", ()))
        return cls(by, left, int(value.get("of", len(left))), value.get("storage"), order)

    def reordered(self, now: Sequence[str]) -> list[str]:
        """The key columns whose values are in another order than when the chunks were cut, in words.

        Args:
            now: what puts the values of each key column in order now; empty where that is not known.
        """
        pairs = zip(self.by, self.order, now, strict=False)
        changes = [(name, _reordered(then, order)) for name, then, order in pairs if then and order]
        return [f"`{name}` was {change[0]}, and is {change[1]}" for name, change in changes if change is not None]

    def without(self, taken: Sequence[TableChunk]) -> Chunks | None:
        """What is left once ``taken`` are in the target; None: nothing."""
        left = tuple(chunk for chunk in self.left if chunk not in taken)
        return replace(self, left=left) if left else None


@dataclass(frozen=True)
class SnapshotMark:
    """A table of a database that is read in chunks first, and by its cursor columns then.

    Attributes:
        cursors: by column, the greatest value, taken before the snapshot; None where there was none.
        chunks: what is left of the snapshot; None once all of it is in the target.
        typed: False for values that another tool stored without their types.
        digits: by column, how much of its values it kept (see ``cursor.digits.digits_of``); empty if not known.
        known_by: the same of the columns that rows are known by (see ``cursor.types.kept_of``).
    """

    cursors: Mapping[str, Any]
    chunks: Chunks | None = None
    typed: bool = field(default=True, compare=False)
    measures: Identity | None = field(default=None, compare=False)
    digits: Mapping[str, Sequence[int | None]] = field(default_factory=dict, compare=False)
    known_by: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def remembered(self) -> dict[str, Any]:
        """What its commit has to store beside the value, JSON-ready."""
        digits = {name: list(kept) for name, kept in self.digits.items()}
        return {name: facts for name, facts in (("digits", digits), ("known_by", dict(self.known_by))) if facts}

    @property
    def value(self) -> dict[str, Any]:
        stored: dict[str, Any] = {"cursors": dict(self.cursors)}
        return stored if self.chunks is None else {**stored, "snapshot": self.chunks.value}

    @property
    def completed(self) -> SnapshotMark:
        """The mark once all of the snapshot is in the target."""
        return replace(self, chunks=None)

    @classmethod
    def of(cls, value: Any, label: str, *, typed: bool = True) -> SnapshotMark:
        """The mark that ``value`` stores.

        Raises:
            IncrementError: it stores no cursors, or chunks that cannot be read.
        """
        try:
            cursors, left = dict(value["cursors"]), value.get("snapshot")
            return cls(cursors, Chunks.of(left) if left and left["left"] else None, typed)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise IncrementError(
                f"the HWM of {label} is {str(value)[:200]}; the HWM of a snapshot needs `cursors`, a value by column; "
                "and as long as chunks are left, `snapshot`, with `by`, `left` and `of`",
                fix="set it right with odi state set, or read everything once with odi run --full-refresh",
                label=label,
            ) from error
