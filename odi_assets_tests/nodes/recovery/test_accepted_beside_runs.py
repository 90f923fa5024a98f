"""A table that is accepted as it is while its node runs: no row is lost, and none is there twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.execution import materialize
from odi_assets.nodes.recovery.accept import accept
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

DURING: list[Callable[[], object]] = []
"""What happens while a node computes its rows."""
THROUGH = f"""
def through(df):
    from {__name__} import DURING

    while DURING:
        DURING.pop()()
    return df
"""
READS = {
    "files": '{connection: landing, format: csv, path: "*.csv", schema: "id BIGINT", incremental: files}',
    "stateful": '{connection: landing, format: csv, path: "*.csv", schema: "id BIGINT",'
    " incremental: {mode: stateful, column: id}}",
    "version": "{connection: lake, format: delta, path: source, incremental: version}",
}
KEY = NodeKey("p", "raw")


class Accepted:
    def __init__(self, root: Path, spark: SparkSession, increment: str) -> None:
        (root / "gate.py").write_text(THROUGH, encoding="utf-8")
        node = f"{{name: raw, read: {READS[increment]}, transform: {{function: 'gate:through'}},"
        self.box = Sandbox(
            root, spark, f"- pipeline: p\n  nodes:\n  - {node} write: {{connection: lake, path: raw, mode: append}}}}"
        )
        self.increment, self.landed = increment, 0

    def land(self) -> None:
        self.landed += 1
        if self.increment == "version":
            rows = pa.table({"id": [self.landed]})
            write_deltalake(str(self.box.root / "lake" / "source"), rows, mode="append")
        else:
            self.box.land(f"{self.landed}.csv", [str(self.landed)])

    def accept(self) -> None:
        accept(self.box.project, self.box.state, KEY)

    def rows(self) -> list[int]:
        return sorted(row[0] for row in self.box.rows("raw"))


@pytest.fixture(params=READS)
def accepted(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Accepted:
    DURING.clear()
    found = Accepted(tmp_path, spark, request.param)
    found.land()
    found.box.run("raw")
    found.land()
    return found


def test_an_acceptance_before_the_commit_of_a_run_repeats_nothing(accepted: Accepted) -> None:
    DURING.append(accepted.accept)
    assert accepted.box.run("raw").status is RunStatus.SUCCESS
    assert accepted.box.run("raw").status is RunStatus.NO_DATA
    assert accepted.rows() == [1, 2]
    assert examine(accepted.box.project, accepted.box.state, [KEY]) == []


def test_an_acceptance_between_a_commit_and_its_mark_repeats_nothing(
    accepted: Accepted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*given: object) -> None:
        accepted.accept()
        real(*given)  # type: ignore[arg-type]

    real = materialize.advance
    monkeypatch.setattr(materialize, "advance", late)
    accepted.box.run("raw")
    assert accepted.box.run("raw").status is RunStatus.NO_DATA
    assert accepted.rows() == [1, 2]


def test_a_run_that_dies_after_its_commit_beside_an_acceptance_is_gone_on_from(
    accepted: Accepted, monkeypatch: pytest.MonkeyPatch
) -> None:
    DURING.append(accepted.accept)
    with monkeypatch.context() as dies:
        dies.setattr(materialize, "advance", lambda *_: None)
        accepted.box.run("raw")
    assert accepted.box.run("raw").status is RunStatus.NO_DATA
    accepted.land()
    accepted.box.run("raw")
    assert accepted.rows() == [1, 2, 3]


def test_what_was_accepted_of_a_table_that_lost_rows_is_not_loaded_again(accepted: Accepted) -> None:
    accepted.box.run("raw")
    table = accepted.box.root / "lake" / "raw"
    lost = accepted.box.table("raw").live_files[-1].path
    (table / lost).unlink()
    accepted.accept()
    assert accepted.box.run("raw").status is RunStatus.NO_DATA
    accepted.land()
    accepted.box.run("raw")
    assert accepted.rows()[-1] == 3
    assert len(accepted.rows()) == 2
