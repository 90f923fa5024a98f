"""Words of messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 node``, ``8 nodes``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
