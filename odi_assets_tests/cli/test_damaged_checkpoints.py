"""Folders of a stream's checkpoint that are gone: each command names them, and what it names leads to right rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.nodes.support import Sandbox

PIPELINES = """
- pipeline: p
  nodes:
  - name: sums
    read: {connection: landing, format: json, path: "rows/*.json", schema: "g STRING, n BIGINT"}
    stream: {output_mode: update}
    transform: {sql: "SELECT g, SUM(n) AS n FROM df GROUP BY g"}
    write: {connection: lake, path: sums, mode: upsert, keys: [g]}
"""


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    sandbox = Sandbox(tmp_path, spark, PIPELINES)
    monkeypatch.chdir(tmp_path)
    land(sandbox, 1)
    sandbox.run("sums")
    return sandbox


def land(box: Sandbox, number: int) -> None:
    box.land(f"rows/{number}.json", [json.dumps({"g": "a", "n": number})])


def rows(box: Sandbox) -> list[tuple[str, int]]:
    return [(row["g"], row["n"]) for row in DeltaTable(box.root / "lake" / "sums").to_pyarrow_table().to_pylist()]


@pytest.mark.parametrize("folder", ["state", "state/0"])
def test_state_that_is_gone_is_named_by_every_command_and_the_remedy_leads_to_right_rows(
    box: Sandbox, odi: Odi, folder: str
) -> None:
    (checkpoint,) = (box.root / "lake" / "sums").glob("_odi_stream*")
    shutil.rmtree(checkpoint / folder)
    land(box, 2)
    judged = odi("checkpoint", "files", "sums")
    assert judged.code == 1
    assert "the query cannot go on: state/" in judged.err
    for command in ("doctor", "run"):
        answer = odi(command)
        assert answer.code == 1, answer
        assert "odi tables repair p.sums" in answer.out + answer.err, answer
    assert odi("tables", "repair", "p.sums", "--yes").code == 0
    assert odi("run", "p", "--node", "sums", "--full-refresh").code == 0
    assert rows(box) == [("a", 3)]
    assert odi("doctor").code == 0


def test_a_run_names_a_way_on_where_nothing_knows_of_the_state_that_is_gone(box: Sandbox, odi: Odi) -> None:
    (checkpoint,) = (box.root / "lake" / "sums").glob("_odi_stream*")
    shutil.rmtree(checkpoint / "state")
    shutil.rmtree(box.root / "lake" / "system" / "meta_batches")
    land(box, 2)
    failed = odi("run")
    assert "its folder `state` is missing or empty" in failed.err
    assert "odi run p --node sums --full-refresh" in failed.err
    assert odi("run", "p", "--node", "sums", "--full-refresh").code == 0
    assert rows(box) == [("a", 3)]


def test_a_number_that_operators_leave_out_is_missing_whatever_the_records_say(box: Sandbox, odi: Odi) -> None:
    (checkpoint,) = (box.root / "lake" / "sums").glob("_odi_stream*")
    (checkpoint / "state" / "0").rename(checkpoint / "state" / "1")
    judged = odi("checkpoint", "files", str(checkpoint))
    assert (judged.code, "state/0 is missing" in judged.err) == (1, True)
