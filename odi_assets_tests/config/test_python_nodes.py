"""What is wrong with a node in Python is named by module, line and function."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odi_assets.config.loader import load_project_file
from odi_assets.errors import ConfigError
from odi_assets_tests.cli.shop import odi

PROJECT = """\
project: p
connections:
  lake: {type: local, base_path: lake}
python: [my_nodes]
pipelines:
- pipeline: p
  nodes:
  - {name: raw, read: {connection: lake, format: parquet, path: raw}, write: {connection: lake, path: raw_table}}
"""
MODULE = '''\
from odi_assets import node

@node(pipeline="p", {OPTIONS})
def by_city(raw):
    """Sales by city."""
    return raw
'''
RIGHT = 'inputs={"raw": "raw"}, write={"connection": "lake", "path": "by_city"}'


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A project that has nodes of Python; its module is forgotten afterwards."""
    (tmp_path / "odibi.yaml").write_text(PROJECT, encoding="utf-8")
    path = [*sys.path]
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("my_nodes", None)


def mistakes(root: Path, module: str) -> str:
    """What is wrong with a project with this module of nodes."""
    (root / "my_nodes.py").write_text(module, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load_project_file(root / "odibi.yaml")
    return str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            RIGHT.replace('"path": "by_city"', '"path": "by_city", "mode": "apend"'),
            "by_city.write.mode: unknown value `apend`",
        ),
        (RIGHT.replace('"raw": "raw"', '"raw": "rwa"'), "by_city.inputs.raw: unknown node `rwa`"),
        (
            RIGHT.replace('"connection": "lake"', '"connection": "lak"'),
            "by_city.write.connection: unknown connection `lak`",
        ),
        (RIGHT.replace('"connection": "lake", ', ""), "by_city.write.connection: missing key `connection`"),
        (f'name="raw", {RIGHT}', "by_city.name: duplicate node `raw`"),
        (f"{RIGHT}, params=3", "by_city.params: "),
        (f'{RIGHT}, tags="daily"', "by_city.tags: "),
        (f'{RIGHT}, depends_on="raw_table"', "by_city.depends_on: "),
        ('write={"connection": "lake", "path": "by_city"}', "by_city: has nothing to read"),
    ],
)
def test_a_mistake_names_file_line_and_function(wrong: str, told: str, root: Path) -> None:
    text = mistakes(root, MODULE.replace("{OPTIONS}", wrong))
    assert text.startswith(f"my_nodes.py:3:1: {told}")
    assert "odibi.yaml" not in text
    assert "nodes[" not in text


def test_two_functions_of_one_name_are_told_apart(root: Path) -> None:
    module = MODULE.replace("{OPTIONS}", RIGHT)
    other = module.partition("\n\n")[2].replace("def by_city", "def again")
    other = other.replace('"path": "by_city"', '"path": "other"').replace("@node(", '@node(name="by_city", ')
    text = mistakes(root, f"{module}\n{other}")
    assert text.startswith("my_nodes.py:8:1: again.name: duplicate node `by_city`")


def test_mistakes_of_the_file_come_before_those_of_its_modules(root: Path) -> None:
    (root / "odibi.yaml").write_text(PROJECT.replace("path: raw_table", "pth: raw_table"), encoding="utf-8")
    text = mistakes(root, MODULE.replace("{OPTIONS}", RIGHT.replace('"raw": "raw"', '"raw": "rwa"')))
    first, second = [line.strip() for line in text.splitlines()[1:]]
    assert first.startswith(f"{root / 'odibi.yaml'}:8:")
    assert second.startswith("my_nodes.py:3:1: by_city.inputs.raw: ")


@pytest.mark.slow
def test_the_command_lists_them_by_their_own_file(root: Path) -> None:
    module = MODULE.replace("{OPTIONS}", RIGHT.replace('"raw": "raw"', '"raw": "rwa"'))
    (root / "my_nodes.py").write_text(module, encoding="utf-8")
    done = odi("config", "check", cwd=root)
    assert done.returncode == 2
    assert "my_nodes.py:3:1: by_city.inputs.raw: unknown node `rwa`" in done.stdout + done.stderr
