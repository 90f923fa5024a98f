"""Run history in Delta: ``meta_runs``, one row per attempt of a node, appended as the node ends.

Look-ups start with the newest files that may hold the node (statistics tell which) and go back only as far as they
must, so that they cost the same at any length of history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from arro3.core import Table
from deltalake import QueryBuilder

from odi_assets.delta.errors import OutcomeUnknown
from odi_assets.state.backend import MOST_RUN_IDS
from odi_assets.state.delta.arrow import Columns, Kind, micros
from odi_assets.state.delta.run_rows import from_row, newest_first, to_row
from odi_assets.state.delta.table import SystemTable, in_environment, sql
from odi_assets.state.delta.table_opening import Handle
from odi_assets.state.records import RunRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from odi_assets.state.delta.compaction import DataFile

COLUMNS = Columns(
    {
        "run_id": Kind.STRING,
        "project": Kind.STRING,
        "pipeline_name": Kind.STRING,
        "node_name": Kind.STRING,
        "status": Kind.STRING,
        "rows_processed": Kind.LONG,
        "duration_ms": Kind.LONG,
        "metrics_json": Kind.STRING,
        "environment": Kind.STRING,
        "timestamp": Kind.TIMESTAMP,
        "date": Kind.DATE,
        "started_at": Kind.TIMESTAMP,
        "partition_key": Kind.STRING,
        "trigger": Kind.STRING,
        "attempt": Kind.LONG,
        "hwm_before": Kind.STRING,
        "hwm_after": Kind.STRING,
        "table_version": Kind.LONG,
        "code_version": Kind.STRING,
        "error": Kind.STRING,
    }
)
_IDS = Columns({"run_id": Kind.STRING})
_NODE = ("environment", "pipeline_name", "node_name")
INDEXED = ("run_id", "pipeline_name", "node_name", "environment", "timestamp")
# Statistics in the log are cut to milliseconds.
_CUT = timedelta(milliseconds=1)
_NEVER = datetime.min.replace(tzinfo=UTC)
_ALWAYS = datetime.max.replace(tzinfo=UTC)
_FIRST_LOOK = 1
_LOOK_GROWTH = 4


class RunLog:
    """The runs of one environment; folding drops those that ended longer than ``keep_for`` ago."""

    def __init__(
        self,
        uri: str,
        storage_options: Mapping[str, str] | None,
        environment: str | None,
        connection: str | None = None,
        keep_for: timedelta | None = None,
    ) -> None:
        self.table = SystemTable(uri, COLUMNS, storage_options, INDEXED, connection)
        self._environment = environment
        self._keep_for = keep_for

    def append(self, records: Iterable[RunRecord]) -> Handle | None:
        """Add records in one commit; None if there are none. One attempt.

        Raises:
            CommitConflict: nothing was written.
        """
        rows = [to_row(record, self._environment) for record in records]
        if not rows:
            return None

        def attempt(handle: Handle) -> Handle:
            try:
                self.table.append(handle, COLUMNS.to_arrow(rows), [], landed=lambda now: self._holds(now, rows[-1]))
            except OutcomeUnknown as error:
                error.result = handle
                raise
            return handle

        return self.table.write(attempt)

    def newest(
        self, *, pipeline: str | None, node: str | None, run_id: str | None, limit: int | None
    ) -> list[RunRecord]:
        """The newest runs that fit, newest first."""
        named = {"pipeline_name": pipeline, "node_name": node, "run_id": run_id}
        wanted = {name: value for name, value in named.items() if value is not None}
        if limit is not None and limit <= 0:
            return []
        return self.table.read(lambda handle: self._newest(handle, wanted, limit)) or []

    def rows_to_keep(self, handle: Handle, files: Sequence[DataFile]) -> pa.Table:
        """What folding keeps, of all environments: in an order that brings a node's runs together, everything but the
        runs of this environment that are past the time they are kept for."""
        import pyarrow as pa

        from odi_assets.state.delta.parquet import DataFiles

        schema = pa.schema(handle.table.schema().to_arrow())
        rows = DataFiles(self.table.uri, self.table.storage_options).read((file.path for file in files), schema)
        rows = rows.sort_by([(name, "ascending") for name in (*_NODE, "timestamp")])
        return rows if self._keep_for is None else self._without_old(rows, datetime.now(UTC) - self._keep_for)

    def _without_old(self, rows: pa.Table, oldest: datetime) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not len(rows):
            return rows
        environment = rows.column("environment")
        mine = pc.is_null(environment) if self._environment is None else pc.equal(environment, self._environment)
        old = pc.and_(mine, pc.less(rows.column("timestamp"), pa.scalar(oldest, pa.timestamp("us", "UTC"))))
        # Of sorted rows, the newest of a node is the one before another node begins.
        names = [pc.fill_null(rows.column(name), "").combine_chunks() for name in _NODE]
        differs = [pc.not_equal(column[:-1], column[1:]) for column in names]
        last = pa.concat_arrays([reduce(pc.or_, differs), pa.array([True])])
        return rows.filter(pc.or_(last, pc.invert(pc.fill_null(old, False))))

    def drop_before(self, oldest: datetime) -> int:
        """Delete runs that ended before ``oldest``, except the newest run of each node; how many there were."""
        handle = self.table.open()
        if handle is None:
            return 0
        with self.table.calls("dropping old runs"):
            return int(handle.table.delete(self._dispensable(handle, oldest))["num_deleted_rows"])

    def count_before(self, oldest: datetime) -> int:
        """How many runs :meth:`drop_before` would delete."""
        found = self.table.read(lambda handle: len(self.table.rows(handle, self._dispensable(handle, oldest))))
        return found or 0

    def find_ids(self, prefix: str) -> list[str]:
        """Ids of runs that begin with ``prefix``, newest first; a few."""
        query = (
            f"SELECT run_id FROM runs WHERE {in_environment(self._environment)} AND starts_with(run_id, {sql(prefix)}) "
            f'GROUP BY run_id ORDER BY max("timestamp") DESC LIMIT {MOST_RUN_IDS}'
        )

        def look(handle: Handle) -> list[str]:
            rows = QueryBuilder().register("runs", handle.table).execute(query)
            return [row["run_id"] for row in _IDS.from_arrow(rows)]

        return self.table.read(look) or []

    def _dispensable(self, handle: Handle, oldest: datetime) -> str:
        """The predicate of runs that ended before ``oldest`` and are not the newest of their node."""
        old = f'{in_environment(self._environment)} AND "timestamp" < {_literal(oldest)}'
        rows = self.table.rows(handle, f"{old} AND pipeline_name IS NOT NULL AND node_name IS NOT NULL")
        nodes = {(row["pipeline_name"], row["node_name"]) for row in rows}
        newest = [self._newest(handle, {"pipeline_name": p, "node_name": n}, 1)[0] for p, n in sorted(nodes)]
        return old + "".join(f" AND NOT ({_is(record)})" for record in newest if record.timestamp < oldest)

    # -- looking up ---------------------------------------------------------------------------------------------------

    def _newest(self, handle: Handle, wanted: Mapping[str, str], limit: int | None) -> list[RunRecord]:
        where = " AND ".join(
            [in_environment(self._environment), *(f"{name} = {sql(value)}" for name, value in wanted.items())]
        )
        found: list[RunRecord] = []
        for since in self._horizons(handle, wanted, limit):
            bound = "" if since is None else f' AND "timestamp" >= {_literal(since)}'
            found = [from_row(row) for row in self._rows(handle, where + bound, limit)]
            if limit is not None and len(found) >= limit:
                break
        return sorted(found, key=newest_first, reverse=True)

    def _rows(self, handle: Handle, predicate: str, limit: int | None) -> list[dict[str, Any]]:
        if limit is None or limit == 1:
            # One is mostly one file: a scan answers sooner than a query.
            rows = self.table.rows(handle, predicate)
            return rows if limit is None else _newest_of(rows)
        columns = ", ".join(f'"{name}"' for name in COLUMNS.kinds if name in handle.names)
        order = '"timestamp" DESC NULLS LAST' + (", attempt DESC NULLS LAST" if "attempt" in handle.names else "")
        query = f"SELECT {columns} FROM runs WHERE {predicate} ORDER BY {order} LIMIT {limit}"
        return COLUMNS.from_arrow(QueryBuilder().register("runs", handle.table).execute(query))

    def _horizons(self, handle: Handle, wanted: Mapping[str, str], limit: int | None) -> Iterator[datetime | None]:
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

    def _holds(self, handle: Handle, row: Mapping[str, Any]) -> bool:
        where = f'run_id = {sql(row["run_id"])} AND "timestamp" = {_literal(row["timestamp"])}'
        return any(all(other[name] == row[name] for name in COLUMNS.kinds) for other in self.table.rows(handle, where))


def _newest_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["timestamp"] or _NEVER, row["attempt"] or 1), reverse=True)[:1]


def _candidates(handle: Handle, wanted: Mapping[str, str]) -> list[datetime]:
    """The earliest moment in each file that may hold what is wanted, the file with the latest moment first."""
    actions = Table.from_arrow(handle.table.get_add_actions(flatten=True))
    stats = {name: actions.column(name) for name in actions.column_names}
    if "max.timestamp" not in stats:
        return []
    lows, highs = _moments(stats["min.timestamp"]), _moments(stats["max.timestamp"])
    fits = [True] * len(lows)
    for name, value in wanted.items():
        if f"min.{name}" in stats:
            bounds = zip(stats[f"min.{name}"].to_pylist(), stats[f"max.{name}"].to_pylist(), strict=True)
            fits = [fit and _may_hold(low, high, value) for fit, (low, high) in zip(fits, bounds, strict=True)]
    files = sorted(
        ((high or _ALWAYS, low or _NEVER) for low, high, fit in zip(lows, highs, fits, strict=True) if fit),
        reverse=True,
    )
    return [low for _, low in files]


def _may_hold(low: str | None, high: str | None, value: str) -> bool:
    return low is None or high is None or low <= value <= high or value.startswith(high)


def _moments(column: Any) -> list[datetime | None]:
    return [item if item is None or item.tzinfo else item.replace(tzinfo=UTC) for item in column.to_pylist()]


def _is(record: RunRecord) -> str:
    return (
        f"pipeline_name = {sql(record.pipeline_name)} AND node_name = {sql(record.node_name)} "
        f'AND "timestamp" = {_literal(record.timestamp)}'
    )


def _literal(moment: datetime) -> str:
    return f"arrow_cast({micros(moment)}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
