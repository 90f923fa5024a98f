"""Where in the project file a mistake is, and what of the file its message may show."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from odi_assets.config.diagnostics.mistakes import FilePosition, Mistake, Path, Problem, render_path
from odi_assets.config.models.nodes import view_name
from odi_assets.config.yaml.document import ValuePlace, YamlDocument
from odi_assets.config.yaml.variables import substitute

_WORD = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True)
class ValueLocation:
    """A value in the file.

    Attributes:
        path: its path as the file has it: short forms are not unfolded.
        value: its plain value.
        place: where it is.
        missing: the part of the path that was asked for and is not in the file.
    """

    path: Path
    value: Any
    place: ValuePlace
    missing: Path = field(default=())

    @property
    def key(self) -> FilePosition:
        """Where to point for the key; at the value, where it has none."""
        return self.place.key or self.mark

    @property
    def mark(self) -> FilePosition:
        """Where to point for the value: at a value on the key's line, else at the key."""
        place = self.place
        is_below = place.key is not None and place.text is None and place.mark.line != place.key.line
        return place.key if is_below and place.key is not None else place.mark


class Locations:
    """Finds the values of one document by the paths that models and checks give."""

    def __init__(self, file: str, document: YamlDocument) -> None:
        self._file = file
        self._document = document

    def find(self, path: Path) -> ValueLocation:
        """Return the value of a path, or of the deepest part of it that is in the file."""
        here: Path = ()
        value = self._document.data
        for index, part in enumerate(path):
            steps = _steps(value, part)
            if not steps:
                rest = () if _is_unfolded(value, path[index:]) else path[index:]
                return ValueLocation(here, value, self._document.places[here], rest)
            for step in steps:
                value = value[step]
                here = (*here, step)
        return ValueLocation(here, value, self._document.places[here])

    def key(self, path: Path) -> str:
        """Return a path as messages write it."""
        location = self.find(path)
        return render_path((*location.path, *location.missing))

    def quote(self, path: Path) -> str | None:
        """Return a value as it is written in the file, in backticks; None when it is long or must not be shown."""
        text = self.find(path).place.text
        if text is None or self.is_private(path) or not 0 < len(text) <= 60 or "\n" in text:
            return None
        return f"`{text}`"

    def is_private(self, path: Path) -> bool:
        """Tell whether a value must not be shown: it came from a variable, or belongs to a connection."""
        location = self.find(path)
        if path[:1] == ("connections",) and len(path) > 1:
            shown = path[-1] in ("type", "mode") and _WORD.fullmatch(location.place.text or "")
            return not shown or self._has_variable(location.path, location.value)
        return self._has_variable(location.path, location.value)

    def _has_variable(self, path: Path, value: Any) -> bool:
        text = self._document.places[path].text
        if text is not None:
            return isinstance(value, str) and substitute(text, {}).used
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return any(self._has_variable((*path, part), child) for part, child in parts)

    def problem(self, mistake: Mistake) -> Problem:
        """Return the problem that a mistake is, with its place."""
        mark = mistake.mark or self._mark(mistake)
        if mistake.plain is not None and self.is_private(mistake.at):
            mistake = replace(mistake, message=mistake.plain, suggestion=None)
        file, path = self._source(mistake.at)
        return Problem(file, mark.line, mark.column, render_path(path), mistake.message, mistake.suggestion)

    def _source(self, at: Path) -> tuple[str, Path]:
        """Return the file that a path stands in, and the path as messages about that file write it."""
        location = self.find(at)
        whole = (*location.path, *location.missing)
        # A pipeline that Python made holds nodes that it made.
        for above, origin in sorted(self._document.origins.items(), key=lambda entry: -len(entry[0])):
            if whole[: len(above)] == above:
                option = whole[len(above) :]
                # The decorator takes `params`, which a node has in its `transform`.
                return origin.file, (origin.function, *option[option[:2] == ("transform", "params") :])
        return self._file, whole

    def _mark(self, mistake: Mistake) -> FilePosition:
        location = self.find(mistake.at)
        if mistake.where == "value":
            return location.mark
        if mistake.where == "parent" and not location.missing:
            location = self.find(mistake.at[:-1])
        return location.key


_OTHER_NAMES: dict[str | int, tuple[tuple[str, ...], ...]] = {
    "keys": (("merge_keys",), ("options", "keys")),
    "schema_ddl": (("schema",),),
}


def _steps(value: Any, part: str | int) -> Iterable[str | int]:
    """Return what to follow in the file for one part of a path; nothing when it is not there."""
    if isinstance(value, dict):
        return (
            (part,)
            if part in value
            else next((names for names in _OTHER_NAMES.get(part, ()) if _has(value, names)), ())
        )
    if isinstance(value, list) and isinstance(part, int):
        return (part,) if part < len(value) else ()
    if isinstance(value, list):
        return [index for index, item in enumerate(value) if view_name(item, index) == part][-1:]
    return ()


def _has(value: Any, names: tuple[str, ...]) -> bool:
    for name in names:
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def _is_unfolded(value: Any, rest: Path) -> bool:
    """Tell whether the rest of a path stands in a single value: ``incremental: version``."""
    return not isinstance(value, dict | list) and rest in (("mode",), ("node",))
