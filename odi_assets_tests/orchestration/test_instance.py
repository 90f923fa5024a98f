from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from odi_assets.errors import ConfigError
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
    text = (REPOSITORY / "dagster.yaml").read_text(encoding="utf-8")
    (folder / "dagster.yaml").write_text(text, encoding="utf-8")
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
    assert sorted(path.name for path in root.iterdir()) == [".dagster", "dagster.yaml"]


def test_dagster_home_goes_before_the_project_folder(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, home = _with_our_dagster_yaml(tmp_path / "root"), _with_our_dagster_yaml(tmp_path / "home")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with open_instance(root) as instance:
        assert instance.get_runs_count() == 0
    assert (home / ".dagster").is_dir()
    assert not (root / ".dagster").exists()
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
    """But for the folders: what Dagster keeps is beside its dagster.yaml there."""
    ours = yaml.safe_load((REPOSITORY / "dagster.yaml").read_text(encoding="utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DAGSTER_HOME", raising=False)
        made = yaml.safe_load((lasting_home(tmp_path) / "dagster.yaml").read_text(encoding="utf-8"))
    assert made == {
        name: given for name, given in ours.items() if name not in ("storage", "local_artifact_storage", "compute_logs")
    }
