"""Rows that a stream gives up: they are whole, in step with the batches, and what is not known of them is said."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.doctor import Kind, examine, kept_gaps
from odi_assets.orchestration.automation.source_lag import Watch
from odi_assets.state.records import RunStatus
from odi_assets.streams.asset_checks.kept_rows import kept_rows_checks
from odi_assets.streams.execution.run import StreamRun
from odi_assets_tests.matrix import cases
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.tables.support import read_table

MATCHED = """
- pipeline: p
  nodes:
  - name: matched
    inputs:
      orders: {read: {connection: landing, format: json, path: orders/*.json, schema: "id STRING, at TIMESTAMP, n INT"}}
      payments: {read: {connection: landing, format: json, path: payments, schema: "order_id STRING, paid TIMESTAMP"}}
    stream:
      inputs:
        orders: {watermark: {column: at, delay: 2m}, max_files_per_batch: 1}
        payments: {watermark: {column: paid, delay: 2m}, max_files_per_batch: 1}
      state_partitions: 1
      retain_batches: 100
      late_rows: late
      unmatched_rows: unmatched
    transform:
      sql: SELECT id, at, n, paid FROM orders JOIN payments ON id = order_id
        AND paid BETWEEN at - INTERVAL 5 MINUTES AND at + INTERVAL 5 MINUTES
    write: {connection: lake, path: matched, mode: append}
"""
KEPT = "        late_rows: late\n        unmatched_rows: unmatched\n"


KEY = NodeKey("p", "matched")


def moment(minute: float) -> str:
    return datetime.fromtimestamp(1_704_103_200 + 60 * minute, UTC).isoformat()


def order(name: str | None, minute: float, n: int | None = 1) -> str:
    return json.dumps({"id": name, "at": moment(minute), "n": n})


def payment(name: str, minute: float) -> str:
    return json.dumps({"order_id": name, "paid": moment(minute)})


def land(box: Sandbox, number: int, orders: Iterable[str], payments: Iterable[str]) -> None:
    box.land(f"orders/{number:02}.json", orders)
    box.land(f"payments/{number:02}.json", payments)


def hours(box: Sandbox, numbers: Iterable[int]) -> None:
    """An order without a payment for each hour; the next one takes it out of the join's state."""
    for number in numbers:
        land(box, number, [order(f"o{number}", 60 * number)], [payment(f"p{number}", 60 * number)])


def redefined(box: Sandbox, old: str, new: str) -> Sandbox:
    file = box.root / "odibi.yaml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    box.project = Project.load(file)
    box.state = box.project.open_state()
    return box


def rows_of(box: Sandbox, name: str, columns: str = "row.*") -> list[tuple[object, ...]]:
    table = TableHandle.open(Location(str(box.root / "lake" / name)))
    return sorted((tuple(row) for row in read_table(box.spark, table).selectExpr(columns).collect()), key=str)


def unmatched(box: Sandbox) -> list[str]:
    return [str(row[0]) for row in rows_of(box, "unmatched", "coalesce(row.orders.id, row.payments.order_id)")]


def checked(box: Sandbox, name: str) -> dg.AssetCheckResult:
    for check in kept_rows_checks(box.project, NodeKey("p", "matched")):
        if next(iter(check.check_keys)).name == name:
            result = check()
            assert isinstance(result, dg.AssetCheckResult)
            return result
    raise AssertionError(name)


def kinds(box: Sandbox) -> list[Kind]:
    return [one.kind for one in examine(box.project, box.state, [NodeKey("p", "matched")])]


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    return Sandbox(tmp_path, spark, MATCHED)


def test_a_run_without_new_data_keeps_what_a_run_that_ended_early_did_not(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours(box, range(2))
    with monkeypatch.context() as early:
        early.setattr(StreamRun, "_keep_up", lambda *_: (_ for _ in ()).throw(OSError("ended early")))
        with pytest.raises(OSError, match="ended early"):
            box.run("matched")
    plan = box.plan("matched")
    assert not plan.nothing_new
    assert "unmatched_rows of batch" in plan.summary
    assert plan.to_json()["kept"]["unmatched_rows"]["behind"]
    assert Kind.KEPT_BEHIND in kinds(box)
    told = checked(box, "unmatched_rows")
    assert not told.passed
    assert "are not kept yet" in str(told.description)
    assert list(Watch(box.project, "p").look(10).ahead) == [NodeKey("p", "matched")]

    result = box.run("matched")
    assert result.status is RunStatus.NO_DATA
    assert unmatched(box) == ["o0", "p0"]
    assert box.plan("matched").nothing_new
    assert Kind.KEPT_BEHIND not in kinds(box)
    assert box.run("matched").status is RunStatus.NO_DATA
    assert unmatched(box) == ["o0", "p0"]


def test_unmatched_rows_asked_for_later_begin_where_the_checkpoint_still_tells_of_them(
    box: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    redefined(box, "retain_batches: 100", "retain_batches: 2")
    redefined(box, KEPT, "")
    hours(box, range(6))
    box.run("matched")
    redefined(box, "retain_batches: 2\n", f"retain_batches: 2\n{KEPT}")
    assert "unmatched_rows of batch" in box.plan("matched").summary
    with caplog.at_level(logging.WARNING):
        assert box.run("matched").status is RunStatus.NO_DATA
    assert "unmatched_rows begin after batches" in caplog.text
    assert "o0" not in unmatched(box)
    hours(box, [6, 7])
    box.run("matched")
    assert {"o5", "p5", "o6", "p6"} <= set(unmatched(box))
    assert len(unmatched(box)) == len(set(unmatched(box)))
    assert box.plan("matched").nothing_new
    assert (
        "unmatched_rows lacks the rows of batch"
        in kept_gaps(box.project, [NodeKey("p", "matched")])[NodeKey("p", "matched")]
    )
    assert "are not known" in str(checked(box, "unmatched_rows").description)
    assert box.plan("matched").to_json()["kept"]["unmatched_rows"]["lost"]


@pytest.mark.parametrize(
    ("number", "asked", "log"),
    cases(range(3), [KEPT, "        unmatched_rows: unmatched\n"], ["offsets", "commits"], together=1),
)
def test_a_torn_log_that_spark_reads_no_more_stops_no_run(box: Sandbox, number: int, asked: str, log: str) -> None:
    redefined(box, KEPT, asked)
    hours(box, range(2))
    box.run("matched")
    hours(box, [2])
    box.run("matched")
    tear(box, number, log)
    hours(box, [3, 4])
    assert box.run("matched").status is RunStatus.SUCCESS
    assert unmatched(box) == [f"{side}{hour}" for side in "op" for hour in range(4)]
    assert kinds(box) == []


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_torn_log_of_a_batch_that_gave_up_rows_stops_no_run(
    box: Sandbox, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours(box, range(5))
    with monkeypatch.context() as early:
        early.setattr(StreamRun, "_keep_up", lambda *_: (_ for _ in ()).throw(OSError("ended early")))
        with pytest.raises(OSError, match="ended early"):
            box.run("matched")
    tear(box, 2, log)
    box.run("matched")
    assert unmatched(box) == [f"{side}{hour}" for side in "op" for hour in range(4)]
    assert kinds(box) == []


def tear(box: Sandbox, number: int, log: str) -> None:
    """Empty what the checkpoint's log of plans, ``offsets``, or of ``commits``, has of a batch."""
    (file,) = (box.root / "lake" / "matched" / "_odi_stream").rglob(f"{log}/{number}")
    file.write_bytes(b"")
    file.with_name(f".{number}.crc").unlink(missing_ok=True)


def test_gaps_of_a_table_that_is_damaged_are_left_to_what_doctor_says_of_it(box: Sandbox) -> None:
    hours(box, range(2))
    box.run("matched")
    (box.root / "lake" / "matched" / "_delta_log" / f"{0:020d}.json").write_text("", encoding="utf-8")
    assert Kind.UNREADABLE in kinds(box)
    assert kept_gaps(box.project, [NodeKey("p", "matched")]) == {}


def test_late_rows_asked_for_later_say_which_batches_they_lack(box: Sandbox) -> None:
    redefined(box, KEPT, "")
    hours(box, range(2))
    box.run("matched")
    box.land("orders/50.json", [order("late", 0)])
    box.run("matched")
    redefined(box, "retain_batches: 100\n", f"retain_batches: 100\n{KEPT}")
    box.land("orders/51.json", [order("later", 1)])
    box.run("matched")
    assert rows_of(box, "late", "row.orders.id") == [("later",)]
    (gap,) = box.plan("matched").to_json()["kept"]["late_rows"]["lost"]
    assert gap[0] == gap[1]
    assert (
        "late_rows lacks the rows of batch"
        in kept_gaps(box.project, [NodeKey("p", "matched")])[NodeKey("p", "matched")]
    )


def test_late_rows_that_are_gone_are_a_disagreement_until_a_full_refresh(box: Sandbox) -> None:
    hours(box, range(2))
    box.run("matched")
    box.land("orders/50.json", [order("late", 0)])
    box.run("matched")
    assert rows_of(box, "late", "row.orders.id") == [("late",)]
    assert Kind.KEPT_LOST not in kinds(box)
    shutil.rmtree(box.root / "lake" / "late")
    for name in ("51", "52"):
        (found,) = [one for one in examine(box.project, box.state, [KEY]) if one.kind is Kind.KEPT_LOST]
        assert "late_rows lacks the rows of batch" in found.message
        assert found.remedy.endswith("odi run p --node matched --full-refresh")
        # The run that finds the loss names it, and so does the plan before it. Doctor names it from then on.
        plan = box.plan("matched")
        assert (found.message in plan.summary) == (name == "51")
        assert plan.warnings == ((f"{found.message}; {found.remedy}",) if name == "51" else ())
        assert "late_rows" not in kept_gaps(box.project, [KEY]).get(KEY, "")
        box.land(f"orders/{name}.json", [order(f"late{name}", 1)])
        box.run("matched")
    box.run("matched", full_refresh=True)
    assert Kind.KEPT_LOST not in kinds(box)
    assert box.plan("matched").warnings == ()


def test_kept_rows_are_whole_and_rows_that_differ_in_microseconds_are_two(box: Sandbox) -> None:
    first, second = "2024-01-01T10:00:00.000001Z", "2024-01-01T10:00:00.000002Z"
    lines = [json.dumps({"id": "same", "at": at, "n": None}) for at in (first, second, second)]
    land(box, 0, lines, [payment("p0", 0)])
    hours(box, [1])
    box.run("matched")
    box.land("orders/50.json", [json.dumps({"id": "late", "at": first, "n": None})])
    box.run("matched")
    text = "row.orders.id || ' ' || date_format(row.orders.at, 'ss.SSSSSS') || ' ' || (row.orders.n IS NULL)"
    found = rows_of(box, "unmatched", text)
    assert [row[0] for row in found if row[0]] == ["same 00.000001 true", "same 00.000002 true", "same 00.000002 true"]
    (late,) = rows_of(box, "late", "struct(row.orders.id, unix_micros(row.orders.at), row.orders.n) AS whole")
    assert tuple(late[0]) == ("late", 1_704_103_200_000_001, None)  # type: ignore[arg-type]


def test_a_table_begun_with_text_keeps_it_and_has_the_whole_row_beside_it(box: Sandbox) -> None:
    redefined(box, KEPT, KEPT.replace("        unmatched_rows: unmatched\n", ""))
    at = pa.timestamp("us", tz="UTC")
    kinds = {"input": pa.string(), "event_time": at, "batch": pa.int64(), "watermark": at, "row": pa.string()}
    before = {"input": ["orders"], "event_time": [None], "batch": [1], "watermark": [None], "row": ['{"id":"old"}']}
    schema = pa.schema([*kinds.items(), ("query", pa.string())])
    write_deltalake(box.root / "lake" / "late", pa.table({**before, "query": ["another"]}, schema=schema))
    hours(box, range(2))
    box.run("matched")
    box.land("orders/50.json", [order("late", 0.5, None)])
    box.run("matched")
    found = rows_of(box, "late", "struct(get_json_object(row, '$.id'), row_struct.orders.id, row LIKE '%\"n\":null%')")
    assert [tuple(row[0]) for row in found] == [("late", "late", True), ("old", None, False)]  # type: ignore[call-overload]


def test_an_input_whose_column_changed_its_type_goes_on_under_another_name(box: Sandbox) -> None:
    hours(box, range(2))
    box.run("matched")
    redefined(box, "at TIMESTAMP, n INT", "at TIMESTAMP, n STRING")
    box.run("matched", full_refresh=True)
    found = rows_of(box, "unmatched", "struct(row.orders.n, row.orders_2.n)")
    assert [tuple(row[0]) for row in found] == [(None, "1"), (None, None)]  # type: ignore[call-overload]


def test_batches_that_gave_up_nothing_are_said_once_in_a_while(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odi_assets.streams.execution.run._MARKED_EVERY", 2)
    for number in range(4):
        land(box, number, [order(f"o{number}", 0)], [payment(f"o{number}", 0)])
    box.run("matched")
    assert DeltaTable(str(box.root / "lake" / "unmatched")).version() == 0
    assert box.plan("matched").nothing_new


def test_unmatched_rows_without_changelogs_are_refused(box: Sandbox) -> None:
    conf = 'conf: {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false"}'
    with pytest.raises(ConfigError, match="unmatched rows are found in the changelogs"):
        redefined(box, "        state_partitions: 1\n", f"        state_partitions: 1\n        {conf}\n")


@pytest.mark.parametrize(
    ("join", "orders", "payments"),
    [
        ("JOIN", ["o0"], []),
        ("LEFT JOIN", ["o0"], []),
        ("RIGHT JOIN", [], ["p0"]),
        ("FULL JOIN", ["o0"], ["p0"]),
        ("LEFT JOIN", ["o0"], ["p0"]),
    ],
)
def test_rows_that_an_outer_join_gives_up_are_kept_whatever_leaves_beside_them(
    box: Sandbox, join: str, orders: list[str], payments: list[str]
) -> None:
    redefined(box, "orders JOIN payments", f"orders {join} payments")
    land(box, 0, [*(order(name, 0) for name in orders), order("x", 1)], [*(payment(name, 0) for name in payments)])
    land(box, 1, [order("y", 120)], [payment("x", 1), payment("y", 120)])
    box.run("matched")
    assert unmatched(box) == [*orders, *payments]
    assert kinds(box) == []
    assert box.plan("matched").nothing_new


def test_inputs_whose_times_have_one_name_are_told_apart_by_their_other_columns(box: Sandbox) -> None:
    between = "at - INTERVAL 5 MINUTES AND at + INTERVAL 5 MINUTES"
    redefined(box, f"paid BETWEEN {between}", f"payments.at BETWEEN {between}".replace(" at ", " orders.at "))
    redefined(box, "SELECT id, at, n, paid", "SELECT id, orders.at, n")
    redefined(box, "column: paid", "column: at")
    redefined(box, "paid TIMESTAMP", "at TIMESTAMP")
    for number in range(2):
        paid = payment(f"p{number}", 60 * number).replace("paid", "at")
        land(box, number, [order(f"o{number}", 60 * number)], [paid])
    box.run("matched")
    assert unmatched(box) == ["o0", "p0"]
    assert [row[0] for row in rows_of(box, "unmatched", "input")] == ["orders", "payments"]
