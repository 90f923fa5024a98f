"""State backends: what every store of high-water marks and runs can do.

The base class does what does not depend on the store, on top of a few primitives: decide under the store's own guard,
then write.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self

from odi_assets.errors import StateConflictError, StateError
from odi_assets.state.monotonic import TextOrder, check_monotonic, undeclared
from odi_assets.state.records import (
    HwmEntry,
    KeyRestore,
    RunRecord,
    check_environment,
    check_key,
    info_of,
    pipeline_data,
    records_of,
)
from odi_assets.state.values import Encoded, encode

HISTORY_KEPT = 20
"""How many revisions of a key a backend keeps at least."""
MOST_RUN_IDS = 20
"""How many ids :meth:`StateBackend.find_run_ids` gives at most."""


Check = Callable[["KeyChange", HwmEntry | None], None]
"""Sees a change and its key's present revision (None: not set), and raises if the change may not be made."""


ANY_VALUE: Any = object()
"""What ``compare_and_set`` takes for: the revision alone decides."""


def any_change(_change: KeyChange, _current: HwmEntry | None) -> None:
    """The check of a change that may always be made."""


@dataclass(slots=True)
class KeyChange:
    """One key's next revision; ``encoded`` is its value as it is stored, made once.

    With ``move``, the revision is written as that says; otherwise it is the one after the present one, of now.

    Raises:
        StateError: the key is none, or the value cannot be stored.
    """

    key: str
    value: Any = None
    target_commit: int | None = None
    run_id: str | None = None
    deleted: bool = False
    check: Check = any_change
    move: KeyRestore | None = None
    origin: str | None = None
    encoded: Encoded = field(init=False)

    def __post_init__(self) -> None:
        check_key(self.key)
        self.encoded = encode(self.value)

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
            self.origin,
        )


def _moved(move: KeyRestore, latest: HwmEntry | None, environment: str | None) -> HwmEntry:
    revision = None if latest is None else latest.revision
    if revision != move.expected:
        raise _changed(move.entry.key, revision, move.expected)
    return move.entry._replace(environment=environment)


class StateBackend(ABC):
    """High-water marks and run history of one environment.

    Method names and first arguments are Odibi's. Every method raises ``StateError`` when the state cannot be read or
    written, and ``StateConflictError`` when other writers kept changing the same key until the retries were used up.

    Attributes:
        text_order: what the nodes of the project declare of text HWMs, where the backend is a project's.
    """

    def __init__(self, environment: str | None) -> None:
        self._environment = check_environment(environment)
        self.text_order: TextOrder = undeclared

    @property
    def environment(self) -> str | None:
        """Whose keys and runs these are; None is the environment without a name."""
        return self._environment

    def in_environment(self, environment: str | None) -> Self:
        """The same store, as another environment sees it."""
        other = copy(self)
        other._environment = check_environment(environment)
        return other

    @abstractmethod
    def environments(self) -> list[str | None]:
        """Every environment that has keys or runs in this store; the one without a name first."""

    # -- high-water marks ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _latest(self, key: str) -> HwmEntry | None:
        """The newest revision of ``key``, a tombstone too."""

    @abstractmethod
    def _latest_of_all(self) -> list[HwmEntry]:
        """The newest revision of every key, tombstones too, in order of the keys."""

    @abstractmethod
    def _write(self, changes: Sequence[KeyChange]) -> list[HwmEntry]:
        """Make all changes (of distinct keys) or none, each checked against the revision it replaces."""

    def get_hwm(self, key: str) -> Any:
        """The value of ``key``; None if it was never set or is deleted."""
        entry = self.get_entry(key)
        return None if entry is None else entry.value

    def get_entry(self, key: str, *, deleted: bool = False) -> HwmEntry | None:
        """The present revision of ``key``; None if it was never set or is deleted. With ``deleted``, a tombstone is
        given as it is."""
        entry = self._latest(check_key(key))
        return None if entry is None or (entry.deleted and not deleted) else entry

    def list_hwms(self, *, deleted: bool = False) -> list[HwmEntry]:
        """Every key that is set, in order of the keys; with ``deleted``, tombstones too."""
        return [entry for entry in self._latest_of_all() if deleted or not entry.deleted]

    def hwms_stamp(self) -> Hashable | None:
        """A cheap fingerprint that changes whenever an HWM changes; None if the backend has none.

        Take it before reading the HWMs: a write in between then shows in the next fingerprint.
        """
        return None

    def _check_monotonic(self, change: KeyChange, current: HwmEntry | None) -> None:
        """The check of a change that may not move its key back, or to another type."""
        check_monotonic(current, change.value, change.encoded.type, self.text_order)

    def set_hwm(self, key: str, value: Any, *, target_commit: int | None = None, run_id: str | None = None) -> HwmEntry:
        """Move ``key`` on to ``value``. A value that lies before the present one, or is of another type, is
        refused with ``StateError``: use :meth:`reset_hwm`."""
        return self._write([KeyChange(key, value, target_commit, run_id, check=self._check_monotonic)])[0]

    def reset_hwm(
        self,
        key: str,
        value: Any,
        *,
        target_commit: int | None = None,
        run_id: str | None = None,
        origin: str | None = None,
    ) -> HwmEntry:
        """Set ``key`` to ``value``, back or forward; ``origin`` says what the value is of (see :class:`HwmEntry`)."""
        return self._write([KeyChange(key, value, target_commit, run_id, origin=origin)])[0]

    def compare_and_set(
        self,
        key: str,
        value: Any,
        *,
        expected_revision: int | None,
        expected_value: Any = ANY_VALUE,
        target_commit: int | None = None,
        run_id: str | None = None,
        origin: str | None = None,
    ) -> HwmEntry:
        """Set ``key`` if its revision is ``expected_revision`` (None: if it is not set), and its value, if that is
        given, ``expected_value``. Revisions count every write of ours; of several writes of another tool in a row
        only the values tell that there was more than one.

        Raises:
            StateConflictError: it has another revision or value. Nothing was written.
        """

        at_revision = _require_revision(expected_revision)

        def check(change: KeyChange, current: HwmEntry | None) -> None:
            at_revision(change, current)
            revision = None if current is None else current.revision
            if current is None or expected_value is ANY_VALUE:
                return
            if encode(current.value) != encode(expected_value):
                raise StateConflictError(
                    f"`{key}` is {_at(revision)} as expected, but with another value: another tool set it again",
                    fix="read the key again and decide again; nothing was written",
                    key=key,
                    expected_revision=expected_revision,
                    revision=revision,
                )

        return self._write([KeyChange(key, value, target_commit, run_id, check=check, origin=origin)])[0]

    def set_hwm_batch(self, updates: Sequence[Mapping[str, Any]]) -> list[HwmEntry]:
        """Move many keys on, all or none. Each update holds ``key`` and ``value``, and may hold
        ``target_commit`` and ``run_id``; of two updates of one key the last counts."""
        changes: dict[str, KeyChange] = {}
        for number, update in enumerate(updates):
            try:
                key, value = update["key"], update["value"]
            except KeyError as error:
                raise StateError(
                    f"update {number} of the batch holds {sorted(map(str, update))}, not `key` and `value`",
                    fix="nothing was written; give each update both",
                ) from error
            changes[key] = KeyChange(
                key, value, update.get("target_commit"), update.get("run_id"), check=self._check_monotonic
            )
        return self._write(list(changes.values())) if changes else []

    def delete_hwm(self, key: str, *, expected_revision: Any = ANY_VALUE) -> bool:
        """Delete ``key``; False if it was not set.

        Raises:
            StateConflictError: it has another revision than the one that is given. Nothing was written.
        """
        if self.get_entry(key) is None:
            return False
        check = any_change if expected_revision is ANY_VALUE else _require_revision(expected_revision)
        self._write([KeyChange(key, deleted=True, check=check)])
        return True

    def restore(self, moves: Sequence[KeyRestore]) -> list[HwmEntry]:
        """Add revisions of many keys as they are, with their numbers and times, all or none.

        Raises:
            StateConflictError: a key was changed since its move was decided. Nothing was written.
        """
        changes = [KeyChange(m.entry.key, m.entry.value, deleted=m.entry.deleted, move=m) for m in moves]
        return self._write(changes) if changes else []

    @abstractmethod
    def history(self, key: str) -> list[HwmEntry]:
        """The revisions of ``key``, tombstones included, newest first; at least the last 20."""

    @abstractmethod
    def histories(self) -> dict[str, list[HwmEntry]]:
        """What :meth:`history` gives, of every key at once, in order of the keys."""

    # -- runs ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def record_runs(self, records: Iterable[RunRecord]) -> None:
        """Add ``records`` to the run history, in one commit."""

    @abstractmethod
    def list_runs(
        self,
        *,
        pipeline: str | None = None,
        node: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> list[RunRecord]:
        """Runs, newest first."""

    @abstractmethod
    def find_run_ids(self, prefix: str) -> list[str]:
        """Ids of runs that begin with ``prefix``, newest first; at most 20."""

    def get_last_run(self, pipeline: str, node: str) -> RunRecord | None:
        """The newest attempt of a node."""
        return next(iter(self.list_runs(pipeline=pipeline, node=node, limit=1)), None)

    def get_last_run_status(self, pipeline: str, node: str) -> bool | None:
        """Whether the newest attempt of a node succeeded; None if there was none."""
        info = self.get_last_run_info(pipeline, node)
        return None if info is None else bool(info["success"])

    def get_last_run_info(self, pipeline: str, node: str) -> dict[str, Any] | None:
        """``success`` and ``metadata`` of the newest attempt of a node, and its fields; None if there was none."""
        return info_of(self.get_last_run(pipeline, node))

    def save_pipeline_run(self, pipeline_name: str, pipeline_data_: Mapping[str, Any]) -> None:
        """Record a whole pipeline run in Odibi's form: ``{"last_run": …, "nodes": {name: {"success", "timestamp",
        "metadata"}}}``."""
        self.record_runs(records_of(pipeline_name, pipeline_data(pipeline_data_)))

    @abstractmethod
    def maintain(self, *, keep_runs_for: timedelta | None = None, dry_run: bool = False) -> dict[str, int]:
        """Compact files, drop runs older than ``keep_runs_for`` and what nothing refers to; counts of what was done, or
        with ``dry_run`` would be. The newest run of each node always stays."""


def _require_revision(expected: int | None) -> Check:
    def check(change: KeyChange, current: HwmEntry | None) -> None:
        revision = None if current is None else current.revision
        if revision != expected:
            raise _changed(change.key, revision, expected)

    return check


def _changed(key: str, revision: int | None, expected: int | None) -> StateConflictError:
    return StateConflictError(
        f"`{key}` is {_at(revision)}, and was {_at(expected)} when this was decided: another writer was first",
        fix="read the key again and decide again; nothing was written",
        key=key,
        expected_revision=expected,
        revision=revision,
    )


def _at(revision: int | None) -> str:
    return "not set" if revision is None else f"at revision {revision}"
