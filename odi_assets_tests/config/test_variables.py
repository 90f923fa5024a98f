"""``${VAR}`` in project files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odi_assets.config.loader import load_project_file
from odi_assets.config.yaml.document import read_document
from odi_assets.config.yaml.variables import substitute
from odi_assets_tests.config.support import load, place, problem, problems, project, write

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


def described(folder: Path, text: str, env: dict[str, str]) -> str | None:
    """The description of a project, which is ``text``."""
    return load(folder, f"description: {text}\n{project()}", env).config.description


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", "one"),
        ("${env:A}", "one"),
        ("${ A }", "one"),
        ("'${A} and ${env:B}, ${A}'", "one and two, one"),
        ("pre${A}post", "preonepost"),
        ("'$${A}'", "${A}"),
        ("'$${A} ${A} $${'", "${A} one ${"),
        ("$A $ {A} $(A)", "$A $ {A} $(A)"),
        ("${EMPTY}", ""),
        ("${NESTED}", "${A}"),
    ],
)
def test_variables_are_filled_in(tmp_path: Path, text: str, expected: str) -> None:
    assert described(tmp_path, text, {"A": "one", "B": "two", "EMPTY": "", "NESTED": "${A}"}) == expected


def test_what_a_variable_holds_stays_text_even_where_it_looks_like_yaml(tmp_path: Path) -> None:
    for held in ("5", "true", "null", "[a]", "{a: b}", "a: b # c", "*x"):
        assert described(tmp_path, "${V}", {"V": held}) == held


def test_a_variable_can_stand_for_a_number_or_a_word(tmp_path: Path) -> None:
    text = project(
        """\
        - name: a
          read:
            connection: ${LAKE}
            format: ${FORMAT}
            path: in
            incremental: {mode: rolling_window, column: c, lookback: ${N}, unit: ${UNIT}}
          partition: {column: d, start: ${START}}
          write: {connection: lake, path: a}
        """
    )
    env = {"LAKE": "lake", "FORMAT": "csv", "N": "30", "UNIT": "hour", "START": "2013-01-01"}
    loaded = load(tmp_path, text, env).config.pipelines[0].nodes[0]
    assert loaded.read is not None
    assert loaded.read.incremental.model_dump() == {
        "mode": "rolling_window", "column": "c", "lookback": 30, "unit": "hour",
    }  # fmt: skip


def test_an_unset_variable_is_named_where_it_stands(tmp_path: Path) -> None:
    text = f"description: a ${{HERE}} and ${{THERE}} and ${{SET}}\n{project()}"
    found = problems(tmp_path, text, {"SET": "x"})
    assert [(one.line, one.column, one.key, one.message) for one in found] == [
        (1, 14, "description", "environment variable `HERE` is not set"),
        (1, 14, "description", "environment variable `THERE` is not set"),
    ]


def test_an_unset_variable_is_the_only_mistake_where_a_number_belongs(tmp_path: Path) -> None:
    text = project().replace("{connection: lake}\n", "{connection: lake, retry: {retries: ${N}}}\n", 1)
    found = problem(tmp_path, text)
    assert found.message == "environment variable `N` is not set"
    assert (found.line, found.column) == place(text, "${N}")


def test_variables_in_comments_and_in_ignored_keys_are_harmless(tmp_path: Path) -> None:
    loaded = load(tmp_path, f"# ${{UNSET}}\nlogging: {{level: ${{UNSET}}}}\n{project()}  # ${{UNSET}}\n")
    assert loaded.config.project == "demo"


def test_keys_are_not_filled_in(tmp_path: Path) -> None:
    text = project().replace("  lake:", "  ${A}: {type: local}\n  lake:", 1)
    assert "${A}" in load(tmp_path, text, {"A": "one"}).config.connections


@pytest.mark.parametrize("text", ["${}", "${1A}", "${A:-x}", "${A B}", "'${A'", "'a ${'"])
def test_what_only_looks_like_a_variable_is_a_mistake(tmp_path: Path, text: str) -> None:
    found = problem(tmp_path, f"description: {text}\n{project()}", {"A": "one"})
    assert found.message.startswith("a `${` here starts no variable: write `${NAME}` or `${env:NAME}`")


def test_the_environment_of_the_process_is_used_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODI_TEST_NAME", "from the process")
    file = write(tmp_path, project().replace("demo", "${ODI_TEST_NAME}"))
    assert load_project_file(file).config.project == "from the process"


@given(st.lists(st.tuples(st.text(st.characters(exclude_characters="$")), NAMES, st.text()), max_size=5), st.booleans())
def test_each_reference_becomes_what_its_variable_holds(parts: list[tuple[str, str, str]], env_prefix: bool) -> None:
    environment = {name: value for _, name, value in parts}
    prefix = "env:" if env_prefix else ""
    text = "".join(f"{before}${{{prefix}{name}}}" for before, name, _ in parts)
    result = substitute(text, environment)
    assert result.text == "".join(before + environment[name] for before, name, _ in parts)
    assert result.used == bool(parts)
    assert result.unset == ()


@given(st.text())
def test_an_escaped_text_comes_back_as_it_was(text: str) -> None:
    result = substitute(text.replace("${", "$${"), {})
    assert result.text == text
    assert not result.used


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Co", "Cn"], exclude_characters="\ufeff\u2028\u2029\x85")))
def test_any_text_in_quotes_comes_through_yaml_unchanged(text: str) -> None:
    quoted = "'" + text.replace("'", "''") + "'"
    assert read_document(quoted).data == text
