"""Tables that hold less than their state says: refused, with three ways out that all lead on; and what doctor says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import StateError, TargetBehindStateError
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery import table_versions as points
from odi_assets.nodes.recovery.accept import accept
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.state import CatalogStateBackend
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

NODES = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT", options: {header: "true"},
       incremental: {mode: files}}
    write: {connection: lake, path: raw, mode: append}
  - name: copy
    inputs: {raw: {node: raw, incremental: {mode: version}}}
    transform: {sql: "SELECT id FROM raw"}
    write: {connection: lake, path: copy, mode: append}
"""
RAW, COPY = NodeKey("p", "raw"), NodeKey("p", "copy")
IDS = pa.schema([("id", pa.int64())])


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    box = Sandbox(tmp_path, spark, NODES)
    for number in (1, 2):
        land(box, number)
        box.run("raw")
    return box


def land(box: Sandbox, number: int) -> None:
    box.land(f"{number}.csv", ["id", str(number)])


def uri(box: Sandbox) -> str:
    return box.table("raw").location.uri


def drop(box: Sandbox) -> None:
    shutil.rmtree(uri(box))


def drop_and_make_again(box: Sandbox) -> None:
    drop(box)
    for _ in range(3):
        write_deltalake(uri(box), pa.table({"id": [9]}, schema=IDS), mode="append")


def restore(box: Sandbox) -> None:
    DeltaTable(uri(box)).restore(0)


def empty(box: Sandbox) -> None:
    DeltaTable(uri(box)).delete()


def overwrite(box: Sandbox) -> None:
    write_deltalake(uri(box), pa.table({"id": [9]}, schema=IDS), mode="overwrite")


def lose_files(box: Sandbox) -> None:
    for folder in Path(uri(box)).glob("odi_write=*"):
        shutil.rmtree(folder)


WAYS: dict[str, tuple[Callable[[Sandbox], None], str, list[int]]] = {
    "dropped": (drop, "does not exist", []),
    "made again": (drop_and_make_again, "is another one", [9, 9, 9]),
    "restored": (restore, "was put back to an earlier version by somebody else, at version 2", [1]),
    "emptied": (empty, "was emptied by somebody else, at version 2", []),
    "overwritten": (overwrite, "was overwritten by somebody else, at version 2", [9]),
    "vacuumed": (lose_files, "has lost files of its version 1", []),
}
"""What was done to a table of the rows 1 and 2, how the run says so, and the rows that are left."""


@pytest.mark.parametrize("way", WAYS)
def test_a_table_behind_its_state_is_refused_and_a_full_refresh_or_acceptance_leads_on(box: Sandbox, way: str) -> None:
    undo, message, left = WAYS[way]
    undo(box)
    with pytest.raises(TargetBehindStateError, match=message) as raised:
        box.run("raw")
    for remedy in ("--full-refresh", "odi state accept p.raw"):
        assert remedy in str(raised.value)
    # Where there is no table, or every version has lost files, there is none to go back to.
    assert ("odi state rewind p.raw" in str(raised.value)) == (way not in ("vacuumed", "dropped"))
    (found,) = examine(box.project, box.state, [RAW])[:1]
    assert found.kind is (Kind.FILES_MISSING if way == "vacuumed" else Kind.TABLE_BEHIND)
    assert message in found.message or way == "vacuumed"
    accept(box.project, box.state, RAW)
    assert examine(box.project, box.state, [RAW]) == []
    land(box, 3)
    assert box.run("raw").rows_written == 1
    assert [row[0] for row in box.rows("raw")] == sorted([*left, 3])
    box.run("raw", full_refresh=True)
    assert [row[0] for row in box.rows("raw")] == [1, 2, 3]
    assert examine(box.project, box.state, [RAW]) == []


def test_a_table_that_was_emptied_goes_back_by_a_rewind(box: Sandbox) -> None:
    empty(box)
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, RAW, points.at_version(1)))
    land(box, 3)
    box.run("raw")
    assert [row[0] for row in box.rows("raw")] == [1, 2, 3]


def test_rows_that_somebody_put_back_have_the_hwm_of_their_version_and_foreign_ones_have_none(box: Sandbox) -> None:
    land(box, 3)
    box.run("raw")
    DeltaTable(uri(box)).restore(1)
    accept(box.project, box.state, RAW)
    overwrite(box)
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, RAW, points.at_version(2)))
    DeltaTable(uri(box)).restore(1)
    with pytest.raises(StateError, match="no HWM belongs to version 4: the table was overwritten by somebody else"):
        plan_rewind(box.project, box.state, RAW, points.at_version(4))
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, RAW, points.at_version(2)))
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, RAW, points.at_version(6)))
    assert box.hwm("raw")["path"] == "2.csv"
    assert box.run("raw").rows_written == 1
    assert [row[0] for row in box.rows("raw")] == [1, 2, 3]


def test_a_table_without_an_hwm_that_was_dropped_is_a_row_of_history_without_its_commit(box: Sandbox) -> None:
    box.state.delete_hwm("p.raw")
    drop(box)
    (found,) = examine(box.project, box.state, [RAW])
    assert found.kind is Kind.HISTORY_AHEAD
    assert found.message.endswith("left version 1 of the table, which does not exist")


def test_rows_that_somebody_deletes_or_corrects_do_not_stop_the_next_run(box: Sandbox) -> None:
    DeltaTable(uri(box)).delete("id = 1")
    land(box, 3)
    assert box.run("raw").rows_written == 1
    assert [row[0] for row in box.rows("raw")] == [2, 3]


def test_a_run_without_an_hwm_replaces_what_earlier_runs_left(box: Sandbox) -> None:
    box.state.delete_hwm("p.raw")
    assert box.run("raw").rows_total == 2
    assert [row[0] for row in box.rows("raw")] == [1, 2]


def test_doctor_names_each_disagreement_and_its_remedy(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    assert box.run("copy").status is RunStatus.SUCCESS
    land(box, 3)

    def dies(*_: object, **__: object) -> None:
        raise StateError("killed here")

    with monkeypatch.context() as fault:
        fault.setattr(type(box.state), "compare_and_set", dies)
        with pytest.raises(StateError):
            box.run("raw")
    found = {one.kind: one for one in examine(box.project, box.state, [RAW, COPY])}
    assert "odi state recover p.raw" in found[Kind.STATE_BEHIND].remedy
    drop(box)
    found = {one.kind: one for one in examine(box.project, box.state, [RAW, COPY])}
    assert found[Kind.UPSTREAM_CHANGED].key == COPY
    assert "the table of p.raw does not exist" in found[Kind.UPSTREAM_CHANGED].message
    assert found[Kind.TABLE_BEHIND].key == RAW


def test_a_table_behind_its_log_is_accepted_though_state_is_lost(box: Sandbox) -> None:
    overwrite(box)
    assert isinstance(box.state, CatalogStateBackend)
    DeltaTable(box.state.meta_state_path).delete()
    land(box, 3)
    with pytest.raises(TargetBehindStateError):
        box.plan("raw")
    entry = accept(box.project, box.state, RAW)
    assert entry is not None
    assert entry.value["path"] == "2.csv"
    assert box.run("raw").rows_written == 1
    assert box.rows("raw") == [(3,), (9,)]


def test_a_table_that_is_not_there_has_to_come_back_before_it_is_rewound(box: Sandbox) -> None:
    overwrite(box)
    with pytest.raises(TargetBehindStateError, match="or rewind: put the table and its HWM back together"):
        box.plan("raw")
    drop(box)
    with pytest.raises(
        TargetBehindStateError,
        match=r"; or put the table back from a copy, or `write\.path`, if it was edited; or accept",
    ):
        box.plan("raw")


def test_a_path_that_was_edited_is_named_with_the_table_that_is_there_still(box: Sandbox) -> None:
    file = box.root / "odibi.yaml"
    was = file.read_text("utf-8")
    file.write_text(was.replace("path: raw, mode", "path: row, mode"), "utf-8")
    edited = Sandbox.__new__(Sandbox)
    edited.__dict__ |= {**vars(box), "project": Project.load(file)}
    message = (
        rf"version 1 of the table at {uri(box)} held; the table at {box.root}/lake/row does not exist\n"
        r".*put `write\.path` back, where that table was; or reset"
    )
    with pytest.raises(TargetBehindStateError, match=message):
        edited.plan("raw")
    (found,) = examine(edited.project, edited.state, [RAW])[:1]
    assert "write.path" in found.remedy
    assert "--list" not in found.remedy
    assert box.plan("raw").nothing_new


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("reading", ["get_entry", "list_runs"])
def test_a_run_that_commits_during_a_look_at_its_node_is_no_disagreement(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch, reading: str, when: str
) -> None:
    land(box, 3)
    state = box.project.open_state()
    read = getattr(state, reading)

    def beside_a_run(*args: object, **how: object) -> object:
        found = read(*args, **how) if when == "after" else None
        if not box.plan("raw").nothing_new:
            box.run("raw")
        return found or read(*args, **how)

    monkeypatch.setattr(state, reading, beside_a_run)
    if reading == "get_entry":
        assert plan_node(box.project, state, RAW).nothing_new
        land(box, 4)
    assert examine(box.project, state, [RAW]) == []
