"""``python -m benchmarks.streaming.ground_truth [ORDERS]``: the verdict of every key and the fate of every row of a run
over 100,000 orders, compared with a model that follows each row by itself. Both state stores, one of them with
``retain_batches: 2``. Exits with 1 if one of them is wrong."""

from __future__ import annotations

import sys
import tempfile
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.streaming.truth import Truth, disagreements, truth
from odi_assets.sample.orders_payments import batches, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS, IN_FILE = 100_000, 5_000
EVERY = 0.02
"""Seconds between two orders, so that a file is of 100 seconds, as in the sample."""

SETTINGS = ("state_store: rocksdb, retain_batches: 2", "state_store: hdfs")


def main(orders: int = ORDERS) -> int:
    """Run and compare; 0 if everything agrees."""
    from odi_assets.config.models import SparkConfig
    from odi_assets.spark.session import open_session

    handle = open_session(SparkConfig(conf={"spark.driver.memory": "4g"}), app_name="ground truth")
    true = truth(batches(orders, IN_FILE, EVERY))
    wrong = 0
    try:
        for settings in SETTINGS:
            with tempfile.TemporaryDirectory() as folder:
                found = _compared(handle.spark, Path(folder), settings, orders, true)
            wrong += len(found)
            print("\n".join(found[:5]))
    finally:
        handle.stop()
    return 1 if wrong else 0


def _compared(spark: SparkSession, root: Path, settings: str, orders: int, true: Truth) -> list[str]:
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.execution.materialize import commit, compute
    from odi_assets.nodes.explain.stream import StreamExplainer
    from odi_assets.nodes.planning.planner import plan_node
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.result import RunInfo
    from odi_assets.sample.examples import project_file

    text = project_file("stream").replace("state_partitions: 2", "state_partitions: 2\n" + _lines(settings), 1)
    (root / "odibi.yaml").write_text(text, encoding="utf-8")
    write(root / "landing", orders, IN_FILE, EVERY)
    project = Project.load(root / "odibi.yaml")
    key, state = NodeKey("orders_payments", "paid_orders"), project.open_state()
    commit(compute(plan_node(project, state, key), spark), state, RunInfo("ground-truth"))
    answers = list(StreamExplainer.of(project, key, spark).explain(list(true.keys)))
    found = disagreements(true, answers)
    found += [f"{one.key[0]}: undecidable" for one in answers if one.verdict == "UNDECIDABLE"]
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in Counter(one.verdict for one in answers).items())
    print(f"{settings}: {len(answers):,} keys, {len(found):,} wrong: {counts}")
    return found


def _lines(settings: str) -> str:
    return textwrap.indent(settings.replace(", ", "\n"), " " * 6)


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:])))
