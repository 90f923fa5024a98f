"""What is wrong with a project file.

Validators raise a :class:`Mistake`, and checks yield one.
:class:`~odi_assets.config.diagnostics.locations.Locations` turns it into a :class:`Problem`, which has a line and a
column. :class:`ConfigErrors` lists the problems of a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, NamedTuple

from pydantic_core import PydanticCustomError

from odi_assets.errors import ConfigError

Path = tuple[str | int, ...]
"""Keys and indexes from the root of the file to a value."""

ERROR_TYPE = "odi_mistake"
"""Pydantic's error type of an error that carries mistakes."""


class FilePosition(NamedTuple):
    """A place in the file; both numbers start at 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong, and at which path.

    Attributes:
        message: what is wrong, in plain words. It may quote the value.
        plain: the same without a word of the value; shown instead when the value came from a variable. When absent,
            :attr:`message` quotes nothing.
        at: keys and indexes; from the root of the file, or, in a validator, from the value that is validated.
        suggestion: the word that was probably meant.
        where: whether the value is wrong, its key, or the section around it.
        absence: whether something is missing. A mistake in the same section may explain that; then it alone is shown.
        mark: the place in the file, where the path does not tell it: YAML that cannot be read has no path.
    """

    message: str
    plain: str | None = None
    at: Path = ()
    suggestion: str | None = None
    where: Literal["value", "key", "parent"] = "value"
    absence: bool = False
    mark: FilePosition | None = None


@dataclass(frozen=True)
class Problem:
    """A mistake as it is shown.

    Attributes:
        file: the file, as it was named; for a node in Python, the file of its function.
        line: from 1; 0 where the problem has no place, as when the file is missing.
        column: from 1, likewise.
        key: path of the key: ``pipelines[0].nodes[2].write.mode``, or of a node in Python ``function.write.mode``;
            empty for the file as a whole.
        message: what is wrong. Never holds a secret or what a variable holds.
        suggestion: the word that was probably meant.
    """

    file: str
    line: int
    column: int
    key: str
    message: str
    suggestion: str | None = None

    def __str__(self) -> str:
        position = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        where = f"{position}: {self.key}" if self.key else position
        meant = f", did you mean `{self.suggestion}`?" if self.suggestion else ""
        return f"{where}: {self.message}{meant}"


class ConfigErrors(ConfigError):
    """Everything that is wrong with a project file. Fields: problems, in the order of the file."""

    @classmethod
    def of(cls, file: str, problems: Iterable[Problem]) -> ConfigErrors:
        """Return the error for the problems of one file, sorted by place."""
        ordered = tuple(sorted(problems, key=lambda p: (p.file != file, p.file, p.line, p.column)))
        if len(ordered) == 1:
            return cls(str(ordered[0]), problems=ordered)
        listing = "\n".join(f"  {problem}" for problem in ordered)
        return cls(f"{file} has {len(ordered)} mistakes:\n{listing}", problems=ordered)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems, in the order of the file."""
        problems: tuple[Problem, ...] = self.fields["problems"]
        return problems


def about(value: object, text: str, *, at: Path = (), suggestion: str | None = None) -> Mistake:
    """Return a mistake that reads "`value` text", and only "text" where the value must not be shown."""
    return Mistake(f"`{value}` {text}", plain=text, at=at, suggestion=suggestion)


def mistakes(all_mistakes: Iterable[Mistake]) -> PydanticCustomError:
    """Return the error that a validator raises for several mistakes at once."""
    all_mistakes = tuple(all_mistakes)
    text = "; ".join(found_mistake.plain or found_mistake.message for found_mistake in all_mistakes)
    return PydanticCustomError(ERROR_TYPE, "{text}", {"mistakes": all_mistakes, "text": text})


def mistake(message: str, *, plain: str | None = None, at: Path = ()) -> PydanticCustomError:
    """Return the error that a validator raises for one mistake."""
    return mistakes([Mistake(message, plain, at)])


def refuse(value: object, text: str, *, suggestion: str | None = None) -> PydanticCustomError:
    """Return the error that a validator raises for a value as a whole: "`value` text"."""
    return mistakes([about(value, text, suggestion=suggestion)])


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the one of ``known`` that ``word`` was probably meant to be, or None."""
    by_lower = {name.lower(): name for name in known}
    matches = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


def one_of(names: Iterable[str]) -> str:
    """Return ``a, b or c``, each in backticks."""
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_DOTTED_KEY = re.compile(r"[A-Za-z0-9_.-]+")


def render_path(path: Path) -> str:
    """Return ``pipelines[0].nodes[2].write`` for a path; a key that is no plain word, as ``?``.

    A key can hold a secret by accident: ``account_key:abc`` without a space is one key.
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}"
        else:
            text += f'["{part}"]' if _DOTTED_KEY.fullmatch(part) else ".?"
    return text.removeprefix(".")
