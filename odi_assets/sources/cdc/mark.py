"""Marks of captured logs: how far the log was read, and what of the tables' snapshots is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from odi_assets.errors import IncrementError
from odi_assets.sources.cdc.definition import Definition
from odi_assets.sources.marks import Identity
from odi_assets.sources.sql.marks import Chunks

PARTITION = "table"
"""The column of the change log that says which table a row is of."""


def lsn_text(lsn: int) -> str:
    """A position as PostgreSQL writes it: ``16/B374D848``."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """A position that PostgreSQL wrote; positions compare as 64 bit.

    Raises:
        ValueError: it is none.
    """
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def binlog_text(base: str, position: int) -> str:
    """A position of a binary log, 64 bit: the file and the place in it, as in ``mariadb-bin.000042:1234``.

    Args:
        base: what the names of all its files begin with.
    """
    return f"{base}.{position >> 32:06d}:{position & 0xFFFFFFFF}"


def binlog_of(text: str) -> int:
    """The position that :func:`binlog_text` wrote; positions compare as 64 bit.

    Raises:
        ValueError: it is none.
    """
    file, _, offset = text.rpartition(":")
    return int(file.rpartition(".")[2]) << 32 | int(offset)


def position_text(mark: Mapping[str, Any] | None, position: int) -> str:
    """A position of a log as its database writes it.

    Args:
        mark: the value of a mark of the log; None: it is one of PostgreSQL.
    """
    binlog = None if mark is None else mark.get("binlog") or mark.get("positions_of")
    return lsn_text(position) if binlog is None else binlog_text(str(binlog["base"]), position)


@dataclass(frozen=True)
class BinlogPlace:
    """What a binary log is recognized by.

    Attributes:
        base: what the names of its files begin with.
        created: when the file was made that the mark is in, in seconds since 1970.
        gtid: the last transaction below the mark, as in ``0-1-42``; empty if none is known.
    """

    base: str
    created: int = 0
    gtid: str = ""

    @property
    def value(self) -> dict[str, Any]:
        return {"base": self.base, "created": self.created, "gtid": self.gtid}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> BinlogPlace:
        return cls(str(value["base"]), int(value["created"]), str(value["gtid"]))


@dataclass(frozen=True)
class TableMark:
    """How far one captured table is.

    Attributes:
        key: the columns that identify its rows.
        shape: the shape of its last rows in the log; empty before there are any.
        chunks: what is left of its snapshot; None once all of it is in the log.
        is_cut: whether the snapshot has begun: before, its chunks are not known.
        again: keys of rows that are read once more: the log does not have all of their values.
        layout: the numbers of its columns when its snapshot was read; empty before.
        published: names the table, its place in the publication, and the publication's last change when its snapshot
            began; empty before.
        rejoined: what its next snapshot does not have is gone: it was captured before, and the log does not have what
            was deleted since; or its rows have other keys.
        definition: what it was made of when its log was looked at; None if that was not noted.
    """

    key: tuple[str, ...]
    shape: str = ""
    chunks: Chunks | None = None
    is_cut: bool = True
    again: tuple[tuple[str, ...], ...] = ()
    layout: str = ""
    rejoined: bool = False
    published: str = ""
    definition: Definition | None = None

    @property
    def begun_again(self) -> TableMark:
        """The table with a new snapshot: statements that change columns may change rows without a trace in the log."""
        return replace(self, chunks=None, is_cut=False, again=())

    @property
    def is_complete(self) -> bool:
        """Whether nothing of its snapshot is left."""
        return self.is_cut and self.chunks is None and not self.again

    def is_published_as(self, published_now: str | None) -> bool:
        """Whether ``published`` and a text of today say the same; marks of earlier versions say less."""
        if not self.published:
            return True
        then, now = self.published.split("/"), (published_now or "").split("/")
        return then == now[: len(then)]

    @property
    def value(self) -> dict[str, Any]:
        stored: dict[str, Any] = {"key": list(self.key), "shape": self.shape, "layout": self.layout}
        if self.published:
            stored["published"] = self.published
        if self.definition is not None:
            stored["definition"] = self.definition.value
        if not self.is_cut:
            stored["snapshot"] = None
        elif self.chunks is not None:
            stored["snapshot"] = self.chunks.value
        if self.rejoined:
            stored["rejoined"] = True
        if self.again:
            stored["again"] = [list(key) for key in self.again]
        return stored

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> TableMark:
        left = value.get("snapshot")
        return cls(
            tuple(value["key"]),
            str(value.get("shape", "")),
            None if left is None else Chunks.of(left),
            "snapshot" not in value or left is not None,
            tuple(tuple(key) for key in value.get("again", ())),
            str(value.get("layout", "")),
            bool(value.get("rejoined")),
            str(value.get("published", "")),
            Definition.of(value["definition"]) if "definition" in value else None,
        )


@dataclass(frozen=True)
class CaptureMark:
    """How far the log of a database was captured.

    Attributes:
        lsn: the record that commits the last transaction whose changes are in the log, 64 bit.
        end: where that record ends; or a later place, if no change of the tables lies between.
        next_n: the number of the log's next row.
        system: identifies the server's data: another cluster has another one.
        tables: by name, the captured tables.
        pending: transactions in the log that other sessions of the database did not see yet, by 64-bit number: their
            commit waits for a standby.
        left_out: tables that were captured before, and are not now.
        binlog: what a binary log is recognized by at ``end``; None for a log of PostgreSQL.
        xid: the number that the database gave the transaction at ``lsn``; None if it was not noted.
        timeline: of the server's log; it changes when a standby takes over. None if it was not noted.
    """

    lsn: int
    end: int
    next_n: int
    system: str
    tables: Mapping[str, TableMark] = field(default_factory=dict)
    pending: tuple[int, ...] = ()
    left_out: tuple[str, ...] = ()
    binlog: BinlogPlace | None = None
    xid: int | None = None
    timeline: int | None = None
    measures: Identity | None = field(default=None, compare=False)

    @property
    def snapshots_left(self) -> list[str]:
        """The tables whose snapshots are not complete."""
        return [name for name, table in self.tables.items() if not table.is_complete]

    @property
    def shown(self) -> str:
        left = len(self.snapshots_left)
        return f"{self.text(self.lsn)}{f', snapshots of {left:,} tables left' if left else ''}"

    @property
    def value(self) -> dict[str, Any]:
        stored: dict[str, Any] = {
            "lsn": self.text(self.lsn),
            "end": self.text(self.end),
            "next_n": self.next_n,
            "system": self.system,
            "tables": {name: table.value for name, table in self.tables.items()},
            "shown": self.shown,
        }
        if self.binlog is not None:
            stored["binlog"] = self.binlog.value
        if self.xid is not None:
            stored["xid"] = self.xid
        if self.timeline is not None:
            stored["timeline"] = self.timeline
        lists = {"pending": list(self.pending), "left_out": list(self.left_out)}
        return {**stored, **{name: listed for name, listed in lists.items() if listed}}

    def text(self, position: int) -> str:
        """A position of the log as the database writes it."""
        return lsn_text(position) if self.binlog is None else binlog_text(self.binlog.base, position)

    @classmethod
    def of(cls, value: Any, label: str) -> CaptureMark:
        """The mark that ``value`` stores.

        Raises:
            IncrementError: it stores none.
        """
        try:
            tables = {str(name): TableMark.of(stored) for name, stored in value["tables"].items()}
            pending = tuple(int(number) for number in value.get("pending", ()))
            left_out = tuple(str(name) for name in value.get("left_out", ()))
            binlog = BinlogPlace.of(value["binlog"]) if "binlog" in value else None
            position = lsn_of if binlog is None else binlog_of
            places = (position(value["lsn"]), position(value["end"]), int(value["next_n"]))
            xid, timeline = (int(value[name]) if name in value else None for name in ("xid", "timeline"))
            return cls(*places, str(value["system"]), tables, pending, left_out, binlog, xid, timeline)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise IncrementError(
                f"the HWM of {label} is {str(value)[:200]}; the HWM of a captured log needs `lsn`, `next_n`, `system` "
                "and `tables`",
                fix="go back to an earlier one with odi state rewind NODE --list; or capture everything again with "
                "odi run --node NODE --full-refresh --yes",
                label=label,
            ) from error
