"""The component: what ``defs.yaml`` may say, as docs/dagster.md has it, and Dagster's own tools upon it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml as yaml_files
from deltalake import DeltaTable

from odi_assets import PipelinesComponent
from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets_tests.orchestration.small_project import NODES, make_project
from odi_assets_tests.pages import blocks

BIN = Path(sys.executable).parent
REPOSITORY = Path(__file__).resolve().parents[2]


def _dg_project(root: Path, yaml: str) -> Path:
    """A project as Dagster's scaffolding makes it, with one component."""
    folder = root / "src" / "mine" / "defs" / "sales"
    folder.mkdir(parents=True)
    (root / "pyproject.toml").write_text(
        textwrap.dedent(
            """
            [project]
            name = "mine"
            version = "0.1.0"
            [tool.dg]
            directory_type = "project"
            [tool.dg.project]
            root_module = "mine"
            """
        ),
        encoding="utf-8",
    )
    (root / "src" / "mine" / "__init__.py").touch()
    (root / "src" / "mine" / "defs" / "__init__.py").touch()
    (root / "src" / "mine" / "definitions.py").write_text(
        textwrap.dedent(
            """
            from pathlib import Path
            from dagster import definitions, load_from_defs_folder

            @definitions
            def defs():
                return load_from_defs_folder(path_within_project=Path(__file__).parent)
            """
        ),
        encoding="utf-8",
    )
    (folder / "defs.yaml").write_text(textwrap.dedent(yaml), encoding="utf-8")
    return folder


def test_a_component_loads_the_project_file_beside_it(tmp_path: Path) -> None:
    yaml = """
        type: odi_assets.PipelinesComponent
        attributes:
          project: odibi.yaml
          key_prefix: east
          environment: test
        """
    folder = _dg_project(tmp_path, yaml)
    loaded = make_project(folder, "2024-01-01")
    with loaded.path.open("a", encoding="utf-8") as file:
        file.write("environments: {test: {connections: {lake: {base_path: ./elsewhere}}}}\n")
    definitions = _loaded(tmp_path)
    specs = {spec.key: spec for spec in definitions.resolve_all_asset_specs()}
    uri = specs[dg.AssetKey(["east", "shop", "sales"])].metadata["dagster/uri"]
    assert uri == str(folder / "elsewhere" / "sales")


def test_dagsters_own_tools_list_scaffold_and_check_the_component(tmp_path: Path) -> None:
    _dg_project(tmp_path / "there", "type: odi_assets.PipelinesComponent")
    root = tmp_path / "there"
    shutil.rmtree(root / "src" / "mine" / "defs" / "sales")
    found = json.loads(_dg("list", "components", "--json", cwd=root))
    assert "odi_assets.PipelinesComponent" in {one["key"] for one in found["items"]}
    scaffold = ("scaffold", "defs", "odi_assets.PipelinesComponent", "orders")
    with pytest.raises(AssertionError, match=r"nowhere\.yaml: there is no such file"):
        _dg(*scaffold, "--project", "nowhere.yaml", cwd=root)
    _dg(*scaffold, cwd=root)
    folder = root / "src" / "mine" / "defs" / "orders"
    assert "odi_assets.PipelinesComponent" in (folder / "defs.yaml").read_text(encoding="utf-8")
    assert [str(key) for key in Project.load(folder / "odibi.yaml").graph.nodes] == [
        "shop.raw_orders",
        "shop.customers",
    ]
    _dg("check", "yaml", cwd=root)
    (folder / "defs.yaml").write_text(
        "type: odi_assets.PipelinesComponent\nattributes: {projct: x}\n", encoding="utf-8"
    )
    with pytest.raises(AssertionError, match="projct"):
        _dg("check", "yaml", cwd=root)


def _loaded(root: Path) -> dg.Definitions:
    """The definitions of a project; each is called `mine`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root / "src"))
        for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
            patch.delitem(sys.modules, name)
        loaded = dg.load_from_defs_folder(path_within_project=root)
        for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
            del sys.modules[name]
        return loaded


def _scaffold(root: Path, *folders: str) -> None:
    _dg_project(root, "type: odi_assets.PipelinesComponent")
    shutil.rmtree(root / "src" / "mine" / "defs" / "sales")
    for folder in folders:
        _dg("scaffold", "defs", "odi_assets.PipelinesComponent", folder, cwd=root)


def test_components_that_were_scaffolded_load_beside_each_other(
    tmp_path: Path,
) -> None:
    folders = ("orders", "payments", "team/orders")
    _scaffold(tmp_path, *folders)
    loaded = _loaded(tmp_path)
    dg.Definitions.validate_loadable(loaded)
    keys = {spec.key.path[0] for spec in loaded.resolve_all_asset_specs()}
    assert keys == {"orders", "payments", "team_orders"}
    assert {"orders_shop", "payments_shop", "team_orders_shop"} <= {
        job.name for job in loaded.get_repository_def().get_all_jobs()
    }
    listed = _dg("list", "defs", "--json", cwd=tmp_path)
    assert all(f'"{key}"' in listed for key in ("orders/shop/customers", "team_orders/shop/raw_orders"))
    _dg("check", "defs", cwd=tmp_path)


def test_a_project_file_that_is_there_is_named_by_its_path_from_the_shell(tmp_path: Path) -> None:
    root = tmp_path / "there"
    _dg_project(root, "type: odi_assets.PipelinesComponent")
    shutil.rmtree(root / "src" / "mine" / "defs" / "sales")
    make_project(tmp_path / "shop")
    command = ["scaffold", "defs", "odi_assets.PipelinesComponent", "sales", "--project"]
    _dg(*command, "../shop/odibi.yaml", cwd=root)
    keys = {spec.key for spec in _loaded(root).resolve_all_asset_specs()}
    assert dg.AssetKey(["sales", "shop", "raw_sales"]) in keys
    with pytest.raises(AssertionError, match="there is no such file"):
        _dg("scaffold", "defs", "odi_assets.PipelinesComponent", "more", "--project", "../shop/odi.yaml", cwd=root)


def test_dg_launches_a_node(tmp_path: Path) -> None:
    _scaffold(tmp_path, "orders")
    _dg("launch", "--assets", "key:orders/shop/raw_orders", cwd=tmp_path)
    table = tmp_path / "src" / "mine" / "defs" / "orders" / "lake" / "raw_orders"
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 3


class TestThePage:
    """Each line of the block in docs/dagster.md."""

    @pytest.fixture(scope="class")
    def loaded(self, tmp_path_factory: pytest.TempPathFactory) -> dg.Definitions:
        root = tmp_path_factory.mktemp("page")
        (block,) = (one.text for one in blocks("dagster.md") if "PipelinesComponent\nattributes" in one.text)
        _scaffold(root, "sales")
        folder = root / "src" / "mine" / "defs" / "sales"
        (folder / "defs.yaml").write_text(block, encoding="utf-8")
        with (folder / "odibi.yaml").open("a", encoding="utf-8") as file:
            file.write("environments: {prod: {connections: {lake: {base_path: ./elsewhere}}}}\n")
        return _loaded(root)

    def spec(self, loaded: dg.Definitions, name: str) -> dg.AssetSpec:
        specs = {spec.key: spec for spec in loaded.resolve_all_asset_specs()}
        return specs[dg.AssetKey(["lake", "shop", name])]

    def test_shows_nodes_in_another_way(self, loaded: dg.Definitions) -> None:
        dg.Definitions.validate_loadable(loaded)
        for name in ("raw_orders", "customers"):
            spec = self.spec(loaded, name)
            assert spec.group_name == "shop_tables"
            assert spec.tags["tier"] == "gold"
            assert spec.automation_condition == dg.AutomationCondition.eager()
            assert spec.freshness_policy == dg.FreshnessPolicy.time_window(timedelta(hours=26))
            assert spec.metadata["dagster/uri"].endswith(f"/elsewhere/{name}"), "as `environment` says"
            assert "spark" in spec.kinds
        assert list(self.spec(loaded, "raw_orders").owners) == ["team:sales"]

    def test_processes_some_of_them_after_that(self, loaded: dg.Definitions) -> None:
        assert "data@shop.example" in self.spec(loaded, "customers").owners
        assert self.spec(loaded, "customers").tags["contract"] == "1"
        assert "contract" not in self.spec(loaded, "raw_orders").tags

    def test_leaves_what_is_between_nodes(self, loaded: dg.Definitions) -> None:
        (dep,) = self.spec(loaded, "customers").deps
        assert dep.asset_key == dg.AssetKey(["lake", "shop", "raw_orders"])
        (source,) = self.spec(loaded, "raw_orders").deps
        assert source.asset_key == dg.AssetKey(["sales", "landing", "orders"])

    def test_names_jobs_and_resources_by_prefix_and_tries_again(self, loaded: dg.Definitions) -> None:
        job = loaded.resolve_job_def("sales_shop")
        assert {"sales_spark", "sales_delta_io_manager"} <= set(loaded.resources or {})
        (policy,) = {node.definition.retry_policy for node in job.graph.nodes}
        assert policy == dg.RetryPolicy(max_retries=2, delay=60)

    def test_has_each_attribute_of_the_component(self) -> None:
        (block,) = (one.text for one in blocks("dagster.md") if "PipelinesComponent\nattributes" in one.text)
        assert {*yaml_files.safe_load(block)["attributes"]} == {*PipelinesComponent.model_fields}


def test_the_sensor_and_the_job_run_nodes_by_their_own_keys(project: Project, instance: dg.DagsterInstance) -> None:
    definitions = build_definitions(project, asset_spec=_renamed)
    repository = definitions.get_repository_def()
    with dg.build_sensor_context(instance=instance, repository_def=repository) as context:
        (request,) = definitions.resolve_sensor_def("shop_new_data").evaluate_tick(context).run_requests or ()
    assert dg.AssetKey(["gold.sales"]) in (request.asset_selection or ())
    assert dg.AssetKey(["shop", "raw_sales"]) in (request.asset_selection or ())
    job = definitions.resolve_job_def("shop")
    assert dg.AssetKey(["gold.sales"]) in job.asset_layer.executable_asset_keys
    assert len(job.asset_layer.executable_asset_keys) == len(NODES)


def _renamed(key: NodeKey, spec: dg.AssetSpec) -> dg.AssetSpec:
    return spec.replace_attributes(key=dg.AssetKey("gold.sales")) if key.node == "sales" else spec


def test_a_run_of_renamed_nodes_is_as_any_other(project: Project, instance: dg.DagsterInstance) -> None:
    job = build_definitions(project, asset_spec=_renamed).resolve_job_def("shop")
    run = job.execute_in_process(instance=instance)
    assert run.success
    made = {event.asset_key for event in run.get_asset_materialization_events()}
    assert dg.AssetKey(["gold.sales"]) in made
    assert {row.node_name for row in project.open_state().list_runs()} == set(NODES)
    assert all(row.status.succeeded for row in project.open_state().list_runs())


def test_a_class_of_a_users_own_shows_nodes_as_it_likes(tmp_path: Path) -> None:
    folder = _dg_project(tmp_path, "type: mine.sales.Sales")
    make_project(folder, "2024-01-01")
    (example,) = (one.text for one in blocks("dagster.md") if "class Sales(PipelinesComponent)" in one.text)
    module = tmp_path / "src" / "mine" / "sales.py"
    module.write_text(example.replace("finance", "bronze").replace("team:bronze", "team:finance"), encoding="utf-8")
    loaded = _loaded(tmp_path)
    owners = {spec.key.to_user_string(): list(spec.owners) for spec in loaded.resolve_all_asset_specs()}
    assert owners["shop/raw_sales"] == ["team:finance"]
    assert owners["shop/sales"] == ["data@shop.example"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda spec: spec.replace_attributes(deps=[]), "`deps` of shop.raw_sales"),
        (lambda spec: spec.replace_attributes(code_version="9"), "`code_version` of shop.raw_sales"),
        (lambda spec: spec.replace_attributes(key=dg.AssetKey("all")), "are both shown as `all`"),
    ],
)
def test_what_the_project_file_decides_is_not_changed_where_nodes_are_shown(
    change: Callable[[dg.AssetSpec], dg.AssetSpec], message: str, project: Project
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        build_definitions(project, asset_spec=lambda _, spec: change(spec))


def _dg(*arguments: str, cwd: Path) -> str:
    """Run Dagster's ``dg``, with the entry points that this package declares, installed or not."""
    metadata = cwd / "site" / "declared-1.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: declared\nVersion: 1\n", encoding="utf-8")
    ours = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    lines = [
        line for group, found in ours.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in found.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = os.pathsep.join(map(str, (REPOSITORY, cwd / "src", cwd / "site")))
    inherited = {name: value for name, value in os.environ.items() if name not in ("ODI_PROJECT", "DAGSTER_HOME")}
    inherited |= {"PYTHONPATH": path}
    done = subprocess.run(
        [str(BIN / "dg"), *arguments], cwd=cwd, env=inherited, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
