"""What an audit found: ranges and keys in which a table differs from its source, each with its repair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.audit.rows import RangeDifference
from odi_assets.util.words import counted

BY_KEY, BY_VERSION = "key", "version"


@dataclass(frozen=True)
class AuditRange:
    """A range, and the command that repairs it; None if it agrees."""

    difference: RangeDifference
    name: str
    command: str | None

    def to_json(self) -> dict[str, Any]:
        """The range as JSON-ready values."""
        facts = {name: value for name, value in vars(self.difference).items() if name != "versions"}
        return {**facts, "range": self.name, "agrees": self.difference.agrees, "command": self.command}


@dataclass(frozen=True)
class KeyDifference:
    """A key whose row in the table is not the row of the source.

    Attributes:
        key: by column; of a history, the number of the row in the change log.
        what: ``missing`` in the table, ``extra``, ``repeated`` or ``changed``.
        columns: of a changed row, by column that differs: the values of the source and of the table, as texts.
    """

    key: Mapping[str, str | None]
    what: str
    columns: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON-ready values."""
        columns = {name: {"source": source, "table": table} for name, (source, table) in self.columns.items()}
        return {"key": dict(self.key), "what": self.what, "columns": columns}


@dataclass(frozen=True)
class Audit:
    """What a node's table holds of its sources.

    Attributes:
        by: what the ranges are of, in words.
        compared: the columns whose values were compared.
        notes: what could not be compared, and what is not loaded yet, in words.
        keys: of a table that is compared key by key, the first keys that differ.
        groups_only: rows are groups of rows of the sources, and only which groups there are was compared.
    """

    key: NodeKey
    by: str
    compared: tuple[str, ...]
    notes: tuple[str, ...]
    ranges: tuple[AuditRange, ...]
    keys: tuple[KeyDifference, ...] = ()
    groups_only: bool = False

    @property
    def is_by_key(self) -> bool:
        """Whether all keys, or all versions of a history, were compared one by one, as one range."""
        return self.by in (BY_KEY, BY_VERSION)

    @property
    def differing(self) -> tuple[AuditRange, ...]:
        """The ranges in which source and table differ."""
        return tuple(audit_range for audit_range in self.ranges if not audit_range.difference.agrees)

    def to_json(self) -> dict[str, Any]:
        """The audit as JSON-ready values."""
        return {
            "pipeline": self.key.pipeline,
            "node": self.key.node,
            "agrees": not self.differing,
            "by": self.by,
            "compared": list(self.compared),
            "notes": list(self.notes),
            "ranges": [audit_range.to_json() for audit_range in self.ranges],
            "keys": [difference.to_json() for difference in self.keys],
        }


def differences(difference: RangeDifference) -> str:
    """How source and table differ in a range, in words."""
    parts = [
        (difference.missing, "missing"),
        (difference.extra, "too many"),
        (difference.repeated, "repeated"),
        (difference.changed, "with other values"),
    ]
    texts = [f"{counted(count, 'row')} {what}" for count, what in parts if count]
    if (
        difference.changed
        and not (difference.missing or difference.extra or difference.repeated)
        and difference.source_rows == difference.table_rows
    ):
        return "other values"
    return ", ".join(texts)
