"""YAML with the line and column of every key and value.

``${VAR}`` may stand unquoted anywhere, also in ``{a: ${VAR}}``, where YAML alone would take the brace for its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from odi_assets.config.diagnostics.mistakes import Mistake
from odi_assets.config.yaml import parser as yaml_core
from odi_assets.config.yaml.parser import TAG

Path = tuple[str | int, ...]
MAX_NODES = 200_000
"""Values in one file, aliases counted each time: a project of 500 nodes has 25,000."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the file; both numbers start at 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value: as written (``text``), and as YAML means it."""

    mark: Mark
    text: str
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Sequence:
    mark: Mark
    items: list[Node]


@dataclass(frozen=True, slots=True)
class Mapping:
    mark: Mark
    values: dict[str, Node]
    keys: dict[str, Mark]


Node = Scalar | Sequence | Mapping


@dataclass(frozen=True)
class Misplaced:
    """A mistake of the YAML itself and where it is."""

    mark: Mark
    mistake: Mistake
    path: Path = ()


@dataclass
class Document:
    """What a file holds. ``root`` is None when it holds nothing, or nothing that can be read."""

    root: Node | None
    problems: list[Misplaced] = field(default_factory=list)


def read_document(text: str) -> Document:
    """Parse one YAML document; problems never quote a value."""
    braces = _Braces(text)
    document = Document(None)
    try:
        root = yaml_core.compose(braces.hide(text))
        if root is not None:
            document.root = _Builder(document, braces).build(root, ())
    except yaml_core.SyntaxProblem as error:
        line, column, mistake = yaml_core.explain(error, text)
        document.problems.append(Misplaced(Mark(line, column), mistake))
    return document


_REFERENCE = re.compile(r"""\$\{([^{}\n"',\[\]#]*)\}""")


class _Braces:
    """Hides the braces of ``${…}`` from YAML behind as many letters of a private use area, so that columns stay."""

    def __init__(self, text: str) -> None:
        first = 0xE000
        while any(chr(first + i) in text for i in range(3)):
            first += 3
        self.dollar, self.opening, self.closing = (chr(first + i) for i in range(3))

    def hide(self, text: str) -> str:
        return _REFERENCE.sub(lambda found: f"{self.dollar}{self.opening}{found[1]}{self.closing}", text)

    def show(self, text: str) -> str:
        if self.closing not in text:
            return text
        return text.replace(self.dollar, "$").replace(self.opening, "{").replace(self.closing, "}")


_NO_TAGS = "tags (`!…`) have no meaning in a project file"


class _Builder:
    """Turns YAML's nodes into ours: aliases and ``<<`` resolved, duplicate keys and odd tags noted."""

    def __init__(self, document: Document, braces: _Braces) -> None:
        self._document = document
        self._braces = braces
        self._open: set[int] = set()
        self._count = 0

    def build(self, node: Any, path: Path) -> Node:
        mark = _mark(node)
        self._count += 1
        if self._count > MAX_NODES:
            if self._count == MAX_NODES + 1:
                self._note(mark, path, f"aliases unfold to more than {MAX_NODES:,} values")
            return Scalar(mark, "", None)
        if yaml_core.is_scalar(node):
            return self._scalar(node, mark, path)
        if id(node) in self._open:
            self._note(mark, path, "an alias `*` leads back to itself")
            return Scalar(mark, "", None)
        if node.tag not in {f"{TAG}seq", f"{TAG}map"}:
            self._note(mark, path, _NO_TAGS)
        self._open.add(id(node))
        built = self._sequence(node, mark, path) if yaml_core.is_sequence(node) else self._mapping(node, mark, path)
        self._open.discard(id(node))
        return built

    def _note(self, mark: Mark, path: Path, message: str) -> None:
        self._document.problems.append(Misplaced(mark, Mistake(message), path))

    def _scalar(self, node: Any, mark: Mark, path: Path) -> Scalar:
        text = self._braces.show(node.value)
        kind = node.tag.removeprefix(TAG)
        if kind not in _VALUES:
            self._note(mark, path, _NO_TAGS)
            kind = "str"
        try:
            return Scalar(mark, text, _VALUES[kind](text))
        except ValueError:
            self._note(mark, path, f"the tag says `{kind}`, and the value is none")
            return Scalar(mark, text, text)

    def _sequence(self, node: Any, mark: Mark, path: Path) -> Sequence:
        return Sequence(mark, [self.build(item, (*path, i)) for i, item in enumerate(node.value)])

    def _mapping(self, node: Any, mark: Mark, path: Path) -> Mapping:
        built = Mapping(mark, {}, {})
        merged: list[Mapping] = []
        for key_node, value_node in node.value:
            key_mark = _mark(key_node)
            if not yaml_core.is_scalar(key_node):
                self._note(key_mark, path, "a key must be text")
            elif key_node.tag == f"{TAG}merge":
                merged.extend(self._merged(value_node, path))
            else:
                self._entry(built, self._braces.show(key_node.value), key_mark, value_node, path)
        for other in merged:
            for key, value in other.values.items():
                if key not in built.values:
                    built.keys[key] = other.keys[key]
                    built.values[key] = value
        return built

    def _entry(self, built: Mapping, key: str, mark: Mark, value: Any, path: Path) -> None:
        if key in built.values:
            self._note(mark, (*path, key), f"duplicate key: it is on line {built.keys[key].line} already")
            return
        built.keys[key] = mark
        built.values[key] = self.build(value, (*path, key))

    def _merged(self, node: Any, path: Path) -> Iterator[Mapping]:
        built = self.build(node, path)
        for one in built.items if isinstance(built, Sequence) else [built]:
            if isinstance(one, Mapping):
                yield one
            else:
                self._note(one.mark, path, "`<<` takes mappings only")


def _mark(node: Any) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _integer(text: str) -> int:
    return int(text, 0) if text[:2] in {"0x", "0o"} else int(text)


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError
    return text.lower() == "true"


def _nothing(_: str) -> None:
    return None


_VALUES: dict[str, Any] = {
    "str": str, "merge": str, "int": _integer, "float": _float, "bool": _boolean, "null": _nothing,
}  # fmt: skip
