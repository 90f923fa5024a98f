"""YAML as plain values, with the line and column of every key and value.

``${VAR}`` may stand unquoted anywhere, also in ``{a: ${VAR}}``, where YAML alone would take the brace for its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from typing import Any

import yaml

from odi_assets.config.diagnostics.mistakes import FilePosition, Mistake, Path
from odi_assets.config.yaml.syntax_errors import MAX_DEPTH, TOO_DEEP, explain

TAG = "tag:yaml.org,2002:"

_NUMBER_STARTS = list("-+.0123456789")
_CORE_SCHEMA = (
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", _NUMBER_STARTS),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", _NUMBER_STARTS),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", _NUMBER_STARTS),
    ("merge", r"<<", ["<"]),
)
"""What plain scalars mean in YAML 1.2 (section 10.3): ``yes``, ``on`` and ``2013-01-01`` are text."""


def with_core_schema(base: Any) -> Any:
    """Return one of PyYAML's loaders with the core schema in place of its own rules, which are YAML 1.1's."""
    loader = type("CoreSchemaLoader", (base,), {"yaml_implicit_resolvers": {}})
    for tag, pattern, starts in _CORE_SCHEMA:
        loader.add_implicit_resolver(f"{TAG}{tag}", re.compile(f"^(?:{pattern})$"), starts)  # type: ignore[attr-defined]
    return loader


LOADER: Any = with_core_schema(getattr(yaml, "CSafeLoader", yaml.SafeLoader))
"""On libyaml, unless PyYAML was built without it; that is ten times slower."""


MAX_NODES = 200_000
"""Values in one file, aliases counted each time: a project of 500 nodes has 25,000."""


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """Where a value is in the file.

    Attributes:
        mark: where the value starts.
        key: where its key starts; None for items of a list and for the whole document.
        text: the value as it is written; None for lists and mappings.
    """

    mark: FilePosition
    key: FilePosition | None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class PythonOrigin:
    """Where Python says what no project file does.

    Attributes:
        file, line: of the decorated function.
        function: its name.
    """

    file: str
    line: int
    function: str


@dataclass
class YamlDocument:
    """What a file holds.

    Attributes:
        data: its plain values, variables not filled in; None when it holds nothing that can be read.
        places: the place of every value, by its path.
        mistakes: what is wrong with the YAML itself. They quote no value.
        origins: where Python made a section, by its path.
    """

    data: Any = None
    places: dict[Path, ValuePlace] = field(default_factory=lambda: {(): ValuePlace(FilePosition(1, 1), None, "")})
    mistakes: list[Mistake] = field(default_factory=list)
    origins: dict[Path, PythonOrigin] = field(default_factory=dict)

    def section(self, path: Path) -> Any:
        """Return the list or mapping that holds the value of a path."""
        return reduce(getitem, path[:-1], self.data)

    def take_out(self, path: Path) -> None:
        """Remove a value, and all that is in it."""
        del self.section(path)[path[-1]]
        self.places = {other: place for other, place in self.places.items() if other[: len(path)] != path}


def read_document(text: str) -> YamlDocument:
    """Read a YAML document."""
    document = YamlDocument()
    builder = _Builder(text, document)
    depth = 0
    try:
        for event in yaml.parse(builder.hidden, Loader=LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise yaml.MarkedYAMLError(problem=TOO_DEEP, problem_mark=event.start_mark)
        root = yaml.compose(builder.hidden, Loader=LOADER)
    except yaml.YAMLError as error:
        document.mistakes.append(explain(error, text))
        return document
    if root is not None:
        document.data = builder.build(root, ())
    return document


_REFERENCE = re.compile(r"""\$\{([^{}\n"',\[\]#]*)\}""")
_NO_TAGS = "tags (`!…`) have no meaning in a project file"


class _Builder:
    """Turns PyYAML's nodes into plain values: aliases and ``<<`` resolved, duplicate keys and odd tags noted.

    Braces of ``${…}`` are hidden from YAML behind as many letters of a private use area, so that columns stay.
    """

    def __init__(self, text: str, document: YamlDocument) -> None:
        first = 0xE000
        while any(chr(first + i) in text for i in range(3)):
            first += 3
        self._letters = {first: "$", first + 1: "{", first + 2: "}"}
        dollar, opening, closing = map(chr, self._letters)
        self.hidden = _REFERENCE.sub(rf"{dollar}{opening}\1{closing}", text)
        self._document = document
        self._open: set[int] = set()
        self._count = 0

    def build(self, node: Any, path: Path, key: FilePosition | None = None) -> Any:
        mark = _mark(node)
        self._document.places[path] = ValuePlace(mark, key, "")
        if not self._enters(node, path):
            return None
        built: Any
        if isinstance(node, yaml.ScalarNode):
            text = node.value.translate(self._letters)
            self._document.places[path] = ValuePlace(mark, key, text)
            built = self._scalar(node.tag.removeprefix(TAG), text, mark, path)
        else:
            self._document.places[path] = ValuePlace(mark, key)
            if node.tag not in {f"{TAG}seq", f"{TAG}map"}:
                self._note(mark, path, _NO_TAGS)
            if isinstance(node, yaml.SequenceNode):
                built = [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
            else:
                entries = self._entries(node, path)
                built = {name: self.build(value, (*path, name), mark) for name, (mark, value) in entries.items()}
        self._open.discard(id(node))
        return built

    def _enters(self, node: Any, path: Path) -> bool:
        """Tell whether to go into a node: not when it is inside itself, or when there were too many."""
        self._count += 1
        if self._count == MAX_NODES + 1:
            self._note(_mark(node), path, f"aliases unfold to more than {MAX_NODES:,} values")
        if self._count > MAX_NODES:
            return False
        if id(node) in self._open:
            self._note(_mark(node), path, "an alias `*` leads back to itself")
            return False
        self._open.add(id(node))
        return True

    def _note(self, mark: FilePosition, path: Path, message: str) -> None:
        self._document.mistakes.append(Mistake(message, at=path, mark=mark))

    def _scalar(self, kind: str, text: str, mark: FilePosition, path: Path) -> str | int | float | bool | None:
        if kind not in _VALUES:
            self._note(mark, path, _NO_TAGS)
            return text
        try:
            value: str | int | float | bool | None = _VALUES[kind](text)
        except (ValueError, KeyError):
            self._note(mark, path, f"the tag says `{kind}`, and the value is none")
            return text
        return value

    def _entries(self, node: Any, path: Path) -> dict[str, tuple[FilePosition, Any]]:
        """Return the values of a mapping by key, with the places of the keys; those that ``<<`` merges come last."""
        entries: dict[str, tuple[FilePosition, Any]] = {}
        merged: list[Any] = []
        for key, value in node.value:
            mark = _mark(key)
            if not isinstance(key, yaml.ScalarNode):
                self._note(mark, path, "a key must be text")
            elif key.tag == f"{TAG}merge":
                merged.extend(value.value if isinstance(value, yaml.SequenceNode) else [value])
            elif (name := key.value.translate(self._letters)) in entries:
                self._note(mark, (*path, name), f"duplicate key: it is on line {entries[name][0].line} already")
            else:
                entries[name] = (mark, value)
        for other in merged:
            if not isinstance(other, yaml.MappingNode):
                self._note(_mark(other), path, "`<<` takes mappings only")
            elif self._enters(other, path):
                for name, entry in self._entries(other, path).items():
                    entries.setdefault(name, entry)
                self._open.discard(id(other))
        return entries


def _mark(node: Any) -> FilePosition:
    return FilePosition(node.start_mark.line + 1, node.start_mark.column + 1)


_VALUES: dict[str, Any] = {
    "str": str,
    "merge": str,
    "int": lambda text: int(text, 0) if text[:2] in {"0x", "0o"} else int(text),
    "float": lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "null": lambda _: None,
}
