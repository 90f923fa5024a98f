"""A node that replaces partitions by a column that its source lacks is refused before it has a table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import ConfigError
from odi_assets_tests.nodes.support import Sandbox

NODE = """
- pipeline: p
  nodes:
  - name: days
    read: {connection: landing, format: parquet, path: "in/*", incremental: {mode: stateful, column: id}}
    transform: {sql: "SELECT CAST(at AS DATE) AS day, count(*) AS n FROM df GROUP BY ALL"}
    write: {connection: lake, path: days, mode: partition_overwrite, partition_by: [day]}
"""


@pytest.mark.parametrize("full_refresh", [False, True])
def test_the_first_run_stops_where_each_later_one_would(
    tmp_path: Path, spark: SparkSession, full_refresh: bool
) -> None:
    box = Sandbox(tmp_path, spark, NODE)
    spark.sql("SELECT 1 AS id, TIMESTAMP '2024-01-01' AS at").write.parquet(str(tmp_path / "landing/in"))
    with pytest.raises(ConfigError, match=r"is written by partitions of `day`, and landing:in/[*] has no such column"):
        box.run("days", full_refresh=full_refresh)
    assert not box.table("days").exists


def test_a_column_in_other_capitals_is_named(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, NODE)
    spark.sql("SELECT 1 AS id, TIMESTAMP '2024-01-01' AS at, DATE '2024-01-01' AS DAY").write.parquet(
        str(tmp_path / "landing/in")
    )
    with pytest.raises(
        ConfigError, match=r"partitions of `day`, and .* has `DAY`: capitals count here.*\n.*write `DAY`"
    ):
        box.run("days")


OF_A_TABLE = """
- pipeline: p
  nodes:
  - name: up
    read: {{connection: landing, format: csv, path: "in/*", schema: "id BIGINT, at STRING", options: {{header: "true"}},
           incremental: files}}
    transform: {{{transform}}}
    write: {{connection: lake, path: up, mode: append}}
  - name: days
    inputs: {{up: {{node: up, incremental: {increment}}}}}
    transform: {{sql: "SELECT CAST(at AS DATE) AS day, count(*) AS n FROM up GROUP BY ALL"}}
    write: {{connection: lake, path: days, mode: partition_overwrite, partition_by: [day]}}
"""
HIDDEN = 'function: "hidden:rows"'
"""A transform of which the project file does not tell the columns."""


@pytest.mark.parametrize("increment", ["version", "{mode: stateful, column: id}"])
def test_an_input_without_the_column_is_refused_at_the_first_run(
    tmp_path: Path, spark: SparkSession, increment: str
) -> None:
    (tmp_path / "hidden.py").write_text("def rows(df):\n    return df\n", encoding="utf-8")
    box = Sandbox(tmp_path, spark, OF_A_TABLE.format(transform=HIDDEN, increment=increment))
    box.land("in/1.csv", ["id,at", "1,2024-01-01"])
    box.run("up")
    with pytest.raises(ConfigError, match=r"is written by partitions of `day`, and p\.up has no such column"):
        box.run("days")
    assert not box.table("days").exists


@pytest.mark.parametrize("increment", ["version", "{mode: stateful, column: id}"])
def test_an_input_without_the_column_is_refused_before_any_run_where_its_columns_are_known(
    tmp_path: Path, spark: SparkSession, increment: str
) -> None:
    transform = 'sql: "SELECT * FROM df"'
    with pytest.raises(ConfigError, match=r"(?s)`day` is no column of the input `up`, which has id, at"):
        Sandbox(tmp_path, spark, OF_A_TABLE.format(transform=transform, increment=increment))
    whole = OF_A_TABLE.format(transform=transform, increment=increment).replace(f", incremental: {increment}", "")
    Sandbox(tmp_path, spark, whole)
