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
