"""What a commit says of itself comes back as it was written, by whatever version it was written."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from odi_assets.delta.history import CommittedStamp
from odi_assets.nodes.commit_facts import CommitFacts, CommittedHwm
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import app_id
from odi_assets.sources.marks import Identity
from odi_assets_tests.nodes.support import Sandbox

PROJECT = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: csv, path: "a/*.csv", schema: "id BIGINT", options: {header: "true"},
           incremental: files}
    write: {connection: lake, path: raw, mode: append}
"""


def stamp(facts: dict[str, object]) -> CommittedStamp:
    return CommittedStamp(3, "odi_assets:p.n", 1, "w", facts, datetime(2024, 1, 1, tzinfo=UTC))


def test_facts_come_back_as_they_were_written() -> None:
    hwm = CommittedHwm.of(NodeMark({"up": 3}), {"up": {"seen": "x"}}, {"up": Identity("delta", "id", "version")})
    facts = CommitFacts(
        node="p.n",
        run_id="r",
        attempt=2,
        mode="append",
        increment="everything",
        code_version="c",
        positions={"up": {"version": 3}},
        state_revision=4,
        state_updated_at=datetime(2024, 1, 1, 5, 6, 7, 89, UTC),
        inputs={"p.up": 3},
        partial=True,
        bounds=("2024-01-01T00:00:00+00:00", "2024-01-02T00:00:00+00:00"),
        hwm=hwm,
        before_first_run=False,
    )
    assert CommitFacts.of(stamp(facts.to_json())) == facts


def test_commits_that_did_not_say_so_much_are_read() -> None:
    old = CommitFacts.of(stamp({"run_id": "r", "hwm": {"value": "3", "type": "int"}, "state_revision": 1}))
    assert (old.run_id, old.hwm and old.hwm.mark, old.attempt, old.partial) == ("r", NodeMark(3), None, False)
    assert old.hwm is not None
    assert (dict(old.hwm.remembered), dict(old.hwm.measures)) == ({}, {})


def test_a_commit_says_what_its_hwm_measures(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, PROJECT)
    box.land("a/1.csv", ["id", "1"])
    box.run("raw")
    last = box.table("raw").last_stamp(app_id(box.plan("raw").node.key))
    assert last is not None
    committed = CommitFacts.of(last).hwm
    assert committed is not None
    place = f"{(tmp_path / 'landing').resolve()}/a/*.csv"
    assert dict(committed.measures) == {"df": Identity("files", "a/*.csv", "file", "files", "landing", place)}
