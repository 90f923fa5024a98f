"""HWMs and runs in tables that only Spark can read or write, and the change-over to them.

Writers of such a ``meta_state`` share one fence, and so wait for each other: deltalake's fence per key is not to be
had through Spark. Folding and retention are left to Spark's OPTIMIZE and DELETE.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, TypeVar

from odi_assets.delta.errors import UnsupportedFeatureError
from odi_assets.state.backend import MOST_RUN_IDS
from odi_assets.state.base import Change
from odi_assets.state.delta.hwms import HwmLog
from odi_assets.state.delta.revisions import newest, revisions, row_of
from odi_assets.state.delta.run_rows import from_row, newest_first, to_row
from odi_assets.state.delta.runs import RunLog
from odi_assets.state.delta.spark_rows import SparkRows
from odi_assets.state.delta.table import SystemTable
from odi_assets.state.delta.table_opening import Handle
from odi_assets.state.records import HwmEntry, RunRecord

_log = logging.getLogger(__name__)
L = TypeVar("L", bound="HwmLog | RunLog")
T = TypeVar("T")


class OrSpark(Generic[L]):
    """A log through deltalake, or through Spark from the first time that deltalake cannot handle its table.

    Args:
        log: through deltalake.
        through_spark: makes the log through Spark; None if there is no session.
    """

    def __init__(self, log: L, through_spark: Callable[[], L] | None) -> None:
        self.log = log
        self._through_spark = through_spark

    @property
    def is_spark(self) -> bool:
        """Whether it goes through Spark."""
        return isinstance(self.log, SparkHwmLog | SparkRunLog)

    def call(self, do: Callable[[L], T]) -> T:
        """What ``do`` makes of the log.

        Raises:
            UnsupportedFeatureError: deltalake cannot handle the table, and there is no Spark session.
        """
        try:
            return do(self.log)
        except UnsupportedFeatureError as error:
            if self._through_spark is None or self.is_spark:
                raise
            _log.info("%s; going on through Spark", error.message)
            self.log = self._through_spark()
            return do(self.log)


class _SparkTable(SystemTable):
    """What of a table's rows is asked without a log."""

    def __init__(self, table: SystemTable, spark: Any) -> None:
        super().__init__(table.uri, table.columns, table.storage_options, table.indexed)
        self.rows_in_spark = SparkRows(spark, self)

    def environments(self) -> set[str | None]:
        return {row["environment"] for row in self.rows_in_spark.read()}


class SparkHwmLog(HwmLog):
    """The revisions of the keys of one environment, through Spark."""

    def __init__(
        self, uri: str, storage_options: Mapping[str, str] | None, environment: str | None, spark: Any
    ) -> None:
        super().__init__(uri, storage_options, environment)
        self.table = table = _SparkTable(self.table, spark)
        self._rows = table.rows_in_spark

    def latest(self, key: str) -> HwmEntry | None:
        return newest(self._of(key))

    def history(self, key: str) -> list[HwmEntry]:
        return revisions(self._of(key))

    def histories(self) -> dict[str, list[HwmEntry]]:
        return {key: revisions(rows) for key, rows in self._by_key().items()}

    def latest_of_all(self) -> list[HwmEntry]:
        return list(self._latest_by_name().values())

    def check(self, changes: Sequence[Change]) -> None:
        self._next(changes)

    def append(self, changes: Sequence[Change]) -> tuple[Handle | None, list[HwmEntry]]:
        fence = self._rows.fence()
        entries = self._next(changes)
        rows = [row_of(entry, text) for entry, text in zip(*self._to_add(entries, changes), strict=True)]
        self._rows.append(rows, fence, lambda: rows[-1] in self._of(rows[-1]["key"]))
        return None, entries

    def _next(self, changes: Sequence[Change]) -> list[HwmEntry]:
        latest = self._latest_by_name([change.key for change in changes])
        now = datetime.now(UTC)
        return [change.entry_after(latest.get(change.key), self._environment, now) for change in changes]

    def _of(self, key: str) -> list[dict[str, Any]]:
        return self._rows.read(environment=self._environment, key=key)

    def _latest_by_name(self, keys: Sequence[str] | None = None) -> dict[str, HwmEntry]:
        found = ((key, newest(rows)) for key, rows in self._by_key(keys).items())
        return {key: entry for key, entry in found if entry is not None}

    def _by_key(self, keys: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        wanted = {} if keys is None else {"key": keys}
        rows = sorted(self._rows.read(environment=self._environment, **wanted), key=itemgetter("key"))
        return {key: list(mine) for key, mine in groupby(rows, key=itemgetter("key"))}


class SparkRunLog(RunLog):
    """The runs of one environment, through Spark."""

    def __init__(
        self, uri: str, storage_options: Mapping[str, str] | None, environment: str | None, spark: Any
    ) -> None:
        super().__init__(uri, storage_options, environment)
        self.table = table = _SparkTable(self.table, spark)
        self._spark_rows = table.rows_in_spark

    def append(self, records: Iterable[RunRecord]) -> Handle | None:
        rows = [to_row(record, self._environment) for record in records]
        if rows:
            self._spark_rows.append(rows, None, lambda: rows[-1] in self._spark_rows.read(run_id=rows[-1]["run_id"]))
        return None

    def newest(
        self, *, pipeline: str | None, node: str | None, run_id: str | None, limit: int | None
    ) -> list[RunRecord]:
        named = {"pipeline_name": pipeline, "node_name": node, "run_id": run_id}
        wanted = {name: value for name, value in named.items() if value is not None}
        rows = self._spark_rows.read(environment=self._environment, **wanted)
        found = sorted(map(from_row, rows), key=newest_first, reverse=True)
        return found if limit is None else found[: max(limit, 0)]

    def find_ids(self, prefix: str) -> list[str]:
        runs = self.newest(pipeline=None, node=None, run_id=None, limit=None)
        ids = dict.fromkeys(run.run_id for run in runs if run.run_id.startswith(prefix))
        return list(ids)[:MOST_RUN_IDS]

    def count_before(self, oldest: datetime) -> int:
        _log.warning("%s is Spark's to maintain; its runs before %s stay", self.table.uri, oldest.isoformat())
        return 0

    def drop_before(self, oldest: datetime) -> int:
        return self.count_before(oldest)
