"""``odi run`` and what it leaves in ``odi runs`` and ``odi state``: real Spark, real Delta."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import FAILING, PROJECT, deliver, environment

pytestmark = pytest.mark.usefixtures("spark", "shop")


def rows(shop: Path, table: str) -> list[dict[str, Any]]:
    found = DeltaTable(str(shop / "lake" / table)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: str(row))


def table_of(text: str) -> dict[str, list[str]]:
    """The cells of each line of a piped table, by node."""
    return {cells[0]: cells[1:] for cells in (line.split("  ") for line in text.splitlines()[1:])}


def test_a_first_load_then_an_increment_then_nothing_new(shop: Path, odi: Odi) -> None:
    first = odi("run", "shop")
    assert first.code == 0, first.err
    assert rows(shop, "orders") == [
        {"id": 1, "customer": "ann", "amount": 10},
        {"id": 2, "customer": "bob", "amount": 5},
    ]
    head, orders, spending = first.out.splitlines()
    assert head.split() == ["node", "status", "read", "written", "HWM", "before", "→", "after", "version", "seconds"]
    assert orders.split()[:7] == ["orders", "SUCCESS", "2", "2", "none", "→", "orders-1.csv"]
    assert spending.split()[:4] == ["spending", "SUCCESS", "2", "2"]

    deliver(shop, "orders-2.csv", ["3,ann,7"])
    planned = json.loads(odi("plan", "--json").out)
    assert [(plan["action"], plan["summary"]) for plan in planned] == [
        ("write", "1 new file"),
        ("follow", "what orders will gain"),
    ]
    second = odi("run", "--json")
    assert second.code == 0, second.err
    by_node = {result["node"]: result for result in json.loads(second.out)}
    assert by_node["orders"]["rows_read"] == by_node["orders"]["rows_written"] == 1
    assert (by_node["orders"]["hwm_before"], by_node["orders"]["hwm_after"]) == ("orders-1.csv", "orders-2.csv")
    assert rows(shop, "spending") == [{"customer": "ann", "amount": 17}, {"customer": "bob", "amount": 5}]

    planned = json.loads(odi("plan", "--json").out)
    assert [plan["action"] for plan in planned] == ["nothing", "nothing"]
    third = odi("run")
    assert third.code == 0
    assert [line.split()[1] for line in third.out.splitlines()[1:]] == ["NO_DATA", "NO_DATA"]
    assert len(rows(shop, "orders")) == 3
    assert DeltaTable(str(shop / "lake" / "orders")).version() == 1

    listed = json.loads(odi("runs", "list", "--json").out)
    assert [(run["node_name"], run["status"]) for run in listed] == [
        ("spending", "NO_DATA"),
        ("orders", "NO_DATA"),
        ("spending", "SUCCESS"),
        ("orders", "SUCCESS"),
        ("spending", "SUCCESS"),
        ("orders", "SUCCESS"),
    ]
    assert len({run["run_id"] for run in listed}) == 3
    assert len(json.loads(odi("runs", "list", "--json", "--limit", "1").out)) == 1
    assert {run["node_name"] for run in json.loads(odi("runs", "list", "--node", "orders", "--json").out)} == {"orders"}
    table = odi("runs", "list", "--node", "shop.orders").out
    assert [line.split()[3] for line in table.splitlines()[1:]] == ["NO_DATA", "SUCCESS", "SUCCESS"]
    assert "orders-2.csv" in odi("state", "get", "shop.orders").out


def test_progress_and_advice_go_to_stderr_in_plain_lines(odi: Odi) -> None:
    answer = odi("run", "--node", "orders")
    lines = answer.err.splitlines()
    assert lines[0] == "shop: 1 node"
    assert lines[1].startswith("[1/1] shop.orders: SUCCESS, 2 rows, ")
    assert "The tables are in lake/orders" in lines
    assert any("odi plan" in line for line in lines)
    assert "\x1b" not in answer.out + answer.err


def test_a_full_refresh_loads_everything_again(shop: Path, odi: Odi) -> None:
    odi("run", "--node", "orders")
    answer = odi("run", "--node", "orders", "--full-refresh", "--json")
    (result,) = json.loads(answer.out)
    assert (result["rows_read"], result["rows_written"], result["table_version"]) == (2, 2, 1)
    assert len(rows(shop, "orders")) == 2


def test_a_node_that_fails_is_named_once_and_stops_what_needs_it(shop: Path, odi: Odi) -> None:
    (shop / "odibi.yaml").write_text(PROJECT + FAILING, encoding="utf-8")
    answer = odi("run")
    assert answer.code == 1
    statuses = {line.split()[0]: line.split()[1] for line in answer.out.splitlines()[1:]}
    assert statuses == {
        "orders": "SUCCESS",
        "spending": "SUCCESS",
        "ratio": "FAILURE",
        "after_ratio": "SKIPPED",
    }
    assert answer.err.count("DIVIDE_BY_ZERO") == 1
    assert "odi: shop.ratio failed: " in answer.err
    assert "Traceback" not in answer.err
    assert "\tat org.apache" not in answer.err
    assert [run["error"] for run in json.loads(odi("runs", "list", "--node", "ratio", "--json").out)] != [None]


def test_what_functions_print_does_not_get_into_the_data(shop: Path, odi: Odi) -> None:
    (shop / "talking.py").write_text(
        "import os\n\ndef talk(df):\n    print('from Python')\n    os.write(1, b'from below\\n')\n    return df\n",
        encoding="utf-8",
    )
    text = PROJECT.replace(
        "        write: {connection: lake, path: orders,",
        "        transform: {function: 'talking:talk'}\n        write: {connection: lake, path: orders,",
    )
    (shop / "odibi.yaml").write_text(text, encoding="utf-8")
    answer = odi("run", "--node", "orders", "--json")
    assert [result["status"] for result in json.loads(answer.out)] == ["SUCCESS"], answer.err
    assert "from Python" in answer.err
    assert "from below" in answer.err


def test_pipelines_run_after_those_that_they_read_from(shop: Path, odi: Odi) -> None:
    text = PROJECT.replace(
        "pipelines:\n",
        "pipelines:\n"
        "  - pipeline: reports\n"
        "    nodes:\n"
        "      - name: top\n"
        "        inputs: {spending: shop.spending}\n"
        '        transform: {sql: "SELECT max(amount) AS amount FROM spending"}\n'
        "        write: {connection: lake, path: top}\n",
    )
    (shop / "odibi.yaml").write_text(text, encoding="utf-8")
    answer = odi("run", "--json")
    assert answer.code == 0, answer.err
    assert [result["node"] for result in json.loads(answer.out)] == ["orders", "spending", "top"]
    assert rows(shop, "top") == [{"amount": 10}]


def test_a_failed_pipeline_stops_those_that_read_it_and_no_others(shop: Path, odi: Odi) -> None:
    text = PROJECT.replace(
        "pipelines:\n",
        "pipelines:\n"
        "  - pipeline: broken\n"
        "    nodes:\n"
        "      - name: gone\n"
        "        read: {connection: landing, format: csv, path: nowhere.csv, schema: id INT}\n"
        "        write: {connection: lake, path: gone, mode: overwrite}\n"
        "  - pipeline: below\n"
        "    nodes:\n"
        "      - {name: one, inputs: {gone: broken.gone}, write: {connection: lake, path: one, mode: overwrite}}\n"
        "  - pipeline: lowest\n"
        "    nodes:\n"
        "      - {name: two, inputs: {one: below.one}, write: {connection: lake, path: two, mode: overwrite}}\n",
    )
    (shop / "odibi.yaml").write_text(text, encoding="utf-8")
    answer = odi("run")
    assert answer.code == 1
    statuses = {line.split()[0]: line.split()[1] for line in answer.out.splitlines()[1:]}
    assert statuses == {"broken.gone": "FAILURE", "shop.orders": "SUCCESS", "shop.spending": "SUCCESS"}
    assert "Not run, because nodes that they read failed: below, lowest" in answer.err


def test_unknown_pipelines_and_nodes_are_bad_input_with_a_suggestion(odi: Odi) -> None:
    for arguments, meant in ([["shpo"], "shop"], [["--node", "order"], "orders"]):
        answer = odi("run", *arguments)
        assert (answer.code, answer.out) == (2, "")
        assert meant in answer.err


@pytest.mark.usefixtures("without_java")
def test_without_java_there_is_one_message_and_no_stack(shop: Path, odi: Odi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(shop))
    answer = odi("run")
    assert (answer.code, answer.out) == (1, "")
    assert "openjdk" in answer.err
    assert "Traceback" not in answer.err


def test_spark_stays_the_suites_own(spark: SparkSession, odi: Odi) -> None:
    odi("run", "--node", "orders")
    assert spark.range(3).count() == 3


class TestAFullRefreshThatLosesRows:
    """``orders-1.csv`` was loaded, and is gone."""

    LOSS = "shop.orders: a full refresh loses rows of 1 file of landing:*.csv gone since: orders-1.csv"

    @pytest.fixture(autouse=True)
    def gone(self, shop: Path, odi: Odi) -> None:
        odi("run")
        deliver(shop, "orders-2.csv", ["3,cat,1"])
        odi("run")
        (shop / "landing" / "orders-1.csv").unlink()

    def test_is_told_by_the_plan(self, odi: Odi) -> None:
        answer = odi("plan", "--full-refresh")
        assert (answer.code, self.LOSS in answer.err) == (0, True)
        orders, _ = json.loads(odi("plan", "--full-refresh", "--json").out)
        assert [loss["names"] for loss in orders["losses"]] == [["orders-1.csv"]]

    def test_is_refused_without_a_terminal_and_goes_on_with_yes(self, shop: Path, odi: Odi) -> None:
        answer = odi("run", "--full-refresh")
        assert answer.code == 1
        assert self.LOSS in answer.err
        assert "odi: nothing was run: there is no terminal to ask on\n  → say --yes" in answer.err
        assert len(rows(shop, "orders")) == 3
        answer = odi("run", "--full-refresh", "--yes")
        assert answer.code == 0
        assert "its full refresh loses rows of 1 file of landing:*.csv gone since: orders-1.csv" in answer.err
        assert len(rows(shop, "orders")) == 1

    def test_is_asked_about_on_a_terminal(self, shop: Path) -> None:
        for typed, code, left in ((b"\n", 1, 3), (b"y\n", 0, 1)):
            terminal, side = pty.openpty()
            os.write(terminal, typed)
            done = subprocess.run(
                [sys.executable, "-m", "odi_assets.cli", "run", "--node", "orders", "--full-refresh"],
                cwd=shop,
                env=environment(),
                stdin=side,
                capture_output=True,
                text=True,
                timeout=180,
                check=False,
            )
            os.close(side)
            os.close(terminal)
            assert (done.returncode, self.LOSS in done.stderr, "Go on? [y/N]" in done.stderr) == (code, True, True)
            assert len(rows(shop, "orders")) == left


WAITING = """\
project: waiting
connections:
  raw: {type: local, base_path: raw}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: system}
pipelines:
- pipeline: p
  nodes:
  - name: first
    read: {connection: raw, format: csv, path: "*.csv", incremental: files}
    write: {connection: lake, path: first, mode: append}
  - name: whole
    inputs: [first]
    transform: {sql: SELECT * FROM first}
    write: {connection: lake, path: whole, mode: overwrite}
  - name: both
    inputs: {new: {node: whole, incremental: version}, every: whole}
    transform: {sql: SELECT * FROM new}
    write: {connection: lake, path: both, mode: append}
"""


def test_nodes_below_one_that_has_read_nothing_yet_have_nothing_to_do(
    odi: Odi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odibi.yaml").write_text(WAITING)
    Path("raw").mkdir()
    alone = odi("run", "--node", "whole")
    assert alone.code == 1
    assert "run the node that writes it first" in alone.err
    planned = odi("plan", "--json")
    assert planned.code == 0
    assert [plan["summary"] for plan in json.loads(planned.out)][1:] == [
        "p.first does not exist yet",
        "new: p.whole does not exist yet",
    ]
    ran = odi("run", "--json")
    assert ran.code == 0, ran.err
    assert [result["status"] for result in json.loads(ran.out)] == ["NO_DATA"] * 3
    assert odi("run", "--node", "whole", "--full-refresh", "--yes").code == 0
