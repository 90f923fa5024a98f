"""Values of the binary log as text: the same text that a chunk of a snapshot has for the same value.

Texts are those that the server writes, with two exceptions, of which it would write less than the value, or no text:
floats are the shortest text that gives the number back, and bytes are ``\\\\x`` and hexadecimal digits. Chunks are
brought to these two forms by the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from odi_assets.errors import SourceError
from odi_assets.sources.cdc.binlog.inet import inet4_text, inet6_text, uuid_text
from odi_assets.sources.cdc.binlog.json_texts import json_text
from odi_assets.sources.cdc.binlog.tables import BINARY, BinlogColumn, remedy
from odi_assets.sources.cdc.binlog.wire import big, little
from odi_assets.sources.cdc.changes import Bytes, Numbers, gathered

_ZERO, _MINUS, _POINT, _COLON, _DASH, _SPACE = (ord(character) for character in "0-.:- ")
ALIKE = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
"""Character sets whose texts stand in the change log byte for byte."""
UNICODE = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
Place = tuple[Numbers, Numbers]
"""Where texts begin, and how long they are."""


class TextPool:
    """Bytes, and texts that are written behind them."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self._parts, self._size = [data], len(data)

    def add(self, part: Bytes) -> int:
        """Put bytes behind those that are there, and say where they begin."""
        begin = self._size
        self._parts.append(part)
        self._size += len(part)
        return begin

    def texts(self, made: pa.Array) -> Place:
        """Put texts behind, one for each of an array."""
        array = made.cast(pa.large_string()) if made.type != pa.large_string() else made
        _, offsets, data = array.buffers()
        edges = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
        part = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        begin = self.add(part)
        return edges[:-1] + begin, np.diff(edges)

    def table(self, rows: npt.NDArray[np.uint8], first: Numbers | int = 0) -> Place:
        """Put texts behind, each a row of bytes from a column on."""
        width = rows.shape[1]
        begin = self.add(rows.ravel())
        return np.arange(len(rows)) * width + begin + first, np.full(len(rows), width, np.int64) - first

    def each(self, texts: Sequence[bytes]) -> Place:
        """Put texts behind."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        begin = self.add(np.frombuffer(b"".join(texts), np.uint8))
        return np.cumsum(lengths) - lengths + begin, lengths

    def joined(self) -> Bytes:
        """All of it."""
        return self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)

    def pieces(self, start: Numbers, length: Numbers) -> pa.Array:
        """Texts of the bytes that were there first."""
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
        data = gathered(self.data, start, length, offsets)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.large_binary(), len(start), buffers)


def digits(rows: npt.NDArray[np.uint8], at: int, number: Numbers, width: int) -> None:
    """Write numbers into columns of rows, with zeros in front."""
    for column in range(at + width - 1, at - 1, -1):
        number, rest = np.divmod(number, 10)
        rows[:, column] = rest + _ZERO


def whole(pool: TextPool, start: Numbers, column: BinlogColumn) -> Place:
    """Whole numbers."""
    number = little(pool.data, start, column.size)
    if column.unsigned:
        return pool.texts(pa.array(number.view(np.uint64)).cast(pa.string()))
    shift = 64 - 8 * column.size
    return pool.texts(pa.array(number << shift >> shift).cast(pa.string()))


def bits(pool: TextPool, start: Numbers, column: BinlogColumn) -> Place:
    """Bits, as a number."""
    return pool.texts(pa.array(big(pool.data, start, column.size).view(np.uint64)).cast(pa.string()))


def floats(pool: TextPool, start: Numbers, column: BinlogColumn) -> Place:
    """Numbers of 32 or 64 bits."""
    number = little(pool.data, start, column.size)
    values = number.view(np.float64) if column.size == 8 else number.astype(np.uint32).view(np.float32)
    return pool.texts(pa.array(values).cast(pa.string()))


def floats_of(pool: TextPool, start: Numbers, length: Numbers, kind: str) -> Place:
    """Numbers that the server wrote with all their digits."""
    numbers = pool.pieces(start, length).cast(pa.large_string()).cast(pa.float64())
    return pool.texts((numbers.cast(pa.float32(), safe=False) if kind == "float" else numbers).cast(pa.string()))


def of_32_bits(text: str) -> str:
    """The number of 32 bits that a text of the change log gives back, with all its digits: a server compares it so."""
    return repr(float(np.float32(text)))


def decimals(pool: TextPool, start: Numbers, column: BinlogColumn) -> Place:
    """Decimals: groups of nine digits in four bytes, negative ones inverted."""
    data = pool.data[start[:, None] + np.arange(column.size)]
    negative = data[:, 0] & 0x80 == 0
    data[:, 0] ^= 0x80
    data[negative] ^= 0xFF
    before, scale = column.digits - column.scale, column.scale
    rows = np.full((len(start), 1 + max(before, 1) + (scale + 1 if scale else 0)), _ZERO, np.uint8)
    offset, at = 0, 1 + (before == 0)
    groups = [*([before % 9] if before % 9 else []), *[9] * (before // 9), *[9] * (scale // 9)]
    groups += [scale % 9] if scale % 9 else []
    done = 0
    for width in groups:
        if done == before and scale:
            at = 2 + max(before, 1)
        size = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[width]
        number = np.zeros(len(start), np.int64)
        for byte in range(size):
            number = number << 8 | data[:, offset + byte]
        digits(rows, at, number, width)
        offset, at, done = offset + size, at + width, done + width
    last = max(before, 1)
    if scale:
        rows[:, last + 1] = _POINT
    filled = rows[:, 1 : last + 1] != _ZERO
    first = np.where(filled.any(axis=1), filled.argmax(axis=1), last - 1) + 1
    rows[negative, first[negative] - 1] = _MINUS
    return pool.table(rows, first - negative)


def years(pool: TextPool, start: Numbers, column: BinlogColumn) -> Place:
    del column
    number = pool.data[start].astype(np.int64)
    rows = np.empty((len(start), 4), np.uint8)
    digits(rows, 0, np.where(number == 0, 0, number + 1900), 4)
    return pool.table(rows)


def dates(pool: TextPool, start: Numbers, column: BinlogColumn) -> Place:
    del column
    number = little(pool.data, start, 3)
    rows = np.full((len(start), 10), _DASH, np.uint8)
    _write_date(rows, number >> 9, number >> 5 & 15, number & 31)
    return pool.table(rows)


def datetimes(pool: TextPool, start: Numbers, column: BinlogColumn) -> Place:
    number = big(pool.data, start, 5)
    months = number >> 22 & 0x1FFFF
    rows = _rows_of_times(len(start), 19, column)
    _write_date(rows, months // 13, months % 13, number >> 17 & 31)
    _write_time(rows, 11, number >> 12 & 31, number >> 6 & 63, number & 63)
    _write_fraction(rows, 19, _fraction(pool, start + 5, column), column)
    return pool.table(rows)


def timestamps(pool: TextPool, start: Numbers, column: BinlogColumn) -> Place:
    """Instants, in UTC."""
    seconds, part = big(pool.data, start, 4), _fraction(pool, start + 4, column)
    moment = seconds.astype("datetime64[s]")
    day = moment.astype("datetime64[D]")
    month = day.astype("datetime64[M]")
    year = day.astype("datetime64[Y]")
    rows = _rows_of_times(len(start), 19, column)
    is_zero = (seconds == 0) & (part == 0)
    parts = [
        year.astype(np.int64) + 1970,
        (month - year.astype("datetime64[M]")).astype(np.int64) + 1,
        (day - month.astype("datetime64[D]")).astype(np.int64) + 1,
    ]
    _write_date(rows, *(np.where(is_zero, 0, number) for number in parts))
    second = seconds % 86_400
    _write_time(rows, 11, second // 3600, second // 60 % 60, second % 60)
    _write_fraction(rows, 19, part, column)
    return pool.table(rows)


def times(pool: TextPool, start: Numbers, column: BinlogColumn) -> Place:
    """Spans of time of up to 838 hours, negative ones too."""
    width = (column.digits + 1) // 2
    number = big(pool.data, start, 3 + width) - (1 << 8 * (3 + width) - 1)
    negative = number < 0
    number = np.abs(number)
    part, number = number & (1 << 8 * width) - 1, number >> 8 * width
    rows = _rows_of_times(len(start), 10, column)
    hours = number >> 12 & 0x3FF
    digits(rows, 1, hours, 3)
    _write_time(rows, 2, hours % 100, number >> 6 & 63, number & 63)
    _write_fraction(rows, 10, part // (10 if column.digits % 2 else 1), column)
    first = np.where(hours > 99, 1, 2)
    rows[negative, first[negative] - 1] = _MINUS
    return pool.table(rows, first - negative)


def _rows_of_times(count: int, width: int, column: BinlogColumn) -> npt.NDArray[np.uint8]:
    return np.full((count, width + (column.digits + 1 if column.digits else 0)), _SPACE, np.uint8)


def _write_date(rows: npt.NDArray[np.uint8], year: Numbers, month: Numbers, day: Numbers) -> None:
    rows[:, 4] = rows[:, 7] = _DASH
    for at, number, width in ((0, year, 4), (5, month, 2), (8, day, 2)):
        digits(rows, at, number, width)


def _write_time(rows: npt.NDArray[np.uint8], at: int, hour: Numbers, minute: Numbers, second: Numbers) -> None:
    rows[:, at + 2] = rows[:, at + 5] = _COLON
    for offset, number in ((0, hour), (3, minute), (6, second)):
        digits(rows, at + offset, number, 2)


def _fraction(pool: TextPool, start: Numbers, column: BinlogColumn) -> Numbers:
    """The digits of seconds, as many as the column has."""
    width = (column.digits + 1) // 2
    number = big(pool.data, start, width) if width else np.zeros(len(start), np.int64)
    return number // 10 if column.digits % 2 else number


def _write_fraction(rows: npt.NDArray[np.uint8], at: int, part: Numbers, column: BinlogColumn) -> None:
    if column.digits:
        rows[:, at] = _POINT
        digits(rows, at + 1, part, column.digits)


def hexadecimal(pool: TextPool, start: Numbers, length: Numbers, size: int = 0) -> Place:
    """Bytes, as ``\\\\x`` and two digits for each.

    Args:
        size: of bytes of a fixed size, whose zeros at the end are not stored.
    """
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
    data = gathered(pool.data, start, length, offsets)
    full = np.maximum(length, size) * 2 + 2
    ends = np.cumsum(full)
    begins = ends - full
    made = np.full(int(ends[-1]) if len(ends) else 0, _ZERO, np.uint8)
    made[begins], made[begins + 1] = ord("\\"), ord("x")
    at = np.repeat(begins + 2 - 2 * offsets[:-1], length) + 2 * np.arange(len(data))
    made[at], made[at + 1] = _HEX[data >> 4], _HEX[data & 15]
    return begins + pool.add(made), full


class Charsets:
    """How texts of each collation are written into the change log.

    Args:
        names: by collation, its character set.
        table: of a character set of single bytes, the text of each byte; None for any other.
    """

    def __init__(self, names: Mapping[int, str], table: Callable[[str], list[bytes] | None]) -> None:
        self._names, self._table = names, table
        self._tables: dict[str, list[bytes] | None] = {}

    def is_alike(self, collation: int) -> bool:
        """Whether a text is the same, byte for byte."""
        return self._names[collation] in ALIKE

    def texts(self, pool: TextPool, start: Numbers, length: Numbers, column: BinlogColumn) -> Place:
        """Texts of a column in the characters of the change log."""
        if self.is_alike(column.collation):
            return start, length
        decode = self._decoder(column)
        encoded = pool.pieces(start, length).dictionary_encode()
        begin, size = pool.each([decode(text) for text in encoded.dictionary.to_pylist()])
        which = encoded.indices.to_numpy(zero_copy_only=False)
        return begin[which], size[which]

    def one(self, text: bytes, column: BinlogColumn) -> bytes:
        """One text of a column."""
        return text if self.is_alike(column.collation) else self._decoder(column)(text)

    def _decoder(self, column: BinlogColumn) -> Callable[[bytes], bytes]:
        charset = self._names[column.collation]
        if charset in UNICODE:
            return lambda text: text.decode(UNICODE[charset]).encode()
        if charset not in self._tables:
            self._tables[charset] = self._table(charset)
        table = self._tables[charset]
        if table is None:
            raise SourceError(
                f"`{column.name}` is of the character set {charset}, whose texts are not read from the log",
                fix=remedy(column.name),
            )
        return lambda text: b"".join([table[byte] for byte in text])


def _listed(pool: TextPool, start: Numbers, column: BinlogColumn, charsets: Charsets) -> Place:
    """Members of an ``enum`` or a ``set``, by their numbers."""
    number = little(pool.data, start, column.size)
    members = [charsets.one(member, column) for member in column.members]
    if column.type == "enum":
        begin, size = pool.each([b"", *members])
        return begin[number], size[number]
    unique, which = np.unique(number.view(np.uint64), return_inverse=True)
    texts = [b",".join(member for bit, member in enumerate(members) if int(value) >> bit & 1) for value in unique]
    begin, size = pool.each(texts)
    return begin[which], size[which]


def _by_value(pool: TextPool, start: Numbers, length: Numbers, size: int, make: Callable[[bytes], bytes]) -> Place:
    encoded = pool.pieces(start, length).dictionary_encode()
    begin, sizes = pool.each([make(value.ljust(size, b"\0")) for value in encoded.dictionary.to_pylist()])
    which = encoded.indices.to_numpy(zero_copy_only=False)
    return begin[which], sizes[which]


_FIXED: Mapping[str, Callable[[TextPool, Numbers, BinlogColumn], Place]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), whole),
    **{"float": floats, "double": floats, "decimal": decimals, "year": years, "date": dates, "bit": bits},
    **{"time": times, "datetime": datetimes, "timestamp": timestamps},
}
_ADDRESSES = {"uuid": (16, uuid_text), "inet6": (16, inet6_text), "inet4": (4, inet4_text)}


def written(
    pool: TextPool, start: Numbers, length: Numbers, column: BinlogColumn, kind: str, charsets: Charsets
) -> Place:
    """Values of a column of the log as text.

    Args:
        kind: the name of the column's type.
    """
    bare = kind.partition("(")[0].partition(" ")[0]
    if bare in _FIXED:
        return _FIXED[bare](pool, start, column)
    if bare in ("enum", "set"):
        return _listed(pool, start, column, charsets)
    if bare == "json":
        return _by_value(pool, start, length, 0, json_text)
    if bare in _ADDRESSES:
        return _by_value(pool, start, length, *_ADDRESSES[bare])
    if column.collation in (0, BINARY):
        return hexadecimal(pool, start, length, column.digits if bare == "binary" else 0)
    return charsets.texts(pool, start, length, column)


def as_in_log(pool: TextPool, start: Numbers, length: Numbers, kind: str) -> Place:
    """Values of a chunk as the change log has them.

    Args:
        kind: the name of the column's type.
    """
    bare = kind.partition("(")[0]
    if bare in ("float", "double"):
        return floats_of(pool, start, length, bare)
    is_bytes = bare in ("binary", "varbinary", "geometry") or bare.endswith("blob")
    return hexadecimal(pool, start, length) if is_bytes else (start, length)
