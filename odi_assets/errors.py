"""Errors of odi_assets: each says what, where and what to do, and keeps its fields as attributes.

One type per remedy, so that callers branch on types and never on words in a message.
"""

from __future__ import annotations

from typing import Any


class OdiError(Exception):
    """Base of every error that odi_assets raises on purpose.

    Args:
        message: what is wrong and where, one sentence or more.
        fix: what the reader can do about it; printed on a line of its own.
        **fields: facts of the case (key, node, path, run id …), kept in :attr:`fields` and readable as attributes.
    """

    def __init__(self, message: str, *, fix: str | None = None, **fields: Any) -> None:
        self.message = message
        self.fix = fix
        self.fields = fields
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.fix}" if self.fix else self.message

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(f"{type(self).__name__} has no field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.fix, self.fields)


def _rebuild(kind: type[OdiError], message: str, fix: str | None, fields: dict[str, Any]) -> OdiError:
    return kind(message, fix=fix, **fields)


class Transient:
    """Mix-in: the same call may succeed when it is made again, so a retry is right."""


class ConfigError(OdiError):
    """The project file, or an argument that names a part of it, is wrong."""


class JavaError(OdiError):
    """No Java, or one that Spark cannot run on."""


class StateError(OdiError):
    """State cannot be read or written."""


class StateConflictError(StateError, Transient):
    """Another writer changed the same state between our read and our write."""


class IllegalStateError(StateError):
    """A state store was changed after it had been committed or aborted."""


class FencedError(OdiError):
    """Another run committed this node's increment, or this version of a state store, first; nothing was written.
    Fields: node, winner, run_id; of a state store uri, version, winner."""


class IdentityMismatchError(OdiError):
    """A mark, an HWM or a table is of something else than the node that plans with it. Fields: node."""


class TargetBehindStateError(OdiError):
    """The target table holds less than its state says: dropped, restored or emptied by hand."""


class LossError(OdiError):
    """A full refresh would take rows out of a table that its sources no longer give. Fields: node, losses."""


class TableError(OdiError):
    """A Delta table cannot be read or written as asked. Fields: uri."""


class TableConflictError(TableError, Transient):
    """A concurrent commit changed what this write was based on; it may be done again from the read."""


class SourceError(OdiError):
    """A source cannot be listed or read. Fields: node, path."""


class NothingThereError(SourceError):
    """A source was looked at, and there is nothing to read yet: no file, no table. Fields: path."""


class TransformError(OdiError):
    """A node's SQL or function failed or returned something that is not a DataFrame. Fields: node."""


class ChecksFailedError(OdiError):
    """An increment, or a table, fails checks of its node. Nothing was committed. Fields: node, checks (a list of what
    ``nodes.execution.checks.outcomes.CheckOutcome.to_json`` gives)."""


class IncrementError(OdiError):
    """What to read next cannot be decided: a cursor column missing, null, or of another type. Fields: node, column."""


class NoCursorColumnError(IncrementError):
    """The source has no column of the cursor's name. Fields: node, column."""


class CursorDocumentError(OdiError):
    """A cursor document of another tool (OLake, Airbyte, Singer, dlt) is malformed. Fields: path, line, column, key."""


class CheckpointError(OdiError):
    """A Structured Streaming checkpoint is missing, damaged or cannot answer the question. Fields: path."""


class SparkDiedError(OdiError):
    """The JVM in which Spark ran is gone, or had no memory left. Fields: exit_code."""
