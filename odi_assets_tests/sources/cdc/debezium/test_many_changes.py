"""Random changes against a model, and runs that are killed at every step: each change is in the log once."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.debezium.model import Life
from odi_assets_tests.sources.cdc.debezium.support import held, lines, project, run_all
from odi_assets_tests.sources.sql.test_kills import kill_at
from odi_assets_tests.sources.sql.test_snapshots import Killed

POINTS = (
    ("odi_assets.sources.cdc.debezium.rows.NumberedRows.finished", "after"),
    ("odi_assets.sources.files.loaded.ledger.write", "after"),
    ("odi_assets.delta.commit._commit_once", "before"),
    ("odi_assets.delta.commit._commit_once", "after"),
    ("odi_assets.nodes.execution.materialize.advance", "before"),
    ("odi_assets.nodes.execution.materialize.advance", "after"),
)


def _land(box: Sandbox, life: Life, number: int, draw: random.Random) -> int:
    """Write what came, by key into several files, in any order of their times; each file in its own order."""
    streams: dict[int, list[object]] = {}
    sent = life.taken()
    for id_, message in sent:
        streams.setdefault(0 if id_ is None else id_ % 3, []).append(message)
    files = []
    for stream, messages in streams.items():
        cut = draw.randint(0, len(messages))
        files += [
            (f"topics/{number}-{stream}-{place}.json", part)
            for place, part in enumerate([messages[:cut], messages[cut:]])
        ]
    for path, part in draw.sample(files, len(files)):
        if part:
            box.land(path, lines(*part))
    return sum(
        message is not None and (not isinstance(message, dict) or message.get("value", 1) is not None)
        for _, message in sent
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_tables_are_those_of_a_model_after_each_increment(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    draw = random.Random(seed)
    life, box = Life(draw), project(tmp_path, spark, "orders")
    for number in range(4):
        life.go_on(draw.randint(20, 60))
        _land(box, life, number, draw)
        run_all(box)
        assert held(box, "orders") == life.rows, number
    box.run("orders", full_refresh=True)
    assert held(box, "orders") == life.rows


def test_runs_that_are_killed_at_every_step_have_each_change_once(tmp_path: Path, spark: SparkSession) -> None:
    draw = random.Random(3)
    life, box = Life(draw), project(tmp_path, spark, "orders")
    count = 0
    for number, (function, moment) in enumerate(POINTS):
        life.go_on(12)
        count += _land(box, life, number, draw)
        with pytest.MonkeyPatch.context() as patched:
            kill_at(patched, function, moment, 1)
            with suppress(Killed):
                box.run("changes")
        box.run("changes")
        log = box.table("changes").table.to_pyarrow_table().to_pylist()
        assert sum(row["op"] != "s" for row in log) == count, (function, moment)
        assert sorted(row["n"] for row in log) == [*range(1, len(log) + 1)]
    box.run("orders")
    assert held(box, "orders") == life.rows
