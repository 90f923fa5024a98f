"""System tables through a Spark session that was handed in, for those that deltalake cannot read or write.

Spark reads and writes the rows; deltalake still reads the log, where the fence of these writes is. That fence is the
table's, not a key's, for Spark takes one ``txnAppId`` and ``txnVersion`` per write: writers of such a ``meta_state``
wait for each other. It skips a write whose version is not newer than the log's, without a word, so every write is
looked up afterwards. Compaction and retention are left to Spark's OPTIMIZE and DELETE. No pyspark is imported here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from odi_assets.delta.errors import CommitConflict
from odi_assets.errors import StateError
from odi_assets.state.backend import MOST_RUN_IDS, KeyChange
from odi_assets.state.delta.hwms import HwmLog, revisions, revisions_by_key, to_add
from odi_assets.state.delta.runs import RunLog
from odi_assets.state.delta.system_columns import Kind, as_rows, micros, moment
from odi_assets.state.delta.table import SystemTable
from odi_assets.state.records import HwmEntry, RunRecord, newest_first

_log = logging.getLogger(__name__)
_FENCE = "odi/spark"
_TYPES: dict[Kind, str] = {
    "string": "string",
    "long": "bigint",
    "boolean": "boolean",
    "timestamp": "bigint",
    "date": "date",
}


def through_spark(log: HwmLog | RunLog, spark: Any) -> HwmLog | RunLog:
    """A log of the same kind, table and environment, through Spark."""
    return SparkHwmLog(log, spark) if isinstance(log, HwmLog) else SparkRunLog(log, spark)


class SparkTable(SystemTable):
    """A system table whose rows Spark reads and writes."""

    def use(self, spark: Any) -> None:
        """Go through ``spark``, whose ``format("delta")`` reads and writes the table and knows the credentials."""
        self._spark = spark
        self._spark_uri = f"s3a{self.uri.removeprefix('s3')}" if self.uri.startswith("s3://") else self.uri
        self._moments = {name for name, kind in self.columns.kinds.items() if kind == "timestamp"}

    def fence(self) -> int:
        """The number of the last write through Spark; to be read before the rows on which the next is based."""
        handle = self.open()
        return 0 if handle is None else handle.transaction_number(_FENCE)

    def maintain(self, *, dry_run: bool = False) -> dict[str, int]:
        """Nothing: a table that deltalake cannot handle is Spark's to maintain."""
        del dry_run
        _log.info("%s is Spark's to maintain", self.uri)
        return {"files_folded": 0, "files_removed": 0}

    def environments(self) -> set[str | None]:
        return {row["environment"] for row in self.select()}

    def select(self, **wanted: str | Sequence[str] | None) -> list[dict[str, Any]]:
        """The rows whose columns have these values, or one of these; None is null.

        Raises:
            StateError: Spark cannot read the table.
        """
        frame = self._through_spark("reading", lambda: self._spark.read.format("delta").load(self._spark_uri))
        for name, value in wanted.items():
            if name not in frame.columns:
                # Odibi before 2.5 made tables without `environment`.
                frame = frame if value is None else frame.limit(0)
                continue
            column = frame[name]
            frame = frame.filter(
                column.isNull() if value is None else column == value if isinstance(value, str) else column.isin(*value)
            )
        # Moments as numbers: pyspark would give them in this machine's zone, without saying so.
        chosen = frame.selectExpr(
            *(
                f"unix_micros(CAST(`{name}` AS timestamp)) AS `{name}`" if name in self._moments else f"`{name}`"
                for name in self.columns.kinds
                if name in frame.columns
            )
        )
        rows = [row.asDict() for row in self._through_spark("reading", chosen.collect)]
        for row in rows:
            row.update({name: moment(row[name]) for name in self._moments if row.get(name) is not None})
        return [{**dict.fromkeys(self.columns.kinds), **row} for row in rows]

    def insert(self, rows: Sequence[Mapping[str, Any]], fence: int | None, landed: Callable[[], bool]) -> None:
        """Append rows in one commit; with a ``fence``, unless another fenced write came since it was read.

        Raises:
            CommitConflict: another write came first; nothing was written.
            StateError: Spark cannot write the table; nothing was written.
        """
        failed: StateError | None = None
        try:
            self._through_spark("writing", lambda: self._save(rows, fence))
        except StateError as error:
            failed = error
        if landed():
            return
        if fence is not None and self.fence() > fence:
            raise CommitConflict(
                f"another write to {self.uri} came first", fix="try again; nothing was written"
            ) from failed
        raise failed or StateError(f"Spark wrote nothing to {self.uri}, and said nothing", uri=self.uri)

    def _save(self, rows: Sequence[Mapping[str, Any]], fence: int | None) -> None:
        kinds = self.columns.kinds
        values = [
            tuple(micros(row[name]) if name in self._moments and row[name] is not None else row[name] for name in kinds)
            for row in rows
        ]
        frame = self._spark.createDataFrame(
            values, ", ".join(f"`{name}` {_TYPES[kind]}" for name, kind in kinds.items())
        )
        frame = frame.selectExpr(
            *(f"timestamp_micros(`{name}`) AS `{name}`" if name in self._moments else f"`{name}`" for name in kinds)
        )
        writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
        if fence is not None:
            writer = writer.option("txnAppId", _FENCE).option("txnVersion", str(fence + 1))
        writer.save(self._spark_uri)

    def _through_spark(self, doing: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            # pyspark's types cannot be named here.
            first = str(error).strip().split("\n", 1)[0]
            raise StateError(
                f"Spark failed {doing} {self.uri}: {type(error).__name__}: {first}",
                fix="give a session with Delta's connector (delta-spark) and the store's credentials",
                uri=self.uri,
            ) from error


class SparkHwmLog(SparkTable, HwmLog):
    """The revisions of the keys of one environment, through Spark."""

    def __init__(self, log: HwmLog, spark: Any) -> None:
        HwmLog.__init__(self, log.location, log.environment)
        self.use(spark)

    def latest(self, key: str) -> HwmEntry | None:
        return next(iter(self.history(key)), None)

    def history(self, key: str) -> list[HwmEntry]:
        return revisions(self.select(environment=self.environment, key=key))

    def histories(self) -> dict[str, list[HwmEntry]]:
        return revisions_by_key(self.select(environment=self.environment))

    def latest_of_all(self) -> list[HwmEntry]:
        return [history[0] for history in self.histories().values()]

    def stamp(self) -> None:
        """Only Spark can look at the table."""

    def check(self, changes: Sequence[KeyChange]) -> None:
        self._next(changes)

    def append(self, changes: Sequence[KeyChange]) -> list[HwmEntry]:
        fence = self.fence()
        entries = self._next(changes)
        rows = as_rows(to_add(entries, changes, {}, self.environment))
        last = rows[-1]
        self.insert(rows, fence, lambda: last in self.select(environment=self.environment, key=last["key"]))
        return entries

    def _next(self, changes: Sequence[KeyChange]) -> list[HwmEntry]:
        there = revisions_by_key(self.select(environment=self.environment, key=[change.key for change in changes]))
        now = datetime.now(UTC)
        return [
            change.entry_after(next(iter(there.get(change.key, [])), None), self.environment, now) for change in changes
        ]


class SparkRunLog(SparkTable, RunLog):
    """The runs of one environment, through Spark."""

    def __init__(self, log: RunLog, spark: Any) -> None:
        RunLog.__init__(self, log.location, log.environment)
        self.use(spark)

    def append(self, records: Iterable[RunRecord]) -> None:
        rows = [record.to_row(self.environment) for record in records]
        if rows:
            self.insert(rows, None, lambda: rows[-1] in self.select(run_id=rows[-1]["run_id"]))

    def newest(
        self, *, pipeline: str | None, node: str | None, run_id: str | None, limit: int | None
    ) -> list[RunRecord]:
        values_by_column = {"pipeline_name": pipeline, "node_name": node, "run_id": run_id}
        filters = {name: value for name, value in values_by_column.items() if value is not None}
        rows = self.select(environment=self.environment, **filters)
        records = sorted(map(RunRecord.from_row, rows), key=newest_first, reverse=True)
        return records if limit is None else records[: max(limit, 0)]

    def find_ids(self, prefix: str) -> list[str]:
        runs = self.newest(pipeline=None, node=None, run_id=None, limit=None)
        ids = dict.fromkeys(run.run_id for run in runs if run.run_id.startswith(prefix))
        return list(ids)[:MOST_RUN_IDS]

    def count_before(self, oldest: datetime) -> int:
        _log.warning("%s is Spark's to maintain; its runs before %s stay", self.uri, oldest.isoformat())
        return 0

    def drop_before(self, oldest: datetime) -> int:
        return self.count_before(oldest)
