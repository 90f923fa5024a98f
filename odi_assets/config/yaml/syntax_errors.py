"""Errors of the YAML parser in plain words."""

from __future__ import annotations

import yaml

from odi_assets.config.diagnostics.mistakes import FilePosition, Mistake

MAX_DEPTH = 100
"""The deepest nesting of lists and mappings; a project file needs ten. libyaml's composer crashes at some 10,000."""

TOO_DEEP = "nested too deeply"

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
    TOO_DEEP: f"lists and mappings are nested more than {MAX_DEPTH} deep",
    "found unknown escape character": "a backslash in double quotes needs a second one; or use single quotes",
}


def explain(error: yaml.YAMLError, text: str) -> Mistake:
    """Return what is wrong and where, without a word of the text: it may hold a secret."""
    if isinstance(error, yaml.reader.ReaderError):
        bad = yaml.reader.Reader.NON_PRINTABLE.search(text)
        start = bad.start() if bad is not None else 0
        mark = FilePosition(text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
        return Mistake("not valid YAML: a control character stands here", mark=mark)
    problem = str(getattr(error, "problem", None) or getattr(error, "context", None) or "")
    unclosed = _starting(problem, _UNCLOSED)
    plain = unclosed or _starting(problem, _PROBLEMS) or "check indentation, quotes and brackets here"
    marks = [getattr(error, "problem_mark", None), getattr(error, "context_mark", None)]
    error_mark = next((mark for mark in (reversed(marks) if unclosed else marks) if mark is not None), None)
    mark = FilePosition(error_mark.line + 1, error_mark.column + 1) if error_mark is not None else FilePosition(1, 1)
    return Mistake(f"not valid YAML: {plain}", mark=mark)


def _starting(problem: str, known: dict[str, str]) -> str | None:
    return next((plain for start, plain in known.items() if problem.startswith(start)), None)
