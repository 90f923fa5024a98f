"""Tables that are put back from copies of their folders, and rows below a mark that are other ones now."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError, OdiError, TargetBehindStateError
from odi_assets.nodes.recovery import table_versions as points
from odi_assets.nodes.recovery.accept import accept
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.state.records import RunStatus
from odi_assets.tables.embedded.engine import EmbeddedEngine
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.tables.support import read_table

NODES = """
- pipeline: p
  nodes:
  - name: fork
    read: {connection: landing, format: delta, path: src, incremental: version}
    write: {connection: lake, path: fork, mode: append}
  - name: newest
    read: {connection: landing, format: delta, path: src, incremental: version}
    write: {connection: lake, path: newest, mode: upsert, keys: [id]}
  - name: whole
    read: {connection: landing, format: delta, path: src, incremental: version}
    write: {connection: lake, path: whole, mode: overwrite}
  - name: above
    read: {connection: landing, format: delta, path: src, incremental: {mode: stateful, column: id}}
    write: {connection: lake, path: above, mode: append}
  - name: days
    read: {connection: landing, format: delta, path: src, incremental: version}
    transform: {sql: "SELECT id, 1 AS n FROM df"}
    write: {connection: lake, path: days, mode: partition_overwrite, partition_by: [id]}
  - name: up
    read:
      {connection: landing, format: csv, path: "up/*", schema: "id BIGINT, v STRING", options: {header: "true"},
       incremental: {mode: files}}
    write: {connection: lake, path: up, mode: append}
  - name: down
    inputs: {up: {node: up, incremental: {mode: stateful, column: id}}}
    write: {connection: lake, path: down, mode: append}
  - name: calm
    inputs: {up: {node: up, incremental: {mode: stateful, column: id, on_change: ignore}}}
    write: {connection: lake, path: calm, mode: append}
  - name: all_of_up
    inputs: {up: {node: up, incremental: {mode: stateful, column: id}}}
    write: {connection: lake, path: all_of_up, mode: overwrite}
"""
READERS = ("fork", "newest", "above", "days")


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    return Sandbox(tmp_path, spark, NODES)


def append(box: Sandbox, *ids: int) -> None:
    for one in ids:
        write_deltalake(str(box.root / "landing" / "src"), pa.table({"id": [one]}), mode="append")


def ids(box: Sandbox, node: str) -> list[int]:
    return sorted(row["id"] for row in read_table(box.spark, box.table(node)).collect())


def put_back(path: Path, copy: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(copy, path)


def forked(box: Sandbox, *nodes: str) -> None:
    """Versions 0 and 1 are read, then version 2, and then it is another one."""
    source, copy = box.root / "landing" / "src", box.root / "copy"
    append(box, 1, 2)
    for node in nodes:
        box.run(node)
    shutil.copytree(source, copy)
    append(box, 3)
    for node in nodes:
        box.run(node)
    put_back(source, copy)
    append(box, 4, 5)


def take(box: Sandbox, error: OdiError, what: str) -> None:
    """Type the command of the message that begins with ``what``."""
    (text,) = re.findall(rf"(odi {what}[^;(]*?)(?:; or|$)", str(error.fix))
    code = main(
        ["--config", str(box.root / "odibi.yaml"), *shlex.split(text)[1:], *(["--yes"] if "run" not in what else [])]
    )
    assert code == 0, text


@pytest.mark.parametrize("node", READERS)
def test_a_source_put_back_from_a_copy_stops_the_run_and_a_rewind_leads_on(box: Sandbox, node: str) -> None:
    forked(box, node)
    with pytest.raises(IdentityMismatchError, match=r"version 2 of landing:src.* is another commit now") as error:
        box.run(node)
    assert [found.kind for found in examine(box.project, box.state, [NodeKey("p", node)])] == [Kind.UPSTREAM_CHANGED]
    take(box, error.value, "state rewind")
    assert box.run(node).status is RunStatus.SUCCESS
    assert ids(box, node) == [1, 2, 4, 5]
    assert examine(box.project, box.state, [NodeKey("p", node)]) == []


def test_each_other_way_on_that_the_stop_names_works_too(box: Sandbox) -> None:
    forked(box, "fork", "newest", "above")
    box.run("fork", full_refresh=True, accept_loss=True)
    assert ids(box, "fork") == [1, 2, 4, 5]
    for node in ("newest", "above"):
        accept(box.project, box.state, NodeKey("p", node))
    append(box, 6)
    assert [box.run(node).status for node in ("newest", "above")] == [RunStatus.SUCCESS] * 2
    assert ids(box, "newest") == [1, 2, 3, 5, 6]
    assert ids(box, "above") == [1, 2, 3, 4, 5, 6]
    assert box.run("above").status is RunStatus.NO_DATA


def test_a_source_that_stands_before_its_mark_stops_with_the_same_ways_on(box: Sandbox) -> None:
    append(box, 1)
    box.run("fork")
    shutil.copytree(box.root / "landing" / "src", box.root / "copy")
    append(box, 2)
    box.run("fork")
    put_back(box.root / "landing" / "src", box.root / "copy")
    with pytest.raises(IdentityMismatchError, match="is at version 0, and it was read up to version 1 before") as error:
        box.run("fork")
    take(box, error.value, "state accept")
    append(box, 3)
    box.run("fork")
    assert ids(box, "fork") == [1, 2, 3]


def test_a_node_that_replaces_its_table_reads_the_other_history_and_is_right(box: Sandbox) -> None:
    forked(box, "whole")
    assert box.run("whole").status is RunStatus.SUCCESS
    assert ids(box, "whole") == [1, 2, 4, 5]


def test_a_path_that_leads_to_a_copy_stops_only_if_the_copy_went_another_way(box: Sandbox) -> None:
    source = box.root / "landing" / "src"
    append(box, 1, 2)
    box.run("fork")
    shutil.copytree(source, box.root / "landing" / "same")
    same = (box.root / "odibi.yaml").read_text().replace("path: src", "path: same")
    write_deltalake(str(box.root / "landing" / "same"), pa.table({"id": [3]}), mode="append")
    (box.root / "odibi.yaml").write_text(same)
    box.project = type(box.project).load(box.root / "odibi.yaml")
    box.run("fork")
    assert ids(box, "fork") == [1, 2, 3]
    append(box, 4, 5)
    (box.root / "odibi.yaml").write_text(same.replace("path: same", "path: src"))
    box.project = type(box.project).load(box.root / "odibi.yaml")
    with pytest.raises(IdentityMismatchError, match="version 2 of landing:src"):
        box.run("fork")


def test_a_mark_of_before_goes_on_and_gains_its_history_at_the_next_run(box: Sandbox) -> None:
    append(box, 1, 2)
    box.run("fork")
    entry = box.state.get_entry("p.fork")
    assert entry is not None
    old = str(entry.origin).replace('"history"', '"unknown"').replace('"commit"', '"strange"')
    box.state.compare_and_set(
        "p.fork", entry.value, expected_revision=entry.revision, target_commit=0, run_id="old", origin=old
    )
    source = next(iter(box.plan("fork").reads)).before
    assert source is not None
    assert source.measures is not None
    assert source.measures.history is None
    assert box.run("fork").status is RunStatus.NO_DATA
    known = next(iter(box.plan("fork").reads)).before
    assert known is not None
    assert known.measures is not None
    assert known.measures.history is not None


def own_table_put_back(box: Sandbox) -> Path:
    """The table of a node that has read two rows, put back to when it had read one."""
    append(box, 1)
    box.run("fork")
    table, copy = box.root / "lake" / "fork", box.root / "copy"
    shutil.copytree(table, copy)
    append(box, 2)
    box.run("fork")
    put_back(table, copy)
    return table


def test_a_nodes_own_table_of_another_history_is_refused_although_it_has_the_version(box: Sandbox) -> None:
    table = own_table_put_back(box)
    write_deltalake(str(table), pa.table({"id": [9]}), mode="append")
    with pytest.raises(TargetBehindStateError, match="has another history: its version 1 is another commit"):
        box.run("fork")
    accept(box.project, box.state, NodeKey("p", "fork"))
    append(box, 3)
    box.run("fork")
    assert ids(box, "fork") == [1, 3, 9]


def test_a_nodes_own_table_of_another_history_is_refused_although_its_log_was_cleaned(box: Sandbox) -> None:
    table = own_table_put_back(box)
    for number in range(3):
        write_deltalake(str(table), pa.table({"id": [90 + number]}), mode="append")
    without_log_before_the_newest_version(table)
    for look in (box.plan, box.run):
        with pytest.raises(TargetBehindStateError, match="has another history"):
            look("fork")
    (found,) = examine(box.project, box.state, [NodeKey("p", "fork")])
    assert found.kind == Kind.TABLE_BEHIND
    # The HWM of the copy belongs to its rows, and the HWM of the other history does not.
    rewind = plan_rewind(box.project, box.state, NodeKey("p", "fork"), points.at_version(3))
    apply_rewind(box.project, box.state, rewind)
    box.run("fork")
    assert ids(box, "fork") == [1, 2, 90, 91, 92]


def without_log_before_the_newest_version(table: Path) -> None:
    """What the retention of logs leaves of a table."""
    newest = DeltaTable(table).version()
    DeltaTable(table).create_checkpoint()
    for version in range(newest):
        (table / "_delta_log" / f"{version:020}.json").unlink()


def test_below_a_table_that_was_put_back_and_accepted_a_reader_stops(tmp_path: Path, spark: SparkSession) -> None:
    below = """
  - name: below
    inputs: {fork: {node: fork, incremental: version}}
    write: {connection: lake, path: below, mode: append}
"""
    box = Sandbox(tmp_path, spark, NODES + below.replace("\n", "\n", 1))
    append(box, 1)
    box.run("fork")
    box.run("below")
    table, copy = box.root / "lake" / "fork", box.root / "copy"
    shutil.copytree(table, copy)
    append(box, 2)
    box.run("fork")
    box.run("below")
    put_back(table, copy)
    accept(box.project, box.state, NodeKey("p", "fork"))
    append(box, 3)
    append(box, 4)
    box.run("fork")
    with pytest.raises(IdentityMismatchError, match=r"version 1 of p\.fork") as error:
        box.run("below")
    take(box, error.value, "state rewind")
    box.run("below")
    assert ids(box, "below") == ids(box, "fork") == [1, 3, 4]


def land(box: Sandbox, name: str, *rows: str) -> None:
    box.land(f"up/{name}.csv", ["id,v", *rows])


def corrected(box: Sandbox, how: str) -> None:
    """``up`` has a wrong row, which the nodes below have read; then it has the right one."""
    land(box, "1", "1,a")
    nodes = ("up", "down", "calm", "all_of_up")
    for node in nodes:
        box.run(node)
    land(box, "2", "2,WRONG")
    for node in nodes:
        box.run(node)
    (box.root / "landing" / "up" / "2.csv").unlink()
    land(box, "3", "2,right")
    if how == "rewind":
        apply_rewind(
            box.project, box.state, plan_rewind(box.project, box.state, NodeKey("p", "up"), points.at_version(0))
        )
        box.run("up")
    elif how == "refresh":
        box.run("up", full_refresh=True, accept_loss=True)
    elif how == "restore":
        DeltaTable(str(box.root / "lake" / "up")).restore(0)
        accept(box.project, box.state, NodeKey("p", "up"))
    else:
        write_deltalake(str(box.root / "lake" / "up"), pa.table({"id": [1, 2], "v": ["a", "right"]}), mode="overwrite")


@pytest.mark.parametrize("how", ["rewind", "refresh", "restore", "overwrite"])
def test_a_stateful_node_notices_that_rows_below_its_mark_are_other_ones(box: Sandbox, how: str) -> None:
    corrected(box, how)
    right = box.rows("up")
    (found,) = examine(box.project, box.state, [NodeKey("p", "down")])
    assert (found.kind, found.remedy) == (Kind.NOT_LOOKED_AT, "odi run p --node down compares them before it reads")
    with pytest.raises(IdentityMismatchError, match="rows below the HWM are other ones now") as error:
        box.run("down")
    take(box, error.value, "state rewind")
    box.run("down")
    assert box.rows("down") == right
    assert box.run("down").status is RunStatus.NO_DATA
    assert examine(box.project, box.state, [NodeKey("p", "down")]) == []
    assert box.run("calm").status is RunStatus.NO_DATA
    box.run("all_of_up")
    assert box.rows("all_of_up") == right


def test_a_stateful_node_goes_on_if_the_rows_are_the_same(box: Sandbox) -> None:
    land(box, "1", "1,a")
    box.run("up")
    box.run("down")
    box.run("up", full_refresh=True)
    assert not box.plan("down").nothing_new
    assert box.run("down").status is RunStatus.NO_DATA
    assert box.plan("down").nothing_new
    land(box, "2", "2,b")
    box.run("up")
    assert box.run("down").status is RunStatus.SUCCESS
    assert ids(box, "down") == [1, 2]


WITHOUT_A_CURSOR = """
- pipeline: p
  nodes:
  - name: up
    read: {connection: landing, format: csv, path: "up/*", schema: "id BIGINT, at DATE", options: {header: "true"},
           incremental: files}
    write: {connection: lake, path: up, mode: append}
  - name: down
    inputs: {up: {node: up, incremental: {mode: stateful, column: at, on_null: include, max_ahead: none}}}
    write: {connection: lake, path: down, mode: append, keys: [id]}
"""


@pytest.mark.parametrize("undone", ["3,", "2,2026-11-02"])
def test_of_rows_without_a_cursor_those_that_are_gone_count_and_new_ones_do_not(
    tmp_path: Path, spark: SparkSession, undone: str
) -> None:
    box = Sandbox(tmp_path, spark, WITHOUT_A_CURSOR)
    for number, rows in enumerate((["1,2026-11-01"], ["2,2026-11-02", "3,"])):
        box.land(f"up/{number}.csv", ["id,at", *rows])
        box.run("up")
        box.run("down")
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, NodeKey("p", "up"), points.at_version(0)))
    box.land("up/3.csv", ["id,at", "5,", "6,2026-11-05"])
    box.run("up")
    box.run("down")
    assert ids(box, "down") == [1, 2, 3, 5, 6]
    kept = {"2,2026-11-02", "3,"} - {undone}
    (tmp_path / "landing/up/1.csv").unlink()
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, NodeKey("p", "up"), points.at_version(0)))
    box.land("up/4.csv", ["id,at", *kept])
    box.run("up")
    with pytest.raises(IdentityMismatchError, match="rows below the HWM are other ones now"):
        box.run("down")


def test_a_correction_that_is_accepted_is_not_asked_about_again(box: Sandbox) -> None:
    corrected(box, "rewind")
    with pytest.raises(IdentityMismatchError) as error:
        box.run("down")
    take(box, error.value, "state accept")
    land(box, "4", "3,new")
    box.run("up")
    box.run("down")
    assert box.rows("down") == [(1, "a"), (2, "WRONG"), (3, "new")]


def overwritten(box: Sandbox, *rows: int) -> Path:
    """``above`` has read a table that was overwritten since; its folder."""
    append(box, 1, 2, 3)
    box.run("above")
    source = box.root / "landing" / "src"
    write_deltalake(str(source), pa.table({"id": pa.array(rows, pa.int64())}), mode="overwrite")
    return source


@pytest.mark.parametrize("way", ["state accept", "run"])
@pytest.mark.parametrize("gone", ["its log does not hold that version any more", "was vacuumed"])
def test_a_table_whose_former_rows_cannot_be_compared_stops_the_plan_too_and_each_way_leads_on(
    box: Sandbox, gone: str, way: str
) -> None:
    source = overwritten(box, 1, 2, 3, 4)
    if "log" in gone:
        without_log_before_the_newest_version(source)
    else:
        DeltaTable(source).vacuum(0, dry_run=False, enforce_retention_duration=False)
    for look in (box.plan, box.run):
        with pytest.raises(IdentityMismatchError, match=rf"overwritten after version 2.*{gone}, so it cannot") as error:
            look("above")
    (found,) = examine(box.project, box.state, [NodeKey("p", "above")])
    assert (found.kind, "odi state accept p.above" in found.remedy) == (Kind.UPSTREAM_CHANGED, True)
    take(box, error.value, way)
    box.run("above")
    assert ids(box, "above") == [1, 2, 3, 4]


def test_a_table_that_was_emptied_on_purpose_is_followed_by_the_command_that_the_refusal_names(box: Sandbox) -> None:
    overwritten(box)
    with pytest.raises(OdiError) as error:
        box.run("above")
    assert "--full-refresh" in str(error.value.fix)
    with pytest.raises(OdiError, match="finds no row in landing:src") as error:
        box.run("above", full_refresh=True)
    named = "run p --node above --full-refresh --yes"
    assert f"odi {named}" in str(error.value.fix)
    assert main(["--config", str(box.root / "odibi.yaml"), *named.split()]) == 0
    assert (ids(box, "above"), box.hwm("above")) == ([], None)
    assert examine(box.project, box.state, [NodeKey("p", "above")]) == []
    assert box.run("above").status is RunStatus.NO_DATA
    append(box, 2, 9)
    box.run("above")
    assert ids(box, "above") == [2, 9]
    append(box, 10)
    box.run("above")
    assert ids(box, "above") == [2, 9, 10]


def test_a_run_that_empties_a_table_and_is_killed_before_state_says_so_loses_no_row_that_comes(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwritten(box)
    with monkeypatch.context() as patched:
        patched.setattr(type(box.state), "delete_hwm", killed)
        with pytest.raises(OSError, match="killed"):
            box.run("above", full_refresh=True, accept_loss=True)
    assert (ids(box, "above"), box.hwm("above")) == ([], 3)
    append(box, 2)
    box.run("above")
    assert ids(box, "above") == [2]


def test_an_hwm_that_somebody_sets_while_a_run_empties_the_table_stays(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwritten(box)
    written = EmbeddedEngine.write_on

    def slow(*given: Any, **named: Any) -> Any:
        box.state.set_hwm("p.above", 7)
        return written(*given, **named)

    monkeypatch.setattr(EmbeddedEngine, "write_on", slow)
    box.run("above", full_refresh=True, accept_loss=True)
    assert box.hwm("above") == 7


def killed(*given: object, **named: object) -> None:
    del given, named
    raise OSError("killed")
