"""The least and the greatest values of types, as keys, cursors and partitions: in every way that rows are read and
written, they are loaded once, and the runs after them go on."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.errors import TableError
from odi_assets.state.records import RunStatus
from odi_assets_tests.matrix import cases
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.tables.support import read_table

_MOST, _LEAST = datetime.max, datetime.min
_LONG, _BIG = 2**63, Decimal("9" * 38)
TYPES: dict[str, tuple[pa.DataType, list[Any], str]] = {
    "TIMESTAMP": (pa.timestamp("us", "UTC"), [_LEAST.replace(tzinfo=UTC), _MOST.replace(tzinfo=UTC)], "1d"),
    "TIMESTAMP of milliseconds": (
        pa.timestamp("us", "UTC"),
        [_LEAST.replace(tzinfo=UTC), _MOST.replace(tzinfo=UTC, microsecond=999_000)],
        "1d",
    ),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), [_LEAST, _MOST], "1d"),
    "DATE": (pa.date32(), [date.min, date.max], "1d"),
    "BIGINT": (pa.int64(), [-_LONG, _LONG - 1], "5"),
    "DECIMAL": (pa.decimal128(38, 0), [_BIG.copy_negate(), _BIG], "5"),
}
READS = {
    "version": "mode: version",
    "stateful": "mode: stateful, column: c, MORE",
    "closed": "mode: stateful, column: c, boundary: closed, MORE",
    "lag": "mode: stateful, column: c, watermark_lag: LAG, MORE",
}
WRITES = {
    "append": "mode: append",
    "keys": "mode: append, keys: [id, c]",
    "once": "mode: append_once, keys: [c, id]",
    "upsert": "mode: upsert, keys: [c, id]",
    "partitions": "mode: partition_overwrite, partition_by: [c]",
}
WAYS = [
    ("version", "append"),
    ("version", "once"),
    ("version", "upsert"),
    ("version", "partitions"),
    ("stateful", "append"),
    ("closed", "append"),
    ("lag", "keys"),
    ("lag", "upsert"),
    ("lag", "partitions"),
]
NODE = """
- pipeline: p
  nodes:
  - {name: n, read: {connection: lake, format: delta, path: source, incremental: {READ}},
     write: {connection: lake, path: n, WRITE}}
"""


def feed(box: Sandbox, kind: pa.DataType, rows: list[tuple[int, Any]]) -> None:
    ids, values = zip(*rows, strict=True)
    table = pa.table({"id": pa.array(ids, pa.int64()), "c": pa.array(values, kind)})
    write_deltalake(str(box.root / "lake" / "source"), table, mode="append")


def stored(box: Sandbox) -> list[tuple[int, Any]]:
    """The rows, with times as text: Python's own conversion to a zone leaves its years at their ends."""
    rows = read_table(box.spark, box.table("n")).selectExpr("id", "CAST(c AS STRING) AS c")
    return sorted((row["id"], row["c"]) for row in rows.collect())


@pytest.mark.parametrize(("name", "way"), cases(TYPES, WAYS, together=1))
def test_rows_at_the_ends_of_a_type_are_loaded_once_and_runs_go_on(
    tmp_path: Path, spark: SparkSession, name: str, way: tuple[str, str]
) -> None:
    (kind, ends, lag), (read, write) = TYPES[name], way
    increment = READS[read].replace("LAG", lag).replace("MORE", "max_ahead: none")
    box = Sandbox(tmp_path, spark, NODE.replace("READ", increment).replace("WRITE", WRITES[write]))
    feed(box, kind, list(enumerate(ends)))
    box.run("n")
    assert [row[0] for row in stored(box)] == [0, 1]
    assert box.run("n").status is RunStatus.NO_DATA
    # Rows tied with the greatest come later.
    feed(box, kind, [(2, ends[1])])
    box.run("n")
    is_read = read != "stateful"
    assert [row[0] for row in stored(box)] == ([0, 1, 2] if is_read else [0, 1])
    assert len({row[1] for row in stored(box)}) == 2
    box.run("n")
    box.run("n", full_refresh=True, accept_loss=True)
    assert [row[0] for row in stored(box)] == [0, 1, 2]


@pytest.mark.parametrize("value", ["DATE '10000-01-01'", "DATE '-0001-01-01'", "TIMESTAMP_MICROS(253402300800000000)"])
def test_a_partition_beyond_the_years_of_the_log_is_refused_with_its_row(
    tmp_path: Path, spark: SparkSession, value: str
) -> None:
    node = NODE.replace("READ", "mode: version").replace("WRITE", WRITES["partitions"])
    node = node.replace("},\n     write", f'}},\n     transform: {{sql: "SELECT id, {value} AS c FROM df"}}, write')
    box = Sandbox(tmp_path, spark, node.replace("10000-01-01'", "+10000-01-01'"))
    feed(box, pa.int64(), [(4711, 1)])
    with pytest.raises(TableError, match=r"partition column `c` is no time of the years 1 to 9999.*4711"):
        box.run("n")
