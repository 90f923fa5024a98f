"""A node that becomes a stream, and a node of runs again: each remedy that is named leads on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError, LossError, OdiError
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

RUNS, STREAM = "incremental: files}", "}, stream: {}"
NODE = f"""
- pipeline: p
  nodes:
  - {{name: orders, read: {{connection: landing, format: json, path: a/*.json, schema: "id BIGINT", {RUNS},
      write: {{connection: lake, path: orders, mode: append}}}}
"""


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    return Sandbox(tmp_path, spark, NODE)


def becomes(box: Sandbox, kind: str) -> None:
    file = box.root / "odibi.yaml"
    text = file.read_text(encoding="utf-8")
    was = RUNS if kind == STREAM else STREAM
    assert was in text
    file.write_text(text.replace(was, kind), encoding="utf-8")
    box.project = Project.load(file)
    box.state = box.project.open_state()


def land(box: Sandbox, *ids: int) -> None:
    for number in ids:
        box.land(f"a/{number}.json", [json.dumps({"id": number})])


def test_the_named_full_refresh_leads_from_runs_to_a_stream_and_back_and_there_again(box: Sandbox) -> None:
    land(box, 1)
    box.run("orders")
    for number in (2, 4):
        becomes(box, STREAM)
        land(box, number)
        with pytest.raises(IdentityMismatchError, match=r"loaded by runs that were no streams.*(\n.*)*--full-refresh"):
            box.run("orders")
        assert [one.kind for one in examine(box.project, box.state, [NodeKey("p", "orders")])] == [Kind.REDEFINED]
        with pytest.raises(LossError, match=r"what runs loaded before it was a stream(.*\n)*.*--full-refresh --yes"):
            box.run("orders", full_refresh=True)
        assert box.run("orders", full_refresh=True, accept_loss=True).status is RunStatus.SUCCESS
        assert box.rows("orders") == [(one,) for one in range(1, number + 1)]
        assert examine(box.project, box.state, [NodeKey("p", "orders")]) == []
        land(box, number + 1)
        assert box.run("orders").rows_written == 1
        becomes(box, RUNS)
        with pytest.raises(OdiError, match=r"was written by a stream, .* again(.*\n)*.*--full-refresh"):
            box.run("orders")
        box.run("orders", full_refresh=True, accept_loss=True)
        assert box.rows("orders") == [(one,) for one in range(1, number + 2)]
        assert box.run("orders").status is RunStatus.NO_DATA


def test_what_a_full_refresh_made_a_stream_is_adopted_under_another_name(box: Sandbox) -> None:
    land(box, 1)
    box.run("orders")
    becomes(box, STREAM)
    key, renamed = NodeKey("p", "orders"), NodeKey("p", "sales")
    with pytest.raises(IdentityMismatchError, match="loaded by runs that were no streams"):
        plan_adoption(box.project, box.state, key, lambda: box.spark)
    box.run("orders", full_refresh=True, accept_loss=True)
    assert plan_adoption(box.project, box.state, key, lambda: box.spark) is None
    file = box.root / "odibi.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("name: orders", "name: sales"), encoding="utf-8")
    box.project = Project.load(file)
    adoption = plan_adoption(box.project, box.state, renamed, lambda: box.spark)
    assert adoption is not None
    apply_adoption(box.state, adoption)
    land(box, 2)
    assert box.run("sales").rows_written == 1
    assert box.rows("sales") == [(1,), (2,)]
