"""What of a CSV file Spark would read otherwise than RFC 4180 has it."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from odi_assets.sources.files.look.text import Block, Fault, blocks

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_BLANK_LINE = re.compile(rb"\n([\x00-\x09\x0b\x0c\x0e-\x20]*)(?=[\r\n]|\Z)")
"""A line of characters that Spark takes for blanks: those up to the blank itself, NUL among them."""

_BLANKS = bytes(range(33))
_END = "\0the end of the text"
_NOT_CLOSED = "a quote is opened and not closed"
_GOES_ON = "a quoted value has a line break"
_BEHIND = "a value goes on behind its closing quote"
_EMPTY_ROW = "an empty line, the row of an empty value in a file of one column"
_FIRST = 1 << 16
_LF, _CR = b"\n\r"
_NAMES = ("LF", "CR", "CR LF")


def csv_look(options: Mapping[str, str], remote: Mapping[str, Any] | None) -> Callable[[str], dict[str, Any]]:
    """A function that looks at the CSV file at a path or URI.

    It raises Fault, or returns ``{"empty": …}``: whether a value may be the empty text, in quotes.

    Args:
        options: of Spark's reader, as the project file has them.
    """
    by_name = {name.lower(): value for name, value in options.items()}
    encoding = by_name.get("encoding", by_name.get("charset", "utf-8"))
    separator = by_name.get("sep", by_name.get("delimiter", ",")).replace("\\t", "\t")
    quote = by_name.get("quote", '"')
    escape = by_name.get("escape", quote)
    is_multi_line = by_name.get("multiline", "").lower() == "true"
    line_end = by_name["linesep"].encode() if by_name.get("linesep") and not is_multi_line else b"\n"
    is_plain = len(separator) == 1 and separator.isascii() and escape == quote and "linesep" not in by_name
    how = {**_how(separator, quote, escape), "strict": "unescapedquotehandling" not in by_name}
    has_header = by_name.get("header", "").lower() == "true"

    def look(path: str) -> dict[str, Any]:
        has_empty = has_controls = False
        is_single: bool | None = None
        for block in blocks(path, remote, encoding, lines=not is_multi_line, line_end=line_end):
            if len(said := by_name.get("linesep", "")) == 1:
                _require_said_breaks(block, said.encode(), quote, escape)
            block = Block(block.line, _with_line_feeds(block.data, line_end))
            if is_single is None and block.data.strip(_BLANKS):
                first = _first_row(block.data, separator, how)
                is_single = len(first) == 1
                if has_header:
                    _require_usable_names(block, first)
            if not is_multi_line:
                _require_no_lost_row(block, separator, bool(is_single))
            elif "linesep" not in by_name:
                _require_kept_breaks(block.data, quote, escape)
            has_quotes = bool(quote) and quote.encode() in block.data
            is_empty: bool | None = has_quotes
            if has_quotes and is_plain:
                is_empty = _empty_in_plain_quotes(block.data, separator, quote, is_multi_line)
            if is_empty is None or (has_quotes and not is_plain) or (is_multi_line and is_single):
                _require_whole_rows(block, separator, how, is_multi_line, bool(is_single))
            has_empty = has_empty or is_empty is not False
            has_controls = has_controls or bool(block.data.strip(b" \t\r\n"))
        if is_single is None and has_controls:
            raise Fault(1, "it holds nothing but control characters, which Spark takes for no row", "blank")
        return {"empty": has_empty}

    return look


def _how(separator: str, quote: str, escape: str) -> dict[str, Any]:
    """How Python's reader takes records apart as the options say; a separator of several characters is U+001F."""
    return {
        "delimiter": separator if len(separator) == 1 else "\x1f",
        "doublequote": escape == quote,
        "escapechar": None if escape == quote else escape,
        "quotechar": quote or '"',
        "quoting": csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
    }


def _with_line_feeds(data: bytes, line_end: bytes) -> bytes:
    """``data`` with LF at the end of its lines; what is LF or CR in it and ends none is another character."""
    if line_end == b"\n":
        return data
    return data.replace(b"\n", b"x").replace(line_end, b"\n").replace(b"\r", b"x")


def _first_row(data: bytes, separator: str, how: Mapping[str, Any]) -> list[str]:
    text = data.lstrip(_BLANKS)[:_FIRST].decode(errors="replace")
    if len(separator) > 1:
        text = text.replace(separator, "\x1f")
    return next(csv.reader(_lines(text), **{**how, "strict": False}))


def _require_usable_names(block: Block, header: Sequence[str]) -> None:
    """Raises Fault if two columns have one name, capitals aside, for which Spark would give both of them others; or if
    a name holds what no table's may."""
    names = [name.lower() for name in header if name]
    above = block.data[: len(block.data) - len(block.data.lstrip(_BLANKS))]
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    why = None if twice is None else f"two columns of the header are called `{twice}`"
    if any("\0" in name for name in names) or b"\0" in above.rpartition(b"\n")[2]:
        why = "a name in its header holds the character NUL, which no table takes"
    if why is not None:
        raise Fault(block.line + above.count(b"\n"), why, "names")


def _require_no_lost_row(block: Block, separator: str, is_single: bool) -> None:
    """Raises Fault if there is a line that Spark takes for no row, and that holds a value, or may be damage."""
    data = block.data
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for match in _BLANK_LINE.finditer(b"\n" + data):
        line = match[1]
        if not line and (not is_single or match.start() == len(data)):
            continue
        if not line:
            why = _EMPTY_ROW
        elif separator.encode() in line:
            why = "a row of empty values"
        elif not line.strip(b" \t"):
            if not is_single:
                continue
            why = "a row of blanks"
        else:
            why = f"a line of the character 0x{line.strip(b' ' + bytes((9,)))[:1].hex()}"
        raise Fault(block.line + data.count(b"\n", 0, match.start()), f"{why}, which Spark takes for no row", "blank")


def _empty_in_plain_quotes(data: bytes, separator: str, quote: str, is_multi_line: bool) -> bool | None:
    """Whether a value is ``""``; None if quotes stand where a reader of records has to tell what they mean.

    Quotes are taken in pairs. If each first one stands where a value begins, or right behind a quote, and no line ends
    within a pair, then pairs are what RFC 4180 has.
    """
    text = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(text == ord(quote))
    if len(quotes) % 2:
        return None
    ends = (ord(separator), 10, 13)
    opening, closing = quotes[0::2], quotes[1::2]
    before = text[opening - 1]
    begins = np.isin(before, ends) | (opening == 0)
    if not (begins | (before == ord(quote))).all():
        return None
    if not is_multi_line:
        lines = np.flatnonzero((text == 10) | (text == 13))
        if (np.searchsorted(quotes, lines) & 1).any():
            return None
    after = text[np.minimum(closing + 1, len(text) - 1)]
    finishes = np.isin(after, ends) | (closing == len(text) - 1)
    if not (finishes | (after == ord(quote))).all():
        return None
    return bool((begins & finishes & (closing == opening + 1)).any())


def _require_whole_rows(
    block: Block, separator: str, how: Mapping[str, Any], is_multi_line: bool, is_single: bool
) -> None:
    """Raises Fault if a row has a line break within quotes that are not read across lines, or a quote that is open, or
    goes on behind a quote; or is the empty value of a file of one column that is read across lines."""
    csv.field_size_limit(sys.maxsize)
    text = block.data.decode()
    if len(separator) > 1:
        text = text.replace(separator, "\x1f")
    reader = csv.reader(_lines(text), **how)
    line, row = 0, None
    try:
        for row in reader:
            if row != [_END] and reader.line_num - line > 1 and not is_multi_line:
                raise Fault(block.line + line, _GOES_ON, "silent")
            if not row and is_multi_line and is_single:
                raise Fault(block.line + line, f"{_EMPTY_ROW}, which Spark takes for no row", "blank")
            line = reader.line_num
    except csv.Error as error:
        why, kind = (_NOT_CLOSED, "silent") if "end of data" in str(error) else (_BEHIND, "quote")
        raise Fault(block.line + line, why, kind) from None
    if row != [_END]:
        raise Fault(block.line + line - 1, _NOT_CLOSED, "silent")


def _lines(text: str) -> Iterator[str]:
    for match in _LINE.finditer(text):
        if match[0]:
            yield match[0] if match[0][-1] in "\r\n" else f"{match[0]}\n"
    yield _END


def _require_kept_breaks(data: bytes, quote: str, escape: str) -> None:
    """Raises Fault if Spark would take line breaks within quotes for others, or ends of lines for values.

    With ``multiLine``, and without ``lineSep``, the first line break of a file is the end of all its lines. In quotes,
    breaks of its kind become LF.
    """
    if b"\r" not in data:
        return
    text = np.frombuffer(data, np.uint8)
    places = np.flatnonzero((text == _CR) | ((text == _LF) & (np.concatenate(([0], text[:-1])) != _CR)))
    is_quoted = _are_quoted(data, places, quote, escape)
    kinds = np.where(text[places] == _LF, 0, np.where(text[np.minimum(places + 1, len(text) - 1)] == _LF, 2, 1))
    end = kinds[0]
    becomes_lf = is_quoted & (end > 0) & ((kinds == end) | ((end == 1) & (kinds == 2)))
    faults = np.flatnonzero(becomes_lf | (~is_quoted & (kinds != end)))
    if not len(faults):
        return
    first, name = int(faults[0]), _NAMES[kinds[faults[0]]]
    if is_quoted[first]:
        raise Fault(first + 1, f"a quoted value has the line break {name}, which Spark makes LF of", "breaks")
    why = f"this line ends with {name}, and Spark's `multiLine` takes the first line break, {_NAMES[end]}, for the end"
    raise Fault(first + 1, f"{why} of all lines", "breaks")


def _require_said_breaks(block: Block, line_end: bytes, quote: str, escape: str) -> None:
    """Raises Fault if another line break than ``lineSep`` stands outside quotes: rows would be one."""
    text = np.frombuffer(block.data, np.uint8)
    positions = np.flatnonzero(((text == _LF) | (text == _CR)) & (text != line_end[0]))
    faults = np.flatnonzero(~_are_quoted(block.data, positions, quote, escape)) if len(positions) else positions
    if len(faults):
        position = int(positions[faults[0]])
        line = block.line + block.data.count(line_end, 0, position)
        name = _NAMES[int(text[position] == _CR)]
        raise Fault(line, f"a line break {name} stands outside quotes, and `lineSep` says otherwise", "ends")


def _are_quoted(data: bytes, places: Any, quote: str, escape: str) -> Any:
    """Which of ``places`` in a text are within quotes."""
    if escape != quote:
        data = re.sub(re.escape(escape.encode()) + rb".", b"xx", data, flags=re.DOTALL)
    quotes = np.flatnonzero(np.frombuffer(data, np.uint8) == ord(quote)) if quote else places[:0]
    return (np.searchsorted(quotes, places) & 1).astype(bool)
