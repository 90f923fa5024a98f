"""``environments`` and ``variables`` of the project file."""

from __future__ import annotations

from pathlib import Path

import pytest

from odi_assets.config.diagnostics.mistakes import ConfigErrors
from odi_assets.config.loader import load_project_file
from odi_assets.config.models import S3Connection
from odi_assets.nodes.project import Project

TEXT = """\
project: demo
connections:
  landing: {type: local, base_path: "${ROOM}/in"}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: sys, environment: dev}
variables: {ROOM: /base, MODE: append}
pipelines:
- pipeline: p
  nodes:
  - name: raw
    read: {connection: landing, format: csv, path: in/*.csv}
    write: {connection: lake, path: raw, mode: "${MODE}"}
environments:
  test:
    connections: {lake: {base_path: test_lake}}
  prod:
    connections:
      lake: {type: s3, bucket: data, region: eu-1}
    system: {path: prod_sys}
    variables: {ROOM: /prod}
    spark: {conf: {a.b: "1"}}
    environment: production
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The project file."""
    path = tmp_path / "odibi.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def _base(loaded: Project, name: str) -> str:
    return str(getattr(loaded.config.connections[name], "base_path", ""))


def test_without_one_the_file_counts_as_it_is(file: Path) -> None:
    loaded = Project.load(file)
    assert (_base(loaded, "lake"), _base(loaded, "landing"), loaded.environment) == ("lake", "/base/in", "dev")
    assert loaded.chosen is None


def test_keys_of_a_connection_are_changed_and_state_is_that_of_the_environment(file: Path) -> None:
    loaded = Project.load(file, "test")
    assert (_base(loaded, "lake"), _base(loaded, "landing")) == ("test_lake", "/base/in")
    assert (loaded.environment, loaded.chosen) == ("test", "test")


def test_a_connection_with_a_type_is_replaced_and_so_are_system_variables_and_spark(file: Path) -> None:
    loaded = Project.load(file, "prod")
    lake = loaded.config.connections["lake"]
    assert isinstance(lake, S3Connection)
    assert loaded.config.system is not None
    assert (loaded.config.system.path, loaded.config.system.connection) == ("prod_sys", "lake")
    assert _base(loaded, "landing") == "/prod/in"
    assert loaded.config.spark.conf == {"a.b": "1"}
    assert loaded.environment == "production"


def test_odi_env_chooses_one_and_an_argument_goes_before_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODI_ENV", "test")
    assert Project.load(file).environment == "test"
    assert Project.load(file, "prod").environment == "production"


def test_what_the_process_sets_goes_before_the_variables_of_the_file(file: Path) -> None:
    loaded = load_project_file(file, env={"ROOM": "/mine"}, environment="prod")
    assert getattr(loaded.config.connections["landing"], "base_path", None) == "/mine/in"


@pytest.mark.parametrize(("name", "hint"), [("prd", "did you mean `prod`?"), ("xxxxxxxx", "there are: test, prod")])
def test_an_unknown_one_is_named_with_a_suggestion(file: Path, name: str, hint: str) -> None:
    with pytest.raises(ConfigErrors, match="there is no environment") as caught:
        Project.load(file, name)
    assert hint in str(caught.value)


def test_a_mistake_in_one_is_reported_where_it_stands(file: Path) -> None:
    file.write_text(TEXT.replace("base_path: test_lake", "base_pth: test_lake"), encoding="utf-8")
    load_project_file(file)
    with pytest.raises(ConfigErrors) as caught:
        load_project_file(file, environment="test")
    (problem,) = caught.value.problems
    line = TEXT.splitlines().index("    connections: {lake: {base_path: test_lake}}") + 1
    assert (problem.line, "base_pth" in str(problem)) == (line, True)


def test_what_an_environment_cannot_change_is_refused(file: Path) -> None:
    file.write_text(TEXT.replace("    system: {path: prod_sys}", "    pipelines: []"), encoding="utf-8")
    with pytest.raises(ConfigErrors, match="pipelines"):
        load_project_file(file)


def test_the_environment_that_a_file_without_environments_names_may_be_named_again(tmp_path: Path) -> None:
    path = tmp_path / "odibi.yaml"
    plain = TEXT.partition("environments:")[0].replace("project: demo", "project: demo\nenvironment: dev")
    path.write_text(plain, encoding="utf-8")
    assert Project.load(path, "dev").environment == "dev"
    with pytest.raises(ConfigErrors, match="has no `environments`"):
        Project.load(path, "prod")
