"""Stream nodes: batches are committed once, and table and checkpoint go together."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dagster as dg
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import (
    CheckpointError,
    ConfigError,
    FencedError,
    IdentityMismatchError,
    LossError,
    OdiError,
    SourceError,
    TargetBehindStateError,
)
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.execution.materialize import compute
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.nodes.result import RunInfo
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, commit, run_node
from odi_assets.nodes.stream_facts import StreamFacts
from odi_assets.orchestration.automation.source_lag import Watch
from odi_assets.state.records import RunStatus
from odi_assets.streams.asset_checks.kept_rows import kept_rows_checks
from odi_assets.streams.execution.batch import BatchCommitter
from odi_assets.streams.execution.run import StreamService
from odi_assets.streams.planning.marks import Match, stream_marks
from odi_assets.streams.planning.plan import StreamPlan
from odi_assets.streams.recovery.rewind import CheckpointRewind, at_batch
from odi_assets.tables.embedded.engine import EmbeddedEngine
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.tables.support import read_table

EVENTS = 'read: {connection: landing, format: json, path: events/*.json, schema: "id STRING, at TIMESTAMP, n INT"}'
PLAIN = f"""
- pipeline: p
  nodes:
  - name: events
    {EVENTS}
    stream: {{inputs: {{df: {{where: "n > 0", max_files_per_batch: 1}}}}}}
    write: {{connection: lake, path: events, mode: append}}
"""
CHAIN = f"""{PLAIN.rstrip()}
  - name: below
    inputs: {{events: events}}
    stream: {{}}
    write: {{connection: lake, path: below, mode: append}}
"""
MATCHED = """
- pipeline: p
  nodes:
  - name: matched
    inputs:
      orders: {read: {connection: landing, format: json, path: orders/*.json, schema: "id STRING, at TIMESTAMP, n INT"}}
      payments: {read: {connection: landing, format: json, path: payments, schema: "order_id STRING, paid TIMESTAMP"}}
    stream:
      inputs:
        orders: {where: "n > 0", watermark: {column: at, delay: 2m}, max_files_per_batch: 1}
        payments: {watermark: {column: paid, delay: 2m}, max_files_per_batch: 1}
      state_partitions: 1
      late_rows: late
      unmatched_rows: unmatched
    transform:
      sql: SELECT id, at, paid FROM orders JOIN payments ON id = order_id
        AND paid BETWEEN at - INTERVAL 5 MINUTES AND at + INTERVAL 5 MINUTES
    write: {connection: lake, path: matched, mode: append}
"""


def moment(minute: int) -> datetime:
    return datetime(2024, 1, 1, 10 + minute // 60, minute % 60, tzinfo=UTC)


def event(name: str, minute: int, n: int = 1) -> str:
    return json.dumps({"id": name, "at": moment(minute).isoformat(), "n": n})


def payment(name: str, minute: int) -> str:
    return json.dumps({"order_id": name, "paid": moment(minute).isoformat()})


def ids(box: Sandbox, node: str) -> list[str]:
    return sorted(row[0] for row in box.rows(node))


def batches(box: Sandbox, node: str) -> list[StreamFacts]:
    """The stamps of the batches in a node's table, in order."""
    found = [CommitFacts.of(stamp).stream for stamp in box.table(node).stamps()]
    return [facts for facts in reversed(found) if facts is not None]


def matching(box: Sandbox, name: str) -> Match:
    node = Node.of(box.project, NodeKey("p", name))
    return stream_marks(node, box.table(name)).match


def rewind(box: Sandbox, name: str, batch: int) -> None:
    key = NodeKey("p", name)
    plan = plan_rewind(box.project, box.state, key, at_batch(Node.of(box.project, key), batch), cascade=True)
    apply_rewind(box.project, box.state, plan)


@pytest.fixture
def plain(tmp_path: Path, spark: SparkSession) -> Sandbox:
    """Two batches of a stream without state: a and b, then c."""
    box = Sandbox(tmp_path, spark, PLAIN)
    box.land("events/1.json", [event("a", 0), event("b", 1), event("none", 1, 0)])
    box.land("events/2.json", [event("c", 2)])
    assert box.run("events").status is RunStatus.SUCCESS
    return box


CHECKPOINT = "lake/events/_odi_stream"


# -- a run -------------------------------------------------------------------------------------------------------------


def test_a_join_and_the_rows_that_it_gives_up(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, MATCHED)
    box.land("orders/1.json", [event("o1", 0), event("o2", 1), event("o3", 1, 0)])
    box.land("payments/1.json", [payment("o1", 2), payment("o3", 2)])
    box.run("matched")
    assert ids(box, "matched") == ["o1"]
    assert box.plan("matched").nothing_new
    for number, (order, paid) in enumerate(
        [(event("o5", 30), payment("o5", 31)), (event("o6", 60), payment("o7", 62))]
    ):
        box.land(f"orders/{number + 2}.json", [order])
        box.land(f"payments/{number + 2}.json", [paid])
    assert box.plan("matched").summary == "orders: 2 new files; payments: 2 new files"
    box.run("matched")
    box.land("orders/5.json", [event("late", 3)])
    result = box.run("matched")
    assert ids(box, "matched") == ["o1", "o5"]
    assert (result.rows_read, result.rows_written, result.metrics["rows_dropped"]) == (1, 0, 1)

    records = box.project.open_batches().of_node("p.matched")
    assert [record.batch for record in records] == list(range(len(records)))
    assert [record.table_version for record in records] == [
        stamp.version for stamp in [*box.table("matched").stamps()][::-1]
    ]
    assert records[0].rows_in == {"orders": 2, "payments": 2}
    assert records[0].watermark is None
    assert records[-1].rows_dropped == 1
    assert records[-1].operators[0].name == "symmetricHashJoin"
    assert batches(box, "matched")[-1].rows_dropped == (1,)
    assert {facts.query for facts in batches(box, "matched")} == {records[0].query}

    late, unmatched = (kept(spark, tmp_path / "lake" / name) for name in ("late", "unmatched"))
    assert [(row["input"], row["row"]["id"], row["batch"]) for row in late] == [("orders", "late", records[-1].batch)]
    assert late[0]["watermark"] == records[-2].watermark
    found = sorted((row["input"], row["row"].get("id") or row["row"]["order_id"]) for row in unmatched)
    assert found == [("orders", "o2"), ("payments", "o3")]
    told = checked(box)
    assert (told["late_rows"].passed, told["late_rows"].metadata["rows"].value) == (False, 1)
    assert str(told["late_rows"].description).startswith("1 row of orders: see ")
    assert told["late_rows"].severity is dg.AssetCheckSeverity.WARN
    # The last run took nothing out of the state without a match; the run before it did.
    assert (told["unmatched_rows"].passed, told["unmatched_rows"].metadata["rows_in_all"].value) == (True, 2)

    # Renamed, with its project, it goes on where it was, and keeps no row twice.
    rename(box, "matched", "joined")
    with pytest.raises(IdentityMismatchError, match=r"odi state adopt p\.joined"):
        box.run("joined")
    assert adopt(box, "joined") == ("the table was written by p.matched of project test",)
    assert box.plan("joined").nothing_new
    for number, minute in enumerate((90, 130), start=6):
        box.land(f"orders/{number}.json", [event(f"n{minute}", minute)])
        box.land(f"payments/{number}.json", [payment(f"n{minute}", minute + 1)])
    box.run("joined")
    assert ids(box, "joined") == ["n130", "n90", "o1", "o5"]
    late, unmatched = (kept(spark, tmp_path / "lake" / name) for name in ("late", "unmatched"))
    assert [row["row"]["id"] for row in late] == ["late"]
    found = sorted((row["input"], row["row"].get("id") or row["row"]["order_id"]) for row in unmatched)
    assert found == [("orders", "o2"), ("orders", "o6"), ("payments", "o3"), ("payments", "o7")]
    assert not checked(box)["unmatched_rows"].passed
    records = box.project.open_batches().of_node("p.joined")
    assert [record.batch for record in records] == list(range(len(records)))
    assert len(records) == len(batches(box, "joined")) - 1


def checked(box: Sandbox) -> dict[str, dg.AssetCheckResult]:
    """The asset checks of the tables of kept rows, by name."""
    (key,) = box.project.graph.nodes
    found: dict[str, dg.AssetCheckResult] = {}
    for check in kept_rows_checks(box.project, key):
        result = check()
        assert isinstance(result, dg.AssetCheckResult)
        found[next(iter(check.check_keys)).name] = result
    return found


def rename(box: Sandbox, old: str, new: str) -> None:
    """Give a node, and the project itself, another name."""
    file = box.root / "odibi.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(f"name: {old}", f"name: {new}").replace("project: test", "project: shop"), "utf-8")
    box.project = Project.load(file)
    box.state = box.project.open_state()


def adopt(box: Sandbox, name: str) -> tuple[str, ...]:
    key = NodeKey("p", name)
    found = plan_adoption(box.project, box.state, key, lambda: box.spark)
    assert found is not None
    apply_adoption(box.state, found)
    assert plan_adoption(box.project, box.state, key, lambda: box.spark) is None
    return found.changes


def kept(spark: SparkSession, table: Path) -> list[dict[str, Any]]:
    """Kept rows, with moments in UTC and the row itself as an object."""
    rows = read_table(spark, TableHandle.open(Location(str(table))))
    columns = ("input", "batch", "unix_millis(watermark) AS ms", "to_json(row) AS row")
    plain = rows.selectExpr(*columns).collect()
    return [
        {
            "input": row["input"],
            "batch": row["batch"],
            "watermark": datetime.fromtimestamp(row["ms"] / 1000, UTC),
            "row": next(iter(json.loads(row["row"]).values())),
        }
        for row in plain
    ]


def test_each_file_is_read_once_in_a_batch_of_its_own(plain: Sandbox) -> None:
    assert ids(plain, "events") == ["a", "b", "c"]
    assert [facts.batch for facts in batches(plain, "events")] == [0, 1]
    assert plain.plan("events").nothing_new
    assert plain.run("events").status is RunStatus.NO_DATA
    plan = plain.plan("events").to_json()
    assert (plan["hwm_before"], plan["hwm_after"]) == ("batch 1", "batch 1")
    plain.land("events/3.json", [event("d", 3)])
    assert plain.plan("events").summary == "1 new file"
    result = plain.run("events")
    assert (result.rows_written, str(result.hwm_after)) == (1, "batch 2")


def test_a_batch_without_rows_is_stamped(plain: Sandbox) -> None:
    plain.land("events/3.json", [event("none", 3, 0)])
    assert plain.run("events").rows_written == 0
    assert [facts.batch for facts in batches(plain, "events")] == [0, 1, 2]


def test_the_sensor_starts_a_stream_when_something_arrived_or_a_batch_is_not_committed(
    plain: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, watch = NodeKey("p", "events"), Watch(plain.project, "p")
    assert watch.nodes == (key,)
    assert list(watch.look(10).current) == [key]
    plain.land("events/3.json", [event("d", 3)])
    assert list(watch.look(10).ahead) == [key]
    with monkeypatch.context() as patch:
        fail_after(patch, "before")
        with pytest.raises(RuntimeError, match="killed"):
            plain.run("events")
    assert list(watch.look(10).ahead) == [key]
    plain.run("events")
    assert list(watch.look(10).current) == [key]


def test_a_full_refresh_has_a_checkpoint_of_its_own_and_replaces_the_table(plain: Sandbox) -> None:
    before = batches(plain, "events")[-1]
    plain.run("events", full_refresh=True)
    after = batches(plain, "events")[-1]
    assert ids(plain, "events") == ["a", "b", "c"]
    assert after.query != before.query
    assert (before.checkpoint, after.checkpoint) == ("_odi_stream", "_odi_stream-2")
    plain.land("events/3.json", [event("d", 3)])
    plain.run("events")
    assert ids(plain, "events") == ["a", "b", "c", "d"]
    (plain.root / "landing" / "events" / "1.json").unlink()
    with pytest.raises(LossError, match="1 file of landing"):
        plain.plan("events", full_refresh=True)


def test_a_run_that_was_killed_as_it_planned_its_first_batch_is_followed_by_one_that_works(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, PLAIN)
    box.land("events/1.json", [event("a", 0)])
    left = tmp_path / CHECKPOINT / "offsets" / ".0.42709836-0b79-42e6-97e0-122584e6413d.tmp"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"v2")
    box.run("events")
    assert ids(box, "events") == ["a"]


WINDOWS = """
- pipeline: p
  nodes:
  - name: windows
    read: {connection: landing, format: json, path: events/*.json, schema: "id STRING, at TIMESTAMP, n INT"}
    stream: {inputs: {df: {watermark: {column: at, delay: 0s}, max_files_per_batch: 1}}, state_partitions: 1}
    transform: {sql: "SELECT window.start AS start, count(*) AS rows FROM df GROUP BY window(at, '10 minutes')"}
    write: {connection: lake, path: windows, mode: append}
"""


def test_what_the_watermark_has_passed_is_written_after_a_run_that_ended_early(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Sandbox(tmp_path, spark, WINDOWS)
    box.land("events/1.json", [event("a", 0), event("b", 11)])
    commit_batch = BatchCommitter.__call__

    def only_the_first(self: BatchCommitter, rows: DataFrame, number: int) -> None:
        if number:
            shutil.rmtree(tmp_path / "lake/windows/_odi_stream/offsets", ignore_errors=False)
            shutil.copytree(tmp_path / "offsets", tmp_path / "lake/windows/_odi_stream/offsets")
            raise RuntimeError("killed")
        commit_batch(self, rows, number)
        shutil.copytree(tmp_path / "lake/windows/_odi_stream/offsets", tmp_path / "offsets")

    with monkeypatch.context() as patch:
        patch.setattr(BatchCommitter, "__call__", only_the_first)
        with pytest.raises(RuntimeError, match="killed"):
            box.run("windows")
    # Spark has committed batch 0, and not planned the one that its watermark calls for.
    assert [facts.batch for facts in batches(box, "windows")] == [0]
    plan = box.plan("windows")
    assert not plan.nothing_new
    assert plan.summary.endswith("what the watermark has passed leaves the state")
    (found,) = [one for one in examine(box.project, box.state, [NodeKey("p", "windows")]) if "watermark" in one.message]
    assert found.kind is Kind.BATCH_IN_FLIGHT
    assert box.run("windows").rows_written == 1
    assert box.plan("windows").nothing_new
    kinds = {one.kind for one in examine(box.project, box.state, [NodeKey("p", "windows")])}
    assert Kind.BATCH_IN_FLIGHT not in kinds


def test_a_stream_takes_no_ranges(plain: Sandbox) -> None:
    with pytest.raises(ConfigError, match="goes on from its checkpoint"):
        plain.run("events", start="2024-01-01", end="2024-01-02")


def test_a_stream_of_a_node_that_never_ran_has_nothing_to_do(tmp_path: Path, spark: SparkSession) -> None:
    seen = (
        "  - {name: seen, inputs: {events: events}, stream: {}, write: {connection: lake, path: seen, mode: append}}\n"
    )
    box = Sandbox(tmp_path, spark, PLAIN + seen)
    assert box.plan("seen").summary == "nothing: p.events has not been run"
    assert box.run("seen").status is RunStatus.NO_DATA


def test_a_line_that_does_not_fit_stops_the_run(plain: Sandbox) -> None:
    plain.land("events/3.json", ["{not json"])
    with pytest.raises(OdiError, match=r"3\.json"):
        plain.run("events")
    assert ids(plain, "events") == ["a", "b", "c"]


@pytest.mark.parametrize(("mode", "output"), [("upsert, keys: [id]", "update"), ("overwrite", "complete")])
def test_batches_that_change_rows(tmp_path: Path, spark: SparkSession, mode: str, output: str) -> None:
    box = Sandbox(
        tmp_path,
        spark,
        f"""
        - pipeline: p
          nodes:
          - name: sums
            {EVENTS}
            stream:
              output_mode: {output}
              state_partitions: 1
              state_store: hdfs
              inputs: {{df: {{max_files_per_batch: 1}}}}
            transform: {{sql: "SELECT id, SUM(n) AS n FROM df GROUP BY id"}}
            write: {{connection: lake, path: sums, mode: {mode}}}
        """,
    )
    box.land("events/1.json", [event("a", 0), event("b", 1)])
    box.land("events/2.json", [event("a", 2, 5), event("c", 2)])
    box.run("sums")
    assert box.rows("sums") == [("a", 6), ("b", 1), ("c", 1)]
    assert not list((tmp_path / "lake" / "sums").glob("*-computed*"))


def test_a_service_stops_after_its_batch(plain: Sandbox, spark: SparkSession) -> None:
    plain.land("events/3.json", [event("d", 3)])
    plan = plain.plan("events")
    assert isinstance(plan, StreamPlan)
    stops: list[Callable[[], None]] = []
    service = StreamService("100 milliseconds", on_batch=lambda _: stops[0](), on_start=stops.append)
    result = commit(compute(plan, spark, service), plain.state, RunInfo("service"))
    assert (result.status, result.rows_written, result.increment) == (RunStatus.SUCCESS, 1, "batch 2")
    assert matching(plain, "events") is Match.IN_STEP


def test_the_project_file_of_the_document_runs(tmp_path: Path, spark: SparkSession) -> None:
    text = (Path(__file__).parents[3] / "docs" / "streaming.md").read_text(encoding="utf-8")
    (tmp_path / "odibi.yaml").write_text(re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)[0], encoding="utf-8")
    for name, line in {
        "orders": {"order_id": "a", "ordered": moment(0).isoformat(), "amount": 2.5},
        "payments": {"order_id": "a", "paid": moment(1).isoformat()},
    }.items():
        (tmp_path / "landing" / name).mkdir(parents=True)
        (tmp_path / "landing" / name / "1.json").write_text(json.dumps(line))
    project = Project.load(tmp_path / "odibi.yaml")
    history = RunHistory(project, project.open_state(), "documentation")
    assert run_node(NodeRun(history, NodeKey("shop", "matched"), lambda: spark)).rows_written == 1


# -- tables as inputs --------------------------------------------------------------------------------------------------


def test_a_table_is_read_by_its_log(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(
        tmp_path,
        spark,
        """
        - pipeline: p
          nodes:
          - name: seen
            read: {connection: lake, format: delta, path: given}
            stream: {inputs: {df: {max_files_per_batch: 2}}}
            write: {connection: lake, path: seen, mode: append}
        """,
    )
    (tmp_path / "lake").mkdir()
    given = str(tmp_path / "lake" / "given")
    with pytest.raises(SourceError, match="there is no Delta table"):
        box.plan("seen")

    def add(*names: str, mode: str = "append") -> None:
        import pyarrow as pa

        rows = pa.table({"id": pa.array(names), "day": pa.array(["2024-01-01"] * len(names))})
        write_deltalake(given, rows, mode=mode, partition_by=["day"])  # type: ignore[call-overload]

    for name in "abc":
        add(name)
    box.run("seen")
    assert [facts.batch for facts in batches(box, "seen")] == [0, 1]
    add("d")
    DeltaTable(given).optimize.compact()
    assert box.plan("seen").summary == "version 4, 1 new file"
    # What was undone before the stream came to it is not read.
    add("undone")
    DeltaTable(given).restore(4)
    add("e")
    box.run("seen")
    assert ids(box, "seen") == ["a", "b", "c", "d", "e"]
    assert box.plan("seen").nothing_new
    DeltaTable(given).delete("id = 'a'")
    with pytest.raises(SourceError, match="version 8 changed or removed rows"):
        box.plan("seen")
    shutil.rmtree(given)
    add("x")
    with pytest.raises(SourceError, match="dropped and made again"):
        box.plan("seen")


# -- five states -------------------------------------------------------------------------------------------------------


def fail_after(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Let the next run fail in its first batch, before or after the commit."""
    commit = BatchCommitter.__call__

    def failing(self: BatchCommitter, rows: DataFrame, number: int) -> None:
        if when == "after":
            commit(self, rows, number)
        raise RuntimeError("killed")

    monkeypatch.setattr(BatchCommitter, "__call__", failing)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_the_commit(plain: Sandbox, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    plain.land("events/3.json", [event("d", 3)])
    with monkeypatch.context() as patch:
        fail_after(patch, when)
        with pytest.raises(RuntimeError, match="killed"):
            plain.run("events")
    assert matching(plain, "events") is (Match.TABLE_ONE_AHEAD if when == "after" else Match.IN_STEP)
    assert not plain.plan("events").nothing_new
    plain.land("events/4.json", [event("e", 4)])
    plain.run("events")
    assert ids(plain, "events") == ["a", "b", "c", "d", "e"]
    records = plain.project.open_batches().of_node("p.events")
    assert [(record.batch, record.rows_out) for record in records] == [(0, 2), (1, 1), (2, 1), (3, 1)]


def test_a_renamed_stream_goes_on_with_a_batch_that_spark_has_not_committed(
    plain: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.land("events/3.json", [event("d", 3)])
    with monkeypatch.context() as patch:
        fail_after(patch, "after")
        with pytest.raises(RuntimeError, match="killed"):
            plain.run("events")
    rename(plain, "events", "heard")
    (finding,) = examine(plain.project, plain.state, [NodeKey("p", "heard")])
    assert "odi state adopt" in finding.remedy
    adopt(plain, "heard")
    assert matching(plain, "heard") is Match.TABLE_ONE_AHEAD
    plain.land("events/4.json", [event("e", 4)])
    plain.run("heard")
    assert ids(plain, "heard") == ["a", "b", "c", "d", "e"]
    rewind(plain, "heard", 1)
    assert ids(plain, "heard") == ["a", "b", "c"]
    plain.run("heard")
    assert ids(plain, "heard") == ["a", "b", "c", "d", "e"]


def test_a_table_that_no_stream_wrote_is_not_adopted(tmp_path: Path, spark: SparkSession) -> None:
    batch = PLAIN.replace('stream: {inputs: {df: {where: "n > 0", max_files_per_batch: 1}}}', "depends_on: []")
    box = Sandbox(tmp_path, spark, batch.replace("name: events", "name: before"))
    box.land("events/1.json", [event("a", 0)])
    box.run("before")
    box = Sandbox(tmp_path, spark, PLAIN)
    with pytest.raises(IdentityMismatchError, match="that was no stream"):
        plan_adoption(box.project, box.state, NodeKey("p", "events"), lambda: spark)


def test_an_older_copy_of_the_checkpoint(plain: Sandbox, tmp_path: Path) -> None:
    checkpoint = tmp_path / CHECKPOINT
    shutil.copytree(checkpoint, tmp_path / "copy")
    for number, name in enumerate("de"):
        plain.land(f"events/{number + 3}.json", [event(name, number + 3)])
    plain.run("events")
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "copy", checkpoint)
    assert matching(plain, "events") is Match.CHECKPOINT_OLDER
    with pytest.raises(CheckpointError, match="--to-batch 1"):
        plain.run("events")
    rewind(plain, "events", 1)
    assert ids(plain, "events") == ["a", "b", "c"]
    assert [one.batch for one in plain.project.open_batches().of_node("p.events")] == [0, 1]
    plain.run("events")
    assert ids(plain, "events") == ["a", "b", "c", "d", "e"]


def test_a_stream_goes_back_to_no_batch_whose_state_is_damaged(tmp_path: Path, spark: SparkSession) -> None:
    sums = """
    - pipeline: p
      nodes:
      - name: sums
        read: {connection: landing, format: json, path: events/*.json, schema: "id STRING, at TIMESTAMP, n INT"}
        stream: {inputs: {df: {max_files_per_batch: 1}}, output_mode: update, state_partitions: 1}
        transform: {sql: "SELECT id, sum(n) AS n FROM df GROUP BY id"}
        write: {connection: lake, path: sums, mode: upsert, keys: [id]}
    """
    box, state = Sandbox(tmp_path, spark, sums), tmp_path / "lake/sums/_odi_stream/state/0/0"
    for number in range(4):
        box.land(f"events/{number}.json", [event("a", number, n=10**number)])
    box.run("sums")
    (changes,) = state.glob("2.*")
    changes.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"the state after batch 2 cannot be rebuilt .*state/0/0/2\.") as stopped:
        rewind(box, "sums", 2)
    assert "odi state rewind p.sums --to-batch 0" in str(stopped.value.fix)
    assert [tuple(row) for row in box.rows("sums")] == [("a", 1111)]
    # What cannot be read, and belongs to a batch that is undone, is in nobody's way.
    (undone,) = state.glob("4.*")
    undone.unlink()
    undone.symlink_to(undone.name)
    os.mkfifo(state / "pipe")
    with pytest.raises(CheckpointError, match="pipe cannot be copied"):
        rewind(box, "sums", 0)
    (state / "pipe").unlink()
    rewind(box, "sums", 0)
    assert [tuple(row) for row in box.rows("sums")] == [("a", 1)]
    box.run("sums")
    assert [tuple(row) for row in box.rows("sums")] == [("a", 1111)]


def test_the_same_number_with_other_rows_is_another_batch(plain: Sandbox, tmp_path: Path) -> None:
    """An older copy went on elsewhere: its batch 2 has the number of that in the table, and other files."""
    checkpoint = tmp_path / CHECKPOINT
    shutil.copytree(checkpoint, tmp_path / "copy")
    plain.land("events/3.json", [event("d", 3)])
    plain.run("events")
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "copy", checkpoint)
    offsets = (checkpoint / "offsets" / "1").read_text()
    (checkpoint / "offsets" / "2").write_text(offsets.replace('"logOffset":1', '"logOffset":2'))
    log = (checkpoint / "sources" / "df" / "1").read_text()
    (checkpoint / "sources" / "df" / "2").write_text(
        log.replace("2.json", "9.json").replace('"batchId":1', '"batchId":2')
    )
    assert matching(plain, "events") is Match.CHECKPOINT_OLDER
    with pytest.raises(CheckpointError, match="its batch 2 reads other rows"):
        plain.plan("events")


def test_a_checkpoint_that_lacks_the_plan_before_its_last_batch(plain: Sandbox, tmp_path: Path) -> None:
    plain.land("events/3.json", [event("d", 3)])
    plain.run("events")
    gone = tmp_path / CHECKPOINT / "offsets" / "1"
    text = gone.read_text()
    gone.unlink()
    assert matching(plain, "events") is Match.CHECKPOINT_TORN
    with pytest.raises(CheckpointError, match=r"lacks its file offsets/1, .*(\n.*)*put the file back from a copy"):
        plain.run("events")
    gone.write_text(text)
    plain.land("events/4.json", [event("e", 4)])
    plain.run("events")
    assert ids(plain, "events") == ["a", "b", "c", "d", "e"]


def test_a_checkpoint_that_is_gone(plain: Sandbox, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / CHECKPOINT)
    assert matching(plain, "events") is Match.CHECKPOINT_GONE
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        plain.run("events")
    assert [one.kind.value for one in examine(plain.project, plain.state, [NodeKey("p", "events")])] == [
        "checkpoint and table apart"
    ]
    plain.run("events", full_refresh=True)
    assert ids(plain, "events") == ["a", "b", "c"]


def restore_table(table: Path) -> None:
    DeltaTable(str(table)).restore(0)


def drop_table(table: Path) -> None:
    for entry in table.iterdir():
        if entry.name != "_odi_stream":
            shutil.rmtree(entry)


def test_a_batch_that_is_committed_after_the_table_was_read_is_no_loss_of_the_table(plain: Sandbox) -> None:
    # As by a query that goes on on a Spark Connect server whose client was killed.
    before = plain.table("events")
    plain.land("events/3.json", [event("d", 3)])
    plain.run("events")
    assert stream_marks(Node.of(plain.project, NodeKey("p", "events")), before).match is Match.IN_STEP


@pytest.mark.parametrize("change", [restore_table, drop_table])
def test_a_table_behind_its_checkpoint(plain: Sandbox, tmp_path: Path, change: Callable[[Path], None]) -> None:
    change(tmp_path / "lake" / "events")
    assert matching(plain, "events") is Match.TABLE_BEHIND
    with pytest.raises(TargetBehindStateError, match="--full-refresh") as caught:
        plain.run("events")
    if change is restore_table:
        assert "--to-batch 0" in str(caught.value)
        rewind(plain, "events", 0)
        assert matching(plain, "events") is Match.IN_STEP
        plain.run("events")
    else:
        plain.run("events", full_refresh=True)
    assert ids(plain, "events") == ["a", "b", "c"]


def test_two_runs_at_once(plain: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.land("events/3.json", [event("d", 3)])
    write, rival = EmbeddedEngine.write_once, []

    def second(engine: EmbeddedEngine, df: DataFrame, handle: TableHandle, spec: Any, stamp: Any, **how: Any) -> Any:
        if not rival:
            rival.append(
                write(
                    engine,
                    df,
                    TableHandle.open(handle.location),
                    spec,
                    stamp.__class__(
                        stamp.app_id,
                        stamp.number,
                        {
                            **stamp.facts,
                            "run_id": "the-other",
                            **stamp.late_facts(),
                        },
                    ),
                )
            )
        return write(engine, df, handle, spec, stamp, **how)

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedEngine, "write_once", second)
        with pytest.raises(FencedError, match="the-other"):
            plain.run("events")
    plain.run("events")
    assert ids(plain, "events") == ["a", "b", "c", "d"]


def test_a_full_refresh_does_not_go_on_from_what_is_left_of_a_checkpoint(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, PLAIN)
    box.land("events/1.json", [event("a", 1), event("b", 2)])
    box.run("events")
    (tmp_path / CHECKPOINT / "metadata").unlink()
    box.land("events/2.json", [event("c", 3)])
    with pytest.raises(CheckpointError, match="--full-refresh"):
        box.plan("events")
    box.run("events", full_refresh=True)
    assert ids(box, "events") == ["a", "b", "c"]


def test_a_table_of_another_query_stops_the_run(plain: Sandbox, tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT / "metadata").write_text('{"id":"00000000-0000-0000-0000-000000000000"}')
    assert matching(plain, "events") is Match.OTHER_QUERY
    with pytest.raises(IdentityMismatchError, match="of query 00000000"):
        plain.run("events")


def test_rows_of_runs_that_were_no_stream_are_not_added_again(tmp_path: Path, spark: SparkSession) -> None:
    batch = PLAIN.replace('stream: {inputs: {df: {where: "n > 0", max_files_per_batch: 1}}}', "depends_on: []")
    box = Sandbox(tmp_path, spark, batch)
    box.land("events/1.json", [event("a", 0)])
    box.run("events")
    box = Sandbox(tmp_path, spark, PLAIN)
    with pytest.raises(IdentityMismatchError, match="no streams"):
        box.plan("events")


def test_no_vacuum_takes_the_checkpoint(plain: Sandbox) -> None:
    checkpoint = plain.root / CHECKPOINT
    before = sorted(checkpoint.rglob("*"))
    orphan = plain.root / "lake" / "events" / "orphan.parquet"
    orphan.write_bytes(b"of no version")
    os.utime(orphan, (1_700_000_000, 1_700_000_000))
    for file in checkpoint.rglob("*"):
        os.utime(file, (1_700_000_000, 1_700_000_000))
    gone = plain.table("events").table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert gone == ["orphan.parquet"]
    assert sorted(checkpoint.rglob("*")) == before
    assert plain.plan("events").nothing_new


# -- going back --------------------------------------------------------------------------------------------------------


def test_a_stream_goes_back_and_forward_again(plain: Sandbox, tmp_path: Path) -> None:
    plain.land("events/3.json", [event("d", 3)])
    plain.run("events")
    rewind(plain, "events", 0)
    assert ids(plain, "events") == ["a", "b"]
    assert (tmp_path / f"{CHECKPOINT}.copy-1" / "offsets" / "2").exists()
    key = NodeKey("p", "events")
    apply_rewind(plain.project, plain.state, plan_rewind(plain.project, plain.state, key, lambda _: 2))
    assert ids(plain, "events") == ["a", "b", "c", "d"]
    assert matching(plain, "events") is Match.IN_STEP
    rewind(plain, "events", 0)
    plain.run("events")
    assert ids(plain, "events") == ["a", "b", "c", "d"]
    assert [one.batch for one in plain.project.open_batches().of_node("p.events")] == [0, 1, 2]


def test_a_stream_of_a_stream_goes_back_with_it(tmp_path: Path, spark: SparkSession) -> None:
    box, names = Sandbox(tmp_path, spark, CHAIN), ("events", "below")
    for number, name in enumerate("ab"):
        box.land(f"events/{number}.json", [event(name, number)])
        for node in names:
            box.run(node)
    rewind(box, "events", 0)
    assert [ids(box, node) for node in names] == [["a"], ["a"]]
    box.land("events/9.json", [event("c", 3)])
    for node in names:
        box.run(node)
    assert [ids(box, node) for node in names] == [["a", "b", "c"], ["a", "b", "c"]]


def test_a_cascade_that_died_at_a_stream_completes_it_when_it_is_typed_again(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, names = Sandbox(tmp_path, spark, CHAIN), ("events", "below")
    for number, name in enumerate("ab"):
        box.land(f"events/{number}.json", [event(name, number)])
        for node in names:
            box.run(node)
    with monkeypatch.context() as killed:
        killed.setattr(CheckpointRewind, "apply", Mock(side_effect=InterruptedError("killed")))
        with pytest.raises(InterruptedError):
            rewind(box, "events", 0)
    assert matching(box, "below") is Match.TABLE_BEHIND
    rewind(box, "events", 0)
    assert [matching(box, node) for node in names] == [Match.IN_STEP, Match.IN_STEP]
    box.land("events/9.json", [event("c", 3)])
    for node in names:
        box.run(node)
    assert [ids(box, node) for node in names] == [["a", "b", "c"], ["a", "b", "c"]]


def test_a_stream_of_which_nothing_is_left_says_that_it_begins_anew(tmp_path: Path, spark: SparkSession) -> None:
    box, key = Sandbox(tmp_path, spark, CHAIN), NodeKey("p", "events")
    for number, name in enumerate("ab"):
        box.land(f"events/{number}.json", [event(name, number)])
    box.run("events")
    box.run("below")
    back = plan_rewind(box.project, box.state, key, at_batch(Node.of(box.project, key), 0), cascade=True)
    assert back.left[NodeKey("p", "below")].endswith("start it over: odi run p --node below --full-refresh")
    apply_rewind(box.project, box.state, back)
    with pytest.raises(SourceError, match="took the table back to version 0"):
        box.plan("below")
    box.run("events")
    box.run("below", full_refresh=True)
    assert ids(box, "below") == ["a", "b"]


# -- kills -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("store", "moments"), [("rocksdb", ("before", "after")), ("hdfs", ("after",))])
def test_each_batch_fails_before_and_after_its_commit(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, store: str, moments: tuple[str, ...]
) -> None:
    """Rows and watermarks are those of an undisturbed run, whatever point of each batch the runs fail at."""
    pipeline = MATCHED.replace("      state_partitions: 1", f"      state_store: {store}\n      state_partitions: 1")
    pipeline = pipeline.replace("      late_rows: late\n      unmatched_rows: unmatched\n", "")
    boxes = []
    for name in ("disturbed", "undisturbed"):
        (tmp_path / name).mkdir()
        boxes.append(Sandbox(tmp_path / name, spark, pipeline))
        for number, minute in enumerate((0, 20, 21)):
            late = [event("late", 2)] if number == 2 else []
            boxes[-1].land(f"orders/{number}.json", [event(f"o{number}", minute), event("waits", minute + 1), *late])
            boxes[-1].land(f"payments/{number}.json", [payment(f"o{number}", minute + 2), payment("late", 3)])
    disturbed, undisturbed = boxes
    undisturbed.run("matched")
    commit, points = BatchCommitter.__call__, set[tuple[str, int]]()

    def failing(self: BatchCommitter, rows: DataFrame, number: int) -> None:
        for when in ("before", "after"):
            if when == "after":
                commit(self, rows, number)
            if when in moments and (when, number) not in points:
                points.add((when, number))
                raise RuntimeError(f"killed {when} the commit of batch {number}")

    monkeypatch.setattr(BatchCommitter, "__call__", failing)
    kills = 0
    while True:
        try:
            disturbed.run("matched")
            break
        except RuntimeError:
            kills += 1
    assert kills == len(points) == len(moments) * len(batches(undisturbed, "matched"))
    assert disturbed.rows("matched") == undisturbed.rows("matched")
    seen = [[(one.batch, one.watermark_ms) for one in batches(box, "matched")] for box in boxes]
    assert seen[0] == seen[1]
    assert len({one.version for one in disturbed.table("matched").stamps()}) == len(seen[0])
