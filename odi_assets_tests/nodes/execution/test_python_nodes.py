"""Nodes written in Python: planned, committed and remembered like those of the project file."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

import odi_assets
from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError
from odi_assets.nodes.node import code_version
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.run import run_pipeline
from odi_assets_tests.orchestration.small_project import PROJECT_FILE, land, make_project

MODULE = '''
    from odi_assets import node

    @node(
        pipeline="shop",
        inputs={"sales": {"node": "sales", "incremental": "version"}, "shops": "shops"},
        write={"connection": "lake", "path": "by_city", "mode": "append"},
        params={"least": 5},
        tags=["python"],
    )
    def by_city(sales, shops, least):
        """Sales with their city.

        The increment of sales, and all shops.
        """
        return sales.join(shops, "shop").where(f"amount >= {least}").select("id", "city", "amount")

    def helper():
        pass
'''


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def with_module(tmp_path: Path) -> Any:
    """The small project, whose file names a module with a node in it."""
    made = f"python_nodes_{tmp_path.name}".replace("-", "_")
    root = tmp_path / "project"
    root.mkdir()
    (root / f"{made}.py").write_text(textwrap.dedent(MODULE), encoding="utf-8")
    yield make_project(root, "2024-01-01", text=PROJECT_FILE + f"python: [{made}]\n")
    sys.modules.pop(made, None)


def _cities(project: Project) -> list[tuple[int, str]]:
    rows = DeltaTable(str(project.root / "lake" / "by_city")).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["city"]) for row in rows)


def test_a_node_of_a_module_is_a_node_like_any_other(with_module: Project) -> None:
    key = NodeKey("shop", "by_city")
    node = with_module.graph.node(key)
    assert with_module.graph.upstream(key) == (NodeKey("shop", "sales"), NodeKey("shop", "shops"))
    assert node.description == "Sales with their city."
    spec = next(
        spec
        for spec in build_definitions(with_module).resolve_all_asset_specs()
        if spec.key == dg.AssetKey(["shop", "by_city"])
    )
    assert "python" in spec.tags
    before = code_version(with_module, key)
    (module,) = with_module.root.glob("*.py")
    module.write_text(module.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    assert code_version(with_module, key) != before


@pytest.mark.usefixtures("spark")
def test_it_gets_whole_tables_and_increments_and_its_hwm_moves(
    with_module: Project, instance: dg.DagsterInstance
) -> None:
    assert run_pipeline(with_module, "shop", instance=instance).success
    assert _cities(with_module) == [(1, "Oslo"), (2, "Rome")]
    land(with_module.root, "2024-01-02")
    assert run_pipeline(with_module, "shop", instance=instance).success
    assert _cities(with_module) == [(1, "Oslo"), (2, "Rome"), (4, "Rome")]
    assert with_module.open_state().get_hwm("shop.by_city") is not None


@pytest.mark.usefixtures("spark")
def test_a_function_can_be_given_to_the_project_and_stays_a_function(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    @odi_assets.node(
        pipeline="reports",
        inputs={"sales": "shop.sales"},
        write={"connection": "lake", "path": "by_city", "mode": "overwrite"},
    )
    def totals(sales: Any) -> Any:
        return sales.selectExpr("id", "shop AS city")

    file = make_project(tmp_path, "2024-01-01").path
    project = Project.load(file, nodes=[totals])
    assert [key.node for key in project.graph.order("reports")] == ["totals"]
    assert run_pipeline(project, "shop", instance=instance).success
    assert run_pipeline(project, "reports", instance=instance).success
    assert _cities(project) == [(1, "north"), (2, "south"), (3, "north")]
    assert totals.__name__ == "totals"


def test_a_function_can_be_a_stream(tmp_path: Path) -> None:
    @odi_assets.node(
        pipeline="shop",
        inputs={"sales": "sales"},
        stream={"inputs": {"sales": {"watermark": {"column": "at", "delay": "2m"}}}, "state_store": "hdfs"},
        write={"connection": "lake", "path": "windows", "mode": "append"},
    )
    def windows(sales: Any) -> Any:
        return sales.groupBy("shop").count()

    root = tmp_path / "project"
    root.mkdir()
    make_project(root, "2024-01-01")
    stream = Project.load(root / "odibi.yaml", nodes=[windows]).graph.node(NodeKey("shop", "windows")).stream
    assert stream is not None
    assert (stream.state_store, stream.inputs["sales"].watermark.column) == ("hdfs", "at")  # type: ignore[union-attr]


def test_mistakes_of_its_options_are_those_of_the_project_file(tmp_path: Path) -> None:
    @odi_assets.node(pipeline="shop", inputs=["nosuch"], write={"connection": "lake", "path": "x", "mode": "apend"})
    def wrong(nosuch: Any) -> Any:
        return nosuch

    file = make_project(tmp_path).path
    with pytest.raises(ConfigError) as caught:
        Project.load(file, nodes=[wrong])
    assert "apend" in str(caught.value)
    assert "nosuch" in str(caught.value)


def test_a_module_that_is_not_there_and_a_function_that_is_no_node_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`python`: there is no module `no_such_module`"):
        make_project(tmp_path, text=PROJECT_FILE + "python: [no_such_module]\n")
    plain = make_project(tmp_path / "plain").path
    with pytest.raises(ConfigError, match="is no node"):
        Project.load(plain, nodes=[len])
