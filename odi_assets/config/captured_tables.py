"""The entries of ``tables``: those that name tables, and those that leave tables out."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

LEFT_OUT = "!"
"""How an entry begins that leaves tables out."""


def kept_tables(entries: Iterable[str]) -> tuple[str, ...]:
    """The entries of ``tables`` that name tables, without those that others leave out."""
    listed = list(entries)
    unwanted = [entry.removeprefix(LEFT_OUT) for entry in listed if entry.startswith(LEFT_OUT)]
    wanted = [entry for entry in listed if not entry.startswith(LEFT_OUT)]
    return tuple(entry for entry in wanted if not any(fnmatchcase(entry, pattern) for pattern in unwanted))
