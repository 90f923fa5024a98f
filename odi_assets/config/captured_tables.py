"""The entries of ``tables``: those that name tables, and those that leave tables out."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

LEFT_OUT = "!"
"""How an entry begins that leaves tables out."""


def kept_tables(entries: Iterable[str]) -> tuple[str, ...]:
    """The entries of ``tables`` that name tables, without those that others leave out."""
    listed = list(entries)
    unwanted = [one.removeprefix(LEFT_OUT) for one in listed if one.startswith(LEFT_OUT)]
    wanted = [one for one in listed if not one.startswith(LEFT_OUT)]
    return tuple(one for one in wanted if not any(fnmatchcase(one, pattern) for pattern in unwanted))
