"""``odi config``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import PROJECT

pytestmark = pytest.mark.usefixtures("shop")

WARNING = "⚠️ No system catalog configured. Using local JSON state backend (local-only mode)."


def test_a_right_file_is_said_to_be_so_on_stderr_alone(odi: Odi) -> None:
    answer = odi("config", "check")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "odibi.yaml: OK, 1 pipeline, 2 nodes\n"


def test_every_mistake_is_a_line_with_its_place_and_a_suggestion(shop: Path, odi: Odi) -> None:
    wrong = PROJECT.replace("incremental: {mode: files}", "incrementl: {mode: files}").replace(
        "{node: orders,", "{node: order,"
    )
    (shop / "wrong.yaml").write_text(wrong, encoding="utf-8")
    answer = odi("config", "check", "wrong.yaml")
    assert answer.code == 2
    unknown_key, unknown_node = answer.out.splitlines()
    assert unknown_key.startswith("wrong.yaml:19:11: pipelines[0].nodes[0].read")
    assert "`incremental`?" in unknown_key
    assert unknown_node.startswith("wrong.yaml:22:")
    assert "orders" in unknown_node
    assert "2 mistakes" in answer.err


def test_mistakes_as_json_are_an_array_of_objects(shop: Path, odi: Odi) -> None:
    assert json.loads(odi("config", "check", "--json").out) == []
    (shop / "odibi.yaml").write_text(PROJECT.replace("project:", "projct:"), encoding="utf-8")
    answer = odi("config", "check", "--json")
    assert answer.code == 2
    for problem in json.loads(answer.out):
        assert set(problem) == {"file", "line", "column", "key", "message", "suggestion"}


def test_every_command_says_what_is_wrong_with_the_project_file(shop: Path, odi: Odi) -> None:
    (shop / "odibi.yaml").write_text(PROJECT.replace("mode: append", "mode: apend"), encoding="utf-8")
    for arguments in (["plan"], ["run"], ["state", "list"], ["runs", "list"]):
        answer = odi(*arguments)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("odi: odibi.yaml:20:")
        assert "Traceback" not in answer.err


def test_a_missing_file_is_bad_input(odi: Odi) -> None:
    answer = odi("config", "check", "nowhere.yaml")
    assert (answer.code, answer.out) == (2, "")
    assert "nowhere.yaml" in answer.err


def test_the_warning_of_a_project_without_system_is_on_stderr(shop: Path, odi: Odi) -> None:
    (shop / "odibi.yaml").write_text(PROJECT.replace("system: {connection: lake, path: system}\n", ""))
    assert WARNING in odi("config", "check").err.splitlines()
    listed = odi("state", "list", "--json")
    assert json.loads(listed.out) == []
    assert WARNING in listed.err.splitlines()


def test_the_schema_describes_project_files(odi: Odi) -> None:
    answer = odi("config", "schema")
    assert answer.code == 0
    schema = json.loads(answer.out)
    assert {"project", "connections", "pipelines", "system"} <= set(schema["properties"])
