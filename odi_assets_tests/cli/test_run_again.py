"""``odi run`` with ``--resume``, ``--from``/``--to`` and ``--downstream``, and beside another run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import FAILING, PROJECT, deliver

DAYS = """\
      - name: days
        read: {connection: landing, format: csv, path: "*.csv", options: {header: "true"},
               schema: "id INT, customer STRING, amount INT"}
        transform: {sql: "SELECT DATE'2024-01-01' + (id - 1) AS day, amount FROM df"}
        partition: {column: day, every: day, start: 2024-01-01}
        write: {connection: lake, path: days, mode: partition_overwrite}
"""
REPORTS = """\
  - pipeline: reports
    nodes:
      - name: top
        inputs: {spending: shop.spending}
        transform: {sql: "SELECT max(amount) AS amount FROM spending"}
        write: {connection: lake, path: top}
"""
OVERTAKEN = """
import pathlib

def slow(df):
    if not pathlib.Path("overtaken").exists():
        pathlib.Path("overtaken").touch()
        from odi_assets.config.graph import NodeKey
        from odi_assets.nodes.project import Project
        from odi_assets.nodes.run_history import RunHistory
        from odi_assets.nodes.run_node import NodeRun, run_node
        project = Project.load("odibi.yaml")
        history = RunHistory(project, project.open_state(), "the-winner")
        run_node(NodeRun(history, NodeKey("shop", "orders"), lambda: df.sparkSession))
    return df
"""


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--resume", "--full-refresh"), "ask for one of the two"),
        (("--resume", "--from", "2024-01-01", "--to", "2024-01-02"), "ask for one of the two"),
        (("--full-refresh", "--from", "2024-01-01", "--to", "2024-01-02"), "without the full refresh"),
        (("--from", "2024-01-01"), "--from stands alone"),
        (("--from", "soon", "--to", "later"), "write it as 2013-01-31"),
        (("--from", "2024-01-02", "--to", "2024-01-02"), "holds nothing"),
        (("--from", "2024-01-01", "--to", "2024-01-02"), "2 of the nodes take no such range"),
        (("--node", "orders", "--from", "2024-01-01", "--to", "2024-01-02"), "add `partition"),
    ],
)
def test_what_does_not_go_together_is_bad_input_and_nothing_runs(
    shop: Path, odi: Odi, arguments: tuple[str, ...], said: str
) -> None:
    answer = odi("run", "shop", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert not (shop / "lake").exists()


@pytest.mark.usefixtures("spark")
def test_a_resumed_run_says_what_it_leaves_out_and_why(shop: Path, odi: Odi) -> None:
    (shop / "odibi.yaml").write_text(PROJECT + FAILING, encoding="utf-8")
    assert odi("run", "shop").code == 1
    again = odi("run", "shop", "--resume")
    assert again.code == 1
    statuses = {line.split()[0]: line.split()[1] for line in again.out.splitlines()[1:]}
    assert statuses == {"orders": "SKIPPED", "spending": "SKIPPED", "ratio": "FAILURE", "after_ratio": "SKIPPED"}
    assert "shop.ratio runs: FAILURE in the last run" in again.err
    (reason,) = [line for line in again.err.splitlines() if line.startswith("Skipped ")]
    assert reason.startswith("Skipped orders, spending: resumed: succeeded in run ")
    listed = json.loads(odi("runs", "list", "--node", "orders", "--limit", "1", "--json").out)
    assert (listed[0]["status"], listed[0]["error"][:8]) == ("SKIPPED", "resumed:")


@pytest.mark.usefixtures("spark")
def test_a_range_is_planned_and_run_by_its_ends(shop: Path, odi: Odi) -> None:
    (shop / "odibi.yaml").write_text(PROJECT + DAYS, encoding="utf-8")
    bounds = ("--node", "days", "--from", "2024-01-02", "--to", "2024-01-03")
    planned = json.loads(odi("plan", *bounds, "--json").out)
    assert planned[0]["bounds"] == "from 2024-01-02 until before 2024-01-03"
    answer = odi("run", *bounds, "--json")
    assert answer.code == 0, answer.err
    table = DeltaTable(str(shop / "lake" / "days")).to_pyarrow_table().to_pylist()
    assert [(str(row["day"]), row["amount"]) for row in table] == [("2024-01-02", 5)]
    listed = json.loads(odi("runs", "list", "--node", "days", "--json").out)
    assert listed[0]["partition_key"] == "2024-01-02T00:00:00+00:00...2024-01-03T00:00:00+00:00"


@pytest.mark.usefixtures("spark")
def test_a_full_refresh_can_take_along_every_node_below_in_other_pipelines_too(shop: Path, odi: Odi) -> None:
    (shop / "odibi.yaml").write_text(PROJECT + REPORTS, encoding="utf-8")
    assert odi("run").code == 0
    (shop / "landing" / "orders-1.csv").unlink()
    deliver(shop, "orders-2.csv", ["3,ann,7"])
    answer = odi("run", "shop", "--node", "orders", "--full-refresh", "--downstream", "--yes", "--json")
    assert answer.code == 0, answer.err
    assert [result["node"] for result in json.loads(answer.out)] == ["orders", "spending", "top"]
    for table, amount in (("orders", 7), ("spending", 7), ("top", 7)):
        rows = DeltaTable(str(shop / "lake" / table)).to_pyarrow_table().to_pylist()
        assert [row["amount"] for row in rows] == [amount]
    assert [plan["action"] for plan in json.loads(odi("plan", "shop", "--json").out)] == ["nothing", "nothing"]


@pytest.mark.usefixtures("spark")
def test_a_run_that_another_one_overtook_names_it_and_has_written_nothing(shop: Path, odi: Odi) -> None:
    (shop / "overtaking.py").write_text(OVERTAKEN, encoding="utf-8")
    text = PROJECT.replace(
        "        write: {connection: lake, path: orders,",
        "        transform: {function: 'overtaking:slow'}\n        write: {connection: lake, path: orders,",
    )
    (shop / "odibi.yaml").write_text(text, encoding="utf-8")
    assert odi("run", "--node", "orders").code == 1
    (shop / "overtaken").unlink(missing_ok=True)
    deliver(shop, "orders-2.csv", ["3,ann,7"])
    answer = odi("run", "--node", "orders")
    assert answer.code == 1
    assert "run the-winner committed it first; nothing was written" in answer.err
    assert "the next run goes on from where the winner stopped" in answer.err
    assert "Traceback" not in answer.err
    table = DeltaTable(str(shop / "lake" / "orders"))
    assert sorted(row["id"] for row in table.to_pyarrow_table().to_pylist()) == [1, 2, 3]
    assert odi("run", "--node", "orders").code == 0
