"""Packets of MariaDB's protocol, read off a connection of PyMySQL in large pieces.

PyMySQL reads each packet by itself, and makes Python values of each row: that costs more than all else a capture does.
So commands go through PyMySQL, and answers are split here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from odi_assets.sources.cdc.changes import NULL, TEXT, Bytes, TornLogError, Values
from odi_assets.util.lazy import pymysql

_PIECE = 1 << 18
_LONGEST = 0xFFFFFF
"""A packet of this length goes on in the next one."""
_END, _ERROR = 0xFE, 0xFF
_QUERY, _BINLOG_DUMP = 0x03, 0x12
_WITHOUT_WAITING = 0x01
PADDING = bytes(16)
"""Stands behind bytes whose fields are looked at before it is known whether they are there."""


def packets(opened: Any) -> Iterator[bytes]:
    """What the server sends, packet by packet, without an end.

    Raises:
        ConnectionError: it sends no more.
    """
    stream = opened._rfile
    buffer, offset = b"", 0
    parts: list[bytes] = []
    while True:
        while len(buffer) - offset < 4:
            more = stream.read1(_PIECE)
            if not more:
                raise ConnectionError("Lost connection to the server")
            buffer, offset = buffer[offset:] + more, 0
        size = buffer[offset] | buffer[offset + 1] << 8 | buffer[offset + 2] << 16
        end = offset + 4 + size
        if len(buffer) < end:
            rest = stream.read(end - len(buffer))
            if len(rest) < end - len(buffer):
                raise ConnectionError("Lost connection to the server")
            buffer, offset, end = buffer[offset:] + rest, 0, 4 + size
        packet = buffer[offset + 4 : end]
        offset = end
        if size == _LONGEST or parts:
            parts.append(packet)
            if size == _LONGEST:
                continue
            packet, parts = b"".join(parts), []
        if packet and packet[0] == _ERROR:
            _raise(packet)
        yield packet


def _raise(packet: bytes) -> None:
    pymysql.err.raise_mysql_exception(packet)


def is_end(packet: bytes) -> bool:
    """Whether a packet ends rows, or the part of a log that is there."""
    return packet[:1] == b"\xfe" and len(packet) < 9


def dumped(opened: Any, file: str, offset: int, server_id: int) -> Iterator[bytes]:
    """The events of the binary log from an offset in a file on, to where the log ends now, each behind a byte 0.

    The connection is of no use for anything else then.
    """
    payload = struct.pack("<IHI", offset, _WITHOUT_WAITING, server_id) + file.encode()
    opened._execute_command(_BINLOG_DUMP, payload)
    for packet in packets(opened):
        if is_end(packet):
            return
        yield packet


def selected(opened: Any, query: str, columns: int) -> tuple[Bytes, Values]:
    """The rows of a query as the server writes them: their bytes, and where in them the values are."""
    opened._execute_command(_QUERY, query)
    answer = packets(opened)
    next(answer)
    while not is_end(next(answer)):
        pass
    rows = []
    for packet in answer:
        if is_end(packet):
            break
        rows.append(packet)
    return _row_values(rows, columns)


def _row_values(rows: list[bytes], columns: int) -> tuple[Bytes, Values]:
    data = np.frombuffer(b"".join(rows) + PADDING, np.uint8)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    ends = np.cumsum(lengths)
    positions = ends - lengths
    values = Values.none(len(rows), columns)
    for column in range(columns):
        first = data[positions].astype(np.int64)
        is_null = first == 0xFB
        size, skipped = np.where(is_null, 0, first), np.ones(len(rows), np.int64)
        for mark, width in ((0xFC, 2), (0xFD, 3), (0xFE, 8)):
            long = first == mark
            if long.any():
                size[long] = little(data, positions[long] + 1, width)
                skipped[long] = 1 + width
        values.kind[:, column] = np.where(is_null, NULL, TEXT)
        values.start[:, column], values.length[:, column] = positions + skipped, size
        positions = positions + skipped + size
    if not (positions == ends).all():
        raise TornLogError("a row has another number of columns than was asked for")
    return data, values


def little(data: Any, offsets: Any, width: int) -> Any:
    """Numbers of ``width`` bytes, the least significant first."""
    numbers = data[offsets].astype(np.int64)
    for byte in range(1, width):
        numbers |= data[offsets + byte].astype(np.int64) << 8 * byte
    return numbers


def big(data: Any, offsets: Any, width: int) -> Any:
    """Numbers of ``width`` bytes, the most significant first."""
    numbers = data[offsets].astype(np.int64)
    for byte in range(1, width):
        numbers = numbers << 8 | data[offsets + byte]
    return numbers


def counted_number(data: bytes, offset: int) -> tuple[int, int]:
    """A number of the protocol, which says how long it is itself, and where it ends."""
    first = data[offset]
    if first < 0xFB:
        return first, offset + 1
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(data[offset + 1 : offset + 1 + width], "little"), offset + 1 + width
