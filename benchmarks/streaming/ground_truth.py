"""``python -m benchmarks.streaming.ground_truth [ORDERS]``: the verdict of every key and the fate of every row of a run
over 100,000 orders, compared with a model that follows each row by itself. Both state stores, with ``retain_batches``
of 2 and with all batches retained; then with a cleaned Delta log, and without ``meta_batches`` too. Exits with 1 if one
answer is wrong, or UNDECIDABLE although the evidence is there."""

from __future__ import annotations

import shutil
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.streaming.truth import Truth, clean_log, disagreements, truth, wrongly_decided
from odi_assets.sample.orders_payments import batches, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets.config.graph import NodeKey
    from odi_assets.explain.verdicts import KeyExplanation
    from odi_assets.nodes.project import Project

ORDERS, IN_FILE = 100_000, 5_000
EVERY = 0.02
"""Seconds between two orders, so that a file is of 100 seconds, as in the sample."""

SETTINGS = tuple(
    f"state_store: {store}{retain}" for store in ("rocksdb", "hdfs") for retain in (", retain_batches: 2", "")
)


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
                wrong += _compared(handle.spark, Path(folder), settings, orders, true)
    finally:
        handle.stop()
    return 1 if wrong else 0


def _compared(spark: SparkSession, root: Path, settings: str, orders: int, true: Truth) -> int:
    """How many answers are wrong: with all evidence, with a cleaned log, and without ``meta_batches``."""
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.run_history import RunHistory
    from odi_assets.nodes.run_node import NodeRun, run_node
    from odi_assets.sample.examples import project_file

    text = project_file("stream").replace("state_partitions: 2", "state_partitions: 2\n" + _lines(settings), 1)
    (root / "odibi.yaml").write_text(text, encoding="utf-8")
    write(root / "landing", orders, IN_FILE, EVERY)
    project = Project.load(root / "odibi.yaml")
    key = NodeKey("orders_payments", "paid_orders")
    run_node(NodeRun(RunHistory(project, project.open_state(), "ground-truth"), key, lambda: spark))
    keys = list(true.keys)

    whole = _answers(spark, project, key, keys, settings)
    wrong = _told(disagreements(true, whole) + [one.sentence for one in whole if one.verdict == "UNDECIDABLE"])
    clean_log(project.target(key).local_path)
    cleaned = _answers(spark, project, key, keys, f"{settings}, the log was cleaned")
    wrong += _told(disagreements(true, cleaned) + [one.sentence for one in cleaned if one.verdict == "UNDECIDABLE"])
    shutil.rmtree(project.open_batches().location.local_path)
    without = _answers(spark, project, key, keys, f"{settings}, nor meta_batches are there")
    return wrong + _told(wrongly_decided(true, without, "retain_batches" not in settings))


def _answers(
    spark: SparkSession, project: Project, node: NodeKey, keys: Sequence[str], what: str
) -> list[KeyExplanation]:
    from odi_assets.explain.stream import StreamExplainer

    began = time.monotonic()
    found = list(StreamExplainer.of(project, node, spark).explain(keys))
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in Counter(one.verdict for one in found).items())
    print(f"{what}: {len(found):,} keys in {time.monotonic() - began:.0f} s: {counts}", flush=True)
    return found


def _told(wrong: Sequence[str]) -> int:
    print("\n".join([f"{len(wrong):,} wrong", *wrong[:5]]), flush=True)
    return len(wrong)


def _lines(settings: str) -> str:
    return textwrap.indent(settings.replace(", ", "\n"), " " * 6)


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:])))
