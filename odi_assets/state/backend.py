"""The protocol of state backends: what every store of high-water marks and runs can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from odi_assets.state.records import HwmEntry, Move, RunRecord

HISTORY_KEPT = 20
"""How many revisions of a key a backend keeps at least."""
MOST_RUN_IDS = 20
"""How many ids :meth:`StateBackend.find_run_ids` gives at most."""


@runtime_checkable
class StateBackend(Protocol):
    """High-water marks and run history of one environment.

    Method names and first arguments are Odibi's. Every method raises ``StateError`` when the state cannot be read or
    written, and ``StateConflictError`` when other writers kept changing the same key until the retries were used up.
    """

    @property
    def environment(self) -> str | None:
        """Whose keys and runs these are; None is the environment without a name."""
        ...

    def get_hwm(self, key: str) -> Any:
        """The value of ``key``; None if it was never set or is deleted."""
        ...

    def in_environment(self, environment: str | None) -> StateBackend:
        """The same store, as another environment sees it."""
        ...

    def environments(self) -> list[str | None]:
        """Every environment that has keys or runs in this store; the one without a name first."""
        ...

    def get_entry(self, key: str, *, deleted: bool = False) -> HwmEntry | None:
        """The present revision of ``key``; None if it was never set or is deleted. With ``deleted``, a tombstone is
        given as it is."""
        ...

    def set_hwm(self, key: str, value: Any, *, target_commit: int | None = None, run_id: str | None = None) -> HwmEntry:
        """Move ``key`` forward to ``value``. A value that lies before the present one, or is of another type, is
        refused with ``StateError``: use :meth:`reset_hwm`."""
        ...

    def reset_hwm(
        self, key: str, value: Any, *, target_commit: int | None = None, run_id: str | None = None
    ) -> HwmEntry:
        """Set ``key`` to ``value``, back or forward."""
        ...

    def compare_and_set(
        self,
        key: str,
        value: Any,
        *,
        expected_revision: int | None,
        expected_value: Any = ...,
        target_commit: int | None = None,
        run_id: str | None = None,
    ) -> HwmEntry:
        """Set ``key`` if its revision is ``expected_revision`` (None: if it is not set), and its value, if that is
        given, ``expected_value``. Revisions count every write of ours; of several writes of another tool in a row
        only the values tell that there was more than one.

        Raises:
            StateConflictError: it has another revision or value. Nothing was written.
        """
        ...

    def set_hwm_batch(self, updates: Sequence[Mapping[str, Any]]) -> list[HwmEntry]:
        """Move many keys forward, all or none. Each update holds ``key`` and ``value``, and may hold
        ``target_commit`` and ``run_id``; of two updates of one key the last counts."""
        ...

    def delete_hwm(self, key: str) -> bool:
        """Delete ``key``; False if it was not set."""
        ...

    def list_hwms(self, *, deleted: bool = False) -> list[HwmEntry]:
        """Every key that is set, in order of the keys; with ``deleted``, tombstones too."""
        ...

    def restore(self, moves: Sequence[Move]) -> list[HwmEntry]:
        """Add revisions of many keys as they are, with their numbers and times, all or none.

        Raises:
            StateConflictError: a key was changed since its move was decided. Nothing was written.
        """
        ...

    def history(self, key: str) -> list[HwmEntry]:
        """The revisions of ``key``, tombstones included, newest first; at least the last 20."""
        ...

    def histories(self) -> dict[str, list[HwmEntry]]:
        """What :meth:`history` gives, of every key at once, in order of the keys."""
        ...

    def record_runs(self, records: Iterable[RunRecord]) -> None:
        """Add ``records`` to the run history, in one commit."""
        ...

    def list_runs(
        self,
        *,
        pipeline: str | None = None,
        node: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> list[RunRecord]:
        """Runs, newest first."""
        ...

    def find_run_ids(self, prefix: str) -> list[str]:
        """Ids of runs that begin with ``prefix``, newest first; at most 20."""
        ...

    def get_last_run(self, pipeline: str, node: str) -> RunRecord | None:
        """The newest attempt of a node."""
        ...

    def get_last_run_status(self, pipeline: str, node: str) -> bool | None:
        """Whether the newest attempt of a node succeeded; None if there was none."""
        ...

    def get_last_run_info(self, pipeline: str, node: str) -> dict[str, Any] | None:
        """``success`` and ``metadata`` of the newest attempt of a node, and its fields; None if there was none."""
        ...

    def save_pipeline_run(self, pipeline_name: str, pipeline_data: Mapping[str, Any]) -> None:
        """Record a whole pipeline run in Odibi's form: ``{"last_run": …, "nodes": {name: {"success", "timestamp",
        "metadata"}}}``."""
        ...

    def maintain(self, *, keep_runs_for: timedelta | None = None, dry_run: bool = False) -> dict[str, int]:
        """Fold files, drop runs older than ``keep_runs_for`` and what nothing refers to; counts of what was done, or
        with ``dry_run`` would be. The newest run of each node always stays."""
        ...
