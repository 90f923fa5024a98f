"""The benchmark of exactly-once, small: every part measures, and what is not timed holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import write
from benchmarks.exactly_once import append, late, parts, process, upsert
from benchmarks.exactly_once.lab import Lab
from benchmarks.exactly_once.sizes import SMALL
from benchmarks.harness import Options, in_child
from odi_assets.delta.table import TableHandle

OPTIONS = Options(say=print)
PARTS = parts(SMALL)
# Starts a session for each size, so only what each of them does is tested, in this one.
HERE = [name for name in PARTS if name not in ("memory", "late")]


@pytest.mark.parametrize("name", HERE)
@pytest.mark.usefixtures("spark")
def test_every_part_measures_the_whole_protocol(name: str) -> None:
    rows = PARTS[name](OPTIONS)
    assert rows
    assert all(row.ours > 0 for row in rows)


@pytest.mark.parametrize(("mode", "nodes", "node"), [("append", append.NODE, "raw"), ("upsert", upsert.NODE, "orders")])
def test_memory_is_that_of_a_node_that_loads_what_landed(
    tmp_path: Path, spark: SparkSession, mode: str, nodes: str, node: str
) -> None:
    lab = Lab(OPTIONS, tmp_path)
    pipeline = lab.pipeline(nodes)
    pipeline.land(lab.files(write.rows(spark, 10)))
    assert process.memory(pipeline.root, mode)["mb"] > 0
    assert pipeline.plan(node).nothing_new


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.usefixtures("jvm")
def test_a_late_node_reads_all_commits(mode: str, tmp_path: Path) -> None:
    late.write_commits(tmp_path / "table", SMALL.commits, SMALL.rows_of_commit, upsert=mode == "upsert")
    pipeline = late.behind(Lab(OPTIONS, tmp_path), tmp_path / "table", mode)
    child = in_child("benchmarks.exactly_once.process", "late", str(pipeline.root))
    assert child["cpu"] > 0
    apart = SMALL.rows_of_commit // (2 if mode == "upsert" else 1)
    rows = TableHandle.open(pipeline.target("copy")).rows
    assert rows == (SMALL.commits - 1) * apart + SMALL.rows_of_commit
