"""Examples of the documents are right: project files load and run, tests and files they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.nodes.materialize import commit, compute
from odi_assets.nodes.plan import plan_node
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
