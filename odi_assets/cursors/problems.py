"""Collects what is wrong with a cursor document, so that one error lists all of it."""

from __future__ import annotations

from dataclasses import dataclass

from odi_assets.errors import CursorDocumentError
from odi_assets.util.exact_json import JsonPath, key_text, places

_SHOWN = 50
"""Problems spelled out in a message; ``problems`` of the error holds all."""


@dataclass(frozen=True)
class DocumentProblem:
    """One fault of a document. ``line`` and ``column`` count from 1; ``key`` is empty for the document as a whole."""

    path: str
    line: int
    column: int
    key: str
    message: str
    remedy: str

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        return f"{self.path}:{self.line}:{self.column}: {key}{self.message}"


class Problems:
    """The faults found so far in one text."""

    def __init__(self, tool: str, text: str, path: str | None) -> None:
        self.tool = tool
        self.text = text
        self.path = path or "<text>"
        self._found: dict[JsonPath, tuple[str, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, key: JsonPath, message: str, remedy: str) -> None:
        """Note a fault of the value at ``key`` or, if that is missing, of the object that should have it.

        Of two faults of one key the first is kept: the second follows from it.
        """
        self._found.setdefault(key, (message, remedy))

    def raise_if_any(self) -> None:
        """Raise one error with every fault noted, in the order of the text.

        Raises:
            CursorDocumentError: at least one fault was noted.
        """
        if not self._found:
            return
        known = places(self.text)
        found = []
        for key, (message, remedy) in self._found.items():
            nearest = key
            while nearest and nearest not in known:
                nearest = nearest[:-1]
            line, column = known[nearest]
            found.append(DocumentProblem(self.path, line, column, key_text(key), message, remedy))
        raise document_error(self.tool, tuple(sorted(found, key=lambda problem: (problem.line, problem.column))))


def document_error(tool: str, problems: tuple[DocumentProblem, ...]) -> CursorDocumentError:
    """The error of one or more problems; its fields path, line, column and key are those of the first."""
    first = problems[0]
    if len(problems) == 1:
        message, fix = str(first), first.remedy
    else:
        lines = "".join(f"\n  {problem}\n    → {problem.remedy}" for problem in problems[:_SHOWN])
        if len(problems) > _SHOWN:
            lines += f"\n  … and {len(problems) - _SHOWN} more"
        message, fix = f"{first.path}: {len(problems)} problems in this {tool} document:{lines}", None
    return CursorDocumentError(
        message,
        fix=fix,
        path=first.path,
        line=first.line,
        column=first.column,
        key=first.key,
        problems=problems,
    )
