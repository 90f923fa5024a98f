"""Rows that are known by texts: a source that gives a column another type shows equal values by other texts."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.errors import IdentityMismatchError, IncrementError, OdiError
from odi_assets_tests.nodes.support import Sandbox

READS = {
    "files": '{connection: landing, format: parquet, path: "src/*", incremental: files}',
    "version": "{connection: landing, format: delta, path: src, incremental: version}",
    "stateful": "{connection: landing, format: delta, path: src, incremental: {mode: stateful, column: at}}",
    "whole": "{connection: landing, format: delta, path: src}",
}
KEYS = {
    "CAST(src AS STRING)": True,
    "concat('n', src)": True,
    "md5(CAST(src AS STRING))": True,
    "CASE WHEN id < 0 THEN 'none' ELSE src END": True,
    "CAST(src AS INT)": False,
}
"""Each with whether it depends on how a text of the value looks."""
TYPES = {
    "more digits": (pa.decimal128(12, 1), pa.decimal128(14, 4), True),
    "fewer digits": (pa.decimal128(14, 4), pa.decimal128(12, 1), True),
    "twice as precise": (pa.float32(), pa.float64(), True),
    "broken numbers": (pa.int32(), pa.float64(), True),
    "longer numbers": (pa.int32(), pa.int64(), False),
    "the same": (pa.decimal128(12, 1), pa.decimal128(12, 1), False),
}


def rows(kind: pa.DataType, ids: list[int], at: list[int]) -> pa.Table:
    values = [Decimal(one) if pa.types.is_decimal(kind) else one for one in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "at": pa.array(at, pa.int64()), "src": pa.array(values, kind)})


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("how", READS)
def test_no_row_is_repeated_where_a_source_shows_the_same_value_by_another_text(
    tmp_path: Path, spark: SparkSession, how: str, key: str, types: str
) -> None:
    before, now, looks_otherwise = TYPES[types]
    node = f"""
    - pipeline: p
      nodes:
      - name: n
        read: {READS[how]}
        transform: {{sql: "SELECT id, at, {key} AS k FROM df"}}
        write: {{connection: lake, path: n, mode: upsert, keys: [k]}}
    """
    box, folder = Sandbox(tmp_path, spark, node), tmp_path / "landing" / "src"
    folder.mkdir(parents=True)

    def deliver(kind: pa.DataType, ids: list[int], at: list[int], name: str) -> None:
        if how == "files":
            pq.write_table(rows(kind, ids, at), folder / name)
        else:
            write_deltalake(folder, rows(kind, ids, at), mode="overwrite", schema_mode="overwrite")

    deliver(before, [0, 1], [0, 1], "a.parquet")
    box.run("n")
    deliver(now, [0, 1, 9], [8, 1, 9], "b.parquet")
    stopped = ""
    try:
        box.run("n")
    except (IncrementError, IdentityMismatchError) as error:
        stopped = str(error)
    loaded = sorted(row[0] for row in box.rows("n"))
    assert loaded == ([0, 1] if stopped else [0, 1, 9])
    if how == "stateful":
        assert "overwritten" in stopped
    else:
        loses = types == "fewer digits" and how != "files"
        assert ("keeps less" in stopped or "what is made of `src`" in stopped) is (
            loses or (looks_otherwise and KEYS[key])
        )


def test_a_full_refresh_and_the_type_of_before_are_the_ways_on(tmp_path: Path, spark: SparkSession) -> None:
    node = f"""
    - pipeline: p
      nodes:
      - name: n
        read: {READS["whole"]}
        transform: {{sql: "SELECT id, at, CAST(src AS STRING) AS k FROM df"}}
        write: {{connection: lake, path: n, mode: upsert, keys: [k]}}
    """
    box, folder = Sandbox(tmp_path, spark, node), tmp_path / "landing" / "src"
    before, now = pa.decimal128(12, 1), pa.decimal128(14, 4)
    for number, kind in enumerate((before, now, before)):
        write_deltalake(folder, rows(kind, [0, number + 1], [0, 1]), mode="overwrite", schema_mode="overwrite")
        if kind is now:
            with pytest.raises(OdiError, match="what is made of `src`") as stopped:
                box.run("n")
            assert "odi run p --node n --full-refresh; or put the type of the column back" in str(stopped.value.fix)
        else:
            box.run("n")
    assert sorted(row[0] for row in box.rows("n")) == [0, 1, 3]
    write_deltalake(folder, rows(now, [0, 4], [0, 1]), mode="overwrite", schema_mode="overwrite")
    box.run("n", full_refresh=True, accept_loss=True)
    box.run("n")
    assert sorted(row[0] for row in box.rows("n")) == [0, 4]


def test_files_of_several_types_are_loaded_with_one_that_the_project_file_names(
    tmp_path: Path, spark: SparkSession
) -> None:
    node = """
    - pipeline: p
      nodes:
      - name: n
        read: {connection: landing, format: parquet, path: "src/*", incremental: files}
        transform: {sql: "SELECT id, CAST(src AS STRING) AS k FROM df"}
        write: {connection: lake, path: n, mode: upsert, keys: [k]}
    """
    box, folder = Sandbox(tmp_path, spark, node), tmp_path / "landing" / "src"
    folder.mkdir(parents=True)
    pq.write_table(rows(pa.decimal128(12, 1), [0, 1], [0, 1]), folder / "a.parquet")
    box.run("n")
    pq.write_table(rows(pa.decimal128(14, 4), [2, 3], [0, 1]), folder / "b.parquet")
    with pytest.raises(IncrementError) as stopped:
        box.run("n")
    assert str(stopped.value.fix).startswith("name the columns in `read.schema`, `src` with a type that holds")
    box = Sandbox(
        tmp_path, spark, node.replace('path: "src/*"', 'path: "src/*", schema: "id BIGINT, src DECIMAL(15,4)"')
    )
    box.run("n", full_refresh=True, accept_loss=True)
    assert sorted(tuple(row) for row in box.rows("n")) == [(n, f"{n}.0000") for n in range(4)]
