"""What was found of a key on its way to a table, place by place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from odi_assets.nodes.project import Project
from odi_assets.state.backend import StateBackend

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES_SHOWN = 3


class KeyFinding(StrEnum):
    """Where a key is, or why it is not there."""

    PRESENT = "PRESENT"
    NOT_LANDED = "NOT_LANDED"
    NOT_READ = "NOT_READ"
    FILTERED = "FILTERED"
    LOST_BY_JOIN = "LOST_BY_JOIN"
    REPLACED = "REPLACED"
    DELETED = "DELETED"
    LATE = "LATE"
    LEFT_OUT = "LEFT_OUT"
    QUARANTINED = "QUARANTINED"
    UNEXPLAINED = "UNEXPLAINED"


@dataclass(frozen=True)
class SearchedPlace:
    """A source or a table that the key was looked for in.

    Attributes:
        name: ``pipeline.node``, or the label of a source: ``landing:orders/*.csv``.
        finding: what was found there.
        text: in words.
        rows: how many rows of the key are there now.
        version, run_id: of a table: the version that brought the key or took it away, and its run.
        files: of a source: the files with the key.
        is_source: it is no table of a node.
    """

    name: str
    finding: KeyFinding
    text: str
    rows: int = 0
    version: int | None = None
    run_id: str | None = None
    files: tuple[str, ...] = ()
    is_source: bool = False

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return {**vars(self), "files": list(self.files)}


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
    changed: Mapping[str, tuple[str | None, str | None]]
    applied_by: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        changed = {name: {"before": before, "after": after} for name, (before, after) in self.changed.items()}
        return {
            **vars(self),
            "committed_at": self.committed_at.isoformat().replace("+00:00", "Z") if self.committed_at else None,
            "key": list(self.key),
            "former": None if self.former is None else list(self.former),
            "changed": changed,
            "applied_by": list(self.applied_by),
        }


@dataclass(frozen=True)
class KeyTrace:
    """Where a key is on its way to a node, sources first.

    Attributes:
        finding: ``PRESENT`` if the node's table has it, else why not.
        absent_since: the node that has not got it, while what it reads has; None if the key is there or never landed.
        changes: of a key that comes through a change log: the changes of its rows, in their order.
    """

    key: tuple[str, ...]
    finding: KeyFinding
    sentence: str
    absent_since: str | None
    places: tuple[SearchedPlace, ...]
    changes: tuple[LoggedKeyChange, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        key = self.key[0] if len(self.key) == 1 else list(self.key)
        places, changes = [place.to_json() for place in self.places], [one.to_json() for one in self.changes]
        return {**vars(self), "key": key, "places": places, "changes": changes}


@dataclass
class Trace:
    """What is asked, and what was found so far."""

    project: Project
    spark: SparkSession
    state: StateBackend
    keys: Sequence[str]
    places: dict[str, list[SearchedPlace]] = field(default_factory=lambda: defaultdict(list))
    """By key, in the order they were looked at."""
    at: dict[str, dict[str, SearchedPlace]] = field(default_factory=lambda: defaultdict(dict))
    """By key and name of the place."""
    changes: dict[str, list[LoggedKeyChange]] = field(default_factory=lambda: defaultdict(list))
    """By key, what change logs say of its rows."""

    def add(self, key: str, place: SearchedPlace) -> None:
        """Note a place, unless it was looked at before."""
        if place.name not in self.at[key]:
            self.places[key].append(place)
            self.at[key][place.name] = place


def some_names(names: Sequence[str]) -> str:
    """The first of ``names``, and how many more there are."""
    more = len(names) - _FILES_SHOWN
    return ", ".join(names[:_FILES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
