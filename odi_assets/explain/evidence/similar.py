"""Keys that are almost the same: other capitals, blanks, punctuation, or another spelling of a number."""

from __future__ import annotations

from collections.abc import Iterable

from odi_assets.spark.plans.definition import SEPARATOR

_LEFT_OUT = " \t\r\n\u00a0\u2007\u202f\u200b\ufeff-_./#"
"""Characters that make no difference to :func:`normalized`."""


def normalized(key: str) -> str:
    """What keys have in common that are almost the same. :func:`normalized_sql` does it in Spark."""
    plain = key.removesuffix(".0").lower().translate(dict.fromkeys(map(ord, _LEFT_OUT)))
    return plain.lstrip("0")


def normalized_sql(sql: str) -> str:
    """SQL of :func:`normalized` of a text."""
    whole = f"if(endswith({sql}, '.0'), left({sql}, length({sql}) - 2), {sql})"
    left_out = "".join(f"\\u{ord(character):04x}" for character in _LEFT_OUT)
    return f"ltrim('0', translate(lower({whole}), '{left_out}', ''))"


def similar_keys(view: str, key: str, similar: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """In words, the rows of an input whose keys are almost the one asked for; ``similar`` are their keys and files."""
    return tuple(f"{view} has {_quoted(near)} in {file} ({_difference(key, near)})" for near, file in similar)


def _difference(key: str, near: str) -> str:
    """How ``near`` differs from ``key``, in words."""
    if key.lower() == near.lower():
        return "other capitals"
    if "".join(key.split()) == "".join(near.split()):
        return "other blanks"
    if _number(key) is not None and _number(key) == _number(near):
        return "the same number, written otherwise"
    return "other capitals, blanks or punctuation"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _quoted(key: str) -> str:
    return repr(", ".join(key.split(SEPARATOR)))
