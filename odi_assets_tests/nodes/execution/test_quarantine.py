"""The quarantine of a node: good rows in its table, bad ones beside it, each exactly once, whatever dies in between."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.delta.errors import DamagedTableError
from odi_assets.delta.maintenance.maintain import MaintenanceOptions
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ChecksFailedError, ConfigError, TableError
from odi_assets.explain.batch import trace
from odi_assets.explain.verdicts import KeyVerdict
from odi_assets.nodes.audit.audit import audit
from odi_assets.nodes.idle_run import outlook
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.nodes.recovery.findings import Kind
from odi_assets.nodes.recovery.maintenance import maintain_quarantine
from odi_assets.nodes.recovery.repair import Repaired, find_tables, repair_table
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.nodes.recovery.table_versions import at_version
from odi_assets.nodes.request import RunRequest
from odi_assets.state.records import RunStatus
from odi_assets_tests.matrix import cases
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.tables.support import read_table

PIPELINE = """
- pipeline: p
  nodes:
  - name: orders
    read: {connection: landing, format: json, path: orders, schema: "id BIGINT, amount DOUBLE, day DATE", incremental: files}
    write: {connection: lake, path: orders, %s}
    checks:
    - not_null: id
    - range: {column: amount, min: 0}
    - unique: id
%s
    quarantine: orders_bad
"""  # noqa: E501
APPEND = "mode: append"


class Orders(Sandbox):
    """A node ``orders`` with a quarantine."""

    def __init__(self, root: Path, spark: SparkSession, write: str = APPEND, more: str = "") -> None:
        super().__init__(root, spark, PIPELINE % (write, more))

    def deliver(self, name: str, *rows: tuple[Any, ...]) -> None:
        self.land(
            f"orders/{name}.json",
            [json.dumps({"id": i, "amount": amount, "day": day}) for i, amount, day in map(_whole, rows)],
        )

    def good(self) -> list[tuple[Any, ...]]:
        return [row[:2] for row in self.rows("orders")]

    def quarantine(self) -> TableHandle:
        return TableHandle.open(self.project.location("lake", "orders_bad"))

    def bad(self) -> list[tuple[Any, ...]]:
        table = self.quarantine()
        rows = read_table(self.spark, table).collect() if table.exists else []
        return sorted(((row["id"], row["amount"], *row["failed_checks"]) for row in rows), key=str)

    def rewind(self, version: int) -> None:
        apply_rewind(self.project, self.state, plan_rewind(self.project, self.state, _KEY, at_version(version)))


_KEY = NodeKey("p", "orders")


def _whole(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row if len(row) == 3 else (*row, "2024-01-01")


NEGATIVE = "range_amount"


def test_good_rows_go_to_the_table_and_bad_ones_to_the_quarantine_with_what_they_fail(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Orders(tmp_path, spark)
    box.deliver("1", (1, 5.0), (None, -1.0), (2, -3.0), (3, 1.0), (3, 2.0))
    result = box.run("orders")
    assert result.status is RunStatus.SUCCESS
    assert (result.rows_read, result.rows_written, result.metrics["rows_quarantined"]) == (5, 1, 4)
    assert box.good() == [(1, 5.0)]
    assert box.bad() == [
        (2, -3.0, NEGATIVE),
        (3, 1.0, "unique_id"),
        (3, 2.0, "unique_id"),
        (None, -1.0, "not_null_id", NEGATIVE),
    ]
    assert list(box.quarantine().columns) == [*box.table("orders").columns, "failed_checks"]
    assert box.run("orders").status is RunStatus.NO_DATA
    box.deliver("2", (4, 4.0), (5, -5.0))
    box.run("orders")
    assert box.good() == [(1, 5.0), (4, 4.0)]
    assert len(box.bad()) == 5


def test_an_increment_without_bad_rows_makes_no_quarantine(tmp_path: Path, spark: SparkSession) -> None:
    box = Orders(tmp_path, spark)
    box.deliver("1", (1, 5.0))
    box.run("orders")
    assert (box.good(), box.quarantine().exists) == ([(1, 5.0)], False)


def test_an_increment_of_bad_rows_alone_moves_the_mark(tmp_path: Path, spark: SparkSession) -> None:
    box = Orders(tmp_path, spark)
    box.deliver("1", (1, -5.0))
    box.run("orders")
    assert (box.good(), box.bad()) == ([], [(1, -5.0, NEGATIVE)])
    assert box.run("orders").status is RunStatus.NO_DATA


def test_a_check_of_all_rows_together_blocks_beside_a_quarantine(tmp_path: Path, spark: SparkSession) -> None:
    box = Orders(tmp_path, spark, more="    - row_count: {min: 3}")
    box.deliver("1", (1, 5.0), (2, -3.0))
    with pytest.raises(ChecksFailedError, match="row_count") as caught:
        box.run("orders")
    assert "sends none to the quarantine" in str(caught.value)
    assert not box.table("orders").exists
    assert not box.quarantine().exists


def test_a_check_that_warns_sends_no_row_to_the_quarantine(tmp_path: Path, spark: SparkSession) -> None:
    box = Orders(tmp_path, spark, more='    - {expression: "amount < 100", severity: warn}')
    box.deliver("1", (1, 500.0), (2, -3.0))
    box.run("orders")
    assert (box.good(), box.bad()) == ([(1, 500.0)], [(2, -3.0, NEGATIVE)])


def test_a_condition_that_changes_from_moment_to_moment_sends_each_row_to_one_place(
    tmp_path: Path, spark: SparkSession
) -> None:
    luck = '    - {expression: "hash(id, unix_micros(current_timestamp())) % 2 = 0"}'
    box = Orders(tmp_path, spark, more=luck)
    box.deliver("1", *[(number, 1.0) for number in range(200)])
    result = box.run("orders")
    good, bad = [row[0] for row in box.good()], [row[0] for row in box.bad()]
    assert sorted(good + bad) == list(range(200))
    assert min(len(good), len(bad)) > 0
    assert (result.rows_written, result.metrics["rows_quarantined"]) == (len(good), len(bad))
    assert not [one for one in (tmp_path / "lake" / "orders").glob("odi_write=*/*.parquet") if _is_split(one)]


def _is_split(file: Path) -> bool:
    return "failed_checks" in pq.read_schema(file).names


REFERENCES = """
- pipeline: p
  nodes:
  - name: known
    read: {connection: landing, format: csv, path: known, schema: "key %s", options: {header: "true"}, incremental: files}
    write: {connection: lake, path: known, mode: append}
  - name: orders
    read: {connection: landing, format: csv, path: in, schema: "id INT, key %s", options: {header: "true"}, incremental: files}
    write: {connection: lake, path: orders, mode: append}
    checks: [{references: {column: key, node: known}}]
    quarantine: orders_bad
"""  # noqa: E501


def test_keys_that_are_one_value_for_the_column_repeat_no_row(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, REFERENCES % ("DECIMAL(30,22)", "DOUBLE"))
    box.land("known/1.csv", ["key", "0.1", "0.1000000000000000000001"])
    box.land("in/1.csv", ["id,key", "1,0.1", "2,0.7", "3,"])
    box.run("known")
    box.run("orders")
    assert [row[0] for row in box.rows("orders")] == [1, 3]
    bad = read_table(spark, TableHandle.open(box.project.location("lake", "orders_bad"))).collect()
    assert [(row["id"], row["failed_checks"]) for row in bad] == [(2, ["references_key"])]


def test_text_is_not_looked_up_among_numbers(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, REFERENCES % ("INT", "STRING"))
    box.land("known/1.csv", ["key", "1"])
    box.land("in/1.csv", ["id,key", "1,01"])
    box.run("known")
    with pytest.raises(ConfigError, match=r"`key`, which is STRING, up in `key` of known, which is INT"):
        box.run("orders")
    assert not box.table("orders").exists


class Killed(BaseException):
    """What ends a run as a kill does: nothing handles it."""


def dying(monkeypatch: pytest.MonkeyPatch, place: str, *, after: bool = False) -> Callable[[], None]:
    """Let the next call of a function kill the run; returns what lets it live again."""
    holder, name = place.rsplit(".", 1)
    original = getattr(resolve_name(holder), name)

    def dies(*args: Any, **kwargs: Any) -> Any:
        if after:
            original(*args, **kwargs)
        raise Killed

    monkeypatch.setattr(place, dies)
    return lambda: monkeypatch.setattr(place, original)


MOMENTS = {
    "before the bad rows are staged": ("odi_assets.nodes.execution.checks.guard.Guard._staged", False),
    "with the bad rows staged": ("odi_assets.nodes.execution.checks.guard.Guard._staged", True),
    "before the node's commit": ("odi_assets.tables.embedded.writer.commit", False),
    "after the node's commit": ("odi_assets.tables.embedded.writer.commit", True),
    "before the quarantine's commit": ("odi_assets.nodes.execution.checks.quarantine.commit", False),
    "after the quarantine's commit": ("odi_assets.nodes.execution.checks.quarantine.commit", True),
    "before the mark moves": ("odi_assets.nodes.execution.materialize.advance", False),
    "after the mark has moved": ("odi_assets.nodes.execution.materialize.advance", True),
}


@pytest.mark.parametrize(("moment", "changed"), cases(MOMENTS, [False, True], together=1))
def test_a_run_that_dies_puts_each_row_in_its_place_once_when_it_is_tried_again(
    moment: str, changed: bool, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Orders(tmp_path, spark)
    box.deliver("0", (0, 1.0), (0, 2.0))
    box.run("orders")
    box.deliver("1", (1, 5.0), (2, -3.0))
    place, after = MOMENTS[moment]
    live_again = dying(monkeypatch, place, after=after)
    with pytest.raises(Killed):
        box.run("orders")
    live_again()
    committed = box.table("orders").version == 1
    if changed:
        # What was not loaded yet has other rows now; to what was loaded, others come.
        box.deliver("2" if committed else "1", (1, 6.0), (2, -4.0), (3, -7.0))
    box.run("orders")
    zero = [(0, 1.0, "unique_id"), (0, 2.0, "unique_id")]
    first = ([(1, 5.0)], [(2, -3.0, NEGATIVE)])
    second = ([(1, 6.0)], [(2, -4.0, NEGATIVE), (3, -7.0, NEGATIVE)])
    expected = [first] if not changed else [first, second] if committed else [second]
    assert box.good() == sorted((row for good, _ in expected for row in good), key=str)
    assert box.bad() == sorted((row for row in [*zero, *(row for _, bad in expected for row in bad)]), key=str)


def test_what_a_run_left_undone_is_planned_and_done_by_a_run_that_has_nothing_new(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    box = Orders(tmp_path, spark)
    box.deliver("1", (1, 5.0), (2, -3.0))
    live_again = dying(monkeypatch, "odi_assets.nodes.execution.checks.quarantine.commit")
    with pytest.raises(Killed):
        box.run("orders")
    live_again()
    assert (box.good(), box.quarantine().exists) == ([(1, 5.0)], False)
    (found,) = [one for one in examine(box.project, box.state, [_KEY]) if one.kind is Kind.QUARANTINE_APART]
    assert found.message == "its quarantine lacks the bad rows of version 0"
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "p"]) == 0
    assert (
        "p.orders: its quarantine lacks the bad rows of version 0; a run completes that first" in capfd.readouterr().err
    )
    assert box.run("orders").status is RunStatus.NO_DATA
    assert main(["plan", "p"]) == 0
    assert "quarantine" not in capfd.readouterr().err
    assert examine(box.project, box.state, [_KEY]) == []
    assert box.bad() == [(2, -3.0, NEGATIVE)]
    assert box.run("orders").status is RunStatus.NO_DATA
    assert (box.bad(), box.quarantine().version) == ([(2, -3.0, NEGATIVE)], 0)


@pytest.mark.parametrize("named", ["quarantine: others", ""], ids=["another quarantine", "none"])
def test_what_a_run_left_undone_is_done_whatever_the_project_file_names_by_then(
    named: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Orders(tmp_path, spark)
    box.deliver("1", (1, 5.0), (2, -3.0))
    live_again = dying(monkeypatch, "odi_assets.nodes.execution.checks.quarantine.commit")
    with pytest.raises(Killed):
        box.run("orders")
    live_again()
    file = tmp_path / "odibi.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("quarantine: orders_bad", named), encoding="utf-8")
    box.project = Project.load(file)
    (found,) = [one for one in examine(box.project, box.state, [_KEY]) if one.kind is Kind.QUARANTINE_APART]
    assert found.message == "its quarantine lacks the bad rows of version 0"
    assert box.run("orders").status is RunStatus.NO_DATA
    assert box.bad() == [(2, -3.0, NEGATIVE)]
    box.deliver("2", (3, 3.0))
    box.run("orders")
    assert (box.good(), box.bad()) == ([(1, 5.0), (3, 3.0)], [(2, -3.0, NEGATIVE)])
    assert examine(box.project, box.state, [_KEY]) == []


def test_a_quarantine_that_is_gone_is_named_until_a_full_refresh_reads_its_rows_again(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    box = Orders(tmp_path, spark)
    box.deliver("1", (1, 5.0), (2, -3.0))
    box.run("orders")
    shutil.rmtree(tmp_path / "lake" / "orders_bad")
    for name, row in (("2", (3, 3.0)), ("3", (4, -4.0))):
        box.deliver(name, row)
        box.run("orders")
        assert "lacks 1 row of version 0 of its table, and their files are gone" in caplog.text
        caplog.clear()
        (found,) = examine(box.project, box.state, [_KEY])
        assert found.kind is Kind.QUARANTINE_APART
        assert found.remedy.endswith("odi run p --node orders --full-refresh")
    box.run("orders", full_refresh=True)
    assert examine(box.project, box.state, [_KEY]) == []
    assert box.bad() == [(2, -3.0, NEGATIVE), (4, -4.0, NEGATIVE)]


def damaged_box(root: Path, spark: SparkSession) -> Orders:
    """Bad rows came with the versions 0 and 1 of ``orders``, and none with version 2."""
    box = Orders(root, spark)
    for number, rows in enumerate([[(1, 5.0), (2, -3.0)], [(4, -4.0)], [(5, 5.0)]]):
        box.deliver(str(number), *rows)
        box.run("orders")
    assert examine(box.project, box.state, [_KEY], deep=True) == []
    return box


def test_a_quarantine_that_is_gone_is_named_though_the_newest_commit_has_no_bad_rows(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    box = damaged_box(tmp_path, spark)
    shutil.rmtree(tmp_path / "lake" / "orders_bad")
    assert outlook(box.project, box.state, [_KEY], RunRequest()).idle is None
    rounds: list[list[tuple[Any, ...]]] = [[], [(6, 6.0)], [(7, -7.0)], [(8, 8.0)], []]
    for number, rows in enumerate(rounds):
        (found,) = examine(box.project, box.state, [_KEY])
        assert found.kind is Kind.QUARANTINE_APART
        assert "lacks 2 rows of 2 versions, 0 the first, of its table, and their files are gone" in found.message
        if rows:
            box.deliver(f"more{number}", *rows)
        caplog.clear()
        box.run("orders")
        assert "lacks 2 rows of 2 versions" in caplog.text, number
    assert box.bad() == [(7, -7.0, NEGATIVE)]
    box.run("orders", full_refresh=True)
    assert examine(box.project, box.state, [_KEY]) == []
    assert box.bad() == [(2, -3.0, NEGATIVE), (4, -4.0, NEGATIVE), (7, -7.0, NEGATIVE)]
    caplog.clear()
    box.run("orders")
    assert "lacks" not in caplog.text


def test_data_files_of_a_quarantine_that_are_gone_cut_or_changed_are_found(tmp_path: Path, spark: SparkSession) -> None:
    box = damaged_box(tmp_path, spark)
    file = tmp_path / "lake" / "orders_bad" / box.quarantine().live_files[0].path
    whole = file.read_bytes()
    for damage in (None, whole[:100], whole[:40] + bytes([whole[40] ^ 0xFF]) + whole[41:]):
        file.unlink()
        if damage is not None:
            file.write_bytes(damage)
        deep = damage is not None and len(damage) == len(whole)
        found = [one for one in examine(box.project, box.state, [_KEY], deep=deep) if one.kind is Kind.FILES_MISSING]
        assert ["p.orders (quarantine): " in one.message for one in found] == [True]
        file.write_bytes(whole)
    assert examine(box.project, box.state, [_KEY], deep=True) == []
    file.unlink()
    box.run("orders", full_refresh=True)
    assert examine(box.project, box.state, [_KEY], deep=True) == []
    assert len(box.bad()) == 2


def test_a_quarantine_whose_log_is_emptied_is_damage_and_no_run_makes_it_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = damaged_box(tmp_path, spark)
    for commit in (tmp_path / "lake" / "orders_bad" / "_delta_log").glob("*.json"):
        commit.unlink()
    (found,) = examine(box.project, box.state, [_KEY])
    assert found.kind is Kind.DAMAGED
    assert "holds no version" in found.message
    box.deliver("more", (7, -7.0))
    with pytest.raises(DamagedTableError, match="orders_bad is damaged: its log holds no version"):
        box.run("orders")
    assert box.table("orders").version == 2
    (repaired,) = repaired_tables(box)
    assert (repaired.what, repaired.version) == ("p.orders (quarantine)", None)
    box.run("orders", full_refresh=True)
    assert examine(box.project, box.state, [_KEY]) == []
    assert len(box.bad()) == 3


@pytest.mark.parametrize("torn", [True, False], ids=["torn", "gone"])
def test_the_last_commit_of_a_quarantine_is_made_again_by_the_next_run(
    torn: bool, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = damaged_box(tmp_path, spark)
    commit = tmp_path / "lake" / "orders_bad" / "_delta_log" / f"{1:020d}.json"
    if torn:
        commit.write_text('{"add":', encoding="utf-8")
        assert [one.kind for one in examine(box.project, box.state, [_KEY])] == [Kind.UNREADABLE]
        with pytest.raises(DamagedTableError, match="odi tables repair"):
            box.run("orders")
        monkeypatch.chdir(tmp_path)
        assert main(["plan", "p"]) == 1
        (repaired,) = repaired_tables(box)
        assert (repaired.what, repaired.version) == ("p.orders (quarantine)", 0)
        assert repaired.next == "odi run p --node orders"
    else:
        commit.unlink()
    (found,) = examine(box.project, box.state, [_KEY])
    assert found.message == "its quarantine lacks the bad rows of version 1"
    assert box.run("orders").status is RunStatus.NO_DATA
    assert box.bad() == [(2, -3.0, NEGATIVE), (4, -4.0, NEGATIVE)]
    assert examine(box.project, box.state, [_KEY]) == []


def repaired_tables(box: Orders) -> list[Repaired]:
    return [
        one
        for place in find_tables(box.project, "p.orders")
        for one in repair_table(box.project, box.state, *place, dry_run=False)
    ]


def test_rows_that_were_deleted_and_a_quarantine_that_was_renamed_with_its_folder_are_no_loss(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = damaged_box(tmp_path, spark)
    box.quarantine().table.delete("id = 2")
    assert examine(box.project, box.state, [_KEY], deep=True) == []
    assert box.run("orders").status is RunStatus.NO_DATA
    assert box.bad() == [(4, -4.0, NEGATIVE)]
    (tmp_path / "lake" / "orders_bad").rename(tmp_path / "lake" / "worked_off")
    file = tmp_path / "odibi.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("orders_bad", "worked_off"), encoding="utf-8")
    box.project = Project.load(file)
    box.deliver("more", (7, 7.0))
    box.run("orders")
    assert examine(box.project, box.state, [_KEY], deep=True) == []


def test_a_key_in_the_quarantine_is_found_there_with_what_it_fails(tmp_path: Path, spark: SparkSession) -> None:
    box = Orders(tmp_path, spark)
    box.deliver("1", (1, 5.0), (2, -3.0))
    box.run("orders")
    bad, good = trace(box.project, spark, box.state, _KEY, ["id"], ["2", "1"])
    assert (bad.verdict, good.verdict) == (KeyVerdict.QUARANTINED, KeyVerdict.PRESENT)
    assert bad.sentence.endswith("orders_bad: it fails `range_amount`.")


def test_a_store_that_fails_after_the_nodes_commit_does_not_fail_the_run(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Orders(tmp_path, spark)
    box.deliver("1", (1, 5.0), (2, -3.0))

    def fails(*_: Any) -> None:
        raise TableError("the store is away")

    assert outlook(box.project, box.state, [_KEY], RunRequest()).idle is None
    monkeypatch.setattr("odi_assets.nodes.execution.checks.quarantine.commit", fails)
    assert box.run("orders").status is RunStatus.SUCCESS
    monkeypatch.undo()
    assert outlook(box.project, box.state, [_KEY], RunRequest()).idle is None, "there is something left to do"
    box.deliver("2", (4, 4.0), (5, -5.0))
    box.run("orders")
    assert box.bad() == [(2, -3.0, NEGATIVE), (5, -5.0, NEGATIVE)]


def test_a_quarantine_is_maintained_with_its_node_and_goes_back_with_it_all_the_same(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    box = Orders(tmp_path, spark)
    for number in (1, 2, 3):
        box.deliver(str(number), (number, -1.0 * number))
        box.run("orders")
    box.deliver("4", (4, -4.0))
    live_again = dying(monkeypatch, "odi_assets.nodes.execution.checks.quarantine.commit")
    with pytest.raises(Killed):
        box.run("orders")
    live_again()
    for file in (tmp_path / "lake" / "orders_bad").rglob("*.parquet"):
        os.utime(file, (1_700_000_000, 1_700_000_000))
    monkeypatch.chdir(tmp_path)
    assert main(["tables", "maintain", "--yes", "--retain-hours", "0", "--json"]) == 0
    own, kept = json.loads(capfd.readouterr().out)
    assert (own["table"], kept["table"]) == ("node", "quarantine")
    assert (kept["before"]["files"], kept["after"]["files"]) == (4, 1), "the staged rows came in first"
    bad = [(number, -1.0 * number, NEGATIVE) for number in (1, 2, 3, 4)]
    kinds = [one.kind for one in examine(box.project, box.state, [_KEY], deep=True)]
    assert (box.bad(), kinds) == (bad, [Kind.STATE_BEHIND]), "of the run that died, and nothing of the quarantine"
    box.rewind(1)
    assert box.bad() == bad[:2]
    box.run("orders")
    assert box.bad() == bad


def test_an_audit_counts_the_rows_of_the_quarantine(tmp_path: Path, spark: SparkSession) -> None:
    box = Orders(tmp_path, spark)
    box.deliver("1", (1, 5.0), (2, -3.0))
    box.run("orders")
    assert not audit(box.project, spark, box.state, _KEY).differing
    assert outlook(box.project, box.state, [_KEY], RunRequest()).idle is not None


def test_an_overwrite_replaces_the_quarantine_too(tmp_path: Path, spark: SparkSession) -> None:
    box = Orders(tmp_path, spark)
    box.deliver("1", (1, 5.0), (2, -3.0))
    box.run("orders")
    box.deliver("2", (3, -1.0))
    box.run("orders")
    box.run("orders", full_refresh=True)
    assert (box.good(), box.bad()) == ([(1, 5.0)], [(2, -3.0, NEGATIVE), (3, -1.0, NEGATIVE)])
    box.deliver("1", (1, 5.0), (2, 3.0))
    box.deliver("2", (3, 1.0))
    box.run("orders", full_refresh=True)
    assert (box.good(), box.bad()) == ([(1, 5.0), (2, 3.0), (3, 1.0)], [])


@pytest.mark.parametrize(
    "write",
    ["mode: upsert, keys: [id]", "mode: append_once, keys: [id]", "mode: upsert, keys: [id], only_if_newer: amount"],
)
def test_rows_known_by_keys_are_quarantined_once_however_often_they_come(
    write: str, tmp_path: Path, spark: SparkSession
) -> None:
    box = Orders(tmp_path, spark, write)
    box.deliver("1", (1, 5.0), (2, -3.0), (7, 1.0), (7, 1.0))
    box.run("orders")
    box.deliver("2", (1, 6.0), (2, -3.0), (4, 4.0))
    box.run("orders")
    expected = (1, 5.0) if "append_once" in write else (1, 6.0)
    assert box.good() == [expected, (4, 4.0)]
    assert box.bad() == [(2, -3.0, NEGATIVE), (7, 1.0, "unique_id"), (7, 1.0, "unique_id")]


BY_DAY = """
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: json, path: orders, schema: "id BIGINT, amount DOUBLE, day DATE", incremental: files}
    write: {connection: lake, path: raw, mode: append}
  - name: orders
    inputs: {raw: {node: raw, incremental: version}}
    transform: {sql: "SELECT * FROM raw"}
    partition: {column: day, every: day, start: 2024-01-01}
    write: {connection: lake, path: orders, mode: partition_overwrite}
    checks:
    - range: {column: amount, min: 0}
    quarantine: orders_bad
"""  # noqa: E501


class ByDay(Orders):
    """A node ``orders`` of partitions, behind a node ``raw`` that takes files in."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        Sandbox.__init__(self, root, spark, BY_DAY)

    def both(self) -> None:
        self.run("raw")
        self.run("orders")


def test_partitions_that_are_replaced_are_replaced_in_the_quarantine_too(tmp_path: Path, spark: SparkSession) -> None:
    box = ByDay(tmp_path, spark)
    box.deliver("1", (1, 5.0, "2024-01-01"), (2, -3.0, "2024-01-01"), (3, -1.0, "2024-01-02"))
    box.both()
    assert (box.good(), box.bad()) == ([(1, 5.0)], [(2, -3.0, NEGATIVE), (3, -1.0, NEGATIVE)])
    box.deliver("2", (4, 4.0, "2024-01-01"))
    box.both()
    assert (box.good(), box.bad()) == ([(1, 5.0), (4, 4.0)], [(2, -3.0, NEGATIVE), (3, -1.0, NEGATIVE)])
    box.run("orders", start="2024-01-01", end="2024-01-02")
    assert (box.good(), box.bad()) == ([(1, 5.0), (4, 4.0)], [(2, -3.0, NEGATIVE), (3, -1.0, NEGATIVE)])


def test_rows_of_a_quarantine_that_is_gone_are_missed_only_until_their_partition_is_computed_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = ByDay(tmp_path, spark)
    box.deliver("1", (1, 5.0, "2024-01-01"), (2, -3.0, "2024-01-01"), (3, -1.0, "2024-01-02"))
    box.both()
    shutil.rmtree(tmp_path / "lake" / "orders_bad")

    def missed() -> list[str]:
        return [one.message for one in examine(box.project, box.state, [_KEY])]

    (before,) = missed()
    assert "lacks 2 rows of version 0" in before
    box.deliver("2", (4, 4.0, "2024-01-01"))
    box.both()
    assert box.bad() == [(2, -3.0, NEGATIVE)]
    (after,) = missed()
    assert "lacks 1 row of version 0" in after
    box.run("orders", start="2024-01-02", end="2024-01-03")
    assert (missed(), box.bad()) == ([], [(2, -3.0, NEGATIVE), (3, -1.0, NEGATIVE)])


def test_a_run_of_a_partition_needs_no_quarantine_as_long_as_no_row_is_bad(tmp_path: Path, spark: SparkSession) -> None:
    box = ByDay(tmp_path, spark)
    box.deliver("1", (1, 5.0, "2024-01-01"))
    box.both()
    assert box.run("orders", start="2024-01-01", end="2024-01-02").rows_written == 1
    box.deliver("2", (2, -3.0, "2024-01-01"))
    box.run("raw")
    box.run("orders", start="2024-01-01", end="2024-01-02")
    assert (box.good(), box.bad()) == ([(1, 5.0)], [(2, -3.0, NEGATIVE)])


@pytest.mark.parametrize("day", ["day", "DAY"])
def test_checks_send_rows_of_no_partition_to_the_quarantine(day: str, tmp_path: Path, spark: SparkSession) -> None:
    checks = f"- accepted_values: {{column: {day}, values: ['2024-01-01']}}\n    - not_null: {day}"
    text = BY_DAY.replace("every: day, start: 2024-01-01", "values: [2024-01-01]")
    box = Orders.__new__(Orders)
    Sandbox.__init__(box, tmp_path, spark, text.replace("- range: {column: amount, min: 0}", checks))
    box.deliver("1", (1, 5.0, "2024-01-01"), (2, 6.0, "2024-01-02"), (3, 7.0, None))
    box.run("raw")
    box.run("orders")
    assert box.good() == [(1, 5.0)]
    assert box.bad() == [(2, 6.0, f"accepted_values_{day}"), (3, 7.0, f"not_null_{day}")]


def test_a_rewind_takes_the_undone_rows_out_of_the_quarantine_and_they_come_back_once(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Orders(tmp_path, spark)
    for number in (1, 2, 3):
        box.deliver(str(number), (number, 1.0), (number + 10, -1.0))
        box.run("orders")
    bad = [(number, -1.0, NEGATIVE) for number in (11, 12, 13)]
    box.rewind(0)
    assert (box.good(), box.bad()) == ([(1, 1.0)], bad[:1])
    box.run("orders")
    assert (len(box.good()), box.bad()) == (3, bad)
    box.rewind(1)
    assert (len(box.good()), box.bad()) == (2, bad[:2])
    box.rewind(2)
    assert (len(box.good()), box.bad()) == (3, bad), "forward again, to rows that a rewind has undone"
    assert box.run("orders").status is RunStatus.NO_DATA
    assert box.bad() == bad


def test_a_rewind_to_before_the_first_bad_row_empties_the_quarantine(tmp_path: Path, spark: SparkSession) -> None:
    box = Orders(tmp_path, spark)
    box.deliver("1", (1, 1.0))
    box.run("orders")
    box.deliver("2", (2, -1.0))
    box.run("orders")
    box.rewind(0)
    assert box.bad() == []
    box.run("orders")
    assert box.bad() == [(2, -1.0, NEGATIVE)]


def test_a_rewind_that_dies_is_completed_by_the_next_run(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Orders(tmp_path, spark)
    for number in (1, 2):
        box.deliver(str(number), (number, 1.0), (number + 10, -1.0))
        box.run("orders")
    live_again = dying(monkeypatch, "odi_assets.nodes.recovery.rewind.bring_in_step")
    with pytest.raises(Killed):
        box.rewind(0)
    live_again()
    assert len(box.bad()) == 2
    box.run("orders")
    assert (len(box.good()), len(box.bad())) == (2, 2)


def test_the_quarantine_takes_on_new_columns(tmp_path: Path, spark: SparkSession) -> None:
    box = Orders(tmp_path, spark, "mode: append, schema: evolve")
    box.deliver("1", (1, -1.0))
    box.run("orders")
    file = tmp_path / "odibi.yaml"
    file.write_text(file.read_text().replace("day DATE", "day DATE, note STRING"))
    wider = Orders.__new__(Orders)
    wider.__dict__.update(box.__dict__)
    wider.project = Project.load(file)
    wider.land("orders/2.json", ['{"id": 2, "amount": -2.0, "day": "2024-01-01", "note": "late"}'])
    wider.run("orders")
    assert list(wider.quarantine().columns) == ["id", "amount", "day", "failed_checks", "note"]
    assert wider.bad() == [(1, -1.0, NEGATIVE), (2, -2.0, NEGATIVE)]


def test_a_table_that_is_no_quarantine_is_left_alone(tmp_path: Path, spark: SparkSession) -> None:
    box = Orders(tmp_path, spark)
    write_deltalake(str(tmp_path / "lake" / "orders_bad"), pa.table({"id": [1]}))
    box.deliver("1", (1, -1.0))
    with pytest.raises(TableError, match="is no quarantine"):
        box.run("orders")
    assert not box.table("orders").exists


@pytest.mark.parametrize("write", ["mode: upsert, keys: [id]", "mode: append_once, keys: [id]"])
def test_a_catch_up_and_a_full_refresh_judge_the_rows_of_a_file_as_its_own_run_would(
    write: str, tmp_path: Path, spark: SparkSession
) -> None:
    """A key in two files is no key twice: the files follow each other. Both rows went to the quarantine."""
    (tmp_path / "single").mkdir()
    (tmp_path / "caught up").mkdir()
    single, caught_up = Orders(tmp_path / "single", spark, write), Orders(tmp_path / "caught up", spark, write)
    for name, rows in {"1": [(1, 5.0), (2, 1.0), (2, 2.0)], "2": [(1, 6.0), (2, 3.0)], "3": [(1, -1.0)]}.items():
        for box in (single, caught_up):
            box.deliver(name, *rows)
        single.run("orders")
    caught_up.run("orders")
    bad = [(1, -1.0, "range_amount"), (2, 1.0, "unique_id"), (2, 2.0, "unique_id")]
    good = [(1, 6.0), (2, 3.0)] if "upsert" in write else [(1, 5.0), (2, 3.0)]
    assert (single.good(), single.bad()) == (good, bad)
    assert (caught_up.good(), caught_up.bad()) == (good, bad)
    single.run("orders", full_refresh=True)
    assert (single.good(), single.bad()) == (good, bad)


def test_a_key_in_two_files_stops_no_catch_up_of_a_node_without_a_quarantine(
    tmp_path: Path, spark: SparkSession
) -> None:
    text = PIPELINE.replace("    quarantine: orders_bad\n", "") % ("mode: upsert, keys: [id]", "")
    box = Sandbox(tmp_path, spark, text)
    box.land("orders/1.json", ['{"id": 1, "amount": 5}'])
    box.land("orders/2.json", ['{"id": 1, "amount": 6}'])
    assert box.run("orders").rows_written == 1
    box.land("orders/3.json", ['{"id": 2, "amount": 5}', '{"id": 2, "amount": 5}'])
    box.land("orders/4.json", ['{"id": 3, "amount": 5}'])
    with pytest.raises(ChecksFailedError, match="2 of 3 rows share their `id` with another row"):
        box.run("orders")


READ_BELOW = """
- pipeline: p
  nodes:
  - name: orders
    read: {connection: landing, format: csv, path: "*.csv", schema: "id BIGINT", incremental: files}
    write: {connection: lake, path: orders, mode: append}
    checks: [{range: {column: id, max: 5}}]
    quarantine: orders_bad
  - name: known_bad
    read: {connection: lake, format: delta, path: orders_bad, incremental: version}
    transform: {sql: "SELECT id FROM df"}
    write: {connection: lake, path: known_bad, mode: append}
"""


def test_a_maintenance_keeps_the_log_of_a_quarantine_for_a_node_that_follows_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, READ_BELOW)
    for number in (1, 2, 3):
        box.land(f"{number}.csv", [str(number), str(number + 10)])
        box.run("orders")
        if number == 1:
            box.run("known_bad")
    then = time.time() - 40 * 86_400
    for commit in (tmp_path / "lake" / "orders_bad" / "_delta_log").glob("*.json"):
        os.utime(commit, (then, then))
    options = MaintenanceOptions(small_bytes=0)
    done = maintain_quarantine(box.project, box.state, NodeKey("p", "orders"), options, 0)
    assert done is not None
    assert done.log_files_removed == 0
    assert done.notes == ("its log was kept whole, because p.known_bad has read it up to version 0",)
    box.run("known_bad")
    assert box.rows("known_bad") == [(11,), (12,), (13,)]
