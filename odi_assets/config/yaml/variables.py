"""``${VAR}`` and ``${env:VAR}`` in text values, from the environment; ``$${`` stands for ``${`` itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PATTERN = re.compile(r"(?P<escape>\$\$\{)|\$\{(?P<inside>[^{}]*)\}|(?P<open>\$\{)")
_REFERENCE = re.compile(r"\s*(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*")

HOW = "write `${NAME}` or `${env:NAME}` for an environment variable, and `$${` for the signs themselves"


@dataclass(frozen=True)
class Substituted:
    """A text with its variables filled in.

    Attributes:
        text: the result; where a variable is missing, its reference stays.
        used: whether a variable stands in the text, so that it must not be shown.
        unset: names of variables that are not set.
        malformed: whether there is a ``${`` that starts no reference.
    """

    text: str
    used: bool = False
    unset: tuple[str, ...] = ()
    malformed: bool = False


def substitute(text: str, environment: Mapping[str, str]) -> Substituted:
    """Fill in the variables of one text. What a variable holds is not looked at again."""
    if "${" not in text:
        return Substituted(text)
    unset: list[str] = []
    references = 0
    malformed = False

    def fill(found: re.Match[str]) -> str:
        nonlocal references, malformed
        if found["escape"]:
            return "${"
        reference = _REFERENCE.fullmatch(found["inside"] or "")
        if reference is None:
            malformed = True
            return found[0]
        references += 1
        if reference["name"] not in environment:
            unset.append(reference["name"])
            return found[0]
        return environment[reference["name"]]

    filled = _PATTERN.sub(fill, text)
    return Substituted(filled, references > 0, tuple(dict.fromkeys(unset)), malformed)
