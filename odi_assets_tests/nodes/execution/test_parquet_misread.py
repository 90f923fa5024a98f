"""Parquet files that Spark cannot read with the columns of the project file: what is wrong, where, and a way on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import SourceError
from odi_assets_tests.nodes.support import Sandbox

Make = Callable[..., Sandbox]
NODE = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: parquet, path: in/, READ}
    HOW
    write: {connection: lake, path: raw, mode: append}
"""
STREAM = ("", 'stream: {}\n    transform: {sql: "SELECT * FROM df"}')
LENIENT = ("incremental: files, strict: false, ", 'description: ""')
STRICT = ("incremental: files, ", 'description: ""')


@pytest.fixture
def make(tmp_path: Path, spark: SparkSession) -> Make:
    def made(kind: tuple[str, str], columns: str | None) -> Sandbox:
        read, how = kind
        schema = "" if columns is None else f"schema: '{columns}'"
        return Sandbox(tmp_path, spark, NODE.replace("READ", read + schema).replace("HOW", how))

    return made


def land(box: Sandbox, name: str, columns: dict[str, Any]) -> None:
    place = box.root / "landing/in" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), place)


@pytest.mark.parametrize("kind", [STREAM, LENIENT], ids=["stream", "lenient"])
@pytest.mark.parametrize(
    ("wanted", "column", "values", "stored"),
    [
        ("STRING", "n", pa.nulls(1), pa.array([None], pa.string())),
        ("DECIMAL(10,2)", "n", pa.nulls(1), pa.array([None], pa.decimal128(10, 2))),
        ("TIMESTAMP", "n", pa.nulls(1), pa.array([None], pa.timestamp("us", "UTC"))),
        ("BOOLEAN", "n", pa.nulls(1), pa.array([None], pa.bool_())),
        ("STRUCT<a: INT>", "n", pa.nulls(1), pa.array([None], pa.struct({"a": pa.int32()}))),
        ("ARRAY<STRING>", "n.list.element", pa.array([[None]], pa.list_(pa.null())), pa.array([["x"]])),
        ("STRUCT<a: STRING>", "n.a", pa.array([{"a": None}], pa.struct({"a": pa.null()})), pa.array([{"a": "x"}])),
    ],
)
def test_a_column_without_a_value_is_named_with_its_file_and_the_file_can_be_landed_again(
    make: Make, kind: tuple[str, str], wanted: str, column: str, values: pa.Array, stored: pa.Array
) -> None:
    box = make(kind, f"id BIGINT, n {wanted}")
    land(box, "a.parquet", {"id": [1], "n": values})
    with pytest.raises(SourceError, match=r"in/a\.parquet: column `[^`]+` has no value in all of the file") as error:
        box.run("raw")
    assert error.value.column == column
    assert "Parquet's type NULL" in str(error.value.message)
    way = "let the stream read the table of that node" if kind is STREAM else "leave out `strict: false`"
    assert way in str(error.value.fix)
    land(box, "a.parquet", {"id": [1], "n": stored})
    box.run("raw")
    assert [row[0] for row in box.rows("raw")] == [1]


@pytest.mark.parametrize("wanted", ["STRING", "DECIMAL(10,2)", "TIMESTAMP", "BOOLEAN", "STRUCT<a: INT>", "ARRAY<INT>"])
def test_without_strict_false_a_column_without_a_value_fits_every_type(make: Make, wanted: str) -> None:
    box = make(STRICT, f"id BIGINT, n {wanted}")
    land(box, "a.parquet", {"id": [1], "n": pa.nulls(1)})
    box.run("raw")
    assert box.rows("raw") == [(1, None)]


@pytest.mark.parametrize("kind", [STREAM, LENIENT], ids=["stream", "lenient"])
@pytest.mark.parametrize("wanted", ["INT", "BIGINT", "DOUBLE", "DATE"])
def test_where_spark_reads_a_column_without_a_value_the_table_has_the_declared_type(
    make: Make, kind: tuple[str, str], wanted: str
) -> None:
    box = make(kind, f"id BIGINT, n {wanted}")
    land(box, "a.parquet", {"id": [1], "n": pa.nulls(1)})
    box.run("raw")
    kinds = {"INT": "integer", "BIGINT": "long", "DOUBLE": "double", "DATE": "date"}
    assert (box.rows("raw"), box.table("raw").columns["n"]) == ([(1, None)], kinds[wanted])


@pytest.mark.parametrize("kind", [STREAM, LENIENT], ids=["stream", "lenient"])
def test_a_column_of_another_type_is_named_with_both_types(make: Make, kind: tuple[str, str]) -> None:
    box = make(kind, "id BIGINT, n STRING")
    land(box, "a.parquet", {"id": [1], "n": pa.array([5], pa.int32())})
    what, way = (
        (r"column `n` is integer in in/a\.parquet, and string in `read\.schema`", "put the file right, under its name")
        if kind is STREAM
        else (
            r"in/a\.parquet: column `n` is INT32 in the file, and STRING in `read\.schema`",
            "land the file again, under its name, with the column as STRING",
        )
    )
    with pytest.raises(SourceError, match=what) as error:
        box.run("raw")
    assert way in str(error.value.fix)


@pytest.mark.parametrize("columns", [None, "id BIGINT", "id BIGINT, n STRING"])
@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside others"])
@pytest.mark.parametrize("kind", [STREAM, LENIENT, STRICT], ids=["stream", "lenient", "strict"])
def test_a_file_without_columns_is_named_and_taken_away_the_node_goes_on(
    make: Make, kind: tuple[str, str], others: bool, columns: str | None
) -> None:
    if kind is STREAM and columns is None:
        columns = "id BIGINT"
    box = make(kind, columns)
    land(box, "a.parquet", {})
    if others:
        land(box, "b.parquet", {"id": [1]})
    with pytest.raises(SourceError, match=r"in/a\.parquet is a Parquet file without a column") as error:
        box.run("raw")
    assert "land it again with its columns" in str(error.value.fix)
    land(box, "a.parquet", {"id": [2]})
    box.run("raw")
    assert [row[0] for row in box.rows("raw")] == [*([1] if others else []), 2]


def test_a_file_without_columns_is_named_by_a_node_that_rescues_values(make: Make) -> None:
    box = make(("incremental: files, rescued: r, ", 'description: ""'), "id BIGINT")
    land(box, "a.parquet", {})
    with pytest.raises(SourceError, match="without a column"):
        box.run("raw")
