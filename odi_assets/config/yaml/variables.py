"""``${VAR}`` and ``${env:VAR}`` in text values, from the environment; ``$${`` stands for ``${`` itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from odi_assets.config.diagnostics.mistakes import Mistake
from odi_assets.config.yaml.document import YamlDocument
from odi_assets.config.yaml.environments import NOT_FILLED_IN

_PATTERN = re.compile(r"(?P<escape>\$\$\{)|\$\{(?P<inside>[^{}]*)\}|(?P<open>\$\{)")
_REFERENCE = re.compile(r"\s*(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*")

_HOW = "write `${NAME}` or `${env:NAME}` for an environment variable, and `$${` for the signs themselves"


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


def fill_in(document: YamlDocument, environment: Mapping[str, str]) -> list[Mistake]:
    """Fill in the variables of a document's values, in place; return what is wrong with them."""
    mistakes: list[Mistake] = []
    for path, place in document.places.items():
        if place.text is not None and "${" in place.text and path[0] not in NOT_FILLED_IN:
            result = substitute(place.text, environment)
            document.section(path)[path[-1]] = result.text
            mistakes += [Mistake(f"environment variable `{name}` is not set", at=path) for name in result.unset]
            if result.malformed:
                mistakes.append(Mistake(f"a `${{` here starts no variable: {_HOW}", at=path))
    return mistakes


def substitute(text: str, environment: Mapping[str, str]) -> Substituted:
    """Fill in the variables of one text. What a variable holds is not looked at again."""
    unset: list[str] = []
    references = 0
    malformed = False

    def fill(match: re.Match[str]) -> str:
        nonlocal references, malformed
        if match["escape"]:
            return "${"
        reference = _REFERENCE.fullmatch(match["inside"] or "")
        if reference is None:
            malformed = True
            return match[0]
        references += 1
        if reference["name"] not in environment:
            unset.append(reference["name"])
            return match[0]
        return environment[reference["name"]]

    filled = _PATTERN.sub(fill, text)
    return Substituted(filled, references > 0, tuple(dict.fromkeys(unset)), malformed)
