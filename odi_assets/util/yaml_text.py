"""Values as YAML in one line, for files that people go on writing: plain where YAML allows it, quoted elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*|[1-9][0-9]*[mh]")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def flow(value: Any) -> str:
    """A value in YAML's flow style, in which ``${`` means the signs themselves.

    >>> flow({"table": "public.orders", "columns": ["a b", 1]})
    '{table: public.orders, columns: ["a b", 1]}'
    """
    if isinstance(value, Mapping):
        # Variables are filled in in values, and not in keys.
        return "{" + ", ".join(f"{_scalar(str(key))}: {flow(member)}" for key, member in value.items()) + "}"
    if isinstance(value, str):
        return _scalar(value.replace("${", "$${"))
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(flow, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _scalar(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    written: str = yaml.dump(text, default_style='"', allow_unicode=True, width=float("inf"))
    return written.rstrip("\n")


def in_comment(text: str) -> str:
    """A text as a part of one line: names may hold line breaks."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
