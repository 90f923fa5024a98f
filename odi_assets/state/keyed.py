"""What every state backend does alike, on top of a few primitives: decide under the store's own guard, then write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from odi_assets.errors import StateConflictError, StateError
from odi_assets.state import values
from odi_assets.state.forward import check_forward
from odi_assets.state.records import HwmEntry, RunRecord, check_environment, check_key
from odi_assets.state.run_data import info_of, pipeline_data, records_of

Check = Callable[["Change", HwmEntry | None], None]
"""Sees a change and its key's present revision (None: not set), and raises if the change may not be made."""


def any_change(_change: Change, _current: HwmEntry | None) -> None:
    """The check of a change that may always be made."""


def forward_only(change: Change, current: HwmEntry | None) -> None:
    """The check of a change that may only move its key forward.

    Raises:
        StateError: it would move the key back, or to another type.
    """
    check_forward(current, change.value, change.encoded.type)


# Not frozen, and encoded once: a batch makes thousands of these.
@dataclass(slots=True)
class Change:
    """One key's next revision; ``encoded`` is its value as it is stored.

    Raises:
        StateError: the key is none, or the value cannot be stored.
    """

    key: str
    value: Any = None
    target_commit: int | None = None
    run_id: str | None = None
    deleted: bool = False
    check: Check = any_change
    encoded: values.Encoded = field(init=False)

    def __post_init__(self) -> None:
        check_key(self.key)
        self.encoded = values.encode(self.value)

    def entry_after(self, latest: HwmEntry | None, environment: str | None, now: datetime) -> HwmEntry:
        """The entry that follows ``latest`` (tombstones count; None: the key is new).

        Raises:
            OdiError: the check refuses the change.
        """
        self.check(self, None if latest is None or latest.deleted else latest)
        if latest is not None and latest.updated_at >= now:
            now = latest.updated_at + timedelta(microseconds=1)
        return HwmEntry(
            key=self.key,
            value=self.value,
            environment=environment,
            updated_at=now,
            revision=latest.revision + 1 if latest else 1,
            deleted=self.deleted,
            target_commit=self.target_commit,
            run_id=self.run_id,
            value_type=None if self.deleted else self.encoded.type,
        )


class KeyedBackend(ABC):
    """The methods of :class:`~odi_assets.state.backend.StateBackend` that do not depend on the store."""

    def __init__(self, environment: str | None) -> None:
        self._environment = check_environment(environment)

    @property
    def environment(self) -> str | None:
        return self._environment

    @abstractmethod
    def get_entry(self, key: str) -> HwmEntry | None: ...

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
        target_commit: int | None = None,
        run_id: str | None = None,
    ) -> HwmEntry:
        def check(_change: Change, current: HwmEntry | None) -> None:
            found = None if current is None else current.revision
            if found != expected_revision:
                raise StateConflictError(
                    f"`{key}` is {_at(found)}, not {_at(expected_revision)}: another writer was first",
                    fix="read the key again and decide anew; nothing was written",
                    key=key,
                    expected_revision=expected_revision,
                    revision=found,
                )

        return self._write([Change(key, value, target_commit, run_id, check=check)])[0]

    def set_hwm_batch(self, updates: Sequence[Mapping[str, Any]]) -> list[HwmEntry]:
        changes: dict[str, Change] = {}
        for number, update in enumerate(updates):
            if "key" not in update or "value" not in update:
                raise StateError(
                    f"update {number} of the batch holds {sorted(map(str, update))}, not `key` and `value`",
                    fix="nothing was written; give each update both",
                )
            key, value = update["key"], update["value"]
            changes[key] = Change(key, value, update.get("target_commit"), update.get("run_id"), check=forward_only)
        return self._write(list(changes.values())) if changes else []

    def delete_hwm(self, key: str) -> bool:
        if self.get_entry(key) is None:
            return False
        self._write([Change(key, deleted=True)])
        return True

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


def _at(revision: int | None) -> str:
    return "not set" if revision is None else f"at revision {revision}"
