"""High-water marks: up to where the rows of a source are safely in the target.

There is a type for each way of following a source. State and commits store its :attr:`value`; a source makes its mark
from such a value (:meth:`Source.mark`). Each mark says what it ``measures``, the :class:`Identity` of its source, which
commits store beside the value; None in a mark that was set by hand or by an early version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol

from odi_assets.errors import IncrementError
from odi_assets.state.values import to_json

READ = "df"
"""The source that a node's ``read`` names: the view `df` in SQL. Inputs go by names of their own."""


class Unresolved(Enum):
    """What only a pass of Spark over the source can find; it is resolved before the source is read."""

    UNTIL_READ = "known when the source is read"

    def __str__(self) -> str:
        return self.value


UNRESOLVED = Unresolved.UNTIL_READ


class History(NamedTuple):
    """A version of a Delta table, and its commit: the number alone may belong to another history of the table."""

    version: int
    commit: str


@dataclass(frozen=True)
class Identity:
    """What a mark measures. Whether two of them are the same is decided by ``nodes.planning.identity``.

    Attributes:
        kind: ``files``, ``delta`` or ``sql``.
        source: which source of that kind: a path below its connection, a table's id, a table of a database.
        cursor: what orders it: ``file``, ``version``, or the name of a column.
        increment: how it is followed: ``files``, ``version``, ``stateful`` or ``cursors``; empty if that was not
            stored.
        connection: the name of its connection; empty if that was not stored.
        place: where it is: an absolute path, links resolved, or a URI; empty if that was not stored.
        history: of a Delta table: the version that the mark was set at, and its commit; None where it was not stored.
        reading: how its rows are read, as far as the mark depends on it (see ``sources.reading``); None where it does
            not, or that was not stored.
    """

    kind: str
    source: str
    cursor: str
    increment: str = ""
    connection: str = ""
    place: str = ""
    history: History | None = field(default=None, compare=False)
    reading: Mapping[str, Any] | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The identity as commits and state store it."""
        stored = {name: value for name, value in vars(self).items() if value is not None}
        return stored if self.history is None else {**stored, "history": [self.history.version, self.history.commit]}

    @classmethod
    def from_json(cls, stored: Any) -> Identity | None:
        """The identity that a commit stored; None for commits that did not store one."""
        if not isinstance(stored, Mapping) or not {"kind", "source", "cursor"} <= stored.keys():
            return None
        texts = {item.name: str(stored.get(item.name, "")) for item in fields(cls) if item.compare}
        kept, reading = stored.get("history"), stored.get("reading")
        history = History(int(kept[0]), str(kept[1])) if kept else None
        return cls(**texts, history=history, reading=reading if isinstance(reading, Mapping) else None)


@dataclass(frozen=True)
class LedgerPart:
    """A part of the ledger of loaded files (see ``files.ledger``). ``files`` is how many it lists."""

    name: str
    files: int


@dataclass(frozen=True)
class FilesMark:
    """The files of a landing folder that were loaded.

    Attributes:
        mtime_ns, path: the newest file that was loaded.
        parts: the ledger of loaded files. None, in a mark that is old or was set by hand: all files up to the newest
            one are loaded.
    """

    mtime_ns: int
    path: str
    parts: tuple[LedgerPart, ...] | None = None
    measures: Identity | None = field(default=None, compare=False)

    @property
    def cursor(self) -> tuple[int, str]:
        return self.mtime_ns, self.path

    @property
    def value(self) -> dict[str, Any]:
        stored: dict[str, Any] = {"mtime_ns": self.mtime_ns, "path": self.path}
        if self.parts is not None:
            stored["ledger"] = [[part.name, part.files] for part in self.parts]
        return stored

    @classmethod
    def of(cls, value: Any, label: str) -> FilesMark:
        """The mark that ``value`` stores.

        Raises:
            IncrementError: it stores no mark of files.
        """
        try:
            mtime_ns, path = int(value["mtime_ns"]), str(value["path"])
        except (TypeError, KeyError, ValueError) as error:
            raise IncrementError(
                f"the HWM of {label} is {value!r}; the HWM of files needs `mtime_ns` and `path`",
                fix="set it right with odi state set, or read everything once with odi run --full-refresh",
            ) from error
        if "ledger" not in value:
            return cls(mtime_ns, path)
        try:
            return cls(mtime_ns, path, tuple(LedgerPart(str(name), int(count)) for name, count in value["ledger"]))
        except (TypeError, ValueError) as error:
            raise IncrementError(
                f"the HWM of {label} names no ledger that can be read: {value['ledger']!r}",
                fix="set it to `mtime_ns` and `path` alone with odi state set: files up to there count as loaded",
            ) from error


@dataclass(frozen=True)
class VersionMark:
    """The version up to which a Delta table was read. ``table_id`` is None in a mark that was set by hand."""

    version: int
    table_id: str | None = None
    measures: Identity | None = field(default=None, compare=False)

    @property
    def value(self) -> dict[str, Any]:
        return {"version": self.version, "table_id": self.table_id}

    @classmethod
    def of(cls, value: Any, label: str) -> VersionMark:
        """The mark that ``value`` stores: an object with a ``version``, or the version alone.

        Raises:
            IncrementError: it stores no version.
        """
        if isinstance(value, int) and not isinstance(value, bool):
            return cls(value)
        if isinstance(value, Mapping) and isinstance(value.get("version"), int):
            return cls(value["version"], value.get("table_id"))
        raise IncrementError(
            f"the HWM of {label} is {value!r}; the HWM of a Delta table needs a `version`",
            fix="set it right with odi state set, or read everything once with odi run --full-refresh",
            label=label,
        )


@dataclass(frozen=True)
class LoadedRange:
    """A range of a cursor that a run loaded after a mark was set: ``start <= cursor < end``.

    Attributes:
        held: what the source consisted of: the version of a table, or the files as a mark keeps them.
    """

    start: datetime
    end: datetime
    held: Any


@dataclass(frozen=True)
class CursorMark:
    """The greatest value of a cursor column that was read.

    The commit that sets a mark stores more beside its value. That is valid only as long as the mark is the one of that
    commit.

    Attributes:
        seen: a fingerprint of the source that was read; while it is the same, the source has nothing new.
        ties: the rows at the mark that were loaded: a count for each row hash; None if not known.
        held_then: what the source consisted of, so that later arrivals can be recognized; None if not known.
        began_at: the initial value of the read of the whole source that the mark goes on from, as the project file had
            it; empty for none, None if not known.
        tied_by: by column that the hashes are of, its type; None if not known.
        typed: False for a value that another tool stored without its type.
        digits: how much of its values the cursor kept (see ``cursor.digits.digits_of``); None if not known.
        known_by: the same of the columns that rows are known by (see ``cursor.types.kept_of``).
        declared: by column that the hashes are of, its type in a database, and how much of its values that keeps.
        ranges: that were loaded since the mark was set. Its own commit does not store them.
    """

    value: Any
    seen: str | None = field(default=None, compare=False)
    ties: Mapping[str, int] | None = field(default=None, compare=False)
    tied_by: Mapping[str, Any] | None = field(default=None, compare=False)
    typed: bool = field(default=True, compare=False)
    measures: Identity | None = field(default=None, compare=False)
    digits: Sequence[int | None] | None = field(default=None, compare=False)
    known_by: Mapping[str, Any] = field(default_factory=dict, compare=False)
    declared: Mapping[str, Any] = field(default_factory=dict, compare=False)
    held_then: str | None = field(default=None, compare=False)
    began_at: str | None = field(default=None, compare=False)
    ranges: tuple[LoadedRange, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, value: Any, remembered: Mapping[str, Any], *, typed: bool = True) -> CursorMark:
        """The mark that ``value`` stores, with what its commit stored beside it."""
        ties, columns = (remembered.get(name) for name in ("ties", "tied_by"))
        return cls(
            value,
            remembered.get("seen"),
            ties if isinstance(ties, Mapping) else None,
            columns if isinstance(columns, Mapping) else None,
            typed,
            digits=remembered.get("digits"),
            known_by=remembered.get("known_by") or {},
            declared=remembered.get("declared") or {},
            held_then=remembered.get("held_then"),
            began_at=remembered.get("began_at"),
        )

    def remembered(self) -> dict[str, Any]:
        """What its commit has to store beside the value, JSON-ready."""
        stored: dict[str, Any] = {}
        if self.seen is not None:
            stored["seen"] = self.seen
        if self.ties:
            stored["ties"] = dict(self.ties)
            stored |= {} if self.tied_by is None else {"tied_by": dict(self.tied_by)}
        if any(kept is not None for kept in self.digits or ()):
            stored["digits"] = list(self.digits or ())
        if self.known_by:
            stored["known_by"] = dict(self.known_by)
        if self.ties and self.declared:
            stored["declared"] = dict(self.declared)
        if self.held_then is not None:
            stored["held_then"] = self.held_then
        if self.began_at is not None:
            stored["began_at"] = self.began_at
        return stored


class Mark(Protocol):
    """What all marks have in common: what state stores of them, and what they measure.

    Marks of tables that are read in chunks are in ``sql.marks``, marks that a cursor document drives in
    ``documents.gate.marks``, marks of streams in ``streamed``.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def value(self) -> Any:
        """The mark as state stores it."""

    @property
    def measures(self) -> Identity | None:
        """What it measures; None if that is not known."""


def history_of(mark: Mark | Unresolved | None) -> History | None:
    """The history that a mark belongs to; None if it has none, or that is not known."""
    if mark is None or isinstance(mark, Unresolved) or mark.measures is None:
        return None
    return mark.measures.history


def moment_of(mark: Mark | Unresolved | None) -> float | None:
    """The time that a mark stands for, in seconds since 1970; None if it stands for none."""
    value = getattr(mark, "value", None)
    if isinstance(value, Mapping) and isinstance(value.get("mtime_ns"), int):
        return float(value["mtime_ns"]) / 1e9
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return None


def hwm_text(value: Any) -> str | None:
    """A stored HWM in a few words: ``flights/2013-01-15.csv``, ``version 4``, ``2013-01-15T00:00:00``.

    The text of a value and of its JSON is the same.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        if isinstance(value.get("shown"), str):
            # Values with more parts than a table has room for say how they are to be shown.
            return str(value["shown"])
        if {"mtime_ns", "path"} <= set(value) <= {"mtime_ns", "path", "ledger"}:
            return str(value["path"])
        if "version" in value and set(value) <= {"version", "table_id"}:
            return f"version {value['version']}"
        if value.keys() == {"query", "batch"}:
            return f"batch {value['batch']}"
        if {"since", "version", "index"} <= value.keys():
            return f"version {value['version']}"
        if isinstance(value.get("cursors"), Mapping) and set(value) <= {"cursors", "snapshot"}:
            return _snapshot_text(value["cursors"], value.get("snapshot"))
        return ", ".join(f"{name} {hwm_text(part)}" for name, part in value.items())
    # As run history has it, which keeps JSON alone.
    return str(to_json(value)[0])


def _snapshot_text(cursors: Mapping[str, Any], chunks: Mapping[str, Any] | None) -> str:
    upto = ", ".join(f"{name} {hwm_text(value) or 'none'}" for name, value in cursors.items())
    return upto if chunks is None else f"snapshot: {len(chunks['left']):,} of {chunks['of']:,} chunks left, {upto}"
