"""A pipeline on the Parquet that OLake writes: its table has each row once, as the database has it."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.project import Project
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets.sample.olake import UNAVAILABLE, current_rows
from odi_assets_tests.tables.support import read_table

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "cursors.md").read_text(encoding="utf-8")
SCHEMA = pa.schema(
    [
        *(("_olake_id", pa.string()), ("_olake_timestamp", pa.timestamp("us", "UTC")), ("_op_type", pa.string())),
        *(("_cdc_timestamp", pa.timestamp("us", "UTC")), ("_cdc_lsn", pa.string())),
        *(("id", pa.int64()), ("note", pa.string()), ("amount", pa.float64())),
    ]
)


def change(op: str, lsn: str | None, key: int, note: str | None = None, amount: float | None = None) -> dict[str, Any]:
    """A change as OLake writes it; of a deletion only the key."""
    return {"_olake_id": f"h{key}", "_olake_timestamp": None, "_op_type": op, "_cdc_timestamp": None, "_cdc_lsn": lsn,
            "id": key, "note": note, "amount": amount}  # fmt: skip


class Olake:
    """OLake in a folder: its Parquet and its state."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root, self.spark, self.files = root, spark, 0
        (text,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT, flags=re.DOTALL)
        (root / "odibi.yaml").write_text(text, encoding="utf-8")
        self.project = Project.load(root / "odibi.yaml")
        self.state = self.project.open_state()
        (root / "olake" / "public" / "orders").mkdir(parents=True)

    def write(self, *changes: dict[str, Any]) -> None:
        self.files += 1
        pq.write_table(pa.Table.from_pylist(list(changes), SCHEMA), self.folder / f"{self.files}.parquet")

    @property
    def folder(self) -> Path:
        return self.root / "olake" / "public" / "orders"

    def at(self, lsn: str, chunks: Any = ()) -> None:
        own = {"stream": "orders", "namespace": "public", "sync_mode": "", "state": {"chunks": list(chunks)}}
        shared = {"state": {"lsn": lsn}, "streams": ["public.orders"]}
        text = json.dumps({"type": "STREAM", "version": 7, "global": shared, "streams": [own]})
        (self.root / "olake" / "state.json").write_text(text)

    def run(self) -> list[tuple[int, str | None, Decimal | None]]:
        """Run the pipeline, and give what the last table holds."""
        changes, orders = self.project.pipeline_nodes()
        for key in (changes, orders):
            if key == orders and not TableHandle.open(self.project.target(changes)).exists:
                return []
            history = RunHistory(self.project, self.state, f"run-{self.files}")
            run_node(NodeRun(history, key, lambda: self.spark))
        table = TableHandle.open(self.project.target(orders))
        rows = read_table(self.spark, table).select("id", "note", "amount").orderBy("id").collect()
        return [(row.id, row.note, row.amount) for row in rows]


def test_the_table_has_each_row_once_as_the_database_has_it(tmp_path: Path, spark: SparkSession) -> None:
    olake = Olake(tmp_path, spark)
    olake.at("0/FFFFFF00", [{"min": None, "max": None}])
    olake.write(change("r", None, 1, "long", 1.5), change("r", None, 2, "b", 2.25), change("r", None, 3, "c", 3.0))
    assert olake.run() == [], "its snapshot is not finished"
    olake.at("0/FFFFFF00")
    # Killed in its snapshot, OLake writes a chunk twice, and leaves a file of nothing.
    olake.write(change("r", None, 1, "long", 1.5), change("r", None, 2, "b", 2.25))
    (olake.folder / "9.parquet").touch()
    assert olake.run() == [(1, "long", Decimal("1.50")), (2, "b", Decimal("2.25")), (3, "c", Decimal("3.00"))]
    first = (
        change("u", "0/FFFFFFFF", 1, UNAVAILABLE, 1.75),
        change("u", "1/0", 2, "newer", 2.5),
        change("d", "1/10", 3),
        change("c", "1/20", 4, "d", 4.0),
    )
    olake.write(*first)
    olake.at("1/20")
    now = [(1, "long", Decimal("1.75")), (2, "newer", Decimal("2.50")), (4, "d", Decimal("4.00"))]
    assert olake.run() == now
    # Killed before it moved its slot, OLake writes all of them again; a late one does not go before a later one.
    olake.write(change("u", "0/FFFFFFFE", 2, "older", 9.0), *first[:3])
    olake.at("1/30")
    assert olake.run() == now
    olake.write(*first, change("c", "1/40", 3, "back", 3.5), change("u", "1/50", 4, None, None))
    olake.at("1/50")
    assert olake.run() == [*now[:2], (3, "back", Decimal("3.50")), (4, None, None)]


def test_binary_logs_order_changes_by_the_number_of_the_file(spark: SparkSession) -> None:
    columns = "id INT, v STRING, _op_type STRING, _cdc_binlog_file_name STRING, _cdc_binlog_file_pos BIGINT"
    rows = [(1, "old", "u", "b.999999", 900), (1, "new", "u", "b.1000000", 4), (1, "first", "r", None, None)]
    changes = spark.createDataFrame(rows, columns)
    assert [row.v for row in current_rows(changes, changes, ["id"]).collect()] == ["new"]


@pytest.mark.parametrize("keys", [[], ["_olake_id"], ["id", "_olake_id"]])
def test_without_a_primary_key_nothing_tells_rows_apart(spark: SparkSession, keys: list[str]) -> None:
    changes = spark.createDataFrame([(1, "h")], "id INT, _olake_id STRING")
    with pytest.raises(ConfigError, match="primary key"):
        current_rows(changes, changes, keys)
