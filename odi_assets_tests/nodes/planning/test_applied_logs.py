"""Nodes that apply one change log open it once between them, and see one version of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from odi_assets.config.graph import NodeKey
from odi_assets.connections.location import Location
from odi_assets.delta.damage import commit_file
from odi_assets.nodes.planning.forecast import forecast, forecasts
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.nodes.result import NodeResult
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets.orchestration.automation.source_lag import Watch
from odi_assets.state.records import RunStatus
from odi_assets_tests.sources.cdc.debezium.support import described, envelope, keyed, lines

TABLES = 4
HEAD = """
project: test
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: system}
automation: {looks_at_once: 1}
pipelines:
- pipeline: p
  nodes:
  - name: changes
    read: {connection: landing, format: debezium, path: "topics/*"}
    write: {connection: lake, path: changes}
"""
APPLY = "  - {{name: t{0}, apply: {{changes: changes, table: public.t{0}}}, write: {{connection: lake, path: t{0}}}}}\n"


class Shop:
    """A project that captures tables, and applies each of them."""

    def __init__(self, root: Path) -> None:
        file = root / "odibi.yaml"
        file.write_text(HEAD + "".join(APPLY.format(number) for number in range(TABLES)), encoding="utf-8")
        self.landing = root / "landing" / "topics"
        self.landing.mkdir(parents=True)
        self.project = Project.load(file)
        self.state = self.project.open_state()
        self.nodes = self.project.graph.order("p")
        self.landed = 0

    def land(self) -> None:
        """A new row of each table."""
        self.landed += 1
        row = {"id": self.landed, "state": "new", "note": None}
        changes = [
            keyed(described(envelope("c", None, row, table=f"t{number}", lsn=self.landed * 100 + number)), id=row["id"])
            for number in range(TABLES)
        ]
        (self.landing / f"{self.landed}.json").write_text("\n".join(lines(*changes)), encoding="utf-8")

    def begin(self, run_id: str) -> RunHistory:
        return RunHistory(self.project, self.state, run_id)

    def run(self, history: RunHistory, node: str) -> NodeResult:
        def open_spark() -> Any:
            raise AssertionError("a few changes are applied without Spark")

        return run_node(NodeRun(history, NodeKey("p", node), open_spark))

    def run_all(self, run_id: str) -> RunHistory:
        history = self.begin(run_id)
        for key in self.nodes:
            self.run(history, key.node)
        return history

    def ids(self, node: str) -> list[int]:
        table = DeltaTable(self.project.target(NodeKey("p", node)).uri)
        return sorted(table.to_pyarrow_table()["id"].to_pylist())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The name of each table that is opened, each time."""
    found: list[str] = []

    def noted(uri: str, *arguments: Any, **options: Any) -> DeltaTable:
        found.append(Path(uri).name)
        return DeltaTable(uri, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("odi_assets.delta.table.DeltaTable", noted)
        yield found


@pytest.mark.slow
def test_a_run_opens_the_log_once_for_all_nodes_that_apply_it(shop: Shop, opened: list[str]) -> None:
    shop.land()
    shop.run_all("first")
    shop.land()
    history = shop.begin("second")
    shop.run(history, "changes")
    opened.clear()
    for key in shop.nodes[1:]:
        assert shop.run(history, key.node).rows_written == 1
    assert opened.count("changes") == 1


@pytest.mark.slow
def test_forecast_doctor_and_sensor_open_it_as_often_for_many_nodes_as_for_one(shop: Shop, opened: list[str]) -> None:
    shop.land()
    shop.run_all("first")
    watch = Watch(shop.project, "p")
    looks = {
        "forecast": lambda: forecast(shop.project, shop.state, shop.nodes),
        "doctor": lambda: examine(shop.project, shop.state, shop.nodes),
        "sensor": lambda: watch.look(60),
    }
    counts = {}
    for name, look in looks.items():
        opened.clear()
        look()
        counts[name] = opened.count("changes")
    # The node that captures looks at its own table too: doctor does so twice.
    assert counts == {"forecast": 2, "doctor": 3, "sensor": 3}
    assert {one.action for one in forecast(shop.project, shop.state, shop.nodes)} == {"nothing"}
    assert examine(shop.project, shop.state, shop.nodes) == []


@pytest.mark.slow
def test_the_commits_of_the_log_are_read_as_often_for_many_nodes_as_for_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.land()
    shop.run_all("first")
    shop.land()
    history, read = shop.begin("second"), list[str]()
    shop.run(history, "changes")

    def noted(location: Location, version: int) -> bytes | None:
        read.append(Path(location.uri).name)
        return commit_file(location, version)

    monkeypatch.setattr("odi_assets.delta.history.commit_file", noted)
    shop.run(history, "t0")
    for_one = read.count("changes")
    for key in shop.nodes[2:]:
        shop.run(history, key.node)
    assert read.count("changes") == for_one > 0


@pytest.mark.slow
def test_all_nodes_of_a_run_see_one_version_of_a_log_that_grows(shop: Shop) -> None:
    shop.land()
    first = shop.begin("first")
    for node in ("changes", "t0"):
        shop.run(first, node)
    shop.land()
    shop.run(shop.begin("other"), "changes")
    assert shop.run(first, "t1").rows_written == 1
    assert (shop.ids("t0"), shop.ids("t1")) == ([1], [1])
    # Another run has brought this node further: it stays there.
    shop.run(shop.begin("another"), "t2")
    assert shop.run(first, "t2").status is RunStatus.NO_DATA
    assert shop.ids("t2") == [1, 2]
    shop.run_all("last")
    assert all(shop.ids(key.node) == [1, 2] for key in shop.nodes[1:])


def test_the_version_is_what_the_run_has_captured_although_the_log_is_further(shop: Shop) -> None:
    shop.land()
    first = shop.begin("first")
    shop.run(first, "changes")
    shop.land()
    shop.run(shop.begin("other"), "changes")
    shop.run(first, "t0")
    assert shop.ids("t0") == [1]


class Interrupted(list[NodeKey]):
    """Nodes, between two of which another run is made when they are gone through for the first time."""

    def __init__(self, shop: Shop, *nodes: str) -> None:
        super().__init__(NodeKey("p", node) for node in nodes)
        self.shop = shop
        self.ran = False

    def __iter__(self) -> Iterator[NodeKey]:
        for key in list.__iter__(self):
            yield key
            if not self.ran:
                self.ran = True
                self.shop.land()
                self.shop.run_all("other")


@pytest.mark.slow
def test_a_look_during_which_another_run_brings_a_node_further_finds_nothing_wrong(shop: Shop) -> None:
    shop.land()
    shop.run_all("first")
    assert examine(shop.project, shop.state, Interrupted(shop, "t0", "t1", "t2")) == []
    shop.land()
    shop.run(shop.begin("second"), "changes")
    looks = forecasts(shop.project, shop.state, [NodeKey("p", "t0"), NodeKey("p", "t1")])
    assert next(looks).action == "write"
    shop.run_all("third")
    assert next(looks).action == "nothing"
