"""Examples of the documents are right: project files load and run, tests and files they name exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.config.models import AutomationConfig
from odi_assets.nodes.execution.materialize import commit, compute
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import RunInfo

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LANDED = {
    "README.md": ("id,amount\n1,2.5\n2,3.5\n", {"raw_orders": 2}),
    "project-file.md": (
        "id,day,amount\n1,2024-01-01,2.50\n1,2024-01-01,2.75\n2,2024-01-02,3.00\n",
        {"raw_orders": 3, "orders": 2, "by_day": 2},
    ),
}


def example(document: Path) -> str:
    found = re.findall(r"```yaml\n(.*?)```", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(found) == 1
    return str(found[0])


@pytest.mark.parametrize("name", LANDED)
def test_the_project_file_of_a_document_runs(
    name: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    document = next(path for path in DOCUMENTS if path.name == name)
    (tmp_path / "odibi.yaml").write_text(example(document), encoding="utf-8")
    csv, expected = LANDED[name]
    (tmp_path / "landing" / "orders").mkdir(parents=True)
    (tmp_path / "landing" / "orders" / "a.csv").write_text(csv, encoding="utf-8")
    project = Project.load(tmp_path / "odibi.yaml")
    state = project.open_state()
    written = {}
    for key in project.pipeline_nodes():
        result = commit(compute(plan_node(project, state, key), spark), state, RunInfo("documentation"))
        written[key.node] = result.rows_written
    assert written == expected


def test_the_session_of_a_document_goes_as_it_is_printed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its project file, Python and commands, in order; ``…`` stands for anything in a line, or for whole lines."""
    for name in ("ODI_PROJECT", "ODI_DEBUG", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "state.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for language, block in re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL):
        if language == "yaml":
            (tmp_path / "odibi.yaml").write_text(block, encoding="utf-8")
        elif language == "python":
            exec(compile(block, "docs/state.md", "exec"), names)
        else:
            assert language == "console"
            for command, printed in re.findall(r"^\$ odi (.*)\n((?:[^$].*\n|\n)*)", block, flags=re.MULTILINE):
                capfd.readouterr()
                assert main(shlex.split(command)) == 0, command
                shown = capfd.readouterr()
                lines = [line.rstrip() for line in (shown.out + shown.err).splitlines()]
                assert re.fullmatch(pattern(printed), "\n".join(lines)), f"$ odi {command}\n" + "\n".join(lines)


def test_the_examples_of_the_document_on_dagster_are_right(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "dagster.md").read_text(encoding="utf-8")
    base = example(ROOT / "README.md")
    for language, block in re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL):
        if language == "python":
            compile(block, "docs/dagster.md", "exec")
        elif "PipelinesComponent" in block:
            from odi_assets.orchestration.component import PipelinesComponent

            attributes = yaml.safe_load(block)["attributes"]
            assert PipelinesComponent(**attributes).key_prefix == "sales"
        elif language == "yaml":
            (tmp_path / "odibi.yaml").write_text(f"{base}{block}", encoding="utf-8")
            chosen = "prod" if "environments" in block else None
            loaded = Project.load(tmp_path / "odibi.yaml", chosen)
            assert loaded.environment == chosen
            if chosen is None:
                assert loaded.config.automation == AutomationConfig()


def pattern(printed: str) -> str:
    """What output has to look like, where a document prints it so."""
    lines = ["(?s:.*)" if line == "…" else re.escape(line).replace("…", ".*") for line in printed.rstrip().split("\n")]
    return "\n".join(lines)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_links_to_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_every_test_that_a_document_names_exists() -> None:
    for document in DOCUMENTS:
        for file, name in re.findall(r"`(odi_assets_tests/[\w/]+\.py)::(\w+)`", document.read_text(encoding="utf-8")):
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), name


def test_every_target_that_the_readme_names_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make (\w+)`|\$ make (\w+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert re.search(rf"^{''.join(target)}:", makefile, flags=re.MULTILINE), target
