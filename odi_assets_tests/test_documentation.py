"""Examples of the documents are right: project files load and run, tests and files they name exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.config.models import AutomationConfig
from odi_assets.config.models.operation.alerts import EVENTS
from odi_assets.nodes.project import Project
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets_tests import rooms
from odi_assets_tests.pages import DOCUMENTS, PAGES, ROOT, blocks, is_as_printed, project_of

LANDED = {
    "README.md": ("id,amount\n1,2.5\n2,3.5\n", {"raw_orders": 2}),
    "project-file.md": (
        "id,day,amount\n1,2024-01-01,2.50\n1,2024-01-01,2.75\n2,2024-01-02,3.00\n",
        {"raw_orders": 3, "orders": 2, "by_day": 2},
    ),
}


@pytest.mark.parametrize("name", LANDED)
def test_the_project_file_of_a_document_runs(
    name: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    (tmp_path / "odibi.yaml").write_text(project_of(name), encoding="utf-8")
    csv, expected = LANDED[name]
    (tmp_path / "landing" / "orders").mkdir(parents=True)
    (tmp_path / "landing" / "orders" / "a.csv").write_text(csv, encoding="utf-8")
    project = Project.load(tmp_path / "odibi.yaml")
    history = RunHistory(project, project.open_state(), "documentation")
    results = [run_node(NodeRun(history, key, lambda: spark)) for key in project.pipeline_nodes()]
    assert {result.key.node: result.rows_written for result in results} == expected


def test_the_project_file_of_the_page_on_checks_sends_bad_rows_to_the_quarantine(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "odibi.yaml").write_text(project_of("checks.md"), encoding="utf-8")
    for name, text in {
        "customers": "id,name\n1,ann\n",
        "orders": "id,customer,state,amount,fee,at\n1,1,new,5,1,2024-01-01T00:00:00Z\n"
        "2,9,lost,-1,,2024-01-01T00:00:00Z\n",
    }.items():
        (tmp_path / "landing" / name).mkdir(parents=True)
        (tmp_path / "landing" / name / "a.csv").write_text(text, encoding="utf-8")
    project = Project.load(tmp_path / "odibi.yaml")
    history = RunHistory(project, project.open_state(), "documentation")
    _, orders = [run_node(NodeRun(history, key, lambda: spark)) for key in project.pipeline_nodes()]
    assert (orders.rows_written, orders.metrics["rows_quarantined"]) == (1, 1)
    failed = {one["check"] for one in orders.metrics["checks"] if not one["passed"]}
    assert failed == {"accepted_values_state", "range_amount", "references_customer"}


def test_the_session_of_a_document_goes_as_it_is_printed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its project file, Python and commands, in order; ``…`` stands for anything in a line, or for whole lines."""
    for name in ("ODI_PROJECT", "ODI_DEBUG", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("state.md"):
        if block.language == "yaml":
            (tmp_path / "odibi.yaml").write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, "docs/state.md", "exec"), names)
        else:
            for command, printed in block.commands:
                capfd.readouterr()
                assert main(shlex.split(command.removeprefix("odi "))) == 0, command
                shown = capfd.readouterr()
                assert is_as_printed(shown.out + shown.err, printed), f"$ {command}\n{shown.out}{shown.err}"


def test_the_examples_of_the_document_on_dagster_are_right(tmp_path: Path) -> None:
    base, pipeline = project_of("README.md"), ""
    for block in blocks("dagster.md"):
        if block.language == "python":
            compile(block.text, "docs/dagster.md", "exec")
        elif block.language == "yaml" and "PipelinesComponent" not in block.text:
            # Jobs are of the pipeline that the block before them shows.
            pipeline = f"{pipeline}{block.text}" if block.text.startswith("jobs:") else block.text
            (tmp_path / "odibi.yaml").write_text(f"{base}{pipeline}", encoding="utf-8")
            chosen = "prod" if "environments" in block.text else None
            loaded = Project.load(tmp_path / "odibi.yaml", chosen)
            assert loaded.environment == chosen
            if chosen is None:
                assert loaded.config.automation == AutomationConfig()


def test_the_alerts_of_the_document_on_monitoring_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (one for one in blocks("monitoring.md") if one.text.startswith("alerts:"))
    monkeypatch.setenv("SLACK_WEBHOOK", "https://hooks.slack.example/services/x")
    monkeypatch.setenv("SMTP_PASSWORD", "x")
    (tmp_path / "odibi.yaml").write_text(f"{project_of('README.md')}{block.text}", encoding="utf-8")
    loaded = Project.load(tmp_path / "odibi.yaml")
    assert [one.type for one in loaded.config.alerts] == ["slack", "email", "log"]
    assert {*loaded.config.alerts[-1].on_events} == {*EVENTS}
    table = PAGES["monitoring.md"].read_text(encoding="utf-8")
    assert all(f"| `{event}`" in table for event in EVENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_links_to_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_the_picture_of_the_rooms_is_drawn_from_the_import_contracts() -> None:
    assert rooms.picture() in rooms.PAGE.read_text(encoding="utf-8"), "python -m odi_assets_tests.rooms draws it"


def test_every_test_that_a_document_names_exists() -> None:
    for document in DOCUMENTS:
        for file, name in re.findall(r"`(odi_assets_tests/[\w/]+\.py)::(\w+)`", document.read_text(encoding="utf-8")):
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), name


def test_every_target_that_the_readme_names_is_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make (\w+)`|\$ make (\w+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert re.search(rf"^{''.join(target)}:", makefile, flags=re.MULTILINE), target
