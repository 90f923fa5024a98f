"""Schema strings in Spark's DDL, checked without a JVM: ``"id BIGINT, name STRING, seen TIMESTAMP NOT NULL"``.

The grammar is the one of ``StructType.fromDDL`` in Spark 4.2, as observed; the tests compare both. One thing more is
accepted: ``name: TYPE`` at the top level, which :func:`normalize` rewrites.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from odi_assets.config.diagnostics.mistakes import Mistake, closest

_TOKEN = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<text>r?'(?:[^'\\]|\\.|'')*'|r?"(?:[^"\\]|\\.|"")*")
    | (?P<word>\w+)
    | (?P<sign>[<>(),:])
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)

SIMPLE_TYPES = frozenset(
    {
        "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL",
        "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "VARIANT", "VOID",
    }
)  # fmt: skip
_DECIMALS = frozenset({"DECIMAL", "DEC", "NUMERIC"})
_SIZED = frozenset({"CHAR", "CHARACTER", "VARCHAR"})
_SPATIAL = frozenset({"GEOMETRY", "GEOGRAPHY"})
_NESTED = frozenset({"ARRAY", "MAP", "STRUCT"})
TYPES = SIMPLE_TYPES | _DECIMALS | _SIZED | _SPATIAL | _NESTED | {"INTERVAL", "TIME"}
_ELSEWHERE = {
    "BOOL": "BOOLEAN", "TEXT": "STRING", "STR": "STRING", "DATETIME": "TIMESTAMP", "NUMBER": "DECIMAL",
    "INT64": "BIGINT", "INT32": "INT", "INT16": "SMALLINT", "INT8": "TINYINT", "FLOAT64": "DOUBLE", "FLOAT32": "FLOAT",
    "BLOB": "BINARY", "BYTES": "BINARY", "JSON": "VARIANT", "LIST": "ARRAY", "DICT": "MAP", "NULL": "VOID",
}  # fmt: skip
_INTERVAL_FIELDS = {"YEAR": 0, "MONTH": 1, "DAY": 10, "HOUR": 11, "MINUTE": 12, "SECOND": 13}
_MAX_DECIMAL_PRECISION = 38
_MAX_TIME_PRECISION = 6


class _BadColumn(Exception):
    def __init__(self, message: str, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.suggestion = suggestion


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def upper(self) -> str:
        return self.text.upper()


@dataclass
class _Cursor:
    tokens: list[_Token]
    at: int = 0
    colons: list[int] = field(default_factory=list)

    def peek(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def accept(self, *texts: str) -> bool:
        if self.peek().kind in {"word", "sign"} and self.peek().upper in texts:
            self.at += 1
            return True
        return False

    def expect(self, text: str, after: str) -> None:
        if not self.accept(text):
            raise _BadColumn(f"expected `{text}` {after}, found {_shown(self.peek())}")


def find_mistakes(text: str) -> list[Mistake]:
    """Return what is wrong with a schema string, at most one mistake per column; none when Spark would accept it."""
    return _read(text)[0]


def normalize(text: str) -> str:
    """Return a valid schema string with the colons that Spark does not know at the top level taken out."""
    letters = list(text)
    for position in _read(text)[1]:
        letters[position] = " "
    return "".join(letters)


def _read(text: str) -> tuple[list[Mistake], list[int]]:
    cursor = _Cursor(_tokens(text))
    if cursor.peek().kind == "end":
        return [Mistake("is empty: write columns, as in `id BIGINT, name STRING`")], []
    found: list[Mistake] = []
    seen: set[str] = set()
    while True:
        mistake = _read_column(cursor, seen)
        if mistake is not None:
            found.append(mistake)
            _skip_column(cursor)
        if not cursor.accept(","):
            return found, cursor.colons
        if cursor.peek().kind == "end":
            found.append(_hidden("ends with a comma: take it away, or add the column that should follow"))
            return found, cursor.colons


def _read_column(cursor: _Cursor, seen: set[str]) -> Mistake | None:
    name = cursor.peek()
    try:
        _column_name(cursor)
        if cursor.peek().text == ":":
            cursor.colons.append(cursor.take().start)
        _type(cursor)
        _suffix(cursor)
        if cursor.peek().text != "," and cursor.peek().kind != "end":
            raise _BadColumn(f"expected a comma or the end, found {_shown(cursor.peek())}")
    except _BadColumn as bad:
        return _hidden(f"column {_shown(name)}: {bad}", bad.suggestion)
    if name.text.lower() in seen:
        return _hidden(f"column {_shown(name)} is there twice")
    seen.add(name.text.lower())
    return None


def _hidden(message: str, suggestion: str | None = None) -> Mistake:
    return Mistake(
        message, plain="is not a schema that Spark can read (`id BIGINT, name STRING`)", suggestion=suggestion
    )


def _tokens(text: str) -> list[_Token]:
    found = [_Token(str(m.lastgroup), m.group(), m.start()) for m in _TOKEN.finditer(text) if m.lastgroup != "space"]
    return [*found, _Token("end", "", len(text))]


def _shown(token: _Token) -> str:
    if token.kind == "end":
        return "the end"
    return token.text if token.kind == "quoted" else f"`{token.text}`"


def _skip_column(cursor: _Cursor) -> None:
    depth = 0
    while cursor.peek().kind != "end" and not (cursor.peek().text == "," and depth <= 0):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(cursor.take().text, 0)


def _column_name(cursor: _Cursor) -> None:
    name = cursor.take()
    if name.kind == "word" and not name.text.isascii():
        raise _BadColumn(f"put the name in backticks: `{name.text}`")
    if name.kind == "end" or name.text in {",", ">"}:
        raise _BadColumn("a column is missing here")
    if name.kind not in {"word", "quoted"} or name.text.isdigit():
        raise _BadColumn("is not a column name; put names with other signs than letters, digits and `_` in backticks")
    if cursor.peek().kind == "other":
        raise _BadColumn(f"put a name with {_shown(cursor.peek())} in it in backticks")


def _type(cursor: _Cursor) -> None:
    token = cursor.take()
    name = token.upper
    if token.kind != "word":
        raise _BadColumn(f"the type is missing (found {_shown(token)})")
    if name not in TYPES:
        raise _BadColumn(f"unknown type `{token.text}`", _ELSEWHERE.get(name) or closest(name, TYPES))
    if name in _NESTED:
        _nested(cursor, name)
    elif name in _DECIMALS:
        _decimal(cursor)
    elif name in _SIZED:
        _size(cursor, f"`{token.text}` needs a length, as in `{token.text}(10)`")
    elif name in _SPATIAL:
        _spatial(cursor, token.text)
    elif name == "INTERVAL":
        _interval(cursor)
    elif name in {"TIME", "TIMESTAMP"}:
        _time(cursor, name)
    elif name == "STRING" and cursor.accept("COLLATE"):
        cursor.take()
    if cursor.peek().text == "(":
        raise _BadColumn(f"the type `{token.text}` takes nothing in parentheses")


def _nested(cursor: _Cursor, name: str) -> None:
    cursor.expect("<", f"after `{name}`")
    if name == "STRUCT":
        _fields(cursor)
    else:
        _type(cursor)
    if name == "MAP":
        cursor.expect(",", "between the key's and the value's type of `MAP`")
        _type(cursor)
    cursor.expect(">", f"at the end of `{name}<…`")


def _fields(cursor: _Cursor) -> None:
    if cursor.peek().text == ">":
        return
    while True:
        _column_name(cursor)
        cursor.accept(":")
        _type(cursor)
        _suffix(cursor)
        if not cursor.accept(","):
            return


def _suffix(cursor: _Cursor) -> None:
    if cursor.accept("NOT"):
        cursor.expect("NULL", "after `NOT`")
    if cursor.accept("COMMENT"):
        if cursor.peek().kind != "text":
            raise _BadColumn("a comment is text in quotes")
        while cursor.peek().kind == "text":
            cursor.take()


def _number(cursor: _Cursor) -> int:
    token = cursor.take()
    if not (token.kind == "word" and token.text.isdigit()):
        raise _BadColumn(f"expected a number in the parentheses, found {_shown(token)}")
    return int(token.text)


def _size(cursor: _Cursor, missing: str) -> int:
    if not cursor.accept("("):
        raise _BadColumn(missing)
    size = _number(cursor)
    cursor.expect(")", "after the number")
    return size


def _decimal(cursor: _Cursor) -> None:
    if not cursor.accept("("):
        return
    precision = _number(cursor)
    scale = _number(cursor) if cursor.accept(",") else 0
    cursor.expect(")", "after precision and scale")
    if precision > _MAX_DECIMAL_PRECISION or scale > precision:
        raise _BadColumn(f"a decimal has a precision of at most {_MAX_DECIMAL_PRECISION}, and a scale within it")


def _time(cursor: _Cursor, name: str) -> None:
    if name == "TIME" and cursor.peek().text == "(":
        if _size(cursor, "") > _MAX_TIME_PRECISION:
            raise _BadColumn(f"`TIME` has at most {_MAX_TIME_PRECISION} digits of a second")
    elif cursor.accept("WITHOUT"):
        cursor.expect("TIME", "after `WITHOUT`")
        cursor.expect("ZONE", "after `WITHOUT TIME`")


def _spatial(cursor: _Cursor, name: str) -> None:
    cursor.expect("(", f"and a reference system after `{name}`, as in `{name}(4326)`")
    if not cursor.accept("ANY"):
        _number(cursor)
    cursor.expect(")", "after the reference system")


def _interval(cursor: _Cursor) -> None:
    first = cursor.peek().upper
    if not cursor.accept(*_INTERVAL_FIELDS):
        return
    if not cursor.accept("TO"):
        return
    last = cursor.peek().upper
    same_family = _INTERVAL_FIELDS.get(last, -1) // 10 == _INTERVAL_FIELDS[first] // 10
    if not (cursor.accept(*_INTERVAL_FIELDS) and same_family and _INTERVAL_FIELDS[last] > _INTERVAL_FIELDS[first]):
        raise _BadColumn("intervals are `YEAR TO MONTH` or within `DAY TO SECOND`, the larger unit first")
