"""What plans make of state that somebody deleted, reset, lost or put back."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import StateError
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets.state import CatalogStateBackend
from odi_assets.state.records import KeyRestore, RunStatus
from odi_assets_tests.nodes.support import Sandbox

RAW = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "orders/*.csv", schema: "id BIGINT", options: {header: "true"},
       incremental: {mode: files}}
    write: {connection: lake, path: raw, mode: append}
"""


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    """A node that has loaded two files in two runs."""
    box = Sandbox(tmp_path, spark, RAW)
    for number in (1, 2):
        box.land(f"orders/{number}.csv", ["id", str(number)])
        box.run("raw")
    return box


def lose_state(box: Sandbox) -> None:
    # The table stays, without rows: as after `rm -r`, but for the fences in its log.
    assert isinstance(box.state, CatalogStateBackend)
    DeltaTable(box.state.meta_state_path).delete()


def path_of(box: Sandbox) -> str:
    return str(box.plan("raw").start.hwm)


def test_a_deleted_hwm_stays_deleted_and_the_next_run_loads_everything_once(box: Sandbox) -> None:
    assert box.state.delete_hwm("p.raw")
    plan = box.plan("raw")
    assert (plan.start.hwm, plan.start.repaired) == (None, False)
    assert box.finish(plan).rows_written == 2
    assert box.rows("raw") == [(1,), (2,)]
    assert path_of(box) == "orders/2.csv"
    assert box.run("raw").status is RunStatus.NO_DATA


def test_an_hwm_deleted_after_a_run_died_at_its_commit_stays_deleted(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.land("orders/3.csv", ["id", "3"])

    def dies(*_: object, **__: object) -> None:
        raise StateError("killed here")

    with monkeypatch.context() as fault:
        fault.setattr(type(box.state), "compare_and_set", dies)
        with pytest.raises(StateError):
            box.run("raw")
    assert path_of(box) == "orders/3.csv"
    box.state.delete_hwm("p.raw")
    assert box.plan("raw").start.hwm is None


def test_a_run_that_died_after_a_deletion_is_repaired(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    box.state.delete_hwm("p.raw")

    def dies(*_: object, **__: object) -> None:
        raise StateError("killed here")

    with monkeypatch.context() as fault:
        fault.setattr(type(box.state), "compare_and_set", dies)
        with pytest.raises(StateError):
            box.run("raw")
    assert box.run("raw").status is RunStatus.NO_DATA
    assert box.hwm("raw")["path"] == "orders/2.csv"


def test_state_that_was_lost_is_rebuilt_from_the_tables_log(box: Sandbox) -> None:
    lose_state(box)
    assert box.hwm("raw") is None
    assert box.run("raw").status is RunStatus.NO_DATA
    assert box.hwm("raw")["path"] == "orders/2.csv"


def test_a_change_made_after_state_was_lost_counts(box: Sandbox) -> None:
    lose_state(box)
    earlier = {"mtime_ns": 0, "path": ""}
    box.state.reset_hwm("p.raw", earlier)
    assert box.plan("raw").start.hwm == NodeMark(earlier)
    (found,) = examine(box.project, box.state, [NodeKey("p", "raw")])
    assert found.kind is Kind.SET_BY_HAND
    assert "loaded up to orders/2.csv, in version 1" in found.message
    box.state.delete_hwm("p.raw")
    assert box.plan("raw").start.hwm is None


def test_an_older_copy_of_state_that_was_put_back_does_not_repeat_rows(box: Sandbox) -> None:
    older = box.state.history("p.raw")[-1]
    lose_state(box)
    box.state.restore([KeyRestore(older, None)])
    assert box.state.get_entry("p.raw") == older
    plan = box.plan("raw")
    assert (str(plan.start.hwm), plan.start.repaired, plan.nothing_new) == ("orders/2.csv", True, True)
