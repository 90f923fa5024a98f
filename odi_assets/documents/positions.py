"""Positions in the change logs of databases, each in the order of its database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from odi_assets.documents.moves import UNMOVED, Move, MoveWithReason, ordered
from odi_assets.util.words import counted

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", flags=re.ASCII)


@dataclass(frozen=True)
class BinlogPosition:
    """MySQL: a binary log file and the byte in it, and the replica id under which OLake reads it.

    The files are numbered, and the number grows past six digits, so file names do not sort as text.
    """

    prefix: str
    number: int
    offset: int
    file: str
    server_id: int | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"


@dataclass(frozen=True)
class PostgresLsn:
    """PostgreSQL: a byte of the write-ahead log, as the 64-bit number that ``high/low`` in hexadecimal stands for."""

    value: int

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"


@dataclass(frozen=True)
class SqlServerLsn:
    """SQL Server: a log sequence number of 10 bytes, as lower-case hexadecimal digits."""

    digits: str

    def __str__(self) -> str:
        return self.digits


@dataclass(frozen=True)
class ResumeToken:
    """MongoDB: a change stream's token, as upper-case hexadecimal digits. The server makes them sortable."""

    digits: str

    def __str__(self) -> str:
        return self.digits


@dataclass(frozen=True)
class ConsumerGroup:
    """Kafka: the group whose offsets the brokers keep; the document itself holds no position."""

    group_id: str

    def __str__(self) -> str:
        return f"consumer group {self.group_id}"


@dataclass(frozen=True)
class UnknownPosition:
    """A position of an unknown form, as canonical JSON: two are equal or not, and have no order."""

    json: str

    def __str__(self) -> str:
        return self.json if len(self.json) <= 60 else f"{self.json[:60]}…"


def lsn_of(text: str) -> int | None:
    """The 64-bit number that ``high/low`` in hexadecimal stands for; None if it is not of that form."""
    match = _LSN.fullmatch(text)
    return int(match[1], 16) << 32 | int(match[2], 16) if match else None


LogPosition: TypeAlias = BinlogPosition | PostgresLsn | SqlServerLsn | ResumeToken | ConsumerGroup | UnknownPosition


def compare_positions(old: LogPosition | None, new: LogPosition | None) -> MoveWithReason:
    """How a log position moved. None is a stream that does not read its log yet; it is before every position."""
    if old is new or old == new:
        return UNMOVED
    what = f"log position {old or 'none'} → {new or 'none'}"
    if old is None or new is None:
        return ordered(old is not None, new is not None, what)
    if isinstance(old, BinlogPosition) and isinstance(new, BinlogPosition):
        return _compare_binlogs(old, new, what)
    if isinstance(old, PostgresLsn) and isinstance(new, PostgresLsn):
        return ordered(old.value, new.value, what)
    if isinstance(old, ResumeToken) and isinstance(new, ResumeToken):
        return ordered(old.digits, new.digits, what)
    if isinstance(old, SqlServerLsn) and isinstance(new, SqlServerLsn) and len(old.digits) == len(new.digits):
        return ordered(old.digits, new.digits, what)
    return MoveWithReason(Move.INCOMPARABLE, f"{what}: these have no order")


def _compare_binlogs(old: BinlogPosition, new: BinlogPosition, what: str) -> MoveWithReason:
    if old.server_id is not None and new.server_id is not None and old.server_id != new.server_id:
        return MoveWithReason(
            Move.INCOMPARABLE,
            f"{what}: server_id changed from {old.server_id} to {new.server_id}: the reading was started over",
        )
    if old.prefix != new.prefix:
        return MoveWithReason(Move.INCOMPARABLE, f"{what}: logs of two names have no order")
    return ordered((old.number, old.offset), (new.number, new.offset), what)


def log_distance(old: LogPosition | None, new: LogPosition | None) -> str | None:
    """How far a log position moved, in words; None where there is no measure of it."""
    if isinstance(old, PostgresLsn) and isinstance(new, PostgresLsn):
        return counted(abs(new.value - old.value), "byte")
    if isinstance(old, BinlogPosition) and isinstance(new, BinlogPosition) and old.prefix == new.prefix:
        if old.number == new.number:
            return counted(abs(new.offset - old.offset), "byte")
        return counted(abs(new.number - old.number), "log file")
    return None
