"""A project among other definitions: of other projects, with resources and executors of their own, as a component."""

from __future__ import annotations

import re
import subprocess
import sys
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
