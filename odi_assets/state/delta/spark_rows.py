"""Rows of a system table through a Spark session that was handed in, for tables that deltalake cannot read or write.

Spark reads and writes the rows; deltalake still reads the log, where the fence of these writes is. That fence is the
table's, not a key's: Spark takes one ``txnAppId`` and ``txnVersion`` per write. It skips a write whose version is not
newer than the log's, without a word, so every write is looked up afterwards. No pyspark is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odi_assets.delta.errors import CommitConflict
from odi_assets.errors import StateError
from odi_assets.state.delta.arrow import Columns, Kind, micros, moment
from odi_assets.state.delta.table import SystemTable

_FENCE = "odi/spark"
_TYPES = {
    Kind.STRING: "string",
    Kind.LONG: "bigint",
    Kind.BOOLEAN: "boolean",
    Kind.TIMESTAMP: "bigint",
    Kind.DATE: "date",
}


class SparkRows:
    """The rows of ``table``.

    Args:
        spark: a session whose ``format("delta")`` reads and writes the table; it knows the store's credentials.
        table: which table, for its place, its columns and its log.
    """

    def __init__(self, spark: Any, table: SystemTable) -> None:
        self._spark = spark
        self._table = table
        self._uri = table.uri.replace("s3://", "s3a://", 1) if table.uri.startswith("s3://") else table.uri

    @property
    def columns(self) -> Columns:
        """The columns of the rows."""
        return self._table.columns

    def fence(self) -> int:
        """The number of the last write through Spark; to be read before the rows on which the next is based."""
        handle = self._table.open()
        return 0 if handle is None else handle.table.transaction_version(_FENCE) or 0

    def read(self, **wanted: str | Sequence[str] | None) -> list[dict[str, Any]]:
        """The rows whose columns have these values, or one of these; None is null.

        Raises:
            StateError: Spark cannot read the table.
        """
        frame = self._calls("reading", lambda: self._spark.read.format("delta").load(self._uri))
        for name, value in wanted.items():
            column = frame[name]
            frame = frame.filter(
                column.isNull() if value is None else column == value if isinstance(value, str) else column.isin(*value)
            )
        present = set(frame.columns)
        names = {name: kind for name, kind in self.columns.kinds.items() if name in present}
        chosen = frame.selectExpr(*(_from_table(name, kind) for name, kind in names.items()))
        rows = self._calls("reading", chosen.collect)
        return [{**dict.fromkeys(self.columns.kinds), **_from_spark(row.asDict(), names)} for row in rows]

    def append(self, rows: Sequence[Mapping[str, Any]], fence: int | None, landed: Callable[[], bool]) -> None:
        """Append rows in one commit; with a ``fence``, unless another fenced write came since it was read.

        Raises:
            CommitConflict: another write came first; nothing was written.
            StateError: Spark cannot write the table; nothing was written.
        """
        kinds = self.columns.kinds
        schema = ", ".join(f"`{name}` {_TYPES[kind]}" for name, kind in kinds.items())
        values = [tuple(_to_spark(row[name], kind) for name, kind in kinds.items()) for row in rows]
        failed: StateError | None = None
        try:
            self._calls("writing", lambda: self._write(values, schema, fence))
        except StateError as error:
            failed = error
        if landed():
            return
        if fence is not None and self.fence() > fence:
            raise CommitConflict(
                f"another write to {self._table.uri} came first", fix="try again; nothing was written"
            ) from failed
        raise failed or StateError(f"Spark wrote nothing to {self._table.uri}, and said nothing", uri=self._table.uri)

    def _write(self, values: Sequence[tuple[Any, ...]], schema: str, fence: int | None) -> None:
        frame = self._spark.createDataFrame(values, schema)
        frame = frame.selectExpr(*(_to_table(name, kind) for name, kind in self.columns.kinds.items()))
        writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
        if fence is not None:
            writer = writer.option("txnAppId", _FENCE).option("txnVersion", str(fence + 1))
        writer.save(self._uri)

    def _calls(self, doing: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            # pyspark's types cannot be named here.
            first = str(error).strip().split("\n", 1)[0]
            raise StateError(
                f"Spark failed {doing} {self._table.uri}: {type(error).__name__}: {first}",
                fix="give a session with Delta's connector (delta-spark) and the store's credentials",
                uri=self._table.uri,
            ) from error


def _from_table(name: str, kind: Kind) -> str:
    # Moments as numbers: pyspark would give them in this machine's zone, without saying so.
    return f"unix_micros(CAST(`{name}` AS timestamp)) AS `{name}`" if kind is Kind.TIMESTAMP else f"`{name}`"


def _to_table(name: str, kind: Kind) -> str:
    return f"timestamp_micros(`{name}`) AS `{name}`" if kind is Kind.TIMESTAMP else f"`{name}`"


def _from_spark(row: Mapping[str, Any], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    return {
        name: moment(value) if value is not None and kinds[name] is Kind.TIMESTAMP else value
        for name, value in row.items()
    }


def _to_spark(value: Any, kind: Kind) -> Any:
    return micros(value) if value is not None and kind is Kind.TIMESTAMP else value
