"""The answers: what became of a key, of each of its rows, and in each place where it was looked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from odi_assets.spark.plans.definition import SEPARATOR


class KeyVerdict(StrEnum):
    """What became of a key; also of one of its rows, of one side of a join, or in one place on its way."""

    # In sources and in tables of nodes.
    PRESENT = "PRESENT"
    NOT_LANDED = "NOT_LANDED"
    LOST_BY_JOIN = "LOST_BY_JOIN"
    REPLACED = "REPLACED"
    DELETED = "DELETED"
    LATE = "LATE"
    LEFT_OUT = "LEFT_OUT"
    QUARANTINED = "QUARANTINED"
    UNEXPLAINED = "UNEXPLAINED"
    # In nodes and in streams.
    NOT_READ = "NOT_READ"
    FILTERED = "FILTERED"
    # In the join of two streams.
    MATCHED = "MATCHED"
    OUT_OF_WINDOW = "OUT_OF_WINDOW"
    COUNTERPART_LATE = "COUNTERPART_LATE"
    COUNTERPART_FILTERED = "COUNTERPART_FILTERED"
    COUNTERPART_NOT_READ = "COUNTERPART_NOT_READ"
    NO_COUNTERPART = "NO_COUNTERPART"
    # In other queries, and of the rows of every query.
    COUNTED = "COUNTED"
    PENDING = "PENDING"
    KEPT = "KEPT"
    DUPLICATE_OF = "DUPLICATE_OF"
    WRITTEN = "WRITTEN"
    REACHED = "REACHED"
    """It came as far as the query can be followed."""
    DROPPED_LATE = "DROPPED_LATE"
    NULL_KEY = "NULL_KEY"
    NEVER_ARRIVED = "NEVER_ARRIVED"
    UNDECIDABLE = "UNDECIDABLE"
    """The evidence that decides it is gone."""
    # In the state of a query.
    WAITING = "WAITING"
    """The state holds it."""
    EXPIRED = "EXPIRED"
    """It left the state: the watermark passed it."""
    APART = "APART"
    """Both sides of a join were stored, one after the other had left the state."""
    NEVER_STORED = "NEVER_STORED"
    """No batch ever stored it, and all batches are retained. It never arrived, was filtered, has a NULL in its key,
    came later than the watermark, or was already behind it when it was joined."""


@dataclass(frozen=True)
class RowFate:
    """What became of one row of a stream, or, of an input without a row of the key, that there is none.

    Attributes:
        input: the input it is of.
        text: in words.
        batch: the batch that read, dropped, counted or removed it, as the fate says; None if it is not known or none.
        read_in: the batch that read it.
        watermark: the watermark that decided, or that it waits for.
        late_by: how far its time was behind the watermark.
        condition: the condition that it did not meet.
        time: its event time.
        file: where it is.
        duplicate_of: the file of the row that was kept instead.
    """

    input: str
    fate: KeyVerdict
    text: str
    batch: int | None = None
    read_in: int | None = None
    watermark: datetime | None = None
    late_by: timedelta | None = None
    condition: str | None = None
    time: datetime | None = None
    file: str | None = None
    duplicate_of: str | None = None


@dataclass(frozen=True)
class SearchedPlace:
    """A source or a table that the key was looked for in.

    Attributes:
        name: ``pipeline.node``, or the label of a source: ``landing:orders/*.csv``.
        verdict: what was found there.
        text: in words.
        rows: how many rows of the key are there now.
        version, run_id: of a table: the version that brought the key or took it away, and its run.
        files: of a source: the files with the key.
        is_source: it is no table of a node.
    """

    name: str
    verdict: KeyVerdict
    text: str
    rows: int = 0
    version: int | None = None
    run_id: str | None = None
    files: tuple[str, ...] = ()
    is_source: bool = False


class ChangedValue(NamedTuple):
    """The value of a column before a change, and after it."""

    before: str | None
    after: str | None


@dataclass(frozen=True)
class LoggedKeyChange:
    """A change of a row of a captured table, as a change log has it.

    Attributes:
        n: its number in the change log.
        lsn, xid, committed_at: of its transaction; None for a row that a snapshot read.
        op: what it did: see ``log_changes.ChangeOp``.
        key: the row's key after it; empty if it removed all rows of the table.
        former: the key that the row had before; None if the key did not change.
        changed: by column, the values before and after; empty for the first row of a key.
        applied_by: the nodes whose tables have it.
    """

    n: int
    lsn: str | None
    xid: int | None
    committed_at: datetime | None
    op: str
    key: tuple[str, ...]
    former: tuple[str, ...] | None
    changed: Mapping[str, ChangedValue]
    applied_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class SideOfKey:
    """One side of a join for one key, as a checkpoint has it.

    Attributes:
        fate: WAITING, EXPIRED, NEVER_STORED, or UNDECIDABLE: no retained batch stored or removed it, and it may have
            come and gone in a batch that is no longer retained.
        rows: the rows in the state, at most 100.
        matched: whether any of its rows that the evidence shows found a partner; None if there is none, or if the
            state does not say (format 1).
        arrived_in, purged_in: the retained batches that stored or removed rows of it; a purged key without the former
            arrived before them.
    """

    side: str
    fate: KeyVerdict
    rows: tuple[Mapping[str, Any], ...]
    matched: bool | None
    arrived_in: tuple[int, ...]
    purged_in: tuple[int, ...]


@dataclass(frozen=True)
class StateOfKey:
    """What a checkpoint alone knows of a key of a join.

    Attributes:
        first_batch: the first batch whose changes were examined.
        last_batch: the last one.
        watermark: the watermark after it.
    """

    left: SideOfKey
    right: SideOfKey
    first_batch: int
    last_batch: int
    watermark: datetime | None


@dataclass(frozen=True)
class KeyExplanation:
    """The answer for one key.

    Attributes:
        key: as text; the parts of a key of several columns in a row.
        sentence: the verdict, in words.
        places: of nodes: where the key was looked for on its way, sources first.
        absent_since: the node that has not got it, while what it reads has; None if the key is there or never landed.
        changes: of a key that comes through a change log: the changes of its rows, in their order.
        rows: of a stream: the fate of each row; an input without one has the one fate NEVER_ARRIVED.
        state: of a checkpoint alone: what it knows.
        batch: where a stream gave a result: the batch that gave it.
        table_version: and the version of the node's table that it came with.
        condition: the condition of the join that is not met.
        misses_by: by how much: a time, or a number.
        similar: rows with a key that is almost the same, in words.
        lost: the evidence that is gone, and what would have kept it.
        disagreements: what the table, the state or the change feed says otherwise.
    """

    key: tuple[str, ...]
    verdict: KeyVerdict
    sentence: str
    rows: tuple[RowFate, ...] = ()
    batch: int | None = None
    table_version: int | None = None
    condition: str | None = None
    misses_by: timedelta | float | None = None
    similar: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    disagreements: tuple[str, ...] = ()
    places: tuple[SearchedPlace, ...] = ()
    absent_since: str | None = None
    changes: tuple[LoggedKeyChange, ...] = ()
    state: StateOfKey | None = None

    @property
    def text(self) -> str:
        """The key as one text."""
        return SEPARATOR.join(self.key)

    @property
    def shown_key(self) -> str:
        """The key as people write it."""
        return ", ".join(self.key)

    def to_json(self) -> dict[str, Any]:
        """As a document; of the fate of a row, what does not apply is left out."""
        key = self.key[0] if len(self.key) == 1 else list(self.key)
        return {**{name: _plain(value) for name, value in vars(self).items()}, "key": key}


def key_parts(key: str) -> tuple[str, ...]:
    """The parts of a key that is one text."""
    return tuple(key.split(SEPARATOR))


def moment(milliseconds: float) -> datetime:
    """The time of a count of milliseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def _plain(value: Any) -> Any:
    """A part of an answer as JSON has it; a value that a state holds and JSON has no type for is a text."""
    if is_dataclass(value):
        applies = {
            name: part for name, part in vars(value).items() if part is not None or not isinstance(value, RowFate)
        }
        return _plain(applies)
    if isinstance(value, ChangedValue):
        return value._asdict()
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if isinstance(value, str | int | float | None) else str(value)
