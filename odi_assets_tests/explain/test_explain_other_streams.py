"""Rows of aggregations, of deduplications and of queries without state: their fates, against what Spark did."""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.explain.stream import StreamExplainer
from odi_assets.explain.verdicts import KeyExplanation
from odi_assets.nodes.node import code_version
from odi_assets.nodes.result import RunInfo
from odi_assets.streams.execution.run import StreamRun
from odi_assets.streams.planning.plan import StreamPlan
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.tables.support import read_table

NODE = """\
  - name: {name}
    read: {{connection: landing, format: json, path: events/*.json,
           schema: "id STRING, customer STRING, at TIMESTAMP, amount INT"}}
    stream:
      inputs:
        df: {{where: amount > 0, watermark: {{column: at, delay: 1m}}, max_files_per_batch: 1}}
      state_partitions: 1
      {stream}
    transform: {{{transform}}}
    write: {{connection: lake, path: {name}, {write}}}
"""
COUNT = "count(*) AS n FROM df GROUP BY customer"
NODES = {
    "windows": (
        "late_rows: windows_late",
        f"sql: \"SELECT customer, window.start, {COUNT}, window(at, '5 minutes')\"",
        "mode: append",
    ),
    "sessions": (
        "",
        f"sql: \"SELECT customer, session_window.start, {COUNT}, session_window(at, '5 minutes')\"",
        "mode: append",
    ),
    "totals": (
        "output_mode: update\n      late_rows: totals_late",
        f'sql: "SELECT customer, {COUNT}"',
        "mode: upsert, keys: [customer]",
    ),
    "several": (
        "",
        f"sql: \"SELECT customer, window.start, {COUNT}, window(at, '5 minutes') HAVING count(*) > 1\"",
        "mode: append",
    ),
    "once": ("", "function: queries:once", "mode: append"),
    "once_a_while": ("", "function: queries:once_a_while", "mode: append"),
    "large": ("", 'sql: "SELECT id, customer FROM df WHERE amount > 5"', "mode: append"),
    "chained": ("", "function: queries:chained", "mode: append"),
    "visits": ("", "function: queries:visits", "mode: append"),
}
QUERIES = """\
from pyspark.sql.functions import window


def once(df):
    return df.dropDuplicates(["id", "at"])


def once_a_while(df):
    return df.dropDuplicatesWithinWatermark(["id"])


def chained(df):
    windows = df.dropDuplicates(["id", "at"]).groupBy("customer", window("at", "5 minutes")).count()
    return windows.selectExpr("customer", "window.start", "count")


def visits(df):
    def each(key, frames, state):
        for frame in frames:
            yield frame[["customer", "id"]]

    return df.groupBy("customer").applyInPandasWithState(
        each, "customer STRING, id STRING", "n INT", "append", "EventTimeTimeout"
    )
"""


def event(name: str, customer: str, at: str, amount: int = 9) -> str:
    return f'{{"id": "{name}", "customer": "{customer}", "at": "2024-01-01T{at}Z", "amount": {amount}}}'


@pytest.fixture(scope="module")
def sandbox(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """Four files are four batches, with the watermarks none, 10:00, 10:09 and 10:09; a fifth has no rows, and 10:19.

    So a row of the fourth is late if it, or its window, is not after 10:09.
    """
    root = tmp_path_factory.mktemp("events")
    (root / "queries.py").write_text(QUERIES, encoding="utf-8")
    text = "- pipeline: p\n  nodes:\n"
    for name, (stream, transform, write) in NODES.items():
        text += NODE.format(name=name, stream=stream, transform=transform, write=write)
    made = Sandbox(root, spark, text)
    cem = event("c", "cem", "10:10:00")
    made.land("events/0.json", [event("a", "ann", "10:00:10"), event("b", "bob", "10:01:00", 3)])
    made.land("events/1.json", [cem, event("a", "ann", "10:00:10"), event("x", "xi", "10:10:00", 0)])
    made.land("events/2.json", [event("d", "ann", "10:04:00")])
    late = [event("e", "eve", "10:03:00"), event("f", "fay", "10:08:00")]
    made.land("events/3.json", [event("b", "bob", "10:20:00"), *late, cem])
    with pytest.MonkeyPatch.context() as patch:
        # As with Spark Connect, where nobody tells how many rows were late.
        patch.setattr(StreamRun, "_rows_dropped", lambda _: None)
        made.run("totals")
    for name in NODES:
        if name != "totals":
            made.run(name)
    return made


def ask(sandbox: Sandbox, node: str, *keys: str) -> dict[str, KeyExplanation]:
    explainer = StreamExplainer.of(sandbox.project, NodeKey("p", node), sandbox.spark)
    found = explainer.confirmed(explainer.explain(keys))
    assert [one.disagreements for one in found] == [()] * len(keys)
    return {one.key[0]: one for one in found}


def kept(sandbox: Sandbox, table: str) -> list[Row]:
    found = TableHandle.open(Location(str(sandbox.root / "lake" / table)))
    return read_table(sandbox.spark, found).collect() if found.exists else []


def fates(found: KeyExplanation) -> list[tuple[str, int | None, int | None]]:
    return sorted((row.fate.value, row.read_in, row.batch) for row in found.rows)


def test_rows_of_windows_are_counted_pending_or_late(sandbox: Sandbox) -> None:
    found = ask(sandbox, "windows", "ann", "bob", "cem", "eve", "xi", "zoe", "Ann")
    assert {key: one.verdict.value for key, one in found.items()} == {
        "ann": "COUNTED",
        "bob": "COUNTED",
        "cem": "COUNTED",
        "eve": "DROPPED_LATE",
        "xi": "FILTERED",
        "zoe": "NEVER_ARRIVED",
        "Ann": "NEVER_ARRIVED",
    }
    # The window of 10:00 closed with batch 2, before its late row could be counted in batch 3.
    assert fates(found["ann"]) == [("COUNTED", 0, 2), ("COUNTED", 1, 2), ("COUNTED", 2, 2)]
    assert fates(found["bob"]) == [("COUNTED", 0, 2), ("PENDING", 3, None)]
    assert fates(found["cem"]) == [("COUNTED", 1, 4), ("COUNTED", 3, 4)]
    assert found["Ann"].similar[0] == "df has 'ann' in events/0.json (other capitals)"
    rows = {row[0]: row[2] for row in sandbox.rows("windows")}
    assert rows == {"ann": 3, "bob": 1, "cem": 2, "fay": 1}


def test_late_rows_are_those_whose_window_was_closed(sandbox: Sandbox) -> None:
    """And not all that came after the watermark: a window that is open counts them."""
    assert ask(sandbox, "windows", "fay")["fay"].rows[0].fate == "COUNTED"
    assert [next(filter(None, row["row"]))["customer"] for row in kept(sandbox, "windows_late")] == ["eve"]
    # Groups without a window are in the state for ever: no row of them is late.
    assert ask(sandbox, "totals", "eve")["eve"].rows[0].fate == "COUNTED"
    assert kept(sandbox, "totals_late") == []


def test_the_times_that_decide_are_known_until_the_definition_changes(sandbox: Sandbox) -> None:
    """With Spark Connect, another process has to look at the query."""
    plan = sandbox.plan("windows")
    assert isinstance(plan, StreamPlan)
    codes = (code_version(sandbox.project, plan.node.key), "other")
    same, other = (StreamRun(plan, sandbox.spark, RunInfo("x", code_version=code)) for code in codes)
    assert "df.at" in (same._times_known() or {})["df"]
    assert other._times_known() is None


def test_a_group_that_does_not_meet_what_follows_is_counted_and_not_written(sandbox: Sandbox) -> None:
    found = ask(sandbox, "several", "ann", "bob", "eve")
    assert fates(found["ann"]) == [("COUNTED", 0, 2), ("COUNTED", 1, 2), ("COUNTED", 2, 2)]
    assert fates(found["bob"]) == [("FILTERED", 0, 2), ("PENDING", 3, None)]
    assert next(row for row in found["bob"].rows if row.fate == "FILTERED").condition == "COUNT(1) > 1"
    assert found["eve"].verdict == "DROPPED_LATE"
    assert {row[0] for row in sandbox.rows("several")} == {"ann", "cem"}


def test_sessions_end_when_the_watermark_has_passed_their_last_row(sandbox: Sandbox) -> None:
    found = ask(sandbox, "sessions", "ann", "bob", "eve")
    assert fates(found["ann"]) == [("COUNTED", 0, 2), ("COUNTED", 1, 2), ("COUNTED", 2, 2)]
    assert fates(found["bob"]) == [("COUNTED", 0, 2), ("PENDING", 3, None)]
    assert {row[0]: row[2] for row in sandbox.rows("sessions")}["ann"] == 3


def test_groups_without_a_window_are_counted_at_once(sandbox: Sandbox) -> None:
    found = ask(sandbox, "totals", "ann", "eve")
    assert fates(found["ann"]) == [("COUNTED", 0, 0), ("COUNTED", 1, 1), ("COUNTED", 2, 2)]
    assert fates(found["eve"]) == [("COUNTED", 3, 3)]
    assert {row[0]: row[1] for row in sandbox.rows("totals")} == {"ann": 3, "bob": 2, "cem": 2, "eve": 1, "fay": 1}


def test_duplicates_name_the_row_that_was_kept(sandbox: Sandbox) -> None:
    found = ask(sandbox, "once", "a", "b", "c", "e")
    assert fates(found["a"]) == [("DUPLICATE_OF", 1, 1), ("KEPT", 0, 0)]
    assert fates(found["b"]) == [("KEPT", 0, 0), ("KEPT", 3, 3)]
    assert fates(found["c"]) == [("DUPLICATE_OF", 3, 3), ("KEPT", 1, 1)]
    assert fates(found["e"]) == [("DROPPED_LATE", 3, 3)]
    assert next(row for row in found["a"].rows if row.fate == "DUPLICATE_OF").duplicate_of == "events/0.json"
    assert [row[0] for row in sandbox.rows("once")] == ["a", "b", "b", "c", "d"]


def test_a_key_is_new_again_once_its_row_has_left_the_state(sandbox: Sandbox) -> None:
    found = ask(sandbox, "once_a_while", "a", "b", "c")
    assert fates(found["b"]) == [("KEPT", 0, 0), ("KEPT", 3, 3)]
    assert fates(found["a"]) == [("DUPLICATE_OF", 1, 1), ("KEPT", 0, 0)]
    assert [row[0] for row in sandbox.rows("once_a_while")] == ["a", "b", "b", "c", "d"]


def test_rows_of_a_query_without_state_are_written_or_filtered(sandbox: Sandbox) -> None:
    found = ask(sandbox, "large", "a", "b", "x")
    assert fates(found["a"]) == [("WRITTEN", 0, 0), ("WRITTEN", 1, 1)]
    assert fates(found["b"]) == [("FILTERED", 0, 0), ("WRITTEN", 3, 3)]
    assert [row.condition for row in found["x"].rows] == ["df.amount > 0"]


def test_what_a_deduplication_leaves_is_counted(sandbox: Sandbox) -> None:
    found = ask(sandbox, "chained", "ann", "bob", "eve")
    assert fates(found["ann"]) == [("COUNTED", 0, 2), ("COUNTED", 2, 2), ("DUPLICATE_OF", 1, 1)]
    assert fates(found["bob"]) == [("COUNTED", 0, 2), ("PENDING", 3, None)]
    assert found["eve"].verdict == "DROPPED_LATE"
    assert {row[0]: row[2] for row in sandbox.rows("chained")} == {"ann": 2, "bob": 1, "cem": 1}


def test_of_a_function_with_state_the_way_of_its_rows_is_told(sandbox: Sandbox) -> None:
    found = ask(sandbox, "visits", "ann", "eve", "xi", "zoe")
    assert {key: one.verdict.value for key, one in found.items()} == {
        "ann": "REACHED",
        "eve": "DROPPED_LATE",
        "xi": "FILTERED",
        "zoe": "NEVER_ARRIVED",
    }
    assert fates(found["ann"]) == [("REACHED", 0, 0), ("REACHED", 1, 1), ("REACHED", 2, 2)]
    assert found["ann"].sentence.endswith(
        "What follows is not computed here: a function with state of its own (applyInPandasWithState). "
        "The table has 3 rows with customer = ann."
    )
    assert len([row for row in sandbox.rows("visits") if row[0] == "ann"]) == 3
