"""Python's collector, which is paused while a project or a large document is read."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from odi_assets.nodes.project import Project
from odi_assets.util.collector import collector_paused

PROJECT = """
project: shop
connections: {here: {type: local, base_path: .}}
system: {connection: here, path: system}
pipelines:
- {pipeline: p, nodes: [{name: n, read: {connection: here, format: csv, path: in}, write: {connection: here, path: n}}]}
"""


class Cycle:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


def made() -> weakref.ref[Cycle]:
    return weakref.ref(Cycle())


def alive(garbage: list[weakref.ref[Cycle]]) -> int:
    return sum(one() is not None for one in garbage)


def test_a_process_that_loads_its_project_again_and_again_lets_go_of_its_garbage(tmp_path: Path) -> None:
    (tmp_path / "odibi.yaml").write_text(PROJECT, encoding="utf-8")
    garbage: list[weakref.ref[Cycle]] = []
    work: list[list[list[int]]] = []
    for _ in range(40):
        garbage.append(made())
        Project.load(tmp_path / "odibi.yaml")
        work.append([[] for _ in range(2_000)])
    assert alive(garbage) < 20


@pytest.mark.slow
def test_a_process_that_reads_large_documents_again_and_again_lets_go_of_its_garbage() -> None:
    garbage: list[weakref.ref[Cycle]] = []
    work: list[list[list[int]]] = []
    for _ in range(40):
        garbage.append(made())
        with collector_paused():
            document: list[list[int]] = [[] for _ in range(100_000)]
        del document
        work.append([[] for _ in range(2_000)])
    assert alive(garbage) < 20


@pytest.mark.parametrize("objects", [10, 100_000])
def test_a_pause_ends_with_the_collector_as_it_was(objects: int) -> None:
    with collector_paused():
        assert not gc.isenabled()
        kept: list[list[int]] = [[] for _ in range(objects)]
    assert gc.isenabled()
    assert len(kept) == objects
