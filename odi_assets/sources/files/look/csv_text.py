"""What of a CSV file Spark would read otherwise than RFC 4180 has it."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from odi_assets.sources.files.look.text import Block, Fault, blocks

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_END = "\0the end of the text"
_NOT_CLOSED = "a quote is opened and not closed"
_GOES_ON = "a quoted value has a line break"
_LF, _CR = b"\n\r"
_NAMES = ("LF", "CR", "CR LF")


def csv_look(
    options: Mapping[str, str], remote: Mapping[str, Any] | None, columns: int | None
) -> Callable[[str], dict[str, Any]]:
    """A function that looks at the CSV file at a path or URI.

    It raises Fault, or returns ``{"empty": …}``: whether a value may be the empty text, in quotes.

    Args:
        options: of Spark's reader, as the project file has them.
        columns: how many the schema names; None if there is none.
    """
    given = {name.lower(): value for name, value in options.items()}
    encoding = given.get("encoding", given.get("charset", "utf-8"))
    separator = given.get("sep", given.get("delimiter", ",")).replace("\\t", "\t")
    quote = given.get("quote", '"')
    escape = given.get("escape", quote)
    is_multi_line = given.get("multiline", "").lower() == "true"
    drops_blank_lines = columns == 1 or separator.isspace()
    needed = b"" if columns == 1 else separator.encode()
    is_plain = len(separator) == 1 and separator.isascii() and escape == quote and "linesep" not in given
    one = {"delimiter": separator if len(separator) == 1 else "\x1f", "doublequote": escape == quote}
    how = {**one, "escapechar": None if escape == quote else escape, "quotechar": quote or '"'}

    def look(place: str) -> dict[str, Any]:
        found = False
        parts = list(blocks(place, remote, encoding, lines=False)) if is_multi_line else blocks(place, remote, encoding)
        for block in parts:
            if drops_blank_lines and not is_multi_line:
                _require_no_blank_row(block, separator, needed)
            if is_multi_line and "linesep" not in given:
                _require_kept_breaks(block.data, quote, escape)
            if not quote or quote.encode() not in block.data:
                continue
            empty = _empty_in_plain_quotes(block.data, separator, quote, is_multi_line) if is_plain else None
            if empty is None:
                _require_closed_rows(block, separator, how, is_multi_line)
                empty = True
            found = found or empty
        return {"empty": found}

    return look


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
    return bool((begins & finishes & (closing == opening + 1)).any())


def _require_closed_rows(block: Block, separator: str, how: Mapping[str, Any], is_multi_line: bool) -> None:
    """Raises Fault if a row has a line break within quotes that are not read across lines, or a quote that is open."""
    csv.field_size_limit(sys.maxsize)
    text = block.data.decode()
    if len(separator) > 1:
        text = text.replace(separator, "\x1f")
    reader = csv.reader(_lines(text), **how)
    line, row = 0, None
    for row in reader:
        if row != [_END] and reader.line_num - line > 1 and not is_multi_line:
            raise Fault(block.line + line, _GOES_ON, "silent")
        line = reader.line_num
    if row != [_END]:
        raise Fault(block.line + line - 1, _NOT_CLOSED, "silent")


def _lines(text: str) -> Iterator[str]:
    for found in _LINE.finditer(text):
        if found[0]:
            yield found[0]
    if text[-1:] not in "\r\n":
        yield "\n"
    yield _END


def _require_kept_breaks(data: bytes, quote: str, escape: str) -> None:
    """Raises Fault if Spark would take line breaks within quotes for others, or ends of lines for values.

    With ``multiLine``, and without ``lineSep``, the first line break of a file is the end of all its lines. In quotes,
    those of its kind become LF.
    """
    if b"\r" not in data:
        return
    if escape != quote:
        data = re.sub(re.escape(escape.encode()) + rb".", b"xx", data, flags=re.DOTALL)
    text = np.frombuffer(data, np.uint8)
    places = np.flatnonzero((text == _CR) | ((text == _LF) & (np.concatenate(([0], text[:-1])) != _CR)))
    quotes = np.flatnonzero(text == ord(quote)) if quote else places[:0]
    is_quoted = (np.searchsorted(quotes, places) & 1).astype(bool)
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


def _require_no_blank_row(block: Block, separator: str, needed: bytes) -> None:
    """Raises Fault if a row is blanks alone: Spark leaves out such lines, though they are values.

    Args:
        needed: a line without it is no row.
    """
    if not (block.data[:1] <= b" " or any(start in block.data for start in (b"\n ", b"\n\t", b"\n\0", b"\r"))):
        return
    for number, line in enumerate(re.split(rb"\r\n|\r|\n", block.data)):
        if line and needed in line and not line.strip(bytes(range(33))):
            what = "a row of empty values" if separator.isspace() else "a row of blanks"
            raise Fault(block.line + number, f"{what}, which Spark takes for no row", "blank")
