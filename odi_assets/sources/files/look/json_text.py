"""What of a JSON file Spark would read otherwise than RFC 8259 has it: one object on a line, or one text in a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from odi_assets.sources.files.look.text import Block, Fault, blocks

Tree = Mapping[str | None, Any]
"""The types of columns as far as they have parts: of a STRUCT, by the names of its fields; of a MAP, under None. A type
without parts is None."""

Key = tuple[str | None, ...]
"""A key of an object, behind the keys that lead to the object. A key of a MAP is None."""

_BLANKS = " \t\r\n"
_LENIENT = (
    "allowcomments",
    "allowunquotedfieldnames",
    "allowsinglequotes",
    "allownumericleadingzeros",
    "allowbackslashescapinganycharacter",
    "allowunquotedcontrolchars",
    "allownonnumericnumbers",
)
_DEEP = "its values are nested too deeply to look at"
_OBJECT_LINE = re.compile(rb"^(?:\xef\xbb\xbf)?[ \t\r]*\{.*\}[ \t\r]*$", re.MULTILINE)
_SURROGATE = re.compile("[\ud800-\udfff]")


def json_look(
    options: Mapping[str, str], remote: Mapping[str, Any] | None, tree: Tree, rest: Tree | None
) -> Callable[[str], dict[str, Any]]:
    """A function that looks at the JSON file at a path or URI.

    It raises Fault, or returns ``{"keys": …}``: the keys of its rows, as far as ``tree`` and ``rest`` have them.

    Args:
        options: of Spark's reader, as the project file has them.
        tree: the columns that are wanted.
        rest: what stands for the parts of a column that ``tree`` does not name. None leaves them out.
    """
    by_name = {name.lower(): value for name, value in options.items()}
    encoding = by_name.get("encoding", by_name.get("charset", "utf-8"))
    is_multi_line = by_name.get("multiline", "").lower() == "true"
    is_lenient = any(by_name.get(name, "").lower() == "true" for name in _LENIENT)
    line_end = (
        by_name["linesep"].encode()
        if "linesep" in by_name
        else b"\n"
        if {"encoding", "charset"} & by_name.keys()
        else None
    )

    def look(path: str) -> dict[str, Any]:
        keys, broken = KeysFound(tree, rest), None
        for block in blocks(path, remote, encoding, lines=not is_multi_line, line_end=line_end or b"\n"):
            if is_lenient:
                continue
            if is_multi_line:
                _one_text(block, keys)
            elif block.data.strip() and not (_has_plain_ends(block.data, line_end) and _is_plain(block.data, keys)):
                fault = _lines(block, keys, line_end)
                broken = broken or fault
        if broken is not None:
            raise broken
        return {"keys": list(keys.found)}

    return look


class KeysFound:
    """The keys of rows, each once."""

    def __init__(self, tree: Tree, rest: Tree | None) -> None:
        self._tree, self._rest = tree, rest
        self.found: dict[Key, None] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        self._add(row, self._tree, ())

    def _add(self, value: Any, tree: Tree | None, above: Key) -> None:
        if tree is None:
            return
        if isinstance(value, list):
            for part in value:
                self._add(part, tree, above)
        elif isinstance(value, dict):
            for name, part in value.items():
                if None in tree:
                    self._add(part, tree[None], (*above, None))
                else:
                    self.found[*above, name] = None
                    self._add(part, tree.get(name, self._rest), (*above, name))


def _has_plain_ends(data: bytes, line_end: bytes | None) -> bool:
    """Whether lines end with each LF, and nowhere else."""
    if line_end is None or line_end == b"\n":
        return data.count(b"\r") == data.count(b"\r\n")
    return line_end == b"\r\n" and data.count(b"\n") == data.count(line_end)


def _is_plain(data: bytes, keys: KeysFound) -> bool:
    """Whether pyarrow, which is fast, finds one object on each line, and each of its keys once; adds its keys."""
    first = data.lstrip(_BLANKS.encode()).split(b"\n", 1)[0]
    try:
        example = json.loads(first)
        if not isinstance(example, dict) or (b"\\u" in data and re.search(rb"\\u[dD][89a-fA-F]", data)):
            return False
        if b"NaN" in data or b"Inf" in data:
            # Those are numbers to pyarrow.
            return False
        schema = pa.schema([(name, kind) for name, value in example.items() if (kind := _kind(value)) is not None])
        rows = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema),
        )
        row = {field.name: _example(field.type) for field in rows.schema}
    except (ValueError, RecursionError, pa.ArrowException):
        return False
    if b"null" in data and re.search(rb"(?:^|\n)[ \t\r]*null", data):
        # To pyarrow that is a row without values.
        return False
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    if rows.num_rows != lines or not _is_object_on_each(data, lines):
        return False
    keys.add(row)
    return True


def _is_object_on_each(data: bytes, lines: int) -> bool:
    """Whether each line begins and ends as an object does: pyarrow counts objects, and does not say on which lines."""
    begins = data.count(b"\n{") + data.startswith(b"{")
    ends = data.count(b"}\n") + data.count(b"}\r\n") + data.endswith(b"}")
    return begins == ends == lines or sum(1 for _ in _OBJECT_LINE.finditer(data)) == lines


def _example(kind: pa.DataType) -> Any:
    """A value with all keys of a type that pyarrow found."""
    if pa.types.is_struct(kind):
        return {field.name: _example(field.type) for field in kind}
    return [_example(kind.value_type)] if pa.types.is_list(kind) else None


def _kind(value: Any) -> pa.DataType | None:
    """The type that pyarrow reads a value as, with none that it would guess; None: let it guess."""
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int | float):
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, dict) and value:
        parts = [(name, _kind(part)) for name, part in value.items()]
        return None if any(kind is None for _, kind in parts) else pa.struct(parts)
    if isinstance(value, list) and value:
        kind = _kind(value[0])
        return None if kind is None else pa.list_(kind)
    return None


class _Odd(ValueError):
    """What JSON does not have, and Spark takes."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        raise _Odd(f"an object has the key {next(name for name in names if names.count(name) > 1)!r} twice")
    return members


def _constant(text: str) -> None:
    raise _Odd(f"{text} is no number of JSON")


def _decoder() -> json.JSONDecoder:
    # Numbers are Spark's to judge.
    return json.JSONDecoder(object_pairs_hook=_object, parse_int=str, parse_float=str, parse_constant=_constant)


def _lines(block: Block, keys: KeysFound, line_end: bytes | None) -> Fault | None:
    """Look at each line; raises Fault at the first one that Spark reads in part only.

    Returns:
        The fault of the first line that is no JSON. Lines behind it may be ones that Spark reads in part.
    """
    broken: Fault | None = None
    decoder = _decoder()
    for number, line in enumerate(re.split(re.escape(line_end) if line_end else rb"\r\n|\r|\n", block.data)):
        # Files with a mark at their beginning may have been put together.
        text = line.decode().strip(_BLANKS).removeprefix("\ufeff")
        if not text:
            continue
        try:
            value, end = _value(decoder, text, 0, block.line + number)
            if end != len(text):
                raise Fault(block.line + number, f"behind the first value there is {text[end : end + 40]!r}", "silent")
            _rows(value, block.line + number, keys)
        except Fault as fault:
            if fault.kind == "silent":
                raise
            broken = broken or fault
    return broken


def _one_text(block: Block, keys: KeysFound) -> None:
    """Raises Fault unless a text is one JSON value. The elements of an array are looked at one by one."""
    text, decoder = block.data.decode(), _decoder()
    position = _behind_blanks(text, 0)
    read = _elements if text[position : position + 1] == "[" else _element
    try:
        position = read(decoder, text, position, keys)
        rest = text[position:].strip(_BLANKS)
        if rest:
            position = _behind_blanks(text, position)
            raise Fault(position, f"behind the first value there is {rest[:40]!r}, and `multiLine` reads one", "silent")
    except Fault as fault:
        raise Fault(1 + text.count("\n", 0, fault.line), fault.why, fault.kind) from None


def _elements(decoder: json.JSONDecoder, text: str, position: int, keys: KeysFound) -> int:
    """The position behind an array that begins at ``position``. Lines of a Fault are positions in the text."""
    position = _behind_blanks(text, position + 1)
    while text[position : position + 1] != "]":
        position = _behind_blanks(text, _element(decoder, text, position, keys))
        if text[position : position + 1] == ",":
            position = _behind_blanks(text, position + 1)
        elif text[position : position + 1] != "]":
            raise Fault(position, "it is no JSON: `,` or `]` is missing", "broken")
    return position + 1


def _element(decoder: json.JSONDecoder, text: str, position: int, keys: KeysFound) -> int:
    value, end = _value(decoder, text, position, position)
    _rows(value, position, keys)
    return end


def _behind_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in _BLANKS:
        position += 1
    return position


def _value(decoder: json.JSONDecoder, text: str, position: int, line: int) -> tuple[Any, int]:
    try:
        return decoder.raw_decode(text, position)
    except _Odd as error:
        raise Fault(line, str(error), "silent") from None
    except RecursionError:
        raise Fault(line, _DEEP, "deep") from None
    except ValueError as error:
        raise Fault(line, f"it is no JSON: {str(error)[:200]}", "broken") from None


def _rows(value: Any, line: int, keys: KeysFound) -> None:
    """Adds the keys of the rows that a value is."""
    rows: Iterable[Any] = value if isinstance(value, list) else [value]
    try:
        for row in rows:
            if not isinstance(row, dict):
                raise Fault(line, f"a row is {json.dumps(row)[:40]}, and no object", "silent")
            keys.add(row)
        match = _SURROGATE.search(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        raise Fault(line, _DEEP, "deep") from None
    if match:
        raise Fault(line, f"a text has one half of a character alone: \\u{ord(match[0]):04x}", "silent")
