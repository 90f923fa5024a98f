"""What a message tells to type works when it is typed: the commands exist, and take what they are given."""

from __future__ import annotations

import ast
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odi_assets.cli.app import group
from odi_assets.cli.run.results import show_next
from odi_assets.nodes.project import Project
from odi_assets.nodes.result import NodeResult
from odi_assets.util.extras import install_command
from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.sample.conftest import REPOSITORY, project

__all__ = ["project"]

PACKAGE = REPOSITORY / "odi_assets"
HOLE = "1"
"""Stands for what a message fills in: a node, a path, a number."""
COMMAND = re.compile(r"(?<![\w./-])odi ([a-z][^\n]*)")
PROSE = {"the"}
"""Words that follow the program's name in a sentence about it."""
ENDS = re.compile(r"[`;:(){}…]|, |\.(?= |$)|,$| [—→=] ")
PLACEHOLDER = re.compile(r"^(\W*\b[A-Z_.]+\b\W*|.*1.*)$")


def texts(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The strings of a module that are not docstrings, each with its line; what is filled in becomes :data:`HOLE`."""
    nodes = list(ast.walk(module))
    documented = (node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
    left_out = {id(node.body[0].value) for node in documented if node.body and isinstance(node.body[0], ast.Expr)}
    left_out |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.lineno, node.value.replace("%s", HOLE).replace("%d", HOLE)
        elif isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values),
            )


def typed(text: str) -> Iterator[list[str]]:
    """The commands in a text: the words after ``odi`` up to where prose goes on."""
    for found in COMMAND.finditer(text):
        if found[1].split()[0] in PROSE:
            continue
        line = ENDS.split(found[1], maxsplit=1)[0].strip()
        whole = text[found.start() - 1 : found.start()] == "`" and f"{found[0].partition('`')[0]}`" in text
        words = shlex.split(line.replace("'", ""))
        names = words[: command_length(words)]
        rest = words[len(names) :]
        if not whole:
            kept: list[str] = []
            for place, word in enumerate(rest):
                follows_option = (
                    place > 0 and rest[place - 1].startswith("--") and rest[place - 1] in takes_value(names)
                )
                if not (word.startswith("-") or PLACEHOLDER.match(word) or follows_option):
                    break
                kept.append(word)
            rest = kept
        yield [*names, *(HOLE if PLACEHOLDER.match(word) and not word.startswith("-") else word for word in rest)]


@cache
def odi_command() -> Any:
    return group()


def command_at(words: list[str]) -> Any:
    command = odi_command()
    for word in words:
        command = command.loaded(word)
    return command


def command_length(words: list[str]) -> int:
    command = odi_command()
    for place, word in enumerate(words):
        if not hasattr(command, "commands"):
            return place
        assert word in command.commands, f"odi {' '.join(words)}: there is no command `{word}`"
        command = command.loaded(word)
    return len(words)


def takes_value(names: list[str]) -> set[str]:
    parameters = getattr(command_at(names), "params", [])
    return {option for one in parameters for option in one.opts if not getattr(one, "is_flag", False)}


@cache
def suggestions() -> list[Any]:
    found: dict[str, tuple[list[str], str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        for line, text in texts(ast.parse(source)) if "odi " in source else ():
            for words in typed(text):
                found.setdefault(" ".join(words), (words, f"{file.relative_to(PACKAGE)}:{line}"))
    return [pytest.param(words, place, id=name) for name, (words, place) in found.items()]


@pytest.mark.parametrize(("words", "place"), suggestions())
def test_a_command_that_a_message_names_exists_and_takes_its_options(words: list[str], place: str) -> None:
    length = command_length(words)
    command, arguments = command_at(words[:length]), words[length:]
    if hasattr(command, "commands"):
        assert not arguments, f"{place}: odi {' '.join(words)}"
        return
    # A command that is only named, as in "`odi state set` reads it back", may lack what it needs.
    try:
        command.make_context("odi", list(arguments))
    except Exception as error:
        only_named = not arguments and "Missing" in str(error)
        if not only_named:
            raise AssertionError(f"{place}: odi {' '.join(words)}: {error}") from error


def test_enough_commands_are_found_to_mean_something() -> None:
    found = {param.id for param in suggestions()}
    assert {
        "doctor",
        "state rewind 1 --list",
        "store check 1 --repair",
        "run 1 --full-refresh",
        "state set",
    } <= found
    assert len(found) > 25


def test_what_installs_an_extra_names_it_and_this_interpreter() -> None:
    project_file = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project_file["project"]["optional-dependencies"]
    named = {
        found
        for file in PACKAGE.rglob("*.py")
        for found in re.findall(r"install_command\(['\"](\w+)|odi_assets\[(\w+)\]", file.read_text(encoding="utf-8"))
    }
    assert {"ui", "java", "sample"} <= {one or other for one, other in named} <= set(extras)
    words = shlex.split(install_command("ui"))
    assert Path(words[0]) == Path(sys.executable)
    assert words[1:] == ["-m", "pip", "install", "odi_assets[ui]"]


def shown_next(root: Path, capfd: pytest.CaptureFixture[str]) -> list[str]:
    result = SimpleNamespace(uri=str(root / "data" / "lake" / "x"))
    show_next(Project.load(root / "odibi.yaml"), [cast(NodeResult, result)])
    lines = capfd.readouterr().err.splitlines()
    return [line.strip().split("  ")[0] for line in lines[lines.index("Next:") + 1 :]]


@pytest.mark.slow
def test_after_a_run_of_the_sample_what_is_suggested_works(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], odi: Odi
) -> None:
    """Also once January has landed, without the package that has the rest of the year."""
    monkeypatch.chdir(project)
    monkeypatch.setattr("odi_assets.sample.nycflights.find_spec", lambda _: None)
    commands = shown_next(project, capfd)
    assert commands == [
        *("odi plan", "odi runs list", "odi state list", "odi dev"),
        "odi sample reset --days 15",
    ]
    failed = odi("sample", "arrive")
    assert failed.code == 1
    assert install_command("sample") in failed.err
    # `odi dev` becomes Dagster, and has tests of its own.
    for command in set(commands) - {"odi dev"}:
        yes = ["--yes"] if "reset" in command else []
        assert odi(*shlex.split(command)[1:], *yes).code == 0, command
    commands = shown_next(project, capfd)
    assert commands[-1] == "odi sample arrive --days 1"
    assert odi(*shlex.split(commands[-1])[1:]).code == 0


def test_without_the_extra_that_odi_dev_needs_it_is_not_suggested(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    assert "odi dev" in shown_next(project, capfd)
    # Without it, the package cannot be imported.
    monkeypatch.setitem(sys.modules, "dagster_webserver", None)
    assert "odi dev" not in shown_next(project, capfd)


def test_in_another_folder_the_suggested_commands_name_the_project_file(
    project: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    odi: Odi,
) -> None:
    elsewhere = tmp_path_factory.mktemp("else where")
    monkeypatch.chdir(elsewhere)
    commands = shown_next(project, capfd)
    assert commands[0] == f"odi -c {os.path.relpath(project / 'odibi.yaml')} plan"
    assert f"odi -c {os.path.relpath(project / 'odibi.yaml')} dev" in commands
    assert odi(*shlex.split(commands[0])[1:]).code == 0
    monkeypatch.setenv("ODI_PROJECT", str(project / "odibi.yaml"))
    assert shown_next(project, capfd)[0] == "odi plan"
