"""A table whose partitioning is another one than its node asks for stops the plan, before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import TableError
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets_tests.nodes.support import Sandbox

NODE = """
- pipeline: p
  nodes:
  - name: n
    read: {connection: landing, format: csv, path: a, schema: "id BIGINT, k STRING", options: {header: "true"},
           incremental: files}
    write: {connection: lake, path: n, mode: append, partition_by: [k]}
"""


@pytest.mark.parametrize("write", ["append", "append_once, keys: [id]", "upsert, keys: [id]", "overwrite"])
def test_plan_and_doctor_say_that_the_table_is_partitioned_otherwise(
    write: str, tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, NODE)
    box.land("a/1.csv", ["id,k", "1,a"])
    box.run("n")
    file = box.root / "odibi.yaml"
    former = file.read_text("utf-8")
    file.write_text(former.replace("mode: append, partition_by: [k]", f"mode: {write}"), "utf-8")
    box.project = Project.load(file)
    (key,) = box.project.graph.order("p")
    with pytest.raises(TableError, match=r"is partitioned by \['k'\], and the node asks for \[\]"):
        plan_node(box.project, box.state, key)
    (found,) = [found for found in examine(box.project, box.state, [key]) if found.kind is Kind.REDEFINED]
    assert "is partitioned by ['k']" in found.message
    file.write_text(former.replace("mode: append,", f"mode: {write},"), "utf-8")
    box.project = Project.load(file)
    box.land("a/2.csv", ["id,k", "2,a"])
    box.run("n")
    assert sorted(box.rows("n")) == [(1, "a"), (2, "a")]
