"""What is wrong with a cursor document, collected so that one report lists all of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from odi_assets.errors import CursorDocumentError
from odi_assets.util.exact_json import JsonPath, key_text
from odi_assets.util.json_scan import Lines, Scan, locate, scan

_SHOWN = 50
"""Findings spelled out in a message; ``findings`` of the error holds all."""
_FEW = 8
"""Up to this many findings are each looked up in the text; for more, all places are looked up at once."""
_ALIKE, _MUCH_ALIKE = 0.8, 0.9
"""How alike two keys are, of 1, to take one for the other mistyped: where all keys are known, and where any may be."""


class Severity(StrEnum):
    """ERROR: the tool fails, or reads rows again or never. WARNING: it copes, and somebody should look."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class DocumentFinding:
    """One thing that is wrong. ``line`` and ``column`` count from 1; ``key`` is empty for the document as a whole."""

    path: str
    line: int
    column: int
    key: str
    message: str
    remedy: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        return f"{self.path}:{self.line}:{self.column}: {key}{self.message}"

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON-ready values."""
        return asdict(self)


@dataclass(frozen=True)
class _Note:
    message: str
    remedy: str
    severity: Severity
    start: int | None
    of_key: bool


class Findings:
    """The findings of one document so far, each at its place among the values."""

    def __init__(self, tool: str = "") -> None:
        self.tool = tool
        self._notes: dict[tuple[JsonPath, int | None], _Note] = {}
        self._wrong: set[JsonPath] = set()

    def add(
        self,
        key: JsonPath,
        message: str,
        remedy: str,
        *,
        severity: Severity = Severity.ERROR,
        start: int | None = None,
        of_key: bool = False,
    ) -> None:
        """Note what is wrong with the value at ``key`` or, if that is missing, with the object that should have it.

        Of two findings of one value the first is kept, unless only the second is an error: it follows from the first.

        Args:
            start: where in the text it is, if that is known already; such findings are all kept.
            of_key: the key itself is wrong, so the finding stands at it.
        """
        is_error = severity is Severity.ERROR
        if start is None and (key in self._wrong or (not is_error and (key, None) in self._notes)):
            return
        if is_error:
            self._wrong.add(key)
        self._notes[key, start] = _Note(message, remedy, severity, start, of_key)

    def warn(self, key: JsonPath, message: str, remedy: str, *, of_key: bool = False) -> None:
        """Note a warning; see :meth:`add`."""
        self.add(key, message, remedy, severity=Severity.WARNING, of_key=of_key)

    def of_keys(self, at: JsonPath, value: Mapping[str, Any], known: frozenset[str], *, free: bool = False) -> None:
        """Note keys that look like known ones mistyped: the tool overlooks them in silence.

        Args:
            free: connectors keep keys of their own there, so that such a key is worth a warning at most.
        """
        for key in value:
            if key in known:
                continue
            meant = meant_key(key, known, _MUCH_ALIKE if free else _ALIKE)
            if meant is None:
                continue
            lost = meant not in value
            self.add(
                (*at, key),
                f"is not a key of {self.tool}" + (f"; `{meant}` is, and it is missing" if lost else ""),
                f"write `{meant}`" if lost else f"remove it, or merge it into `{meant}`",
                severity=Severity.ERROR if lost and not free else Severity.WARNING,
                of_key=True,
            )

    @property
    def has_errors(self) -> bool:
        """Whether an error was noted."""
        return bool(self._wrong)

    def placed(
        self, text: str, path: str | None, *, many: bool = False, scanned: Scan | None = None
    ) -> tuple[DocumentFinding, ...]:
        """All findings with their lines and columns, in the order of the text.

        Args:
            path: where the text came from, for messages.
            many: the text holds several values, one after another.
            scanned: what a scan of the text found, if there was one.
        """
        if not self._notes:
            return ()
        if scanned is None and len(self._notes) > _FEW:
            scanned = scan(text, many=many)
        lines = Lines(text)
        findings = []
        for (key, _), note in self._notes.items():
            start = note.start if note.start is not None else _place(text, key, note.of_key, many, scanned)
            line, column = lines.at(start)
            findings.append(
                DocumentFinding(path or "<text>", line, column, key_text(key), note.message, note.remedy, note.severity)
            )
        return tuple(sorted(findings, key=lambda finding: (finding.line, finding.column)))


@lru_cache(maxsize=4096)
def meant_key(key: str, known: frozenset[str], alike: float) -> str | None:
    """The known key that ``key`` is a misspelling of; None if it is a key of its own."""
    lowered = {name.lower().replace("_", ""): name for name in known}
    close = difflib.get_close_matches(key.lower().replace("_", ""), lowered, n=1, cutoff=alike)
    return lowered[close[0]] if close else None


def document_error(tool: str, findings: Iterable[DocumentFinding], *, torn: bool = False) -> CursorDocumentError:
    """The error of one or more findings; its path, line, column and key come from the first finding that is an error.

    Args:
        torn: the text ends in the middle, or is empty.
    """
    every = tuple(findings)
    problems = tuple(finding for finding in every if finding.severity is Severity.ERROR)
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
        findings=every,
        torn=torn,
    )


def _place(text: str, key: JsonPath, of_key: bool, many: bool, scanned: Scan | None) -> int:
    """Where a value is or, if it is missing, the nearest object around it."""
    nearest = key
    while True:
        try:
            if scanned is None:
                member, start, _ = locate(text, nearest, many=many)
            else:
                start = scanned.starts[nearest]
                member = scanned.keys.get(nearest, start)
        except (KeyError, IndexError, StopIteration, ValueError):
            if not nearest:
                return 0
            nearest = nearest[:-1]
            continue
        return member if of_key and nearest == key else start
