"""A project among other definitions: of other projects, with resources and executors of their own, as a component."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import dagster as dg
import pytest

import odi_assets
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets_tests.orchestration.small_project import NODES, make_project

BIN = Path(sys.executable).parent
REPOSITORY = Path(__file__).resolve().parents[2]


def test_two_projects_with_the_same_names_are_merged_under_different_prefixes(
    project: Project, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    other = make_project(tmp_path / "other", "2024-01-01")
    merged = dg.Definitions.merge(
        build_definitions(project), build_definitions(other, key_prefix="east", resource_prefix="east_")
    )
    keys = {spec.key for spec in merged.resolve_all_asset_specs()}
    assert {dg.AssetKey(["shop", node]) for node in NODES} < keys
    assert {dg.AssetKey(["east", "shop", node]) for node in NODES} < keys
    assert dg.AssetKey(["east", "landing", "sales"]) in keys
    names = {job.name for job in merged.get_repository_def().get_all_jobs()}
    assert {"shop", "east_shop"} <= names
    sensor = merged.resolve_sensor_def("east_shop_new_data")
    with dg.build_sensor_context(instance=instance, repository_def=merged.get_repository_def()) as context:
        (request,) = sensor.evaluate_tick(context).run_requests or ()
    assert {key.path[0] for key in request.asset_selection or ()} == {"east"}
    dg.Definitions.validate_loadable(merged)


def test_the_example_of_the_documentation_is_a_module_that_dagster_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("sales", "stock"):
        make_project(tmp_path / folder, "2024-01-01")
    text = (REPOSITORY / "docs" / "dagster.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n((?:(?!```).)*?Definitions\.merge.*?)```", text, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    module: dict[str, object] = {}
    exec(example, module)
    found = [name for name, value in module.items() if isinstance(value, dg.Definitions)]
    assert found == ["defs"], "Dagster refuses a module with several"
    defs = module["defs"]
    assert isinstance(defs, dg.Definitions)
    dg.Definitions.validate_loadable(defs)
    assert defs.executor is dg.in_process_executor
    assert {job.name for job in defs.get_repository_def().get_all_jobs()} >= {"shop", "stock_shop"}


def test_definitions_with_a_spark_resource_and_an_executor_are_merged(project: Project) -> None:
    @dg.asset
    def mine() -> int:
        return 1

    others = dg.Definitions(
        assets=[mine],
        resources={"spark": "theirs", "io_manager": dg.mem_io_manager},
        executor=dg.multiprocess_executor,
        loggers={"console": dg.colored_console_logger},
    )
    merged = dg.Definitions.merge(others, build_definitions(project, resource_prefix="odi_"))
    assert {"spark", "odi_spark", "odi_delta_io_manager"} <= set(merged.resources or {})
    assert merged.executor is dg.multiprocess_executor
    dg.Definitions.validate_loadable(merged)


def test_the_public_face_is_what_it_names_and_importing_it_loads_nothing() -> None:
    for name in odi_assets.__all__:
        assert getattr(odi_assets, name).__name__
    with pytest.raises(AttributeError, match="no attribute `nosuch`"):
        _ = odi_assets.nosuch  # type: ignore[attr-defined]
    code = (
        "import odi_assets, sys; print([m for m in ('dagster', 'pyspark', 'pandas', 'deltalake') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


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
    (folder / "defs.yaml").write_text(textwrap.dedent(yaml), encoding="utf-8")
    return folder


def test_a_component_loads_the_project_file_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
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
    definitions = dg.load_from_defs_folder(path_within_project=tmp_path)
    specs = {spec.key: spec for spec in definitions.resolve_all_asset_specs()}
    uri = specs[dg.AssetKey(["east", "shop", "sales"])].metadata["dagster/uri"]
    assert uri == str(folder / "elsewhere" / "sales")


def test_dagsters_own_tools_list_scaffold_and_check_the_component(tmp_path: Path) -> None:
    _dg_project(tmp_path / "there", "type: odi_assets.PipelinesComponent")
    root = tmp_path / "there"
    shutil.rmtree(root / "src" / "mine" / "defs" / "sales")
    found = json.loads(_dg("list", "components", "--json", cwd=root))
    assert "odi_assets.PipelinesComponent" in {one["key"] for one in found["items"]}
    _dg("scaffold", "defs", "odi_assets.PipelinesComponent", "orders", cwd=root)
    folder = root / "src" / "mine" / "defs" / "orders"
    assert "odi_assets.PipelinesComponent" in (folder / "defs.yaml").read_text(encoding="utf-8")
    assert [str(key) for key in Project.load(folder / "odibi.yaml").graph.nodes] == [
        "orders.raw_orders",
        "orders.customers",
    ]
    _dg("check", "yaml", cwd=root)
    (folder / "defs.yaml").write_text(
        "type: odi_assets.PipelinesComponent\nattributes: {projct: x}\n", encoding="utf-8"
    )
    with pytest.raises(AssertionError, match="projct"):
        _dg("check", "yaml", cwd=root)


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
