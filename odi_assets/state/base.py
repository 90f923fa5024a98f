"""What every state backend does alike, on top of a few primitives: decide under the store's own guard, then write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from odi_assets.errors import StateConflictError, StateError
from odi_assets.state import values
from odi_assets.state.monotonic import check_forward
from odi_assets.state.odibi_runs import info_of, pipeline_data, records_of
from odi_assets.state.records import HwmEntry, Move, RunRecord, check_environment, check_key

if TYPE_CHECKING:
    from odi_assets.state.backend import StateBackend

Check = Callable[["Change", HwmEntry | None], None]
"""Sees a change and its key's present revision (None: not set), and raises if the change may not be made."""


ANY_VALUE: Any = object()
"""What ``compare_and_set`` takes for: the revision alone decides."""


def any_change(_change: Change, _current: HwmEntry | None) -> None:
    """The check of a change that may always be made."""


def forward_only(change: Change, current: HwmEntry | None) -> None:
    """The check of a change that may only move its key forward.

    Raises:
        StateError: it would move the key back, or to another type.
    """
    if current is not None:
        check_forward(current, change.value, change.encoded.type)


class Change:
    """One key's next revision; ``encoded`` is its value as it is stored, made once.

    With ``move``, the revision is written as that says; otherwise it is the one after the present one, of now.

    Raises:
        StateError: the key is none, or the value cannot be stored.
    """

    # Written out, and without a call that can be spared: a batch makes thousands of these.
    __slots__ = ("check", "deleted", "encoded", "key", "move", "run_id", "target_commit", "value")

    def __init__(
        self,
        key: str,
        value: Any = None,
        target_commit: int | None = None,
        run_id: str | None = None,
        deleted: bool = False,
        check: Check = any_change,
        move: Move | None = None,
    ) -> None:
        self.key = check_key(key)
        self.value = value
        self.target_commit = target_commit
        self.run_id = run_id
        self.deleted = deleted
        self.check = check
        self.move = move
        self.encoded = values.encode(value)

    def entry_after(self, latest: HwmEntry | None, environment: str | None, now: datetime) -> HwmEntry:
        """The entry that follows ``latest`` (tombstones count; None: the key is new).

        Raises:
            OdiError: the check refuses the change.
        """
        if self.move is not None:
            return _moved(self.move, latest, environment)
        self.check(self, None if latest is None or latest.deleted else latest)
        if latest is not None and latest.updated_at >= now:
            now = latest.updated_at + timedelta(microseconds=1)
        return HwmEntry(
            self.key,
            self.value,
            environment,
            now,
            latest.revision + 1 if latest is not None else 1,
            self.deleted,
            self.target_commit,
            self.run_id,
            None if self.deleted else self.encoded.type,
        )

    @property
    def older(self) -> tuple[HwmEntry, ...]:
        """Revisions to be written beside this one, oldest first."""
        return self.move.older if self.move is not None else ()


def _moved(move: Move, latest: HwmEntry | None, environment: str | None) -> HwmEntry:
    found = None if latest is None else latest.revision
    if found != move.expected:
        raise _changed(move.entry.key, found, move.expected)
    return move.entry._replace(environment=environment)


class KeyedBackend(ABC):
    """The methods of :class:`~odi_assets.state.backend.StateBackend` that do not depend on the store."""

    def __init__(self, environment: str | None) -> None:
        self._environment = check_environment(environment)

    @property
    def environment(self) -> str | None:
        return self._environment

    @abstractmethod
    def in_environment(self, environment: str | None) -> StateBackend: ...

    @abstractmethod
    def environments(self) -> list[str | None]: ...

    @abstractmethod
    def _latest(self, key: str) -> HwmEntry | None:
        """The newest revision of ``key``, a tombstone too."""

    @abstractmethod
    def _latest_of_all(self) -> list[HwmEntry]:
        """The newest revision of every key, tombstones too, in order of the keys."""

    @abstractmethod
    def history(self, key: str) -> list[HwmEntry]: ...

    @abstractmethod
    def record_runs(self, records: Iterable[RunRecord]) -> None: ...

    @abstractmethod
    def list_runs(
        self,
        *,
        pipeline: str | None = None,
        node: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> list[RunRecord]: ...

    @abstractmethod
    def _write(self, changes: Sequence[Change]) -> list[HwmEntry]:
        """Make all changes (of distinct keys) or none, each checked against the revision it replaces."""

    def get_entry(self, key: str, *, deleted: bool = False) -> HwmEntry | None:
        entry = self._latest(check_key(key))
        return None if entry is None or (entry.deleted and not deleted) else entry

    def list_hwms(self, *, deleted: bool = False) -> list[HwmEntry]:
        return [entry for entry in self._latest_of_all() if deleted or not entry.deleted]

    def get_hwm(self, key: str) -> Any:
        entry = self.get_entry(key)
        return None if entry is None else entry.value

    def set_hwm(self, key: str, value: Any, *, target_commit: int | None = None, run_id: str | None = None) -> HwmEntry:
        return self._write([Change(key, value, target_commit, run_id, check=forward_only)])[0]

    def reset_hwm(
        self, key: str, value: Any, *, target_commit: int | None = None, run_id: str | None = None
    ) -> HwmEntry:
        return self._write([Change(key, value, target_commit, run_id)])[0]

    def compare_and_set(
        self,
        key: str,
        value: Any,
        *,
        expected_revision: int | None,
        expected_value: Any = ANY_VALUE,
        target_commit: int | None = None,
        run_id: str | None = None,
    ) -> HwmEntry:
        def check(_change: Change, current: HwmEntry | None) -> None:
            found = None if current is None else current.revision
            if found != expected_revision:
                raise _changed(key, found, expected_revision)
            if current is None or expected_value is ANY_VALUE:
                return
            if values.encode(current.value) != values.encode(expected_value):
                raise StateConflictError(
                    f"`{key}` is {_at(found)} as expected, but with another value: another tool set it again",
                    fix="read the key again and decide anew; nothing was written",
                    key=key,
                    expected_revision=expected_revision,
                    revision=found,
                )

        return self._write([Change(key, value, target_commit, run_id, check=check)])[0]

    def set_hwm_batch(self, updates: Sequence[Mapping[str, Any]]) -> list[HwmEntry]:
        changes: dict[str, Change] = {}
        for number, update in enumerate(updates):
            try:
                key, value = update["key"], update["value"]
            except KeyError as error:
                raise StateError(
                    f"update {number} of the batch holds {sorted(map(str, update))}, not `key` and `value`",
                    fix="nothing was written; give each update both",
                ) from error
            changes[key] = Change(key, value, update.get("target_commit"), update.get("run_id"), check=forward_only)
        return self._write(list(changes.values())) if changes else []

    def delete_hwm(self, key: str) -> bool:
        if self.get_entry(key) is None:
            return False
        self._write([Change(key, deleted=True)])
        return True

    def restore(self, moves: Sequence[Move]) -> list[HwmEntry]:
        changes = [Change(m.entry.key, m.entry.value, deleted=m.entry.deleted, move=m) for m in moves]
        return self._write(changes) if changes else []

    def get_last_run(self, pipeline: str, node: str) -> RunRecord | None:
        found = self.list_runs(pipeline=pipeline, node=node, limit=1)
        return found[0] if found else None

    def get_last_run_status(self, pipeline: str, node: str) -> bool | None:
        info = self.get_last_run_info(pipeline, node)
        return None if info is None else bool(info["success"])

    def get_last_run_info(self, pipeline: str, node: str) -> dict[str, Any] | None:
        return info_of(self.get_last_run(pipeline, node))

    def save_pipeline_run(self, pipeline_name: str, pipeline_data_: Mapping[str, Any]) -> None:
        self.record_runs(records_of(pipeline_name, pipeline_data(pipeline_data_)))


def _changed(key: str, found: int | None, expected: int | None) -> StateConflictError:
    return StateConflictError(
        f"`{key}` is {_at(found)}, not {_at(expected)}: another writer was first",
        fix="read the key again and decide anew; nothing was written",
        key=key,
        expected_revision=expected,
        revision=found,
    )


def _at(revision: int | None) -> str:
    return "not set" if revision is None else f"at revision {revision}"
