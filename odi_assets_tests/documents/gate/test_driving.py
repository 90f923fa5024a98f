"""A stream of a cursor document starts a node: when it moved forward and its snapshot is complete."""

from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, CursorDocumentError, IdentityMismatchError, IncrementError
from odi_assets.explain.batch import trace
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.mark import NodeMark
from odi_assets.nodes.node import Node, app_id
from odi_assets.nodes.planning.forecast import forecast
from odi_assets.nodes.planning.plan import NodePlan
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.doctor import Kind, examine
from odi_assets.nodes.request import RunRequest
from odi_assets.orchestration.automation.sensors import evaluate
from odi_assets_tests.nodes.support import Sandbox

PIPELINES = """
- pipeline: p
  nodes:
  - name: orders
    read: {connection: landing, format: csv, path: "orders/*.csv", schema: "id BIGINT, v STRING", READ}
    cursor: {document: landing/state.json, stream: public.orders, CURSOR}
    write: {connection: lake, path: orders, WRITE}
"""


def sandbox(
    root: Path,
    spark: Any = None,
    *,
    cursor: str = "snapshot: complete",
    read: str = "incremental: files",
    write: str = "mode: append",
) -> Sandbox:
    text = PIPELINES.replace("CURSOR", cursor).replace("READ", read).replace("WRITE", write)
    return Sandbox(root, spark, text)


def state(root: Path, lsn: str | None = "0/1A", chunks: Any = (), name: str = "orders", **cursors: Any) -> None:
    """OLake writes its state: a stream in the log, or one with cursors."""
    own = {"stream": name, "namespace": "public", "sync_mode": "", "state": {**cursors}}
    if chunks is not None:
        own["state"]["chunks"] = list(chunks)
    shared = {} if lsn is None else {"global": {"state": {"lsn": lsn}, "streams": [f"public.{name}"]}}
    (root / "landing").mkdir(exist_ok=True)
    text = json.dumps({"type": "STREAM", "version": 7, **shared, "streams": [own]})
    (root / "landing" / "state.json").write_text(text)


def was_run(box: Sandbox, plan: NodePlan, hwm: Any = None) -> None:
    """Have a table, and the HWM of a plan in state, as if it had been run."""
    if not box.table("orders").exists:
        write_deltalake(
            box.root / "lake" / "orders", pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], "string")})
        )
    for read in plan.reads:
        read.before_commit()
    box.state.reset_hwm("p.orders", hwm or plan.hwm_after.value)


CHUNK, OTHER = {"min": None, "max": "9"}, {"min": "9", "max": None}


@pytest.mark.parametrize(
    ("before", "now", "starts", "text"),
    [
        (None, {"lsn": "0/1A"}, True, "at 0/1A"),
        ({"lsn": "0/1A"}, {"lsn": "0/1A"}, False, "as before"),
        ({"lsn": "0/FFFFFFFF"}, {"lsn": "1/0"}, True, "at 1/0"),
        ({"lsn": "1/0"}, {"lsn": "0/FFFFFFFF"}, False, "went back"),
        (None, {"lsn": "0/1A", "chunks": [CHUNK]}, False, "not finished, 1 chunk left"),
        ({"lsn": "0/1A"}, {"lsn": "0/2A", "chunks": [CHUNK]}, False, "cannot be compared"),
        (None, {"lsn": "0/1A", "chunks": None}, False, "has not begun, or it has none"),
        (None, {"lsn": None, "id": 7, "chunks": [CHUNK]}, False, "not finished"),
        ({"lsn": None, "id": 7}, {"lsn": None, "id": 8}, True, "id 8"),
        ({"lsn": None, "id": 8}, {"lsn": None, "id": 7}, False, "went back: id 8 → 7"),
        ({"lsn": "0/1A"}, {"lsn": "0/1A", "name": "other"}, False, "public.orders is gone"),
        (None, {"lsn": "0/1A", "name": "order"}, False, "did you mean public.order?"),
    ],
)
def test_only_a_complete_stream_that_moved_forward_starts_a_node(
    tmp_path: Path, before: dict[str, Any] | None, now: dict[str, Any], starts: bool, text: str
) -> None:
    box = sandbox(tmp_path)
    if before is not None:
        state(tmp_path, **before)
        box.land("orders/1.csv", ["1,a"])
        was_run(box, box.plan("orders"))
    state(tmp_path, **now)
    box.land("orders/2.csv", ["2,b"])
    plan = box.plan("orders")
    assert plan.nothing_new is not starts
    assert text in plan.summary
    (read,) = plan.reads
    assert (read.warning is not None) is any(word in text for word in ("went back", "compared", "gone", "mean"))
    assert read.warning is None or read.warning.endswith("odi run p --node orders --full-refresh")


def test_a_position_is_no_snapshot_of_a_database_that_is_left(tmp_path: Path) -> None:
    box = sandbox(tmp_path)
    state(tmp_path, lsn=None, id=7)
    box.land("orders/1.csv", ["1,a"])
    assert box.plan("orders").hwm_after.snapshot_left() is None


@pytest.mark.parametrize("position", [7, {"stream": "public.orders"}])
def test_a_position_that_is_none_stops_the_node(tmp_path: Path, position: Any) -> None:
    box = sandbox(tmp_path)
    state(tmp_path)
    box.land("orders/1.csv", ["1,a"])
    plan = box.plan("orders")
    was_run(box, plan, {**plan.hwm_after.value, "cursor": position})
    with pytest.raises(IncrementError, match="for the position of"):
        box.plan("orders")
    was_run(box, plan, {**plan.hwm_after.value, "cursor": None})
    assert "public.orders is at 0/1A" in box.plan("orders").summary


def test_a_position_without_files_is_taken_note_of_and_starts_nothing(tmp_path: Path) -> None:
    box = sandbox(tmp_path)
    state(tmp_path)
    plan = box.plan("orders")
    assert plan.nothing_new
    (read,) = plan.reads
    assert read.moves
    assert read.after is not None
    assert "public.orders at 0/1A" in str(read.to_json()["hwm_after"])


def test_each_finished_chunk_starts_a_node_that_asks_for_it(tmp_path: Path) -> None:
    box = sandbox(tmp_path, cursor="snapshot: chunks")
    for number, (chunks, starts) in enumerate(
        [([CHUNK, OTHER], True), ([CHUNK, OTHER], False), ([CHUNK], True), ([], True)]
    ):
        state(tmp_path, chunks=chunks)
        box.land(f"orders/{number}.csv", ["1,a"])
        plan = box.plan("orders")
        assert plan.nothing_new is not starts, plan.summary
        if starts:
            was_run(box, plan)


def catalog(root: Path, mode: str, kind: str = "string") -> None:
    schema = {"properties": {"n": {"type": [kind, "null"]}}}
    stream = {"name": "orders", "namespace": "public", "sync_mode": mode, "type_schema": schema}
    (root / "landing" / "streams.json").write_text(json.dumps({"streams": [{"stream": stream}]}))


def test_a_stream_without_a_snapshot_is_told_by_the_catalog_or_the_project_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    box = sandbox(tmp_path / "a", cursor="catalog: landing/streams.json")
    state(tmp_path / "a", chunks=None)
    box.land("orders/1.csv", ["1,a"])
    catalog(tmp_path / "a", "cdc")
    assert box.plan("orders").nothing_new
    catalog(tmp_path / "a", "strict_cdc")
    assert not box.plan("orders").nothing_new
    catalog(tmp_path / "a", "full_refresh")
    with pytest.raises(CursorDocumentError, match="OLake keeps no state"):
        box.plan("orders")
    (tmp_path / "b").mkdir()
    box = sandbox(tmp_path / "b", cursor="snapshot: none")
    state(tmp_path / "b", chunks=None)
    box.land("orders/1.csv", ["1,a"])
    assert not box.plan("orders").nothing_new


def test_the_catalog_tells_the_types_of_cursors(tmp_path: Path) -> None:
    box = sandbox(tmp_path, cursor="catalog: landing/streams.json")
    box.land("orders/1.csv", ["1,a"])
    state(tmp_path, lsn=None, n="9")
    catalog(tmp_path, "incremental", "integer")
    was_run(box, box.plan("orders"))
    box.land("orders/2.csv", ["1,a"])
    state(tmp_path, lsn=None, n="10")
    assert not box.plan("orders").nothing_new
    catalog(tmp_path, "incremental")
    with pytest.raises(CursorDocumentError, match=r"n 9 → .10.: values of two types"):
        box.plan("orders")


def airbyte(root: Path, column: str, value: Any) -> None:
    """Airbyte writes its state: cursors are texts there."""
    descriptor, at = {"name": "orders", "namespace": "public"}, {"cursor_field": [column], "cursor": value}
    (root / "landing").mkdir(exist_ok=True)
    message = {"type": "STREAM", "stream": {"stream_descriptor": descriptor, "stream_state": at}}
    (root / "landing" / "state.json").write_text(json.dumps([message]))


@pytest.mark.parametrize(
    ("column", "cursor", "values"),
    [
        ("id", "snapshot: none", ("9", "10")),
        ("ID", "snapshot: none", ("99", "100")),
        ("n", "snapshot: none, numbers: [n]", ("9", "10")),
        ("n", "snapshot: none, numbers: [N]", ("9.5", "10.25")),
        ("n", "snapshot: none, numbers: [n]", (9, "10")),
        ("stored", "snapshot: none", ("9", "10")),
    ],
    ids=["read.schema", "capitals", "said so", "decimals", "number and text", "own table"],
)
def test_a_text_of_a_column_of_numbers_is_compared_as_a_number(
    tmp_path: Path, column: str, cursor: str, values: tuple[Any, Any]
) -> None:
    box = sandbox(tmp_path, cursor=cursor)
    columns = {"id": pa.array([], pa.int64()), "v": pa.array([], "string"), "stored": pa.array([], pa.int32())}
    write_deltalake(box.root / "lake" / "orders", pa.table(columns))
    before, now = values
    airbyte(tmp_path, column, before)
    box.land("orders/1.csv", ["1,a"])
    was_run(box, box.plan("orders"))
    box.land("orders/2.csv", ["2,b"])
    airbyte(tmp_path, column, now)
    assert not box.plan("orders").nothing_new
    was_run(box, box.plan("orders"))
    box.land("orders/3.csv", ["3,c"])
    airbyte(tmp_path, column, before)
    assert "went back" in box.plan("orders").summary


def test_texts_of_which_nothing_says_whether_they_are_numbers_stop_the_node_with_the_way_to_say_so(
    tmp_path: Path,
) -> None:
    box = sandbox(tmp_path, cursor="snapshot: none")
    airbyte(tmp_path, "n", "9")
    box.land("orders/1.csv", ["1,a"])
    was_run(box, box.plan("orders"))
    box.land("orders/2.csv", ["2,b"])
    airbyte(tmp_path, "n", "10")
    with pytest.raises(CursorDocumentError, match=r"cannot be compared(.|\n)*`cursor: \{numbers: \[n\]\}`"):
        box.plan("orders")
    (found,) = examine(box.project, box.state, [NodeKey("p", "orders")])
    assert found.kind is Kind.WAITS
    assert "cannot be compared" in str(found)
    assert not sandbox(tmp_path, cursor="snapshot: none, numbers: [n]").plan("orders").nothing_new


@pytest.mark.parametrize("raw", ["", '{"type":"STREAM","str', "\0\0"])
def test_a_torn_document_stops_the_node_and_names_the_copy_that_was_kept(tmp_path: Path, raw: str) -> None:
    box = sandbox(tmp_path)
    state(tmp_path)
    box.land("orders/1.csv", ["1,a"])
    plan = box.plan("orders")
    assert plan.reads[0].keep is not None
    plan.reads[0].keep()
    kept = tmp_path / "lake" / "orders" / "_odi_cursors" / "state.json"
    assert kept.read_text() == (tmp_path / "landing" / "state.json").read_text()
    (tmp_path / "landing" / "state.json").write_text(raw)
    with pytest.raises(CursorDocumentError, match="all positions are lost") as caught:
        box.plan("orders")
    assert str(kept) in str(caught.value)


def test_a_document_that_is_not_there_yet_starts_nothing_and_one_that_went_warns(tmp_path: Path) -> None:
    box = sandbox(tmp_path)
    box.land("orders/1.csv", ["1,a"])
    plan = box.plan("orders")
    assert plan.nothing_new
    assert plan.reads[0].warning is None
    state(tmp_path)
    was_run(box, box.plan("orders"))
    (tmp_path / "landing" / "state.json").unlink()
    assert "is gone" in str(box.plan("orders").reads[0].warning)


@pytest.mark.parametrize("text", ["{}", " {}\n", '{"version":7}', '{"type":"STREAM","version":7,"streams":[]}'])
def test_a_document_without_streams_starts_nothing_and_warns_only_where_there_was_one(
    tmp_path: Path, text: str
) -> None:
    box = sandbox(tmp_path)
    state(tmp_path)
    box.land("orders/1.csv", ["1,a"])
    before = box.plan("orders")
    (tmp_path / "landing" / "state.json").write_text(text)
    plan = box.plan("orders")
    assert plan.summary.endswith("state.json has no stream yet")
    assert (plan.nothing_new, plan.reads[0].warning) == (True, None)
    was_run(box, before)
    assert "public.orders is gone from" in str(box.plan("orders").reads[0].warning)


def test_a_document_of_another_tool_that_takes_its_place_is_never_taken_for_progress(tmp_path: Path) -> None:
    box = sandbox(tmp_path)
    state(tmp_path, lsn=None, id=7)
    box.land("orders/1.csv", ["1,a"])
    was_run(box, box.plan("orders"))
    box.land("orders/2.csv", ["2,b"])
    descriptor = {"name": "orders", "namespace": "public"}
    other = {"type": "STREAM", "stream": {"stream_descriptor": descriptor, "stream_state": {"at": "2024"}}}
    (tmp_path / "landing" / "state.json").write_text(json.dumps(other))
    assert "cannot be compared" in str(box.plan("orders").reads[0].warning)
    (tmp_path / "landing" / "state.json").write_text('{"hello": 1}')
    with pytest.raises(CursorDocumentError, match="no cursor document that is known"):
        box.plan("orders")


def test_a_document_that_is_being_written_is_read_again(tmp_path: Path) -> None:
    box = sandbox(tmp_path)
    state(tmp_path)
    box.land("orders/1.csv", ["1,a"])
    file = tmp_path / "landing" / "state.json"
    whole = file.read_text()
    file.write_text("")
    writer = threading.Timer(0.05, lambda: file.write_text(whole))
    writer.start()
    assert "public.orders is at 0/1A" in box.plan("orders").summary
    writer.join()


def test_a_document_may_be_on_another_machine(tmp_path: Path) -> None:
    text = PIPELINES.replace("landing/state.json", "memory://bucket/driving/state.json")
    box = Sandbox(
        tmp_path,
        None,
        text.replace("CURSOR", "snapshot: complete")
        .replace("READ", "incremental: files")
        .replace("WRITE", "mode: append"),
    )  # type: ignore[arg-type]
    state(tmp_path)
    box.land("orders/1.csv", ["1,a"])
    assert "is not there yet" in box.plan("orders").summary
    with fsspec.open("memory://bucket/driving/state.json", "wb") as file:
        file.write((tmp_path / "landing" / "state.json").read_bytes())
    plan = box.plan("orders")
    assert not plan.nothing_new
    was_run(box, plan)
    with fsspec.open("memory://bucket/driving/state.json", "wb") as file:
        file.write(b"")
    with pytest.raises(CursorDocumentError, match="all positions are lost"):
        box.plan("orders")
    fsspec.filesystem("memory").rm("/bucket/driving", recursive=True)
    assert "is gone" in str(box.plan("orders").reads[0].warning)


def test_a_node_gets_a_cursor_and_loses_it_again(tmp_path: Path) -> None:
    box = sandbox(tmp_path)
    state(tmp_path)
    box.land("orders/1.csv", ["1,a"])
    plan = box.plan("orders")
    was_run(box, plan, plan.hwm_after.value["rows"])
    box.land("orders/2.csv", ["2,b"])
    assert "1 new file" in box.plan("orders").summary
    was_run(box, plan)
    file = tmp_path / "odibi.yaml"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if "cursor:" not in line) + "\n")
    project = type(box.project).load(file)
    (mark,) = Node.of(project, NodeKey("p", "orders")).marks(NodeMark(box.hwm("orders"))).values()
    assert mark.value == plan.hwm_after.value["rows"]


@pytest.mark.parametrize(
    ("cursor", "text"),
    [
        ("connection: lakes", "connection"),
        ("snapshot: some", "snapshot"),
        ("snapshot: none, catalog: landing/streams.json", "catalog"),
        ("documents: x", "documents"),
    ],
)
def test_a_wrong_cursor_is_a_mistake_of_the_project_file(tmp_path: Path, cursor: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        sandbox(tmp_path, cursor=cursor)


def test_a_node_that_reads_nothing_has_nothing_to_drive(tmp_path: Path) -> None:
    text = """
    - pipeline: p
      nodes:
      - {name: a, read: {connection: landing, format: csv, path: a}, write: {connection: lake, path: a}}
      - name: b
        inputs: [a]
        cursor: {document: state.json, stream: s}
        write: {connection: lake, path: b}
    """
    with pytest.raises(ConfigError, match="no `read`"):
        Sandbox(tmp_path, None, text)  # type: ignore[arg-type]


def test_the_sensor_starts_nothing_where_a_stream_went_back_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = sandbox(tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:

        def tick() -> dg.RunRequest | str:
            answer = evaluate(dg.build_sensor_context(instance=instance), box.project, "p")
            return answer if isinstance(answer, dg.RunRequest) else str(answer.skip_message)

        state(tmp_path, lsn="0/2A", chunks=[CHUNK])
        box.land("orders/1.csv", ["1,a"])
        assert "Nothing new" in str(tick())
        state(tmp_path, lsn="0/2A")
        assert isinstance(tick(), dg.RunRequest)
        was_run(box, box.plan("orders"))
        box.land("orders/2.csv", ["2,b"])
        assert "Nothing new" in str(tick())
        state(tmp_path, lsn="0/1A")
        with caplog.at_level(logging.WARNING):
            answer = tick()
        assert "public.orders went back: log position 0/2A → 0/1A" in str(answer)
        assert "went back" in caplog.text
        (tmp_path / "landing" / "state.json").write_text("{")
        assert "all positions are lost" in str(tick())


def test_a_commit_tells_the_position_it_was_made_under(tmp_path: Path, spark: SparkSession) -> None:
    box = sandbox(tmp_path, spark)
    state(tmp_path, lsn="0/1A")
    box.land("orders/1.csv", ["1,a"])
    box.run("orders")
    stamp = box.table("orders").last_stamp(app_id(NodeKey("p", "orders")))
    assert stamp is not None
    facts = CommitFacts.of(stamp)
    assert (facts.positions or {})["df"]["cursor"] == "0/1A"
    assert box.hwm("orders")["shown"] == "orders/1.csv and public.orders at 0/1A"
    assert (tmp_path / "lake" / "orders" / "_odi_cursors" / "state.json").exists()
    box.land("orders/2.csv", ["2,b"])
    assert box.run("orders").rows_written == 0
    state(tmp_path, lsn="0/2A")
    assert box.run("orders").rows_written == 1


def kinds(box: Sandbox) -> dict[Kind, str]:
    return {one.kind: one.message for one in examine(box.project, box.state, [NodeKey("p", "orders")])}


@pytest.mark.slow
def test_doctor_tells_of_a_stream_that_went_back_or_is_gone_and_of_a_torn_document(tmp_path: Path) -> None:
    box = sandbox(tmp_path)
    state(tmp_path, lsn="0/2A")
    box.land("orders/1.csv", ["1,a"])
    was_run(box, box.plan("orders"))
    assert Kind.WAITS not in kinds(box)
    state(tmp_path, lsn="0/1A")
    assert kinds(box)[Kind.WAITS].endswith("is not read: public.orders went back: log position 0/2A → 0/1A")
    state(tmp_path, lsn="0/3A", name="other")
    assert "public.orders is gone" in kinds(box)[Kind.WAITS]
    (tmp_path / "landing" / "state.json").write_text("{")
    assert "all positions are lost" in kinds(box)[Kind.UNREADABLE]


def test_rows_that_wait_for_the_stream_are_explained_and_not_adopted_as_loaded(
    tmp_path: Path, spark: SparkSession
) -> None:
    key, box = NodeKey("p", "orders"), sandbox(tmp_path, spark)
    state(tmp_path, lsn="0/1A")
    box.land("orders/1.csv", ["1,a"])
    box.run("orders")
    box.land("orders/2.csv", ["2,b"])
    (found,) = trace(box.project, spark, box.state, key, ["id"], ["2"])
    assert found.places[-1].text.endswith("has it in orders/2.csv, and public.orders is at 0/1A, as before")
    other = sandbox(tmp_path, spark, read="incremental: {mode: stateful, column: id}")
    with pytest.raises(IdentityMismatchError, match=r"not all of .* is loaded"):
        plan_adoption(other.project, other.state, key, lambda: spark)
    state(tmp_path, lsn="0/2A")
    sandbox(tmp_path, spark).run("orders")
    state(tmp_path, lsn="0/2A", chunks=[CHUNK])
    other = sandbox(tmp_path, spark, read="incremental: {mode: stateful, column: id}")
    adoption = plan_adoption(other.project, other.state, key, lambda: spark)
    assert adoption is not None
    apply_adoption(other.state, adoption)
    hwm = other.hwm("orders")
    assert (hwm["rows"], hwm["cursor"]["at"]) == (2, "0/2A")


def test_rows_in_a_window_of_a_column_are_driven_too(tmp_path: Path, spark: SparkSession) -> None:
    box = sandbox(tmp_path, spark, read="incremental: {mode: stateful, column: id}")
    state(tmp_path, lsn="0/1A")
    box.land("orders/1.csv", ["1,a", "2,b"])
    assert box.run("orders").rows_written == 2
    box.land("orders/2.csv", ["3,c"])
    assert box.run("orders").rows_written == 0
    state(tmp_path, lsn="0/2A")
    assert box.run("orders").rows_written == 1
    assert box.hwm("orders")["rows"] == 3


def test_a_plan_says_that_a_driven_read_stops_at_rows_ahead_of_the_clock(tmp_path: Path) -> None:
    csv, parquet = 'format: csv, path: "orders/*.csv", schema: "id BIGINT, v STRING"', "format: parquet, path: orders/*"
    text = PIPELINES.replace(csv, parquet).replace("WRITE", "mode: append").replace("CURSOR", "snapshot: complete")
    box = Sandbox(tmp_path, None, text.replace("READ", "incremental: {mode: stateful, column: at}"))
    state(tmp_path)
    (tmp_path / "landing" / "orders").mkdir()
    rows = pa.table({"id": [1], "at": pa.array([datetime.now(UTC) + timedelta(days=400)], pa.timestamp("us", "UTC"))})
    pq.write_table(rows, tmp_path / "landing" / "orders" / "1.parquet")
    (found,) = forecast(box.project, box.state, [NodeKey("p", "orders")], RunRequest())
    assert found.action == "error"
    assert "max_ahead" in str(found.error)
