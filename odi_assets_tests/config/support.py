"""Project files for the tests of this room."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent, indent

import pytest

from odi_assets.config.diagnostics.mistakes import ConfigErrors, Problem
from odi_assets.config.loader import LoadedProject, load_project_file
from odi_assets.config.models import NodeConfig

HEAD = """\
project: demo
connections:
  lake: {type: local, base_path: data}
system: {connection: lake}
pipelines:
  - pipeline: p
    nodes:
"""
"""Seven lines; nodes follow from line 8, indented by six."""

SOURCE = "- {name: raw, read: {connection: lake, format: csv, path: in/*.csv}, write: {connection: lake, path: raw}}\n"


def project(*nodes: str) -> str:
    """A project file with these nodes; with one, when none is given."""
    return HEAD + "".join(indent(dedent(text), "      ") for text in nodes or (SOURCE,))


def write(folder: Path, text: str) -> Path:
    """Put a project file into a folder."""
    file = folder / "odibi.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def load(folder: Path, text: str, env: Mapping[str, str] | None = None) -> LoadedProject:
    """Load a project file that is right."""
    return load_project_file(write(folder, text), env=env or {})


def node(folder: Path, *nodes: str, env: Mapping[str, str] | None = None) -> NodeConfig:
    """The last node of a project with these nodes."""
    return load(folder, project(*nodes), env).config.pipelines[0].nodes[-1]


def problems(folder: Path, text: str, env: Mapping[str, str] | None = None) -> tuple[Problem, ...]:
    """What is wrong with a project file."""
    with pytest.raises(ConfigErrors) as caught:
        load(folder, text, env)
    return caught.value.problems


def problem(folder: Path, text: str, env: Mapping[str, str] | None = None) -> Problem:
    """The one thing that is wrong with a project file."""
    found = problems(folder, text, env)
    assert len(found) == 1, "\n".join(map(str, found))
    return found[0]


def place(text: str, word: str) -> tuple[int, int]:
    """Line and column of the first place of a word."""
    before = text[: text.index(word)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")
