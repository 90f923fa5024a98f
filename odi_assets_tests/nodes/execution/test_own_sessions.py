"""What a node's code changes in its session, other nodes do not see, and no other code does either."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.config.spark_settings import REQUIRED_CONF
from odi_assets.errors import FencedError, TransformError
from odi_assets.explain.batch import trace
from odi_assets.nodes.audit.audit import audit
from odi_assets.nodes.execution.materialize import compute
from odi_assets.nodes.result import RunInfo
from odi_assets.nodes.run_node import commit
from odi_assets_tests.conftest import REMOTE_VARIABLE
from odi_assets_tests.nodes.support import Sandbox

pytestmark = pytest.mark.contract

PIPELINE = """
- pipeline: p
  nodes:
    - name: raw
      read: {connection: landing, format: csv, path: "*.csv", schema: "id INT, at TIMESTAMP, n STRING"}
      write: {connection: lake, path: raw, mode: overwrite}
    - name: meddler
      inputs: {rows: {node: raw}}
      transform: {function: "MODULE:meddle"}
      write: {connection: lake, path: meddler, mode: overwrite}
    - name: times
      inputs: {rows: {node: raw}}
      transform:
        sql: >-
          SELECT id, unix_seconds(CAST('2024-07-01 12:00:00' AS TIMESTAMP)) AS at,
          unix_seconds(at) AS stored, upper(n) AS n FROM rows
      write: {connection: lake, path: times, mode: overwrite}
    - name: nosy
      inputs: {others: {node: raw}}
      transform: {sql: "SELECT * FROM rows"}
      write: {connection: lake, path: nosy, mode: overwrite}
"""

MODULE = """
from pyspark.sql import SparkSession, functions as F

of_the_module = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def meddle(rows, spark):
    session = {reached}
    {change}
    return rows
"""

REACHED = (
    "spark",
    "rows.sparkSession",
    # A client of Spark Connect has to be told where its server is.
    *(() if REMOTE_VARIABLE in os.environ else ("SparkSession.builder.getOrCreate()",)),
    "SparkSession.getActiveSession()",
    "SparkSession.active()",
    "of_the_module",
)

CHANGES = (
    'session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")',
    "session.sql(\"SET TIME ZONE 'Asia/Tokyo'\").collect()",
    'session.conf.set("spark.sql.ansi.enabled", "false")',
    'session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")',
    'rows.limit(0).createOrReplaceTempView("rows")',
    'session.range(5).createOrReplaceTempView("rows")',
    'session.udf.register("upper", lambda text: "meddled")',
    'session.sql("DECLARE OR REPLACE VARIABLE id INT DEFAULT 7").collect()',
    'session.sql("CREATE DATABASE IF NOT EXISTS other").collect(); session.catalog.setCurrentDatabase("other")',
)

_numbers = iter(range(1000))


def box_with(folder: Path, spark: SparkSession, reached: str, change: str) -> Sandbox:
    # Modules stay imported, so each test needs one of its own.
    name = f"meddling_{next(_numbers)}"
    (folder / f"{name}.py").write_text(MODULE.format(reached=reached, change=change), encoding="utf-8")
    box = Sandbox(folder, spark, PIPELINE.replace("MODULE", name))
    box.land("a.csv", ["1,2024-07-01 12:00:00,a"])
    return box


@pytest.fixture
def unchanged(spark: SparkSession) -> Iterator[None]:
    """Fails if the session is not as it was before."""

    def state() -> str:
        settings = spark.conf.getAll
        views = sorted(table.name for table in spark.catalog.listTables() if table.isTemporary)
        return json.dumps([settings, views, spark.catalog.currentDatabase()], sort_keys=True)

    before = state()
    yield
    assert state() == before


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("reached", REACHED)
def test_the_session_that_a_function_reaches_is_its_nodes_own(
    tmp_path: Path, spark: SparkSession, reached: str
) -> None:
    change = "; ".join(CHANGES[index] for index in (0, 2, 5, 6, 8))
    box = box_with(tmp_path, spark, reached, change)
    for node in ("raw", "meddler", "times"):
        box.run(node)
    noon = 1_719_835_200
    assert box.rows("times") == [(1, noon, noon, "A")]
    with pytest.raises(TransformError, match="rows"):
        box.run("nosy")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("change", CHANGES)
def test_nothing_that_a_function_changes_reaches_the_next_node(
    tmp_path: Path, spark: SparkSession, change: str
) -> None:
    box = box_with(tmp_path, spark, "spark", change)
    box.run("raw")
    box.run("meddler")
    assert len(box.rows("meddler")) == 1
    box.run("raw")
    box.run("times")
    noon = 1_719_835_200
    assert box.rows("times") == [(1, noon, noon, "A")]


@pytest.mark.usefixtures("unchanged")
def test_a_nodes_rows_are_written_with_the_required_settings_whatever_it_set(
    tmp_path: Path, spark: SparkSession
) -> None:
    everything = "; ".join(
        f'session.conf.set("{key}", "{other}")'
        for key, other in zip(REQUIRED_CONF, ("Asia/Tokyo", "INT96", "false"), strict=True)
    )
    box = box_with(tmp_path, spark, "spark", everything)
    box.run("raw")
    box.run("meddler")
    stored = box.table("meddler")
    assert "min.at" in stored.add_actions.column_names, "INT96 has no statistics"
    assert box.rows("meddler") == box.rows("raw")


@pytest.mark.usefixtures("unchanged")
def test_a_sessions_views_functions_and_settings_are_there_for_nodes(tmp_path: Path, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    spark.range(2).createOrReplaceTempView("given")
    spark.udf.register("given_function", lambda number: f"<{number}>")
    box = Sandbox(
        tmp_path,
        spark,
        """
        - pipeline: p
          nodes:
            - name: node
              read: {connection: landing, format: csv, path: "*.csv", schema: "id INT"}
              transform: {sql: "SELECT given_function(df.id) AS text FROM df JOIN given ON df.id = given.id"}
              write: {connection: lake, path: node, mode: append}
        """,
    )
    box.land("a.csv", ["1", "7"])
    try:
        box.run("node")
        assert box.rows("node") == [("<1>",)]
    finally:
        spark.catalog.dropTempView("given")
        spark.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.mark.usefixtures("unchanged")
def test_an_audit_and_an_explanation_leave_the_session_as_it_was(tmp_path: Path, spark: SparkSession) -> None:
    box = box_with(tmp_path, spark, "spark", CHANGES[0])
    for node in ("raw", "times", "meddler"):
        box.run(node)
    for node in ("times", "meddler"):
        key = NodeKey("p", node)
        assert not audit(box.project, spark, box.state, key).differing
        (found,) = trace(box.project, spark, box.state, key, ["id"], ["2"])
        assert found.places


@pytest.mark.usefixtures("unchanged")
def test_nodes_that_fail_or_are_computed_side_by_side_leave_the_session_as_it_was(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = box_with(tmp_path, spark, "spark", "session.range(5).createOrReplaceTempView('rows'); raise ValueError('no')")
    box.run("raw")
    with pytest.raises(TransformError, match="no"):
        box.run("meddler")
    first, second = (compute(box.plan("times"), spark) for _ in range(2))
    commit(second, box.state, RunInfo("second"))
    with pytest.raises(FencedError):
        commit(first, box.state, RunInfo("first"))
    assert len(box.rows("times")) == 1


def test_a_session_that_somebody_else_made_keeps_its_settings_and_nodes_have_the_required_ones(
    tmp_path: Path, spark: SparkSession
) -> None:
    given = spark if REMOTE_VARIABLE in os.environ else spark.newSession()
    before = given.conf.get("spark.sql.session.timeZone", "UTC")
    given.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        box = box_with(tmp_path, given, "spark", "pass")
        for node in ("raw", "times"):
            box.run(node)
        assert given.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    finally:
        given.conf.set("spark.sql.session.timeZone", str(before))
    noon = 1_719_835_200
    box.spark = spark
    assert box.rows("times") == [(1, noon, noon, "A")]
