"""JSON text looked at closely: every flaw of it, the place of every value, and edits that leave the rest as it is."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import Any, NamedTuple, NoReturn

from odi_assets.util.exact_json import MAX_DEPTH, BadNumber, JsonPath

_SPACE = re.compile(r"[ \t\n\r]*")
_LOOSE_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', flags=re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r'[^\s,:\[\]{}"/#]+')
_COMMENT = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z)", flags=re.DOTALL)
_IN_STRING = re.compile(r'\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})|([\x00-\x1f\\])')
"""An escape or, as a group, what must not be in a string as it is."""
_WORDS = {"true": True, "false": False, "null": None}
_PYTHON_WORDS = {"true": "true", "false": "false", "none": "null", "null": "null"}
_BAD_NUMBERS = {"nan", "inf", "infinity"}

_DECODER = json.JSONDecoder()


class Flaw(NamedTuple):
    """What makes a text no JSON, or no document that can be kept. ``start`` is an offset in the text."""

    path: JsonPath
    start: int
    message: str
    remedy: str


@dataclass
class Scan:
    """A text as far as it can be read.

    Attributes:
        value: the value, or what there is of it; the last one of repeated keys.
        flaws: all that is wrong with the text, in its order.
        starts: where each value begins.
        keys: where each member of an object begins, with its key.
        complete: the text could be read to its end, whatever its flaws.
        torn: it ends in the middle, as a file does whose writer was killed, or that holds nothing.
    """

    value: Any = None
    flaws: list[Flaw] = field(default_factory=list)
    starts: dict[JsonPath, int] = field(default_factory=dict)
    keys: dict[JsonPath, int] = field(default_factory=dict)
    complete: bool = True
    torn: bool = False


class Lines:
    """Lines and columns of offsets in a text, counted from 1."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(self, offset: int) -> tuple[int, int]:
        """The line and the column of an offset."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


class _Repeated(ValueError):
    """An object names a key twice."""


def read_strict(text: str) -> Any:
    """The value of a text without flaws: integers as ``int``, other numbers as ``Decimal``. Fast.

    Raises:
        ValueError, ArithmeticError, RecursionError: the text has a flaw; :func:`scan` finds all of them.
    """
    return json.loads(text, parse_float=Decimal, parse_constant=_refuse, object_pairs_hook=_object)


def is_deeper(value: Any, levels: int) -> bool:
    """Whether a value of :func:`read_strict` is nested more than ``levels`` deep."""
    layer = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        members = chain.from_iterable(
            [container.values() if type(container) is dict else container for container in layer if container]
        )
        layer = [member for member in members if type(member) is dict or type(member) is list]
        if not layer:
            return False
    return True


def scan(text: str, *, many: bool = False, max_depth: int = MAX_DEPTH) -> Scan:
    """Read a text to its end, or as far as it can be read, and note every flaw.

    Args:
        many: the text holds any number of values one after another, as JSON Lines do: ``value`` is their list.
        max_depth: nesting beyond this is a flaw at which reading stops.
    """
    scanner = _Scanner(text, many, max_depth)
    try:
        scanner.read()
    except _Stop:
        scanner.found.complete = False
    return scanner.found


def locate(text: str, path: JsonPath, *, many: bool = False) -> tuple[int, int, int]:
    """Where a member, its value and the end of it are, in a text without flaws. Elements of lists have no key: their
    member begins where the value does.

    Raises:
        KeyError: there is no such value.
    """
    start = member = _skip(text, 1 if text.startswith("\ufeff") else 0)
    steps = list(path)
    if many:
        for _ in range(int(steps.pop(0))):
            start = member = _skip(text, _DECODER.raw_decode(text, start)[1])
    for step in steps:
        member, start = _member(text, start, step) if isinstance(step, str) else (_element(text, start, step),) * 2
    return member, start, _DECODER.raw_decode(text, start)[1]


def splice(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """The text with parts of it replaced; each edit is a start, an end and what comes between them."""
    pieces: list[str] = []
    last = 0
    for start, end, new in sorted(edits):
        pieces += (text[last:start], new)
        last = end
    return "".join([*pieces, text[last:]])


def without_member(text: str, path: JsonPath, *, many: bool = False) -> tuple[int, int, str]:
    """The edit that takes a member of an object, or an element of a list, out of a text without flaws.

    Raises:
        KeyError: there is none.
    """
    start, _, end = locate(text, path, many=many)
    after = _skip(text, end)
    if text[after] == ",":
        return start, _skip(text, after + 1), ""
    before = start - 1
    while text[before] in " \t\n\r":
        before -= 1
    # The last one goes with the comma before it.
    return (before, end, "") if text[before] == "," else (start, end, "")


def with_member(text: str, path: JsonPath, member: str, *, many: bool = False) -> tuple[int, int, str]:
    """The edit that adds ``member``, as JSON text, at the end of the object or list at ``path``.

    Raises:
        KeyError: there is no such value.
    """
    _, start, end = locate(text, path, many=many)
    last = end - 1
    while text[last - 1] in " \t\n\r":
        last -= 1
    if last - 1 == start:
        return last, last, member
    first = _skip(text, start + 1)
    between = text[start + 1 : first]
    return last, last, f",{between}{member}"


def _member(text: str, start: int, key: str) -> tuple[int, int]:
    if text[start] != "{":
        raise KeyError(key)
    at = _skip(text, start + 1)
    span: tuple[int, int] | None = None
    while text[at] == '"':
        name, end = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, end) + 1)
        if name == key:
            span = at, value
        at = _skip(text, _DECODER.raw_decode(text, value)[1])
        if text[at] == ",":
            at = _skip(text, at + 1)
    if span is None:
        raise KeyError(key)
    return span


def _element(text: str, start: int, index: int) -> int:
    at = _skip(text, start + 1)
    for _ in range(index):
        at = _skip(text, _DECODER.raw_decode(text, at)[1])
        if text[at] != ",":
            raise KeyError(index)
        at = _skip(text, at + 1)
    if text[start] != "[" or text[at] == "]":
        raise KeyError(index)
    return at


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Repeated
    return members


class _Stop(Exception):
    """Nothing after this place can be read."""


class _Scanner:
    """Reads with a stack of its own, so that no nesting can exhaust Python's."""

    def __init__(self, text: str, many: bool, max_depth: int) -> None:
        self.text = text
        self.many = many
        self.max_depth = max_depth
        self.at = 0
        self.path: list[str | int] = []
        self.open: list[dict[str, Any] | list[Any]] = []
        self.expected: list[str] = []
        """For each open container, what went before: ``first``, ``member`` or ``comma``."""
        self.found = Scan(value=[] if many else None)

    def read(self) -> None:
        if self.text.startswith("\ufeff"):
            self._flaw(0, "this is not JSON: it begins with a byte order mark", "save it as UTF-8 without one (no BOM)")
            self.at = 1
        self._space()
        if self._at_end():
            self._torn("it holds nothing")
        while not self._at_end():
            if self.many:
                self.path = [len(self.found.value)]
            self._value()
            while self.open:
                self._next()
            self._space()
            if not self.many and not self._at_end():
                self._stop("there is more after its end", "remove what follows")
        if self.at < len(self.text):
            self._flaw(self.at, "this is not JSON: zero bytes follow its end", "remove them")

    def _at_end(self) -> bool:
        # A file system that lost its power may leave a file of zeros.
        text, at = self.text, self.at
        return at >= len(text) or (text[at] == "\0" and not text[at:].strip("\0"))

    def _value(self) -> None:
        if self._at_end():
            self._torn("it ends where a value should be")
        self.found.starts[tuple(self.path)] = self.at
        first = self.text[self.at]
        if first in "{[":
            self._enter({} if first == "{" else [])
        else:
            self._put(self._string() if first == '"' else self._word())

    def _enter(self, container: dict[str, Any] | list[Any]) -> None:
        if len(self.open) >= self.max_depth:
            self._flaw(
                self.at, f"nested more than {self.max_depth} levels deep", "restore it: no tool writes such depths"
            )
            raise _Stop
        # It is put there before its members are, so that a torn text has a value too.
        self._put(container)
        self.open.append(container)
        self.expected.append("first")
        self.path.append("")
        self.at += 1

    def _put(self, value: Any) -> None:
        if self.open:
            parent = self.open[-1]
            if isinstance(parent, dict):
                parent[str(self.path[-1])] = value
            else:
                parent.append(value)
        elif self.many:
            self.found.value.append(value)
        else:
            self.found.value = value

    def _next(self) -> None:
        """Go on in the innermost container: a comma, a member or its end."""
        container, before = self.open[-1], self.expected[-1]
        closing = "}" if isinstance(container, dict) else "]"
        self._space()
        if self._at_end():
            self._torn(f"it ends before its last `{closing}`")
        character = self.text[self.at]
        if character == closing:
            if before == "comma":
                self._flaw(self.at, f"this is not JSON: a comma stands before `{closing}`", "remove the comma")
            self.at += 1
            for stack in (self.open, self.expected, self.path):
                stack.pop()
            return
        if character == "," and before == "member":
            self.expected[-1] = "comma"
            self.at += 1
            return
        if before == "member":
            if character != '"' and (closing == "}" or character not in "{[-0123456789"):
                self._stop(f"`,` or `{closing}` should be here")
            self._flaw(self.at, "this is not JSON: a comma is missing here", "put a comma before it")
        self.expected[-1] = "member"
        if isinstance(container, dict):
            self._key(container)
        else:
            self.path[-1] = len(container)
        self._value()

    def _key(self, container: dict[str, Any]) -> None:
        start = self.at
        if self.text[start] != '"':
            self._stop("a key in double quotes should be here")
        self.path[-1] = ""
        key = self.path[-1] = self._string()
        self._space()
        if self._at_end():
            self._torn("it ends after a key")
        if self.text[self.at] != ":":
            self._stop("`:` should be here")
        self.at += 1
        self._space()
        if key in container:
            self._flaw(start, f"the key `{key}` is given more than once", "keep the right one")
        self.found.keys[tuple(self.path)] = start

    def _string(self) -> str:
        match = _LOOSE_STRING.match(self.text, self.at)
        if match is None:
            self._torn("it ends within a text")
        start, self.at = self.at, match.end()
        for wrong in _IN_STRING.finditer(match[0]):
            if wrong[1]:
                what = "a control character" if wrong[1] != "\\" else "a backslash that escapes nothing"
                self._flaw(start + wrong.start(), f"this is not JSON: {what} in a text", "escape it")
        return str(
            json.loads(_IN_STRING.sub(lambda escape: json.dumps(escape[1])[1:-1] if escape[1] else escape[0], match[0]))
        )

    def _word(self) -> Any:
        start = self.at
        match = _WORD.match(self.text, start)
        if match is None:
            self._stop("a value should be here")
        word = match[0]
        if len(word) > 1 and self.text.endswith(word) and _is_cut(word):
            self._torn("it ends within a value")
        self.at = match.end()
        number = _NUMBER.fullmatch(word)
        if number is not None:
            return self._number(word, is_integer=not (number[1] or number[2]))
        if word in _WORDS:
            return _WORDS[word]
        bare = word.lower().lstrip("+-")
        if bare in _PYTHON_WORDS:
            right = _PYTHON_WORDS[bare]
            self._flaw(start, f"this is not JSON: `{word}`", f"write `{right}`")
            return _WORDS[right]
        if bare in _BAD_NUMBERS or bare[:1].isdigit() or bare[:1] == ".":
            self._flaw(start, f"{shortened(word)} is not a number that JSON has", "write one that it has")
            return BadNumber(word)
        self.at = start
        return self._stop(f"`{shortened(word)}` is no value", "put texts in double quotes")

    def _number(self, word: str, *, is_integer: bool) -> Any:
        try:
            return int(word) if is_integer else Decimal(word)
        except (ValueError, InvalidOperation):
            self._flaw(
                self.at - len(word), f"{shortened(word)} is not a number that can be kept exactly", "write one that can"
            )
            return BadNumber(word)

    def _space(self) -> None:
        """Go past white space and, as flaws, comments."""
        while True:
            self.at = _skip(self.text, self.at)
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                return
            self._flaw(self.at, "this is not JSON: it has no comments", "remove the comment")
            self.at = comment.end()

    # -- what is wrong -------------------------------------------------------------------------------------------------

    def _flaw(self, start: int, message: str, remedy: str) -> None:
        self.found.flaws.append(Flaw(tuple(self.path), start, message, remedy))

    def _torn(self, message: str) -> NoReturn:
        self.path = []
        self._flaw(len(self.text), f"this is not JSON: {message}", "read it again when nobody writes it, or restore it")
        self.found.torn = True
        raise _Stop

    def _stop(self, message: str, remedy: str = "restore the document from a copy, or correct it here") -> NoReturn:
        self.path = []
        self._flaw(self.at, f"this is not JSON: {message}", remedy)
        raise _Stop


def shortened(text: str) -> str:
    """At most 40 characters of a text, and how many it has."""
    return text if len(text) <= 40 else f"{text[:40]}… ({len(text)} characters)"


def _is_cut(word: str) -> bool:
    return any(whole.startswith(word) and whole != word for whole in _WORDS)
