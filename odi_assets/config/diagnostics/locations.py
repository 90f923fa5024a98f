"""A mistake at a place of the project file, and how it becomes a problem with line and column."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, replace
from enum import Enum

from odi_assets.config.diagnostics.mistakes import Mistake
from odi_assets.config.diagnostics.problems import Problem, render_path
from odi_assets.config.models.shorthand import view_name
from odi_assets.config.yaml.document import Document, Mapping, Mark, Node, Path, Scalar, Sequence
from odi_assets.config.yaml.variables import substitute

_WORD = re.compile(r"[A-Za-z0-9_-]{1,40}")


class Where(Enum):
    """Which mark of a place a finding points at."""

    KEY = "key"
    VALUE = "value"
    PARENT = "parent"


@dataclass(frozen=True)
class Finding:
    """A mistake and its path, as the models see it: with short forms unfolded.

    ``absence`` marks what is wrong only because something is missing: a mistake nearby may be the cause.
    """

    path: Path
    mistake: Mistake
    where: Where = Where.VALUE
    absence: bool = False


@dataclass(frozen=True)
class Spot:
    """A place in the document: its path there, its value, the mark of its key if it has one.

    ``rest`` is the part of the path that was asked for and is not in the file.
    """

    path: Path
    node: Node
    key: Mark | None
    rest: Path = ()

    @property
    def mark(self) -> Mark:
        """Where to point for the value: at a value on the key's line, else at the key."""
        if self.key is not None and self.node.mark.line != self.key.line and not isinstance(self.node, Scalar):
            return self.key
        return self.node.mark


class Places:
    """Finds the places of one document."""

    def __init__(self, file: str, document: Document, environment: AnyMapping[str, str]) -> None:
        self._file = file
        self._environment = environment
        self._root = document.root

    def spot(self, path: Path) -> Spot:
        """Return the place of a path, or of the deepest part of it that is in the file."""
        node = self._root
        if node is None:
            return Spot((), Scalar(Mark(1, 1), "", None), None, path)
        spot = Spot((), node, None)
        for index, part in enumerate(path):
            steps = list(_steps(spot.node, part, self._environment))
            if not steps:
                return replace(spot, rest=() if _folded(spot.node, path[index:]) else path[index:])
            for step in steps:
                spot = _descend(spot, step)
        return spot

    def key(self, path: Path) -> str:
        """Return the path of a key as messages write it."""
        spot = self.spot(path)
        return render_path((*spot.path, *spot.rest))

    def is_private(self, path: Path) -> bool:
        """Tell whether a value must not be shown: it came from a variable, or belongs to a connection."""
        if path[:1] == ("connections",) and len(path) > 1:
            spot = self.spot(path)
            shown = path[-1] in ("type", "mode") and isinstance(spot.node, Scalar) and _WORD.fullmatch(spot.node.text)
            return not shown or _from_variable(spot.node)
        return _from_variable(self.spot(path).node)

    def quote(self, path: Path) -> str | None:
        """Return a value as it is written in the file, in backticks; None when it is long or must not be shown."""
        node = self.spot(path).node
        if not isinstance(node, Scalar) or self.is_private(path) or not 0 < len(node.text) <= 60 or "\n" in node.text:
            return None
        return f"`{node.text}`"

    def written(self, path: Path, value: str) -> str:
        """Return a value as messages may show it: where it came from a variable, as it is written in the file."""
        node = self.spot(path).node
        return node.text if self.is_private(path) and isinstance(node, Scalar) else value

    def problem(self, finding: Finding) -> Problem:
        """Return the problem that a finding is, with its place."""
        path = (*finding.path, *finding.mistake.at)
        spot = self.spot(path)
        mark = self._mark(finding.where, spot, path)
        hide = finding.mistake.plain is not None and self.is_private(path)
        message = finding.mistake.plain if hide else finding.mistake.message
        suggestion = None if hide else finding.mistake.suggestion
        return Problem(self._file, mark.line, mark.column, self.key(path), message or "", suggestion)

    def problems(self, findings: Iterable[Finding]) -> list[Problem]:
        """Return the problems of several findings."""
        return [self.problem(finding) for finding in findings]

    def _mark(self, where: Where, spot: Spot, path: Path) -> Mark:
        if where is Where.KEY:
            return spot.key or spot.mark
        if where is Where.PARENT:
            parent = spot if spot.rest else self.spot(path[:-1])
            return parent.key or parent.mark
        return spot.mark


def _from_variable(node: Node) -> bool:
    if isinstance(node, Scalar):
        return isinstance(node.value, str) and substitute(node.value, {}).used
    children = node.items if isinstance(node, Sequence) else node.values.values()
    return any(_from_variable(child) for child in children)


_OTHER_NAMES: dict[str | int, tuple[tuple[str, ...], ...]] = {
    "keys": (("merge_keys",), ("options", "keys")),
    "schema_ddl": (("schema",),),
}


def _steps(node: Node, part: str | int, environment: AnyMapping[str, str]) -> Iterable[str | int]:
    """Return what to follow in the file for one part of a path; nothing when it is not there."""
    if isinstance(node, Mapping):
        if part in node.values:
            return (part,)
        return next((names for names in _OTHER_NAMES.get(part, ()) if _has(node, names)), ())
    if isinstance(node, Sequence):
        if isinstance(part, int):
            return (part,) if part < len(node.items) else ()
        return tuple(_named(node, part, environment))[-1:]
    return ()


def _has(node: Node, names: tuple[str, ...]) -> bool:
    for name in names:
        if not isinstance(node, Mapping) or name not in node.values:
            return False
        node = node.values[name]
    return True


def _named(inputs: Sequence, view: str, environment: AnyMapping[str, str]) -> Iterable[int]:
    for index, item in enumerate(inputs.items):
        reference = item.values.get("node") if isinstance(item, Mapping) else item
        name = reference.value if isinstance(reference, Scalar) else None
        if view == f"[{index}]" or (isinstance(name, str) and view_name(substitute(name, environment).text) == view):
            yield index


def _folded(node: Node, rest: Path) -> bool:
    """Tell whether the rest of a path is folded into a single value: ``incremental: version``."""
    return isinstance(node, Scalar) and rest in (("mode",), ("node",))


def _descend(spot: Spot, step: str | int) -> Spot:
    if isinstance(spot.node, Mapping) and isinstance(step, str):
        return Spot((*spot.path, step), spot.node.values[step], spot.node.keys[step])
    if isinstance(spot.node, Sequence) and isinstance(step, int):
        return Spot((*spot.path, step), spot.node.items[step], None)
    raise AssertionError(f"{step!r} is no step into {type(spot.node).__name__}")
