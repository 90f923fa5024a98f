"""Problems of a project file: each with file, line, column, the path of the key, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from odi_assets.config.yaml.document import Path
from odi_assets.errors import ConfigError

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_DOTTED_KEY = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Problem:
    """One mistake of a project file.

    Attributes:
        file: the file, as it was named.
        line: from 1; 0 where the problem has no place, as when the file is missing.
        column: from 1, likewise.
        key: path of the key: ``pipelines[0].nodes[2].write.mode``; empty for the file as a whole.
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
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        where = f"{place}: {self.key}" if self.key else place
        meant = f", did you mean `{self.suggestion}`?" if self.suggestion else ""
        return f"{where}: {self.message}{meant}"


class ConfigErrors(ConfigError):
    """Everything that is wrong with a project file. Fields: problems, in the order of the file."""

    @classmethod
    def of(cls, file: str, problems: Iterable[Problem]) -> ConfigErrors:
        """Return the error for the problems of one file, sorted by place."""
        ordered = tuple(sorted(problems, key=lambda p: (p.line, p.column)))
        if len(ordered) == 1:
            return cls(str(ordered[0]), problems=ordered)
        listing = "\n".join(f"  {problem}" for problem in ordered)
        return cls(f"{file} has {len(ordered)} mistakes:\n{listing}", problems=ordered)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems, in the order of the file."""
        found: tuple[Problem, ...] = self.fields["problems"]
        return found


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
