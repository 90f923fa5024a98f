"""The files of ``deploy/`` name programs, files, variables, options and versions that there are."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._core.instance import InstanceRef

from odi_assets_tests.pages import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
OF_DEBIAN = {"tini", "pg_isready"}


def _yaml(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def _variables(text: str) -> set[str]:
    """The variables that a YAML file of Dagster takes its values from."""
    return set(re.findall(r"\{env: (\w+)\}", text))


def _needed() -> set[str]:
    texts = [(DEPLOY / name).read_text(encoding="utf-8") for name in ("dagster.yaml", "workspace.yaml")]
    return set().union(*map(_variables, texts))


def _dockerfile(instruction: str) -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith(instruction)]


def _versions() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    return dict(line.split("==") for line in lines)


def test_each_command_of_compose_is_a_program_of_the_image() -> None:
    services = _yaml("compose.yaml")["services"]
    commands = {name: one["command"] for name, one in services.items() if "command" in one}
    assert sorted(commands) == ["code", "daemon", "migrate", "spark", "webserver"]
    for command in commands.values():
        assert shutil.which(command[0], path=str(Path(sys.executable).parent)), command
    assert yaml.safe_load(_dockerfile("CMD")[0]) == commands["code"]


def test_variables_of_dagsters_files_are_set_in_compose_and_for_units() -> None:
    compose = _yaml("compose.yaml")
    for service in ("migrate", "code", "daemon", "webserver"):
        assert _needed() <= set(compose["services"][service]["environment"]), service
    lines = (DEPLOY / "systemd" / "odi.env").read_text(encoding="utf-8").splitlines()
    assert _needed() <= {line.partition("=")[0] for line in lines if not line.startswith("#")}


def test_services_that_compose_waits_for_are_there_and_say_when_they_are_ready() -> None:
    services = _yaml("compose.yaml")["services"]
    for name, service in services.items():
        for above, condition in service.get("depends_on", {}).items():
            assert above in services, name
            if condition["condition"] == "service_healthy":
                assert services[above]["healthcheck"]["test"][0] == "CMD"
    named = {one.partition(":")[0] for service in services.values() for one in service.get("volumes", [])}
    assert {one for one in named if not one.startswith("$")} == set(_yaml("compose.yaml")["volumes"])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_each_unit_starts_what_the_service_of_its_name_does(unit: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    (program, *arguments) = re.findall(r"^ExecStart=(.*)$", text, flags=re.MULTILINE)[0].split()
    service = unit.stem.removeprefix("odi-")
    command = _yaml("compose.yaml")["services"][service]["command"]
    assert Path(program).name == command[0]
    # The same options, on addresses of their own.
    options = [one for one in arguments if one.startswith("-")]
    assert options == [one for one in command[1:] if one.startswith("-")]
    for other in re.findall(r"odi-\w+\.service", text):
        assert (DEPLOY / "systemd" / other).is_file()


def test_the_image_is_made_of_files_and_extras_that_there_are() -> None:
    for copied in _dockerfile("COPY"):
        *sources, _ = (one for one in copied.split() if not one.startswith("--"))
        for source in sources:
            assert (ROOT / source).exists(), source
    (extras,) = (one.partition("=")[2].strip('"').split(",") for one in _dockerfile("ARG") if one.startswith("EXTRAS"))
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras) <= set(known)
    assert _dockerfile("ENTRYPOINT")[0].split('"')[1] in OF_DEBIAN


def test_helm_has_the_limits_of_the_production_dagster_yaml_and_the_versions_of_constraints() -> None:
    values, settings, versions = _yaml("helm/values.yaml"), _yaml("dagster.yaml"), _versions()
    assert values["additionalInstanceConfig"]["concurrency"]["pools"] == settings["concurrency"]["pools"]
    queue = values["dagsterDaemon"]["runCoordinator"]["config"]["queuedRunCoordinator"]
    assert queue["maxConcurrentRuns"] == settings["concurrency"]["runs"]["max_concurrent_runs"]
    text = (DEPLOY / "helm" / "values.yaml").read_text(encoding="utf-8")
    assert re.findall(r"--version (\S+)", text) == [versions["dagster"]]
    assert re.findall(r"dagster-k8s==([0-9.]+)", text) == [versions["dagster-postgres"]]


def test_the_production_dagster_yaml_has_the_settings_of_odi_dev_but_for_storage_and_the_number_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in _needed():
        monkeypatch.setenv(variable, "5432")
    (tmp_path / "dagster.yaml").write_text((DEPLOY / "dagster.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert str(InstanceRef.from_dir(str(tmp_path)).local_artifact_storage_data.config_dict["base_dir"]) == str(tmp_path)
    ours, made = _yaml("dagster.yaml"), yaml.safe_load((ROOT / ".dagster" / "dagster.yaml").read_text(encoding="utf-8"))
    del ours["storage"]
    assert ours["concurrency"].pop("runs") != made["concurrency"].pop("runs")
    assert ours == made
