"""Files that are no project file, and YAML that is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from odi_assets.config.diagnostics.mistakes import ConfigErrors
from odi_assets.config.loader import load_project_file
from odi_assets.config.yaml import document
from odi_assets_tests.config.support import problem, project, write


def refused(file: Path) -> ConfigErrors:
    with pytest.raises(ConfigErrors) as caught:
        load_project_file(file)
    assert len(caught.value.problems) == 1
    return caught.value


def test_a_missing_file_says_where_to_name_another(tmp_path: Path) -> None:
    error = refused(tmp_path / "odibi.yaml")
    assert error.problems[0].message == "there is no such file"
    assert error.problems[0].line == 0
    assert "-c/--config or in ODI_PROJECT" in str(error)


def test_a_missing_file_points_at_its_twin(tmp_path: Path) -> None:
    (tmp_path / "odibi.yml").write_text(project())
    assert f"there is {tmp_path / 'odibi.yml'}" in str(refused(tmp_path / "odibi.yaml"))


def test_a_folder_is_no_project_file(tmp_path: Path) -> None:
    assert f"is a folder, not a project file\n  → name the file in it: {tmp_path / 'odibi.yaml'}" in str(
        refused(tmp_path)
    )


@pytest.mark.parametrize("text", ["", "   \n", "# nothing yet\n", "---\n"])
def test_an_empty_file_says_what_belongs_into_it(tmp_path: Path, text: str) -> None:
    message = refused(write(tmp_path, text)).problems[0].message
    assert (
        message == "the file is empty: a project file has `project`, `connections` and `pipelines`"
        or "mapping" in message
    )


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text\n", "5\n"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    assert "is not a mapping of keys and values" in refused(write(tmp_path, text)).problems[0].message


def test_bytes_that_are_no_text_are_shown_by_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "odibi.yaml").write_bytes("project: é\nowner: ".encode() + b"\xe9t\xe9\n")
    found = refused(tmp_path / "odibi.yaml").problems[0]
    assert (found.line, found.column) == (2, 8)
    assert "is not UTF-8 text" in found.message


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a: b: c\n", 1, 5, "a `key: value` cannot stand here"),
        ("a:\n\tb: 1\n", 2, 1, "this character cannot start a value: tabs do not indent"),
        ("a: @b\n", 1, 4, "this character cannot start a value"),
        ("a: 'b\nc: d\n", 1, 4, "a quote opens here and never closes"),
        ("a: 1\nb: [1, 2\nc: 3\n", 2, 4, "a bracket opens here"),
        ("a: {b: 1\nc: 3\n", 1, 4, "a brace opens here"),
        ("a: *b\n", 1, 4, "`*` names an anchor that is not defined"),
        ("a: 1\n---\nb: 1\n", 2, 1, "`---` starts a second document"),
        ("a: 1\n b: 2\n", 2, 3, "a `key: value` cannot stand here"),
        ("a: 1\nb\n", 3, 1, "a key above has no `:` after it"),
        ('a: "\\q"\n', 1, 5, "a backslash in double quotes"),
        ("- a\nb: 1\n", 2, 1, "expected `- ` here"),
        ("a: b\x01\n", 1, 5, "a control character"),
        ("a: [1]]\n", 1, 7, "not valid YAML"),
    ],
)
@pytest.mark.parametrize("loader", ["libyaml", "python"])
def test_broken_yaml_is_explained_where_it_breaks(
    text: str, line: int, column: int, message: str, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loader == "python":
        monkeypatch.setattr(document, "LOADER", document.with_core_schema(yaml.SafeLoader))
    found = document.read_document(text).mistakes
    assert len(found) == 1
    assert "not valid YAML" in found[0].message
    if loader == "libyaml":  # the two parsers stop at slightly different places
        assert message in found[0].message
        assert found[0].mark == (line, column)


def test_both_parsers_read_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    text = project() + "x: &x {a: [1, 0x1F, 1e3, ~, true, 'q', ${V}]}\ny: {<<: *x, b: 2}\nz: |\n  two\n  lines\n"
    fast = document.read_document(text)
    monkeypatch.setattr(document, "LOADER", document.with_core_schema(yaml.SafeLoader))
    assert document.read_document(text) == fast
    assert fast.mistakes == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x: !secret abc", "tags (`!…`) have no meaning in a project file"),
        ("x: !!python/object:os.system {}", "tags (`!…`) have no meaning in a project file"),
        ("x: &x [*x]", "an alias `*` leads back to itself"),
        ("? [a, b]\n: 1", "a key must be text"),
        ("x: !!int abc", "the tag says `int`"),
        ("x: {<<: 5}", "`<<` takes mappings only"),
    ],
)
def test_yaml_that_no_project_file_needs_is_refused(line: str, message: str) -> None:
    found = document.read_document(f"project: demo\n{line}\n").mistakes
    assert [(one.mark is not None and one.mark.line, message in one.message) for one in found] == [(2, True)]


@pytest.mark.slow
def test_aliases_cannot_unfold_without_end() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9))
    found = document.read_document(text).mistakes
    assert len(found) == 1
    assert "aliases unfold to more than" in found[0].message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_very_deep_nesting_is_a_mistake_and_no_crash(opening: str) -> None:
    found = document.read_document(opening * 100_000).mistakes
    assert len(found) == 1
    assert found[0].message == "not valid YAML: lists and mappings are nested more than 100 deep"


def test_letters_of_the_private_use_area_stay_what_they_are(tmp_path: Path) -> None:
    text = project().replace("demo", "\ue000\ue001${NAME}\ue002")
    loaded = load_project_file(write(tmp_path, text), env={"NAME": "x"})
    assert loaded.config.project == "\ue000\ue001x\ue002"


def test_a_duplicate_key_comes_with_the_other_mistakes(tmp_path: Path) -> None:
    found = problem(tmp_path, "project: demo\n" + project())
    assert (found.line, found.message) == (2, "duplicate key: it is on line 1 already")
