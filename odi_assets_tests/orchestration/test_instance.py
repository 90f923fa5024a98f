from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from odi_assets.errors import ConfigError
from odi_assets.orchestration.deployment.storage import open_storage
from odi_assets.orchestration.runs.instance import lasting_home, open_instance

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another folder than the project's, to be started in."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def _with_our_dagster_yaml(folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(REPOSITORY / ".dagster" / "dagster.yaml", folder)
    return folder


def test_without_a_dagster_yaml_runs_are_recorded_in_memory(tmp_path: Path, elsewhere: Path) -> None:
    with open_instance(tmp_path) as instance:
        assert instance.is_ephemeral
    assert not list(elsewhere.iterdir())


def test_the_project_folders_dagster_yaml_is_used_from_anywhere(tmp_path: Path, elsewhere: Path) -> None:
    root = _with_our_dagster_yaml(tmp_path / "root")
    with open_instance(root) as instance:
        assert not instance.is_ephemeral
        assert instance.get_runs_count() == 0
    assert not list(elsewhere.iterdir())
    assert {"dagster.yaml", "history", "schedules"} <= {path.name for path in root.iterdir()}


def test_dagster_home_goes_before_the_project_folder(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, home = _with_our_dagster_yaml(tmp_path / "root"), _with_our_dagster_yaml(tmp_path / "home")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with open_instance(root) as instance:
        assert instance.get_runs_count() == 0
    assert (home / "history").is_dir()
    assert [path.name for path in root.iterdir()] == ["dagster.yaml"]
    assert not list(elsewhere.iterdir())


def test_a_dagster_home_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="no such folder"), open_instance(tmp_path):
        pass


def test_a_mistake_in_dagster_yaml_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    (tmp_path / "dagster.yaml").write_text("telemetri:\n  enabled: false\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"dagster\.yaml"), open_instance(tmp_path):
        pass


@pytest.mark.slow
def test_a_home_that_was_made_is_in_the_projects_folder_and_is_used_from_then_on(
    tmp_path: Path, elsewhere: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    assert lasting_home(root) == root / ".dagster"
    (root / ".dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    assert lasting_home(root) == root / ".dagster"
    with open_instance(root) as instance:
        assert not instance.is_ephemeral
        assert instance.root_directory == str(root / ".dagster")
    assert (root / ".dagster" / "dagster.yaml").read_text(encoding="utf-8") == "telemetry: {enabled: false}\n"
    assert [path.name for path in root.iterdir()] == [".dagster"]
    assert not list(elsewhere.iterdir())


def test_the_home_of_a_project_is_its_folder_if_that_holds_a_dagster_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    root = _with_our_dagster_yaml(tmp_path / "root")
    assert lasting_home(root) == root
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    assert lasting_home(root) == tmp_path


def test_a_home_that_is_made_has_the_settings_of_this_repositorys(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DAGSTER_HOME", raising=False)
        made = (lasting_home(tmp_path) / "dagster.yaml").read_text(encoding="utf-8")
        assert lasting_home(REPOSITORY) == REPOSITORY / ".dagster"
    assert made == (REPOSITORY / ".dagster" / "dagster.yaml").read_text(encoding="utf-8")


RELATIVE = """
storage:
  sqlite: {base_dir: runs}
"""


def test_a_relative_folder_is_refused_because_each_process_of_dagster_would_take_it_for_another_one(
    tmp_path: Path, elsewhere: Path
) -> None:
    file = tmp_path / "dagster.yaml"
    file.write_text(RELATIVE, encoding="utf-8")
    with pytest.raises(ConfigError, match="is relative"):
        lasting_home(tmp_path)
    with pytest.raises(ConfigError) as refused, open_instance(tmp_path):
        pass
    assert f"{file}:3: `base_dir: runs` is relative" in refused.value.message
    assert refused.value.fix is not None
    assert f"write `base_dir: {tmp_path / 'runs'}`" in refused.value.fix
    file.write_text(RELATIVE.replace("runs", str(tmp_path / "runs")), encoding="utf-8")
    with open_instance(tmp_path) as instance:
        assert instance.get_runs_count() == 0
    assert (tmp_path / "runs" / "history").is_dir()
    assert not list(elsewhere.iterdir())


@pytest.mark.usefixtures("elsewhere")
def test_a_variable_of_dagster_yaml_that_is_not_set_is_named(tmp_path: Path) -> None:
    text = "storage: {sqlite: {base_dir: {env: ODI_TEST_NOWHERE_SET}}}\n"
    (tmp_path / "dagster.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="takes ODI_TEST_NOWHERE_SET from the environment") as refused:
        open_instance(tmp_path).__enter__()
    assert "Stack" not in str(refused.value)
    instance, (look,) = open_storage(tmp_path)
    assert instance is None
    assert "ODI_TEST_NOWHERE_SET" in look.found
    assert look.remedy.startswith("export ODI_TEST_NOWHERE_SET=")


@pytest.mark.usefixtures("elsewhere")
def test_a_dagster_yaml_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("storage: {sqlite\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"dagster\.yaml: .*"), open_instance(tmp_path):
        pass


@pytest.mark.usefixtures("elsewhere")
def test_a_package_of_the_storage_that_is_not_installed_is_named_with_the_command(tmp_path: Path) -> None:
    text = "storage: {custom: {module: no_such_package.storage, class: Runs, config: {}}}\n"
    (tmp_path / "dagster.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="needs the package no-such-package") as refused, open_instance(tmp_path):
        pass
    assert str(refused.value.fix).endswith("pip install no-such-package")


_OPENED = """
import sys
from pathlib import Path
import dagster
from odi_assets.orchestration.runs.instance import open_instance

print("ready", flush=True)
sys.stdin.readline()
with open_instance(Path(sys.argv[1])) as instance:
    instance.get_runs_count()
    instance.get_daemon_statuses()
"""


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.slow
def test_processes_that_come_to_a_new_home_at_once_find_one_that_is_made(tmp_path: Path) -> None:
    """The later one of two failed: `Online migration expected to match one row`."""
    for turn in range(2):
        home = _with_our_dagster_yaml(tmp_path / str(turn))
        command = [sys.executable, "-c", _OPENED, str(home)]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for _ in range(5)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            _, said = process.communicate(timeout=120)
            assert process.returncode == 0, said
