"""A mistake in a value, as validators and checks report it: what is wrong, and what may be said of a secret one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pydantic_core import PydanticCustomError

ERROR_TYPE = "odi_mistake"
"""Pydantic's error type of an error that carries mistakes."""


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong.

    Attributes:
        message: what is wrong, in plain words. It may quote the value.
        plain: the same without a word of the value; shown instead when the value came from a variable. When absent,
            :attr:`message` quotes nothing.
        at: where, relative to what was validated: keys and indexes.
        suggestion: the word that was probably meant.
        of_key: whether the key is wrong, and not its value.
    """

    message: str
    plain: str | None = None
    at: tuple[str | int, ...] = ()
    suggestion: str | None = None
    of_key: bool = False


def mistake(
    message: str, *, plain: str | None = None, at: Sequence[str | int] = (), suggestion: str | None = None
) -> PydanticCustomError:
    """Return the error a validator raises for one mistake."""
    return mistakes([Mistake(message, plain, tuple(at), suggestion)])


def refuse(value: object, text: str, *, suggestion: str | None = None) -> PydanticCustomError:
    """Return the error a validator raises for a value as a whole: "`value` text"."""
    return mistakes([about(value, text, suggestion=suggestion)])


def about(value: object, text: str, *, at: Sequence[str | int] = (), suggestion: str | None = None) -> Mistake:
    """Return a mistake that reads "`value` text", and only "text" where the value must not be shown."""
    return Mistake(f"`{value}` {text}", plain=text, at=tuple(at), suggestion=suggestion)


def mistakes(found: Iterable[Mistake]) -> PydanticCustomError:
    """Return the error a validator raises for several mistakes at once."""
    found = tuple(found)
    return PydanticCustomError(ERROR_TYPE, "{text}", {"mistakes": found, "text": "; ".join(_public(m) for m in found)})


def _public(one: Mistake) -> str:
    return one.plain or one.message


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the one of ``known`` that ``word`` was probably meant to be, or None."""
    by_lower = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def one_of(names: Iterable[str]) -> str:
    """Return ``a, b or c``, each in backticks."""
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
