"""The YAML parser: libyaml with the core schema of YAML 1.2, and its errors in plain words."""

from __future__ import annotations

import re
from typing import Any

import yaml

from odi_assets.config.diagnostics.mistakes import Mistake

TAG = "tag:yaml.org,2002:"


class _CoreSchema(yaml.resolver.BaseResolver):  # type: ignore[misc]
    """What plain scalars mean in YAML 1.2 (section 10.3): ``yes``, ``on`` and ``2013-01-01`` are text."""


_NUMBER_STARTS = list("-+.0123456789")
for _tag, _pattern, _starts in (
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", _NUMBER_STARTS),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", _NUMBER_STARTS),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", _NUMBER_STARTS),
    ("merge", r"<<", ["<"]),
):
    _CoreSchema.add_implicit_resolver(f"{TAG}{_tag}", re.compile(f"^(?:{_pattern})$"), _starts)


class PurePythonLoader(
    yaml.reader.Reader,  # type: ignore[misc]
    yaml.scanner.Scanner,  # type: ignore[misc]
    yaml.parser.Parser,  # type: ignore[misc]
    yaml.composer.Composer,  # type: ignore[misc]
    _CoreSchema,
):
    """For a PyYAML that was built without libyaml; ten times slower."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)
        yaml.composer.Composer.__init__(self)
        _CoreSchema.__init__(self)

    def dispose(self) -> None:
        """Nothing to give back: only libyaml's parser holds memory of its own."""


if yaml.__with_libyaml__:

    class _LibyamlLoader(yaml.cyaml.CParser, _CoreSchema):  # type: ignore[misc]
        def __init__(self, text: str) -> None:
            yaml.cyaml.CParser.__init__(self, text)
            _CoreSchema.__init__(self)

    LOADER: Any = _LibyamlLoader
else:
    LOADER = PurePythonLoader


MAX_DEPTH = 100
"""Lists and mappings inside one another; a project file needs ten. libyaml's composer crashes at some ten thousand."""


class TooDeep(yaml.YAMLError):  # type: ignore[misc]
    """Lists and mappings are nested deeper than any project needs."""

    problem = "nested too deeply"
    problem_mark: Any = None


def compose(text: str) -> Any:
    """Return the root node of the one document in ``text``, or None when there is none.

    Raises:
        yaml.YAMLError: the text is no YAML; see :func:`explain`.
    """
    _check_depth(text)
    loader = LOADER(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _check_depth(text: str) -> None:
    loader = LOADER(text)
    depth = 0
    try:
        while (event := loader.get_event()) is not None:
            if isinstance(event, yaml.events.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.events.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                error = TooDeep()
                error.problem_mark = event.start_mark
                raise error
    finally:
        loader.dispose()


def is_scalar(node: Any) -> bool:
    """Tell whether a composed node is a single value."""
    return isinstance(node, yaml.ScalarNode)


def is_sequence(node: Any) -> bool:
    """Tell whether a composed node is a list."""
    return isinstance(node, yaml.SequenceNode)


SyntaxProblem = yaml.YAMLError

_VALUE_START = (
    "this character cannot start a value: tabs do not indent, and text that starts with `@`, `%` or a backtick"
    " needs quotes"
)
_SECOND_DOCUMENT = "`---` starts a second document: a project file holds one"
_INDENTATION = "expected a key of the mapping here: check the indentation and the quotes above"
_ALIAS = "`*` names an anchor that is not defined: put text that starts with `*` in quotes"
_UNCLOSED = {
    "found unexpected end of stream": "a quote opens here and never closes",
    "did not find expected ',' or '}'": "a brace opens here; what follows needs `,` between items and `}` at the end",
    "did not find expected ',' or ']'": "a bracket opens here; what follows needs `,` between items and `]` at the end",
    "expected ',' or '}'": "a brace opens here; what follows needs `,` between items and `}` at the end",
    "expected ',' or ']'": "a bracket opens here; what follows needs `,` between items and `]` at the end",
}
_PROBLEMS = {
    "mapping values are not allowed": "a `key: value` cannot stand here: check the indentation, and put text that"
    " holds `: ` in quotes",
    "found character that cannot start any token": _VALUE_START,
    "found character '": _VALUE_START,
    "found undefined alias": _ALIAS,
    "expected a single document": _SECOND_DOCUMENT,
    "but found another document": _SECOND_DOCUMENT,
    "could not find expected ':'": "a key above has no `:` after it",
    "did not find expected key": _INDENTATION,
    "expected <block end>": _INDENTATION,
    "did not find expected '-' indicator": "expected `- ` here: check the indentation of the list",
    "did not find expected node content": "expected a value here: a bracket or brace is not closed",
    "block sequence entries are not allowed": "a list item `- ` cannot stand here: check the indentation",
    "found duplicate anchor": "this anchor is defined twice",
    TooDeep.problem: f"more than {MAX_DEPTH} lists and mappings inside one another",
    "found unknown escape character": "a backslash in double quotes needs a second one; or use single quotes",
}


def explain(error: yaml.YAMLError, text: str) -> tuple[int, int, Mistake]:
    """Return line and column, from 1, and what is wrong, without a word of the text: it may hold a secret."""
    if isinstance(error, yaml.reader.ReaderError):
        bad = next((i for i, letter in enumerate(text) if not _printable(letter)), 0)
        line, column = text.count("\n", 0, bad) + 1, bad - text.rfind("\n", 0, bad)
        return line, column, Mistake("not valid YAML: a control character stands here")
    problem = str(getattr(error, "problem", None) or getattr(error, "context", None) or "")
    unclosed = next((plain for start, plain in _UNCLOSED.items() if problem.startswith(start)), None)
    plain = unclosed or next((plain for start, plain in _PROBLEMS.items() if problem.startswith(start)), None)
    marks = [getattr(error, "problem_mark", None), getattr(error, "context_mark", None)]
    mark = next((mark for mark in (reversed(marks) if unclosed else marks) if mark is not None), None)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    return line, column, Mistake(f"not valid YAML: {plain or 'check indentation, quotes and brackets here'}")


def _printable(letter: str) -> bool:
    return letter in "\t\n\r\x85" or " " <= letter <= "~" or (letter >= "\xa0" and letter not in "\ufffe\uffff")
