"""What the state backends hold: high-water marks and runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from odi_assets.errors import StateError

NO_TABLE = -1
"""The ``target_commit`` of an HWM that was accepted without a table: its rows are not expected anywhere."""


# A tuple, because a batch makes thousands of them and writes them column by column.
class HwmEntry(NamedTuple):
    """One revision of one key.

    Attributes:
        key: ``<pipeline>.<node>`` for nodes, or any free-form text.
        value: the typed value; None for a tombstone.
        environment: whose key it is; None is the environment without a name, which is what Odibi writes by default.
        updated_at: when it was written, UTC; later than that of the revision before it, whatever the clocks say.
        revision: 1 for the first write of a key, then one more with each write; 0 for a row that Odibi wrote.
        deleted: a tombstone.
        target_commit: version of the Delta table whose commit carried this value; NO_TABLE where it was accepted
            that there is none.
        run_id: the run that wrote it.
        value_type: the name of the value's type; None for a value that Odibi wrote.
    """

    key: str
    value: Any
    environment: str | None
    updated_at: datetime
    revision: int
    deleted: bool = False
    target_commit: int | None = None
    run_id: str | None = None
    value_type: str | None = None


@dataclass(frozen=True)
class Move:
    """What :meth:`~odi_assets.state.backend.StateBackend.restore` shall add to one key.

    Attributes:
        entry: the key's next revision, as it shall be stored.
        expected: the revision that the key has now, a tombstone's too; None if it was never set.
        older: revisions that lie between the two, oldest first.
    """

    entry: HwmEntry
    expected: int | None
    older: tuple[HwmEntry, ...] = ()


class RunStatus(StrEnum):
    """How a node's attempt ended. LOST: its run vanished without a word."""

    SUCCESS = "SUCCESS"
    NO_DATA = "NO_DATA"
    FAILURE = "FAILURE"
    SKIPPED = "SKIPPED"
    LOST = "LOST"

    @property
    def succeeded(self) -> bool:
        """SUCCESS, and NO_DATA: there was nothing to do and it was done."""
        return self in (RunStatus.SUCCESS, RunStatus.NO_DATA)

    @classmethod
    def parse(cls, text: str | None) -> RunStatus:
        """A stored status; what Odibi writes for a failure (``FAILED``) and anything unknown is FAILURE."""
        try:
            return cls((text or "").upper())
        except ValueError:
            return cls.FAILURE


@dataclass(frozen=True)
class RunRecord:
    """One attempt of one node.

    Attributes:
        run_id: Dagster's.
        rows_processed: rows written; None if not known.
        metrics: facts that JSON can hold.
        environment: stamped by the backend that stores the record.
        timestamp: when the node ended, UTC.
        started_at: when the node began, UTC.
        attempt: 1 for the first, more for retries in the same run.
        hwm_before, hwm_after: high-water marks as JSON values.
        table_version: version of the target that the attempt committed; None if it committed nothing.
    """

    run_id: str
    project: str | None
    pipeline_name: str
    node_name: str
    status: RunStatus
    rows_processed: int | None
    duration_ms: int
    timestamp: datetime
    metrics: Mapping[str, Any] = field(default_factory=dict)
    environment: str | None = None
    started_at: datetime | None = None
    partition_key: str | None = None
    trigger: str | None = None
    attempt: int = 1
    hwm_before: Any = None
    hwm_after: Any = None
    table_version: int | None = None
    code_version: str | None = None
    error: str | None = None

    @property
    def date(self) -> date:
        """The day it ended, in UTC."""
        return self.timestamp.date()


def check_key(key: str) -> str:
    """``key`` itself, if it can be one.

    Raises:
        StateError: it is not text, is empty, or cannot be written as UTF-8.
    """
    if not isinstance(key, str) or not key:
        raise StateError(f"a state key is text of at least one character, not {key!r}", fix="name the key", key=key)
    if key.isascii():
        return key
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise StateError(f"the state key {key!r} is not valid Unicode text", fix="rename the key", key=key) from error
    return key


def check_environment(environment: str | None) -> str | None:
    """``environment`` itself, if it can be one: a name, or None for the environment without a name.

    Raises:
        StateError: it is not text, or is empty.
    """
    if environment is None:
        return None
    if not isinstance(environment, str) or not environment:
        raise StateError(f"an environment is a name or None, not {environment!r}", fix="name it, or leave it out")
    return environment
