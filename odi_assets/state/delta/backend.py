"""State in two Delta tables, ``meta_state`` and ``meta_runs``: for many machines, and without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from odi_assets.connections.location import Location, absolute
from odi_assets.delta.errors import CommitConflict, StoreUnreachableError, UnsupportedFeatureError
from odi_assets.delta.retry import Retry, is_transient
from odi_assets.errors import StateError
from odi_assets.state.backend import KeyChange, StateBackend
from odi_assets.state.delta.hwms import HwmLog
from odi_assets.state.delta.odibi import another
from odi_assets.state.delta.runs import RunLog
from odi_assets.state.delta.share import share
from odi_assets.state.delta.table import SystemTable
from odi_assets.state.records import HwmEntry, RunRecord, check_key

L = TypeVar("L", bound=HwmLog | RunLog)
T = TypeVar("T")

_LAYOUTS = 3
"""How often the way to a table is changed before its faults are raised: Odibi's shape, Spark, and back."""


class CatalogStateBackend(StateBackend):
    """State in Delta tables, made with their first write; Odibi's own tables are used as they are.

    Args:
        meta_runs_path: path (relative to the current folder) or URI of the run history.
        meta_state_path: the same of the high-water marks.
        spark_session: for tables with Delta features that deltalake cannot handle; it needs Delta's connector. Not
            used otherwise: deltalake reads and writes the tables without it, and faster.
        storage_options: deltalake's options for the store; never shown.
        environment: whose keys and runs; None is the environment without a name.
        retry: how conflicts and transient faults of the store are retried.
        connection: the name under which errors tell where the storage options come from.
        keep_runs_for: runs that ended longer ago are dropped when files are compacted, but for the newest of each node;
            None: none are.
        fsync: whether commits on a local disk are put on the disk before they count.
        notes: the folder in which is noted on which disks local tables were made, so that a disk is missed.
    """

    def __init__(
        self,
        meta_runs_path: str,
        meta_state_path: str,
        spark_session: Any = None,
        storage_options: Mapping[str, str] | None = None,
        environment: str | None = None,
        retry: Retry | None = None,
        connection: str | None = None,
        keep_runs_for: timedelta | None = None,
        notes: Path | None = None,
        fsync: bool = True,
    ) -> None:
        super().__init__(environment)
        paths = map(str, (meta_runs_path, meta_state_path))
        self.meta_runs_path, self.meta_state_path = (p if p.startswith("/") else absolute(p) for p in paths)
        self.spark = spark_session
        self._retry = retry or Retry()
        self.keep_runs_for = keep_runs_for
        options = dict(storage_options or {})
        self._locations = tuple(
            Location(path, options, connection=connection, fsync=fsync)
            for path in (self.meta_state_path, self.meta_runs_path)
        )
        self._notes = notes
        self._open_logs()

    def _open_logs(self) -> None:
        state, runs = self._locations
        self._hwms = HwmLog(state, self.environment)
        self._runs = RunLog(runs, self.environment, self.keep_runs_for)
        if self._notes is not None:
            self._hwms.note, self._runs.note = self._notes / "meta_state.disk", self._notes / "meta_runs.disk"
        # What is used instead of a log, from the first time that the log could not handle its table.
        self._instead: dict[SystemTable, Any] = {}

    def __repr__(self) -> str:
        return (
            f"CatalogStateBackend({self.meta_runs_path!r}, {self.meta_state_path!r}, environment={self.environment!r})"
        )

    @property
    def locations(self) -> dict[str, Location]:
        """The tables by their names."""
        return {"meta_state": self._hwms.location, "meta_runs": self._runs.location}

    def in_environment(self, environment: str | None) -> Self:
        other = super().in_environment(environment)
        other._open_logs()
        return other

    def environments(self) -> list[str | None]:
        logs: tuple[HwmLog | RunLog, ...] = (self._hwms, self._runs)
        environments = (self._call(log, lambda log: log.environments(), "listing environments") for log in logs)
        return sorted(set().union(*environments), key=lambda name: name or "")

    def _latest(self, key: str) -> HwmEntry | None:
        return self._call(self._hwms, lambda log: log.latest(key), f"get_hwm of `{key}`")

    def _latest_of_all(self) -> list[HwmEntry]:
        return self._call(self._hwms, lambda log: log.latest_of_all(), "list_hwms")

    def hwms_stamp(self) -> Hashable | None:
        return self._call(self._hwms, lambda log: log.stamp(), "looking whether HWMs changed")

    def history(self, key: str) -> list[HwmEntry]:
        check_key(key)
        return self._call(self._hwms, lambda log: log.history(key), f"history of `{key}`")

    def histories(self) -> dict[str, list[HwmEntry]]:
        return self._call(self._hwms, lambda log: log.histories(), "histories")

    def _write(self, changes: Sequence[KeyChange]) -> list[HwmEntry]:
        def append(log: HwmLog) -> list[HwmEntry]:
            try:
                return log.append(changes)
            except CommitConflict:
                # Waiting is for changes that may still be made: what the winner wrote may refuse this one for good.
                log.check(changes)
                raise

        what = f"set_hwm of `{changes[0].key}`" if len(changes) == 1 else f"set_hwm_batch of {len(changes)} keys"
        # A check that finds another revision is final: only a commit that met another one is made again.
        entries = self._call(
            self._hwms, append, what, again=lambda error: isinstance(error, CommitConflict | StoreUnreachableError)
        )
        if self._hwms in self._instead:
            self._mirror([change.key for change in changes])
        return entries

    def _mirror(self, keys: Sequence[str]) -> None:
        try:
            self._call(self._hwms, lambda log: log.mirror(keys), f"set_hwm of {len(keys)} keys in Odibi's table")
        except StateError as error:
            raise StateError(
                f"the high-water mark is set, but Odibi's own table does not tell it: {error.message}",
                fix="the next read or write of the key writes it there, and so does `odi system maintain`",
                uri=self.meta_state_path,
            ) from error

    def record_runs(self, records: Iterable[RunRecord]) -> None:
        kept = list(records)
        self._call(self._runs, lambda log: log.append(kept), f"record_runs of {len(kept)} runs")

    def list_runs(
        self,
        *,
        pipeline: str | None = None,
        node: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> list[RunRecord]:
        return self._call(
            self._runs,
            lambda log: log.newest(pipeline=pipeline, node=node, run_id=run_id, limit=limit),
            "list_runs",
        )

    def find_run_ids(self, prefix: str) -> list[str]:
        return self._call(self._runs, lambda log: log.find_ids(prefix), "find_run_ids")

    def maintain(self, *, keep_runs_for: timedelta | None = None, dry_run: bool = False) -> dict[str, int]:
        keep_runs_for = keep_runs_for or self.keep_runs_for
        dropped = 0
        if keep_runs_for is not None:
            oldest = datetime.now(UTC) - keep_runs_for
            dropped = self._call(
                self._runs,
                lambda log: log.count_before(oldest) if dry_run else log.drop_before(oldest),
                "dropping old runs",
            )
        hwms, runs = (
            self._call(log, lambda log: log.maintain(dry_run=dry_run), f"maintaining {log.uri}")
            for log in (self._hwms, self._runs)
        )
        return {"runs_dropped": dropped, **{name: hwms.get(name, 0) + runs.get(name, 0) for name in hwms | runs}}

    def share_with_odibi(self) -> dict[str, int]:
        """Make both tables such as Odibi has them, so that it can use them too; HWMs, revisions and runs stay.

        Returns:
            How many rows were rewritten, by table; 0 where a table is Odibi's already.
        """
        what = "giving the system tables Odibi's columns"
        return self._retry.call(lambda: share(self._hwms.location, self._runs.location), what)

    def _call(
        self, log: L, do: Callable[[L], T], what: str, again: Callable[[BaseException], bool] = is_transient
    ) -> T:
        """What ``do`` makes of a log, or of what is used instead of it, under the retry policy; ``what`` names it in
        messages.

        Raises:
            UnsupportedFeatureError: deltalake cannot handle the table, and there is no Spark session.
        """

        def once() -> T:
            for _ in range(_LAYOUTS):
                try:
                    return do(self._instead.get(log, log))
                except UnsupportedFeatureError as error:
                    self._instead[log] = another(log, self._instead.get(log, log), error, self.spark)
            return do(self._instead.get(log, log))

        return self._retry.call(once, what, again=again)
