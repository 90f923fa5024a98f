"""Schema strings in Spark's DDL, checked without a JVM: ``"id BIGINT, name STRING, seen TIMESTAMP NOT NULL"``.

The grammar is the one of ``StructType.fromDDL`` in Spark 4.2, as observed; the tests compare both. One thing more is
accepted: ``name: TYPE`` at the top level; the colon is taken out for Spark.
"""

from __future__ import annotations

import re

from odi_assets.config.diagnostics.mistakes import Mistake, closest

_QUOTED_NAME = r"`(?:[^`]|``)*`"
_TEXT = r"""r?'(?:[^'\\]|\\.|'')*'|r?"(?:[^"\\]|\\.|"")*\""""
_TOKEN = re.compile(rf"\s*(?:({_QUOTED_NAME}|{_TEXT}|\w+|\S)|$)", re.DOTALL | re.IGNORECASE)
_COMMENT = re.compile(rf"{_QUOTED_NAME}|{_TEXT}|(?P<comment>--[^\n]*|/\*.*?\*/)", re.DOTALL | re.IGNORECASE)

_PLAIN_TYPES = (
    "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL", "DOUBLE",
    "BINARY", "DATE", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "VARIANT", "VOID",
)  # fmt: skip
_NESTED_TYPES = ("ARRAY", "MAP", "STRUCT")
_DECIMAL = (
    r"(?:\( (?P<precision>[0-9]+) (?:, (?P<scale>[0-9]+) )?\)|(?! \())",
    "takes a precision of at most 38 and a scale within it, as in `{0}(10, 2)`",
)
_LENGTH = (r"\( [0-9]+ \)", "needs a length, as in `{0}(10)`")
_REFERENCE_SYSTEM = (r"\( (?:ANY\b|[0-9]+) \)", "needs a reference system, as in `{0}(4326)`")
_INTERVAL = (
    r"(?:YEAR\b(?: TO MONTH\b)?|MONTH\b|DAY\b(?: TO (?:HOUR|MINUTE|SECOND)\b)?|HOUR\b(?: TO (?:MINUTE|SECOND)\b)?|"
    r"MINUTE\b(?: TO SECOND\b)?|SECOND\b)?(?! TO\b)",
    "is `YEAR TO MONTH` or within `DAY TO SECOND`, the larger unit first",
)
_ZONE = r"(?:WITHOUT TIME ZONE\b|(?! WITHOUT\b))"
_PARAMETERS = {
    "DECIMAL": _DECIMAL, "DEC": _DECIMAL, "NUMERIC": _DECIMAL,
    "CHAR": _LENGTH, "CHARACTER": _LENGTH, "VARCHAR": _LENGTH,
    "GEOMETRY": _REFERENCE_SYSTEM, "GEOGRAPHY": _REFERENCE_SYSTEM,
    "INTERVAL": _INTERVAL,
    "TIMESTAMP": (_ZONE, "is followed by `WITHOUT TIME ZONE` or by nothing"),
    "TIME": (rf"(?:\( 0*[0-6] \)|(?! \(){_ZONE})", "has at most 6 digits of a second, as in `{0}(6)`"),
    "STRING": (rf"(?:COLLATE (?:\w+|{_QUOTED_NAME})|(?! COLLATE\b))", "needs the name of a collation after `COLLATE`"),
}  # fmt: skip
"""What may follow a type, and what to say where something else does. A blank stands for any white space."""

TYPES = (*_PLAIN_TYPES, *_NESTED_TYPES, *_PARAMETERS)
_ELSEWHERE = {
    "BOOL": "BOOLEAN", "TEXT": "STRING", "STR": "STRING", "DATETIME": "TIMESTAMP", "NUMBER": "DECIMAL",
    "INT64": "BIGINT", "INT32": "INT", "INT16": "SMALLINT", "INT8": "TINYINT", "FLOAT64": "DOUBLE", "FLOAT32": "FLOAT",
    "BLOB": "BINARY", "BYTES": "BINARY", "JSON": "VARIANT", "LIST": "ARRAY", "DICT": "MAP", "NULL": "VOID",
}  # fmt: skip
_NOT_DDL = "is not a schema that Spark can read (`id BIGINT, name STRING`)"


def read_schema(text: str) -> tuple[str, list[Mistake]]:
    """Return a schema string as Spark takes it, and what is wrong with it: at most one mistake per column."""
    reader = _Reader(text)
    mistakes = reader.read()
    letters = list(text)
    for position in reader.colons:
        letters[position] = " "
    return "".join(letters), mistakes


def column_types(text: str) -> dict[str, str]:
    """By column of a schema string that is right, its type, without NOT NULL and comments.

    Types are in capitals; the names of fields, and what is said of them, are as they are written.

    Example:
        >>> column_types("addr struct<zipCode: int>")
        {'addr': 'STRUCT<zipCode: INT>'}
    """
    reader = _Reader(text)
    reader.read()
    return reader.types


class _BadColumn(Exception):
    """Arguments: what is wrong, and the word that was probably meant."""


class _Reader:
    """Reads a schema string from left to right."""

    def __init__(self, text: str) -> None:
        self._text = _COMMENT.sub(lambda match: " " * len(match[0]) if match["comment"] else match[0], text)
        self._at = 0
        self.colons: list[int] = []
        self.types: dict[str, str] = {}
        self._as_written: list[tuple[int, int]] = []

    def read(self) -> list[Mistake]:
        if not self._peek():
            return [Mistake("is empty: write columns, as in `id BIGINT, name STRING`")]
        mistakes: list[Mistake] = []
        seen: set[str] = set()
        while True:
            name = self._peek()
            try:
                self._column()
                if self._peek() not in (",", ""):
                    raise _BadColumn(f"expected a comma or the end, found {self._shown()}", None)
                if name.lower() in seen:
                    mistakes.append(Mistake(f"column {_quoted(name)} is there twice", plain=_NOT_DDL))
                seen.add(name.lower())
            except _BadColumn as bad:
                message, meant = bad.args
                mistakes.append(Mistake(f"column {_quoted(name)}: {message}", plain=_NOT_DDL, suggestion=meant))
                self._skip_column()
            if not self._accept(","):
                return mistakes
            if not self._peek():
                message = "ends with a comma: take it away, or add the column that should follow"
                return [*mistakes, Mistake(message, plain=_NOT_DDL)]

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return match[1] or "" if match is not None else ""

    def _take(self) -> str:
        token = self._peek()
        match = _TOKEN.match(self._text, self._at)
        self._at = match.end() if match is not None else self._at
        return token

    def _take_as_written(self) -> str:
        token = self._take()
        self._as_written.append((self._at - len(token), self._at))
        return token

    def _type_since(self, start: int) -> str:
        """The type that was read from a place on: in capitals, but for names and comments of its fields."""
        parts = []
        for first, last in [span for span in self._as_written if span[0] >= start]:
            parts += [re.sub(r"\s+", " ", self._text[start:first].upper()), self._text[first:last]]
            start = last
        return "".join([*parts, re.sub(r"\s+", " ", self._text[start : self._at].upper())]).strip()

    def _accept(self, word: str) -> bool:
        if self._peek().upper() != word:
            return False
        self._take()
        return True

    def _expect(self, word: str, where: str) -> None:
        if not self._accept(word):
            raise _BadColumn(f"expected `{word}` {where}, found {self._shown()}", None)

    def _shown(self) -> str:
        return _quoted(self._peek())

    def _skip_column(self) -> None:
        depth = 0
        while self._peek() and not (self._peek() == "," and depth <= 0):
            depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(self._take(), 0)

    def _column(self, top: bool = True) -> None:
        name = self._peek()
        self._name()
        if self._accept(":") and top:
            self.colons.append(self._at - 1)
        start = self._at
        self._type()
        if top:
            self.types[name.strip("`").replace("``", "`")] = self._type_since(start)
        if self._accept("NOT"):
            self._expect("NULL", "after `NOT`")
        if self._accept("COMMENT"):
            if not re.fullmatch(_TEXT, self._take_as_written(), re.DOTALL | re.IGNORECASE):
                raise _BadColumn("a comment is text in quotes", None)
            while re.fullmatch(_TEXT, self._peek(), re.DOTALL | re.IGNORECASE):
                self._take_as_written()

    def _name(self) -> None:
        name = self._take_as_written()
        if name in ("", ",", ">"):
            raise _BadColumn("a column is missing here", None)
        is_word = re.fullmatch(r"\w+", name) is not None
        if is_word and not name.isascii():
            raise _BadColumn(f"put the name in backticks: `{name}`", None)
        if name.isdigit() or not (is_word or re.fullmatch(_QUOTED_NAME, name)):
            text = "is not a column name; put names with other signs than letters, digits and `_` in backticks"
            raise _BadColumn(text, None)
        if re.fullmatch(r"[^\w\s`<>(),:]", self._peek()):
            raise _BadColumn(f"put a name with {self._shown()} in it in backticks", None)

    def _type(self) -> None:
        shown = self._shown()
        word = self._take()
        name = word.upper()
        if not re.fullmatch(r"\w+", word):
            raise _BadColumn(f"the type is missing (found {shown})", None)
        if name not in TYPES:
            raise _BadColumn(f"unknown type {shown}", _ELSEWHERE.get(name) or closest(name, TYPES))
        if name in _NESTED_TYPES:
            self._nested(name)
        elif name in _PARAMETERS:
            self._parameters(word)
        if self._peek() == "(":
            raise _BadColumn(f"the type {shown} takes nothing in parentheses", None)

    def _nested(self, name: str) -> None:
        self._expect("<", f"after `{name}`")
        if name != "STRUCT":
            self._type()
        elif self._peek() != ">":
            self._column(top=False)
            while self._accept(","):
                self._column(top=False)
        if name == "MAP":
            self._expect(",", "between the key's and the value's type of `MAP`")
            self._type()
        self._expect(">", f"at the end of `{name}<…`")

    def _parameters(self, word: str) -> None:
        pattern, message = _PARAMETERS[word.upper()]
        match = re.compile(rf" {pattern}".replace(" ", r"\s*"), re.IGNORECASE).match(self._text, self._at)
        parts = match.groupdict() if match is not None else {}
        precision, scale = int(parts.get("precision") or 10), int(parts.get("scale") or 0)
        if match is None or precision > 38 or scale > precision:
            raise _BadColumn(f"`{word}` {message.format(word)}", None)
        self._at = match.end()


def _quoted(token: str) -> str:
    return token if token.startswith("`") and len(token) > 1 else f"`{token}`" if token else "the end"
