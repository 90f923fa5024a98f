"""Kept rows of a stream whose table was put back from a copy, or rewound: those of the undone batches go, those of the
new come, and those of batches that come again come with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.delta.maintenance.maintain import MaintenanceOptions
from odi_assets.explain.stream import StreamExplainer
from odi_assets.nodes.node import Node
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets.nodes.recovery.maintenance import maintain_beside, maintain_node
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.nodes.recovery.table_versions import Choice, at_version, before_last_rewind
from odi_assets.nodes.result import RunInfo
from odi_assets.state.records import RunStatus
from odi_assets.streams.execution.kept_rows import KeptRows
from odi_assets.streams.execution.run import StreamRun, committer
from odi_assets.streams.planning.plan import StreamPlan
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.streams.recovery import rewind
from odi_assets.streams.recovery.rewind import at_batch
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.streams.execution.test_kept_rows import (
    MATCHED,
    checked,
    hours,
    kinds,
    land,
    order,
    payment,
    redefined,
    rows_of,
    unmatched,
)

KEY = NodeKey("p", "matched")


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    return Sandbox(tmp_path, spark, MATCHED)


class Copies:
    """Copies of the node's table, with its checkpoint, as ``cp -a`` makes them."""

    def __init__(self, box: Sandbox, name: str = "matched") -> None:
        self.table, self.copy = box.root / "lake" / name, box.root / f"copy of {name}"

    def make(self) -> None:
        shutil.copytree(self.table, self.copy)

    def put_back(self) -> None:
        shutil.rmtree(self.table)
        shutil.copytree(self.copy, self.table)


def late(box: Sandbox) -> list[str]:
    return [str(row[0]) for row in rows_of(box, "late", "row.orders.id")]


def batches(box: Sandbox) -> list[tuple[int, int | None]]:
    return [(one.batch, one.table_version) for one in box.project.open_batches().of_node("p.matched")]


def remedies(box: Sandbox) -> str:
    return "\n".join(f"{one.message}: {one.remedy}" for one in examine(box.project, box.state, [KEY]))


def begun(box: Sandbox) -> Copies:
    """A stream with a watermark, whose table was copied."""
    hours(box, range(2))
    box.run("matched")
    copies = Copies(box)
    copies.make()
    return copies


def test_late_rows_of_the_batches_that_follow_are_each_kept_once(box: Sandbox) -> None:
    copies = begun(box)
    box.land("orders/50.json", [order("gone", 0)])
    box.run("matched")
    assert late(box) == ["gone"]
    copies.put_back()
    (box.root / "landing/orders/50.json").unlink()
    box.land("orders/51.json", [order("comes", 0.5)])
    plan = box.plan("matched")
    assert "late_rows of batch 3 from before the table was put back go" in plan.summary
    assert plan.to_json()["kept"]["late_rows"]["undone"] == [[3, 3]]
    box.run("matched")
    assert late(box) == ["comes"]
    assert kinds(box) == []
    assert box.plan("matched").nothing_new


def test_a_file_of_the_same_name_with_other_rows_is_kept_too(box: Sandbox) -> None:
    copies = begun(box)
    box.land("orders/50.json", [order("gone", 0)])
    box.run("matched")
    copies.put_back()
    box.land("orders/50.json", [order("comes", 0.5)])
    box.run("matched")
    assert late(box) == ["comes"]


def test_rows_of_batches_that_the_table_lost_go_even_without_new_data(box: Sandbox) -> None:
    copies = begun(box)
    box.land("orders/50.json", [order("gone", 0)])
    hours(box, [3])
    box.run("matched")
    assert {"o1", "p1"} <= set(unmatched(box))
    copies.put_back()
    for file in [*box.root.glob("landing/*/50.json"), *box.root.glob("landing/*/03.json")]:
        file.unlink()
    assert not box.plan("matched").nothing_new
    assert Kind.KEPT_BEHIND in kinds(box)
    assert "late_rows has rows of batch 3 from before the table was put back: odi run p --node matched" in remedies(box)
    assert "from before the table was put back: the node's next run" in str(checked(box, "late_rows").description)
    assert box.run("matched").status is RunStatus.NO_DATA
    assert late(box) == []
    assert unmatched(box) == ["o0", "p0"]
    assert batches(box) == [(0, 0), (1, 1), (2, 2)]
    assert Kind.KEPT_BEHIND not in kinds(box)
    assert box.plan("matched").nothing_new


def test_unmatched_rows_and_the_ledger_are_of_the_batches_that_follow(box: Sandbox) -> None:
    copies = begun(box)
    hours(box, [2, 3])
    box.run("matched")
    assert {"o2", "p2"} <= set(unmatched(box))
    copies.put_back()
    for number in (2, 3):
        land(box, number, [order(f"other{number}", 60 * number)], [payment(f"of{number}", 60 * number)])
    hours(box, [4])
    box.run("matched")
    assert unmatched(box) == sorted(["o0", "p0", "o1", "p1", "other2", "of2", "other3", "of3"], key=str)
    found = box.project.open_batches().of_node("p.matched")
    assert [one.table_version for one in found] == list(range(len(found)))
    assert len({one.run_id for one in found}) == 2
    assert kinds(box) == []


def test_a_run_that_was_planned_before_another_one_took_rows_out_leaves_the_new_ones(box: Sandbox) -> None:
    copies = begun(box)
    box.land("orders/50.json", [order("gone", 0)])
    box.run("matched")
    copies.put_back()
    planned = box.plan("matched")
    assert isinstance(planned, StreamPlan)
    box.land("orders/51.json", [order("comes", 0.5)])
    box.run("matched")
    kept = committer(planned, RunInfo("another")).kept
    assert kept is not None
    kept.bring_in_step(planned.marks.log)
    assert late(box) == ["comes", "gone"]
    assert kinds(box) == []


def killed(self: KeptRows, log: ProgressLog, *, started_over: bool = False) -> None:
    del self, log
    if started_over:
        raise OSError("killed")


@pytest.mark.parametrize("is_killed", [False, True])
def test_rows_that_a_query_kept_before_a_full_refresh_go_with_it_and_come_back_if_it_is_undone(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    begun(box)
    box.land("orders/50.json", [order("late", 0)])
    box.run("matched")
    version, kept = box.table("matched").version, unmatched(box)
    assert (late(box), len(kept)) == (["late"], 2)
    if is_killed:
        with monkeypatch.context() as patched:
            patched.setattr(KeptRows, "bring_in_step", killed)
            with pytest.raises(OSError, match="killed"):
                box.run("matched", full_refresh=True)
        assert "late_rows has rows of a query whose rows the node's table does not have" in remedies(box)
        box.run("matched")
    else:
        box.run("matched", full_refresh=True)
    # In one batch, no row comes below a watermark of before.
    assert late(box) == []
    assert len(set(unmatched(box))) == len(unmatched(box))
    assert kinds(box) == []
    assert box.plan("matched").nothing_new
    go(box, at_version(version or 0))
    box.run("matched")
    assert (late(box), unmatched(box)) == (["late"], kept)
    assert kinds(box) == []


@pytest.mark.parametrize("way", ["copy", "rewind"])
def test_a_full_refresh_that_was_undone_takes_its_rows_with_it(box: Sandbox, way: str) -> None:
    copies = begun(box)
    version = box.table("matched").version
    before = unmatched(box)
    box.land("orders/50.json", [order("late", 0)])
    box.run("matched", full_refresh=True)
    hours(box, [2])
    box.run("matched")
    after = unmatched(box)
    assert len(set(after)) == len(after) > len(before)
    if way == "copy":
        copies.put_back()
    else:
        go(box, at_version(version or 0))
    for file in [*box.root.glob("landing/*/50.json"), *box.root.glob("landing/*/02.json")]:
        file.unlink()
    box.run("matched")
    assert unmatched(box) == before
    assert len(batches(box)) == 3
    hours(box, [5])
    box.run("matched")
    assert unmatched(box) == ["o0", "o1", "p0", "p1"]


def go(box: Sandbox, choice: Choice) -> None:
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, KEY, choice))


def test_a_copy_from_before_a_rewind_has_its_batches_and_gets_their_rows_back(box: Sandbox) -> None:
    begun(box)
    version = box.table("matched").version
    box.land("orders/50.json", [order("late", 0)])
    box.run("matched")
    copies = Copies(box)
    shutil.rmtree(copies.copy)
    copies.make()
    go(box, at_version(version or 0))
    (box.root / "landing/orders/50.json").unlink()
    box.land("orders/51.json", [order("undone", 0)])
    box.run("matched")
    copies.put_back()
    (box.root / "landing/orders/51.json").unlink()
    assert "late_rows up to batch 3 from version 0 come back" in box.plan("matched").summary
    assert box.plan("matched").to_json()["kept"]["late_rows"]["returns_from"] == 0
    assert "late_rows lacks rows up to batch 3 from version 0" in remedies(box)
    box.run("matched")
    assert late(box) == ["late"]
    assert kinds(box) == []
    assert box.plan("matched").nothing_new


def test_rows_of_batches_that_a_redo_brings_back_come_with_them(box: Sandbox) -> None:
    begun(box)
    box.land("orders/50.json", [order("late", 0)])
    hours(box, [3])
    box.run("matched")
    kept, last = (late(box), unmatched(box)), batches(box)[-1][0]
    assert kept[0] == ["late"]
    for back, forth in ((2, last), (4, last), (2, last - 1)):
        go(box, at_batch(Node.of(box.project, KEY), back))
        assert late(box) == (["late"] if back == 4 else [])
        go(box, at_batch(Node.of(box.project, KEY), forth))
        assert (late(box), unmatched(box) == kept[1]) == (kept[0], forth == last)
        assert box.plan("matched").nothing_new == (forth == last)
    go(box, before_last_rewind(Node.of(box.project, KEY)))
    go(box, at_batch(Node.of(box.project, KEY), last))
    assert (late(box), unmatched(box)) == kept
    assert kinds(box) == []


def test_kept_rows_are_compacted_and_come_and_go_with_their_batches_all_the_same(box: Sandbox) -> None:
    begun(box)
    ends = []
    for hour, name in ((3, "late"), (4, "later")):
        box.land(f"orders/5{hour}.json", [order(name, 0)])
        hours(box, [hour])
        box.run("matched")
        ends.append(batches(box)[-1][0])
    node, (before, last), kept = Node.of(box.project, KEY), ends, (late(box), unmatched(box))
    assert kept[0] == ["late", "later"]
    done = maintain_beside(box.project, box.state, KEY, MaintenanceOptions())
    assert {which: one.after.files for which, one in done.items()} == {"late_rows": 1, "unmatched_rows": 1}
    assert all(one.compaction.files_removed > 1 for one in done.values())
    for _ in range(2):
        go(box, at_batch(node, before))
        assert late(box) == ["late"]
        maintain_beside(box.project, box.state, KEY, MaintenanceOptions())
        assert maintain_node(box.project, box.state, KEY, MaintenanceOptions()) is not None
        go(box, at_batch(node, last))
        assert (late(box), unmatched(box)) == kept
        maintain_beside(box.project, box.state, KEY, MaintenanceOptions())
    assert kinds(box) == []
    assert box.plan("matched").nothing_new
    hours(box, [5])
    box.run("matched")
    assert (late(box), set(unmatched(box)) > set(kept[1])) == (kept[0], True)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_redo_that_died_before_its_kept_rows_is_completed_by_the_next_run(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    begun(box)
    box.land("orders/50.json", [order("late", 0)])
    hours(box, [3])
    box.run("matched")
    kept = unmatched(box)
    go(box, at_batch(Node.of(box.project, KEY), 2))
    with monkeypatch.context() as dies:
        dies.setattr(rewind, "bring_in_step", lambda *_: (_ for _ in ()).throw(OSError("died")))
        with pytest.raises(OSError, match="died"):
            go(box, before_last_rewind(Node.of(box.project, KEY)))
    if not is_there:
        for name in ("late", "unmatched"):
            table = DeltaTable(box.root / "lake" / name)
            table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    assert (Kind.KEPT_LOST in kinds(box)) != is_there
    assert ("late_rows up to batch 3 from version 0 come back" in box.plan("matched").summary) == is_there
    assert box.run("matched").status is RunStatus.NO_DATA
    assert (late(box), unmatched(box)) == (["late"] if is_there else [], kept)
    assert (Kind.KEPT_LOST in kinds(box)) != is_there


def test_a_redo_that_died_before_its_checkpoint_is_completed_by_the_same_command(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours(box, range(3))
    box.run("matched")
    rows, last, node = box.rows("matched"), batches(box)[-1][0], Node.of(box.project, KEY)
    go(box, at_batch(node, 1))
    with monkeypatch.context() as dies:
        dies.setattr(rewind.CheckpointRewind, "apply", lambda *_: (_ for _ in ()).throw(OSError("died")))
        with pytest.raises(OSError, match="died"):
            go(box, before_last_rewind(node))
    for _ in range(2):
        go(box, before_last_rewind(node))
        assert (box.rows("matched") == rows, batches(box)[-1][0] == last) == (True, True)
        assert box.plan("matched").nothing_new
        # A redo that is whole is undone by another.
        go(box, before_last_rewind(node))
        assert batches(box)[-1][0] == 1


def test_rows_that_were_not_kept_yet_are_kept_after_a_redo(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(box)
    hours(box, [3, 4])
    with monkeypatch.context() as early:
        early.setattr(StreamRun, "_keep_up", lambda *_: (_ for _ in ()).throw(OSError("ended early")))
        with pytest.raises(OSError, match="ended early"):
            box.run("matched")
    pending = box.plan("matched").summary
    go(box, at_batch(Node.of(box.project, KEY), batches(box)[-2][0]))
    assert "unmatched_rows of batch" in box.plan("matched").summary
    go(box, before_last_rewind(Node.of(box.project, KEY)))
    assert box.plan("matched").summary == pending
    box.run("matched")
    assert unmatched(box) == [f"{side}{hour}" for side in "op" for hour in (0, 1, 3)]
    assert kinds(box) == []


def test_a_rewind_names_files_that_no_run_can_read_again(box: Sandbox) -> None:
    hours(box, range(3))
    box.run("matched")
    for name in ("orders/00.json", "orders/02.json"):
        (box.root / "landing" / name).unlink()
    first = min(number for number, _ in batches(box))
    (one,) = plan_rewind(box.project, box.state, KEY, at_batch(Node.of(box.project, KEY), first)).rewinds
    assert [name.rpartition("/")[2] for name in one.gone] == ["02.json"]


def test_a_rewind_takes_the_checkpoint_of_the_branch_that_it_goes_to(box: Sandbox) -> None:
    """A batch of the same number and files was computed in both branches, in one of them without the order."""
    hours(box, [0])
    box.run("matched")
    redefined(box, "orders: {watermark", "orders: {where: n > 5, watermark")
    land(box, 1, [order("k", 60)], [payment("p1", 60)])
    box.run("matched")
    version, node = int(box.table("matched").version or 0), Node.of(box.project, KEY)
    go(box, at_batch(node, 0))
    redefined(box, "where: n > 5, ", "")
    box.run("matched")
    right = int(box.table("matched").version or 0)
    go(box, at_version(version))
    go(box, at_version(right))
    land(box, 2, [order("o2", 61)], [payment("k", 62)])
    box.run("matched")
    assert [row[0] for row in box.rows("matched")] == ["k"]


def test_where_a_row_is_follows_the_batches_that_the_table_has(box: Sandbox) -> None:
    copies = begun(box)
    box.land("orders/02 50%25.json", [order("here", 61)])
    box.land("payments/02.json", [payment("here", 61)])
    hours(box, [9])
    box.run("matched")
    copies.put_back()
    explainer = StreamExplainer.of(box.project, KEY, box.spark)
    (answer,) = explainer.explain(["here"])
    assert "no batch has read it yet" in answer.sentence
    assert answer.rows[0].file == "orders/02 50%25.json"


def test_the_doctor_names_the_run_that_goes_on_from_a_table_and_checkpoint_that_were_put_back(box: Sandbox) -> None:
    copies = begun(box)
    hours(box, [2])
    box.run("matched")
    copies.put_back()
    assert "odi run p --node matched goes on from there" in remedies(box)
    box.run("matched")
    assert kinds(box) == []
