"""Nodes over files as a service: each runs when there is something for it to do, and not otherwise."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import SourceError
from odi_assets.nodes.service import NodeService
from odi_assets.spark.session import SessionHandle
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

NODES = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, path: in/*.csv, format: csv, schema: "id BIGINT", incremental: files}
    write: {connection: lake, path: raw, mode: append}
  - name: whole
    inputs: [raw]
    transform: {sql: "SELECT 10 / count(*) AS share FROM raw"}
    write: {connection: lake, path: whole}
  - name: listed
    read: {connection: landing, path: list.csv, format: csv, schema: "id BIGINT"}
    write: {connection: lake, path: listed}
"""


class Rounds(threading.Event):
    """Ends a service after some looks; between two of them, something happens."""

    def __init__(self, box: Sandbox, *between: str) -> None:
        super().__init__()
        self.box, self.between, self.versions = box, list(between), [dict[str, int | None]()]

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        self.versions.append({name: self.box.table(name).version for name in ("raw", "whole", "listed")})
        if not self.between:
            self.set()
        elif file := self.between.pop(0):
            self.box.land(file, [str(len(self.between))])
        return self.is_set()


def serve(box: Sandbox, rounds: Rounds) -> list[tuple[int | None, ...]]:
    NodeService(box.project, box.project.graph.order("p"), timedelta(0), stop=rounds).run()
    return [tuple(versions.values()) for versions in rounds.versions[1:]]


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """Services take the suite's session, and leave it open."""
    handle = SessionHandle(spark, started_here=False)
    monkeypatch.setattr("odi_assets.nodes.service.open_session", lambda *_, **__: handle)


def test_a_node_that_reads_whole_runs_when_what_it_reads_has_changed_and_not_at_each_look(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, NODES)
    box.land("in/a.csv", ["1"])
    box.land("list.csv", ["1"])
    found = serve(box, Rounds(box, "", "", "in/b.csv", "", "list.csv", ""))
    assert found == [(0, 0, 0), (0, 0, 0), (0, 0, 0), (1, 1, 0), (1, 1, 0), (1, 1, 1), (1, 1, 1)]
    # Another service goes on where this one has ended.
    assert serve(box, Rounds(box, "")) == [(1, 1, 1), (1, 1, 1)]
    assert {run.status for run in box.state.list_runs(pipeline="p")} == {RunStatus.SUCCESS}


def test_a_node_that_failed_runs_again_although_nothing_above_it_changes(tmp_path: Path, spark: SparkSession) -> None:
    pause = "automation: {first_pause: 1s, longest_pause: 1s}\n"
    box = Sandbox(tmp_path, spark, NODES.replace("10 / count(*)", "raise_error(count(*))"), pause)
    box.land("in/a.csv", ["1"])
    box.land("list.csv", ["1"])
    serve(box, Rounds(box, "", ""))
    runs = [run.status for run in box.state.list_runs(pipeline="p", node="whole")]
    assert runs == [RunStatus.FAILURE] * 3
    assert len(box.state.list_runs(pipeline="p", node="raw")) == 1


def test_a_node_that_cannot_be_looked_at_runs_and_holds_up_no_other(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Sandbox(tmp_path, spark, NODES)
    box.land("in/a.csv", ["1"])
    box.land("list.csv", ["1"])
    serve(box, Rounds(box))

    def cannot(*_: object) -> None:
        raise SourceError("nobody answers", fix="wait")

    monkeypatch.setattr("odi_assets.nodes.service.verdict", cannot)
    assert serve(box, Rounds(box, "in/b.csv"))[-1] == (1, 2, 2)
