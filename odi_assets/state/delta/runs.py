"""Run history in Delta: ``meta_runs``, one row per attempt of a node, appended as the node ends.

In a table that Odibi made, which it cannot append to with more columns than its own, what has no column there is part
of ``metrics_json``.

Look-ups start with the newest files that may hold the node (statistics tell which) and go back only as far as they
must, so that they cost the same at any length of history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from odi_assets.connections.location import Location
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.state.backend import MOST_RUN_IDS
from odi_assets.state.delta.system_columns import Columns, by_column, micros
from odi_assets.state.delta.table import SystemTable, in_environment, query, sql
from odi_assets.state.records import DETAILS, RunRecord, newest_first
from odi_assets.util.lazy import pa, pc

if TYPE_CHECKING:
    from arro3.core import Table

OURS = (
    *("started_at", "partition_key", "trigger", "attempt", "hwm_before", "hwm_after", "table_version"),
    *("code_version", "error"),
)
COLUMNS = Columns(
    {
        "run_id": "string",
        "project": "string",
        "pipeline_name": "string",
        "node_name": "string",
        "status": "string",
        "rows_processed": "long",
        "duration_ms": "long",
        "metrics_json": "string",
        "environment": "string",
        "timestamp": "timestamp",
        "date": "date",
        "started_at": "timestamp",
        "partition_key": "string",
        "trigger": "string",
        "attempt": "long",
        "hwm_before": "string",
        "hwm_after": "string",
        "table_version": "long",
        "code_version": "string",
        "error": "string",
    },
    ours=OURS,
)
_NODE = ("environment", "pipeline_name", "node_name")
INDEXED = ("run_id", "pipeline_name", "node_name", "environment", "timestamp")
# Statistics in the log are cut to milliseconds.
_CUT = timedelta(milliseconds=1)
_NEVER = datetime.min.replace(tzinfo=UTC)
_ALWAYS = datetime.max.replace(tzinfo=UTC)
_FIRST_LOOK = 1
_LOOK_GROWTH = 4


class RunLog(SystemTable):
    """The runs of one environment; a compaction drops those that ended longer than ``keep_for`` ago."""

    largest_file = 20_000

    def __init__(self, location: Location, environment: str | None, keep_for: timedelta | None = None) -> None:
        super().__init__(location, COLUMNS, INDEXED)
        self.environment = environment
        self._keep_for = keep_for

    def append(self, records: Iterable[RunRecord]) -> None:
        """Add records in one commit, if there are any. One attempt.

        Raises:
            CommitConflict: nothing was written.
        """
        rows = [record.to_row(self.environment) for record in records]
        if rows:
            added = COLUMNS.to_arrow({name: [row[name] for row in rows] for name in COLUMNS.kinds})
            self.write(lambda handle: self.append_rows(handle, added, [], lambda now: self._holds(now, rows[-1]), True))

    def newest(
        self, *, pipeline: str | None, node: str | None, run_id: str | None, limit: int | None
    ) -> list[RunRecord]:
        """The newest runs that fit, newest first."""
        named = {"pipeline_name": pipeline, "node_name": node, "run_id": run_id}
        wanted = {name: value for name, value in named.items() if value is not None}
        if limit is not None and limit <= 0:
            return []
        return self.read(lambda handle: self._newest(handle, wanted, limit)) or []

    def rows_to_keep(self, handle: TableHandle, files: Sequence[LiveFile]) -> pa.Table:
        """What a compaction keeps, of all environments: in an order that brings a node's runs together, everything but
        the runs of this environment that are past the time they are kept for."""
        rows = super().rows_to_keep(handle, files).sort_by([(name, "ascending") for name in (*_NODE, "timestamp")])
        return rows if self._keep_for is None else self._without_old(rows, datetime.now(UTC) - self._keep_for)

    def without_ours(self, rows: Table) -> Table:
        return super().without_ours(COLUMNS.to_arrow(by_column(list(map(as_odibis_run, COLUMNS.rows(rows))))))

    def _without_old(self, rows: pa.Table, oldest: datetime) -> pa.Table:
        if not len(rows):
            return rows
        environment = rows.column("environment")
        mine = pc.is_null(environment) if self.environment is None else pc.equal(environment, self.environment)
        old = pc.and_(mine, pc.less(rows.column("timestamp"), pa.scalar(oldest, pa.timestamp("us", "UTC"))))
        # Of sorted rows, the newest of a node is the one before another node begins.
        names = [pc.fill_null(rows.column(name), "").combine_chunks() for name in _NODE]
        differs = [pc.not_equal(column[:-1], column[1:]) for column in names]
        last = pa.concat_arrays([reduce(pc.or_, differs), pa.array([True])])
        return rows.filter(pc.or_(last, pc.invert(pc.fill_null(old, False))))

    def drop_before(self, oldest: datetime) -> int:
        """Delete runs that ended before ``oldest``, except the newest run of each node; how many there were."""
        handle = self.open()
        if handle is None:
            return 0
        with handle.calls("dropping old runs"):
            return int(handle.table.delete(self._dispensable(handle, oldest))["num_deleted_rows"])

    def count_before(self, oldest: datetime) -> int:
        """How many runs :meth:`drop_before` would delete."""
        count = self.read(lambda handle: len(self.rows(handle, self._dispensable(handle, oldest))))
        return count or 0

    def find_ids(self, prefix: str) -> list[str]:
        """Ids of runs that begin with ``prefix``, newest first; a few."""
        statement = (
            f"SELECT run_id FROM state WHERE {in_environment(self.environment)} AND starts_with(run_id, {sql(prefix)}) "
            f'GROUP BY run_id ORDER BY max("timestamp") DESC LIMIT {MOST_RUN_IDS}'
        )

        ids = Columns({"run_id": "string"})
        rows = self.read(lambda handle: ids.rows(query(handle, statement)))
        return [row["run_id"] for row in rows or []]

    def _dispensable(self, handle: TableHandle, oldest: datetime) -> str:
        """The predicate of runs that ended before ``oldest`` and are not the newest of their node."""
        old = f'{in_environment(self.environment)} AND "timestamp" < {_literal(oldest)}'
        rows = self.rows(handle, f"{old} AND pipeline_name IS NOT NULL AND node_name IS NOT NULL")
        nodes = {(row["pipeline_name"], row["node_name"]) for row in rows}
        newest = [self._newest(handle, {"pipeline_name": p, "node_name": n}, 1)[0] for p, n in sorted(nodes)]
        return old + "".join(f" AND NOT ({_is(record)})" for record in newest if record.timestamp < oldest)

    # -- looking up ---------------------------------------------------------------------------------------------------

    def _newest(self, handle: TableHandle, wanted: Mapping[str, str], limit: int | None) -> list[RunRecord]:
        where = " AND ".join(
            [in_environment(self.environment), *(f"{name} = {sql(value)}" for name, value in wanted.items())]
        )
        records: list[RunRecord] = []
        for since in self._horizons(handle, wanted, limit):
            bound = "" if since is None else f' AND "timestamp" >= {_literal(since)}'
            records = [RunRecord.from_row(row) for row in self._rows(handle, where + bound, limit)]
            if limit is not None and len(records) >= limit:
                break
        return sorted(records, key=newest_first, reverse=True)

    def _rows(self, handle: TableHandle, predicate: str, limit: int | None) -> list[dict[str, Any]]:
        if limit is None or limit == 1:
            # One is mostly one file: a scan answers sooner than a query.
            rows = self.rows(handle, predicate)
            return rows if limit is None else _newest_of(rows)
        columns = ", ".join(f'"{name}"' for name in COLUMNS.kinds if name in handle.columns)
        order = '"timestamp" DESC NULLS LAST' + (", attempt DESC NULLS LAST" if "attempt" in handle.columns else "")
        return COLUMNS.rows(
            query(handle, f"SELECT {columns} FROM state WHERE {predicate} ORDER BY {order} LIMIT {limit}")
        )

    def _horizons(self, handle: TableHandle, wanted: Mapping[str, str], limit: int | None) -> Iterator[datetime | None]:
        """How far to look back: to the beginning of the newest candidate files, then further, then all the way."""
        if limit is not None:
            starts = _candidates(handle, wanted)
            reach = max(_FIRST_LOOK, limit)
            while reach < len(starts):
                horizon = min(starts[:reach])
                if horizon > _NEVER:
                    yield horizon - _CUT
                reach *= _LOOK_GROWTH
        yield None

    def _holds(self, handle: TableHandle, row: Mapping[str, Any]) -> bool:
        where = f'run_id = {sql(row["run_id"])} AND "timestamp" = {_literal(row["timestamp"])}'
        if self.is_odibis(handle):
            row = as_odibis_run(row)
        return row in self.rows(handle, where)


def as_odibis_run(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of ``meta_runs`` for a table that has no columns but Odibi's; read again by
    :meth:`~odi_assets.state.records.RunRecord.from_row`."""
    details = {name: row[name] for name in COLUMNS.ours if row[name] is not None}
    metrics = {**json.loads(row["metrics_json"]), DETAILS: details}
    text = json.dumps(metrics, default=datetime.isoformat, ensure_ascii=False)
    return {**row, **dict.fromkeys(COLUMNS.ours), "metrics_json": text}


def _newest_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["timestamp"] or _NEVER, row["attempt"] or 1), reverse=True)[:1]


def _candidates(handle: TableHandle, wanted: Mapping[str, str]) -> list[datetime]:
    """The earliest moment in each file that may hold what is wanted, the file with the latest moment first."""
    names = ("timestamp", *wanted)
    (lows, *least), (highs, *most) = (
        handle.file_columns([f"{end}.{name}" for name in names]) for end in ("min", "max")
    )
    lows, highs = list(map(_moment, lows)), list(map(_moment, highs))
    fits = [True] * len(lows)
    for value, low_of, high_of in zip(wanted.values(), least, most, strict=True):
        bounds = zip(fits, low_of, high_of, strict=True)
        fits = [fit and _may_hold(low, high, value) for fit, low, high in bounds]
    files = sorted(
        ((high or _ALWAYS, low or _NEVER) for low, high, fit in zip(lows, highs, fits, strict=True) if fit),
        reverse=True,
    )
    return [low for _, low in files]


def _may_hold(low: str | None, high: str | None, value: str) -> bool:
    return low is None or high is None or low <= value <= high or value.startswith(high)


def _moment(item: datetime | None) -> datetime | None:
    return item if item is None or item.tzinfo else item.replace(tzinfo=UTC)


def _is(record: RunRecord) -> str:
    return (
        f"pipeline_name = {sql(record.pipeline_name)} AND node_name = {sql(record.node_name)} "
        f'AND "timestamp" = {_literal(record.timestamp)}'
    )


def _literal(moment: datetime) -> str:
    return f"arrow_cast({micros(moment)}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
