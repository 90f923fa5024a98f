"""``odi ls | graph | show``, ``odi runs stats``, the filters of runs, and what users of other tools type."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from odi_assets.nodes.project import Project
from odi_assets.state import RunStatus
from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import PROJECT
from odi_assets_tests.state.test_runs_contract import run

pytestmark = pytest.mark.usefixtures("shop")

MORE = """\
      - name: late
        inputs:
          orders: {node: orders}
          returns: {read: {connection: landing, format: csv, path: "returns/*.csv", schema: id INT}}
        stream: {}
        transform: {sql: "SELECT orders.id FROM orders"}
        write: {connection: lake, path: late, mode: append}
"""


class TestLs:
    def test_names_what_nodes_read_and_how(self, odi: Odi) -> None:
        rows = json.loads(odi("ls", "--json").out)
        told = [(row["node"], row["reads"], row["incremental"], row["mode"]) for row in rows]
        assert told == [
            ("orders", ["landing:*.csv"], "files", "append"),
            ("spending", ["orders"], "version", "overwrite"),
        ]

    def test_names_the_sources_of_a_stream(self, shop: Path, odi: Odi) -> None:
        (shop / "odibi.yaml").write_text(PROJECT + MORE, encoding="utf-8")
        row = json.loads(odi("ls", "--json").out)[-1]
        assert (row["node"], row["incremental"]) == ("late", "stream")
        assert row["reads"] == ["landing:returns/*.csv", "orders"]

    def test_is_what_the_catalog_lists(self, odi: Odi) -> None:
        assert odi("catalog", "nodes", "odibi.yaml").out == odi("ls").out


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("text", "shop.orders\n└─ shop.spending\n"),
        ("mermaid", "shop__orders --> shop__spending"),
        ("dot", '"shop.orders" -> "shop.spending";'),
    ],
)
def test_the_graph_is_printed_in_each_form(odi: Odi, form: str, expected: str) -> None:
    answer = odi("graph", "--format", form)
    assert answer.code == 0
    assert expected in answer.out


class TestShow:
    ROW: pa.Table = pa.table(
        {
            "id": [1],
            "day": [date(2024, 1, 2)],
            "at": pa.array([datetime(2024, 1, 2, 3, tzinfo=UTC)]),
            "amount": [Decimal("1.50")],
            "share": [float("nan")],
            "raw": [b"\x01\xff"],
            "parts": [[{"name": "a", "much": float("inf")}]],
            "none": pa.array([None], pa.string()),
        }
    )

    def test_prints_rows_as_json_that_others_read(self, shop: Path, odi: Odi) -> None:
        write_deltalake(shop / "lake" / "orders", self.ROW)

        def refuse(text: str) -> None:
            raise AssertionError(f"{text} is no JSON")

        answer = odi("show", "orders", "--json")
        assert json.loads(answer.out, parse_constant=refuse) == [
            {
                "id": 1,
                "day": "2024-01-02",
                "at": "2024-01-02T03:00:00+00:00",
                "amount": "1.50",
                "share": "NaN",
                "raw": "01ff",
                "parts": [{"name": "a", "much": "Infinity"}],
                "none": None,
            }
        ]

    def test_prints_as_many_rows_as_are_wanted_of_the_version_that_is_wanted(self, shop: Path, odi: Odi) -> None:
        for number in (1, 2):
            write_deltalake(shop / "lake" / "orders", pa.table({"id": [number, number]}), mode="append")
        answer = odi("show", "shop.orders", "--limit", "3")
        assert (len(answer.out.splitlines()), answer.err) == (4, "3 rows of 4, version 1\n")
        first = odi("show", "orders", "--version", "0", "--json")
        assert json.loads(first.out) == [{"id": 1}, {"id": 1}]

    def test_says_how_to_make_a_table_that_is_not_there(self, odi: Odi) -> None:
        answer = odi("show", "orders")
        assert (answer.code, answer.out) == (1, "")
        assert "odi run shop --node orders" in answer.err


class TestStats:
    def test_tells_success_rates_and_durations(self, shop: Path, odi: Odi) -> None:
        state = Project.load(shop / "odibi.yaml").open_state()
        quick = run(1, pipeline="shop", node="orders", duration_ms=1000)
        slow = replace(quick, run_id="run-2", duration_ms=21_000, status=RunStatus.NO_DATA, rows_processed=0)
        failed = replace(quick, run_id="run-3", duration_ms=500_000, status=RunStatus.FAILURE)
        lost = replace(failed, run_id="run-4", status=RunStatus.LOST)
        cancelled = replace(failed, run_id="run-5", status=RunStatus.CANCELLED)
        rewound = replace(quick, run_id="run-6", duration_ms=900_000, trigger="rewind")
        state.record_runs([quick, slow, failed, lost, cancelled, rewound])
        (told,) = json.loads(odi("runs", "stats", "--json").out)
        assert (told["runs"], told["success_rate"], told["no_data"], told["failed"]) == (4, 0.5, 1, 2)
        assert (told["median_seconds"], told["p95_seconds"]) == (11.0, 20.0)
        assert json.loads(odi("catalog", "stats", "odibi.yaml", "--format", "json").out) == [told]

    def test_never_names_a_duration_that_no_run_took(self, shop: Path, odi: Odi) -> None:
        state = Project.load(shop / "odibi.yaml").open_state()
        state.record_runs([run(n, pipeline="shop", node="orders", duration_ms=1000 * n) for n in (1, 2, 9)])
        (told,) = json.loads(odi("runs", "stats", "--json").out)
        assert told["p95_seconds"] <= 9


class TestTheFiltersOfRuns:
    @pytest.fixture(autouse=True)
    def history(self, shop: Path) -> None:
        now = datetime.now(UTC)
        state = Project.load(shop / "odibi.yaml").open_state()
        old = run(1, pipeline="shop", node="orders", timestamp=now - timedelta(days=3))
        new = run(2, pipeline="shop", node="orders", timestamp=now, status=RunStatus.FAILURE)
        below = run(2, pipeline="shop", node="spending", timestamp=now, status=RunStatus.SKIPPED)
        state.record_runs([old, new, below])

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["--status", "failure"], [("run-2", "orders")]),
            (["--status", "SUCCESS,SKIPPED"], [("run-1", "orders"), ("run-2", "spending")]),
            (["--status", "SUCCESS", "--status", "LOST"], [("run-1", "orders")]),
            (["--since", "2d"], [("run-2", "orders"), ("run-2", "spending")]),
            (["--since", "2000-01-01", "--node", "shop.spending"], [("run-2", "spending")]),
            (["--since", "2999-01-01"], []),
            (["--status", "SUCCESS", "--since", "12h"], []),
        ],
    )
    def test_leave_what_was_asked_for(self, odi: Odi, arguments: list[str], expected: list[tuple[str, str]]) -> None:
        rows = json.loads(odi("runs", "list", *arguments, "--json").out)
        assert sorted((row["run_id"], row["node_name"]) for row in rows) == sorted(expected)

    def test_of_the_catalog_mean_the_same(self, odi: Odi) -> None:
        rows = json.loads(odi("catalog", "runs", "odibi.yaml", "--days", "2", "--format", "json").out)
        assert sorted(row["node_name"] for row in rows) == ["orders", "spending"]

    @pytest.mark.parametrize("arguments", [["--status", "GONE"], ["--since", "yesterday"], ["--since", "9999999999d"]])
    def test_that_mean_nothing_are_bad_input(self, odi: Odi, arguments: list[str]) -> None:
        answer = odi("runs", "list", *arguments)
        assert (answer.code, answer.out) == (2, "")
        assert "→" in answer.err


def test_nodes_without_a_mark_are_listed_for_their_pipeline(shop: Path, odi: Odi) -> None:
    state = Project.load(shop / "odibi.yaml").open_state()
    state.set_hwm("shop.orders", 7)
    state.set_hwm("elsewhere.orders", 8)
    rows = json.loads(odi("state", "list", "--pipeline", "shop", "--json").out)
    assert {row["key"] for row in rows} == {"shop.orders", "shop.spending"}
    assert odi("state", "list", "--pipeline", "shop").err == "Without one yet: shop.spending\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "odibi.yaml"], "-c odibi.yaml"),
        (["validate", "odibi.yaml"], "odi config check"),
        (["drop"], "odi state reset NODE"),
        (["compile"], "odi plan"),
    ],
)
def test_what_other_tools_call_it_leads_to_its_name_here(odi: Odi, arguments: list[str], told: str) -> None:
    answer = odi(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert told in answer.err


def test_tables_are_counted_and_measured(shop: Path, odi: Odi) -> None:
    write_deltalake(shop / "lake" / "orders", pa.table({"id": [1, 2]}))
    orders, spending = json.loads(odi("catalog", "tables", "odibi.yaml", "--format", "json").out)
    assert (orders["node"], orders["version"], orders["rows"], orders["files"]) == ("shop.orders", 0, 2, 1)
    assert (spending["node"], spending["version"], spending["rows"], spending["files"]) == (
        "shop.spending",
        None,
        None,
        0,
    )


NAMESAKE = """\
  - pipeline: other
    nodes:
      - name: spending
        inputs: {orders: {node: shop.orders, incremental: version}}
        write: {connection: lake, path: other, mode: append}
"""


@pytest.mark.parametrize(
    ("command", "code", "tells"),
    [
        (("show",), 1, "shop.orders has no table yet"),
        (("state", "recover"), 0, "State has what the tables' logs say"),
        (("explain", "--key", "7"), 2, "shop.orders has no table yet"),
        (("state", "rewind", "--list"), 0, "shop.orders"),
        (("state", "accept", "--yes"), 2, "shop.orders has no high-water mark"),
        (("store", "versions"), 2, "shop.orders"),
        (("checkpoint", "metadata"), 2, "shop.orders has run no batch as a stream"),
        (("cursors", "export", "-", "--node"), 2, "shop.orders"),
    ],
)
def test_a_node_may_be_named_without_its_pipeline_if_one_alone_has_it(
    command: tuple[str, ...], code: int, tells: str, shop: Path, odi: Odi
) -> None:
    (shop / "odibi.yaml").write_text(PROJECT + NAMESAKE, encoding="utf-8")
    answer = odi(*command, "orders")
    assert (answer.code, tells in answer.out + answer.err) == (code, True), answer
    several = odi(*command, "spending")
    assert several.code == 2, several
    assert "several pipelines have a node `spending`" in several.err
    assert "other.spending" in several.err


def test_a_checkpoint_that_is_not_there_is_no_node_either(shop: Path, odi: Odi) -> None:
    unknown = odi("checkpoint", "metadata", "shop.late")
    assert (unknown.code, "shop.late does not exist, and no node has this name" in unknown.err) == (2, True), unknown
    (shop / "odibi.yaml").write_text(PROJECT + MORE, encoding="utf-8")
    assert "one of shop.late" in odi("checkpoint", "metadata", "shop.lte").err
