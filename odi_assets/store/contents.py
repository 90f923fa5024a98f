"""What a version of a state store holds, in memory: contents that never change, and drafts of changes to them."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import blake2b
from heapq import merge
from itertools import takewhile

# About what a dict keeps per entry beside the two objects.
_SLOT_BYTES = 100
_NO_VALUE = b"\xff" * 8


class VersionContents:
    """The keys and values of one version; threads may share them.

    Args:
        items: taken over, not copied: whoever passes them must not change them afterwards.
    """

    def __init__(self, items: Mapping[bytes, bytes]) -> None:
        self.items = items

    @cached_property
    def in_order(self) -> list[bytes]:
        """The keys, in order."""
        return sorted(self.items)

    @cached_property
    def memory(self) -> int:
        """About how many bytes of memory the keys and values take."""
        return sum(entry_bytes(key, value) for key, value in self.items.items())

    def keys_from(self, prefix: bytes) -> Iterator[bytes]:
        """The keys that begin with ``prefix``, in order."""
        keys = self.in_order
        from_there = (keys[index] for index in range(bisect_left(keys, prefix), len(keys)))
        return takewhile(lambda key: key.startswith(prefix), from_there)

    def after(self, changes: Mapping[bytes, bytes | None]) -> VersionContents:
        """The contents with ``changes`` made to them; a value of None removes its key."""
        items = dict(self.items)
        apply(changes, items)
        return VersionContents(items)

    def changes_to(self, other: VersionContents) -> dict[bytes, bytes | None]:
        """The changes that make ``other`` of these contents; a value of None removes its key."""
        removed = dict.fromkeys(self.items.keys() - other.items.keys())
        return {**removed, **{key: value for key, value in other.items.items() if self.items.get(key) != value}}


class Draft:
    """A version's contents, and the changes made to them so far."""

    def __init__(self, base: VersionContents) -> None:
        self.base = base
        self.changes: dict[bytes, bytes | None] = {}
        self.keys = len(base.items)
        self._memory_of_changes = 0

    @property
    def memory(self) -> int:
        """About how many bytes of memory the keys and values take."""
        return self.base.memory + self._memory_of_changes

    def get(self, key: bytes) -> bytes | None:
        """The value of ``key``; None if there is none."""
        return self.changes[key] if key in self.changes else self.base.items.get(key)

    def change(self, key: bytes, value: bytes | None) -> None:
        """Give ``key`` a value, or remove it; to remove what is not there is no change."""
        before = self.get(key)
        if value is None and before is None:
            return
        for held, sign in ((before, -1), (value, 1)):
            if held is not None:
                self.keys += sign
                self._memory_of_changes += sign * entry_bytes(key, held)
        self.changes[key] = value

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries whose keys begin with ``prefix``, in order of the keys, as they are at this moment."""
        changes = dict(self.changes)
        base = self.base.items
        kept = ((key, base[key]) for key in self.base.keys_from(prefix) if key not in changes)
        put = ((key, value) for key, value in sorted(changes.items()) if value is not None and key.startswith(prefix))
        return merge(kept, put)

    def contents(self) -> VersionContents:
        """The contents with the changes made to them."""
        return self.base.after(self.changes)


def apply(changes: Mapping[bytes, bytes | None], items: dict[bytes, bytes]) -> None:
    """Make ``changes`` to ``items``; a value of None removes its key."""
    for key, value in changes.items():
        if value is None:
            items.pop(key, None)
        else:
            items[key] = value


def entry_bytes(key: bytes, value: bytes) -> int:
    """About how many bytes of memory an entry takes."""
    return sys.getsizeof(key) + sys.getsizeof(value) + _SLOT_BYTES


def digest(items: Iterable[tuple[bytes, bytes | None]], salt: str = "") -> str:
    """A fingerprint of entries, whatever their order; None means a removed key."""
    hashed = blake2b(salt.encode(), digest_size=16)
    for key, value in sorted(items):
        hashed.update(len(key).to_bytes(8) + key)
        hashed.update(_NO_VALUE if value is None else len(value).to_bytes(8) + value)
    return hashed.hexdigest()
