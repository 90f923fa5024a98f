"""The backend that a project file asks for, in each documented form."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odi_assets.config.models import ProjectConfig
from odi_assets.errors import ConfigError
from odi_assets.state import LocalJSONStateBackend, create_state_backend
from odi_assets.state.delta.backend import CatalogStateBackend

PIPELINES = [{"pipeline": "p", "nodes": [{"name": "n", "write": {"connection": "lake", "path": "n"}}]}]
AZURE = {
    "type": "azure_blob",
    "account_name": "account",
    "container": "box",
    "auth": {"mode": "account_key", "account_key": "c2VjcmV0"},
}


def config(system: dict[str, Any] | None = None, **fields: Any) -> ProjectConfig:
    connections = {"lake": {"type": "local", "base_path": "./lake"}, "cloud": AZURE}
    return ProjectConfig.model_validate(
        {"project": "x", "connections": connections, "pipelines": PIPELINES, "system": system, **fields}
    )


def test_without_system_the_state_is_the_projects_json_file(tmp_path: Path) -> None:
    backend = create_state_backend(config(), tmp_path)
    assert isinstance(backend, LocalJSONStateBackend)
    assert backend.path == tmp_path / ".odibi" / "state.json"


def test_a_path_holds_both_system_tables(tmp_path: Path) -> None:
    backend = create_state_backend(config({"connection": "lake", "path": "_system"}), str(tmp_path))
    assert isinstance(backend, CatalogStateBackend)
    assert backend.meta_state_path == str(tmp_path / "lake" / "_system" / "meta_state")
    assert backend.meta_runs_path == str(tmp_path / "lake" / "_system" / "meta_runs")
    backend.set_hwm("k", 1)
    assert (tmp_path / "lake" / "_system" / "meta_state" / "_delta_log").is_dir()


def test_each_system_table_may_have_a_path_of_its_own(tmp_path: Path) -> None:
    system = {"connection": "lake", "meta_runs_path": "a/runs", "meta_state_path": "b/state"}
    backend = create_state_backend(config(system), tmp_path)
    assert isinstance(backend, CatalogStateBackend)
    assert backend.meta_runs_path == str(tmp_path / "lake" / "a" / "runs")
    assert backend.meta_state_path == str(tmp_path / "lake" / "b" / "state")


@pytest.mark.parametrize("given", ["meta_runs", "meta_state"])
def test_the_system_table_without_a_path_of_its_own_has_the_default(tmp_path: Path, given: str) -> None:
    backend = create_state_backend(config({"connection": "lake", f"{given}_path": "own"}), tmp_path)
    assert isinstance(backend, CatalogStateBackend)
    default = tmp_path / "lake" / "_odibi_system"
    paths = {"meta_runs": backend.meta_runs_path, "meta_state": backend.meta_state_path}
    assert paths.pop(given) == str(tmp_path / "lake" / "own")
    assert list(paths.values()) == [str(default / next(iter(paths)))]
    backend.set_hwm("k", 1)
    backend.save_pipeline_run("p", {"nodes": {"n": {"success": True}}})
    assert create_state_backend(config({"connection": "lake", f"{given}_path": "own"}), tmp_path).get_hwm("k") == 1


@pytest.mark.parametrize("system", [None, {"connection": "lake"}])
def test_the_arguments_are_those_of_odibi(tmp_path: Path, system: dict[str, Any] | None) -> None:
    assert [*inspect.signature(create_state_backend).parameters] == ["config", "project_root", "spark_session"]
    session = object()
    backend = create_state_backend(config=config(system), project_root=str(tmp_path), spark_session=session)
    assert isinstance(backend, CatalogStateBackend if system else LocalJSONStateBackend)
    if isinstance(backend, CatalogStateBackend):
        assert backend.spark is session
        assert create_state_backend(config(system), str(tmp_path), session).in_environment("dev").spark is session  # type: ignore[attr-defined]


def test_without_pipelines_state_is_all_there_is(tmp_path: Path) -> None:
    alone = {"project": "x", "connections": {"lake": {"type": "local"}}, "system": {"connection": "lake"}}
    backend = create_state_backend(ProjectConfig.model_validate(alone), tmp_path)
    assert backend.set_hwm("free", "a").value == "a"


def test_a_cloud_connection_gives_uris_and_keeps_its_secret(tmp_path: Path) -> None:
    backend = create_state_backend(config({"connection": "cloud", "path": "_system"}), tmp_path)
    assert isinstance(backend, CatalogStateBackend)
    assert backend.meta_state_path == "abfss://box@account.dfs.core.windows.net/_system/meta_state"
    assert "c2VjcmV0" not in repr(backend)


@pytest.mark.parametrize("system", [None, {"connection": "lake"}])
def test_the_environment_is_the_projects(tmp_path: Path, system: dict[str, Any] | None) -> None:
    assert create_state_backend(config(system), tmp_path).environment is None
    assert create_state_backend(config(system, environment="dev"), tmp_path).environment == "dev"


def test_the_environment_of_system_comes_first(tmp_path: Path) -> None:
    project = config({"connection": "lake", "environment": "prod"}, environment="dev")
    assert create_state_backend(project, tmp_path).environment == "prod"


def test_an_unknown_connection_is_told_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`nowhere`") as told:
        create_state_backend(config({"connection": "nowhere"}), tmp_path)
    assert "cloud, lake" in str(told.value)


def test_the_json_backend_loads_no_deltalake() -> None:
    script = (
        "import sys, odi_assets.state\n"
        "odi_assets.state.StateManager('nowhere').get_hwm('k')\n"
        "print({'pyspark', 'dagster', 'pandas', 'numpy', 'pyarrow', 'deltalake'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
