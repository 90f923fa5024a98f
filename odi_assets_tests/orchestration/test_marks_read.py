"""High-water marks that all sensors of a process share: read once, and anew whenever they changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from odi_assets.nodes.project import Project
from odi_assets.orchestration.automation.marks_read import read_marks
from odi_assets.state.delta.hwms import HwmLog
from odi_assets.state.local.backend import LocalJSONStateBackend
from odi_assets_tests.orchestration.small_project import PROJECT_FILE, make_project

IN_JSON = PROJECT_FILE.replace("system: {connection: lake, path: _odibi_system}\n", "")


@pytest.fixture(params=["delta", "json"])
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The small project, with its state in either place."""
    monkeypatch.setattr("odi_assets.state.local.backend._SETTLES_NS", 0)
    return make_project(tmp_path, text=PROJECT_FILE if request.param == "delta" else IN_JSON)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often the marks were read."""
    counted = []

    def counting(kind: type[HwmLog] | type[LocalJSONStateBackend], name: str) -> None:
        plain = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda self: (counted.append(name), plain(self))[1])

    counting(HwmLog, "latest_of_all")
    counting(LocalJSONStateBackend, "_latest_of_all")
    return lambda: len(counted)


def test_marks_that_stay_the_same_are_read_once(project: Project, reads: Callable[[], int]) -> None:
    project.open_state().set_hwm("shop.sales", {"version": 1})
    # Sensors of several pipelines, and a file that was loaded anew.
    found = [read_marks(one) for one in (project, project, Project.load(project.path))]
    assert [one["shop.sales"].value for one in found] == [{"version": 1}] * 3
    assert reads() == 1


def test_each_change_is_seen(project: Project) -> None:
    state = project.open_state()
    assert read_marks(project) == {}
    for value in (1, 2):
        state.set_hwm("shop.sales", value)
        assert read_marks(project)["shop.sales"].value == value
    state.reset_hwm("shop.sales", 1)
    assert read_marks(project)["shop.sales"].value == 1
    state.delete_hwm("shop.sales")
    assert read_marks(project)["shop.sales"].deleted


def test_state_that_was_removed_is_gone(project: Project) -> None:
    project.open_state().set_hwm("shop.sales", 1)
    assert read_marks(project)
    for place in (project.root / "lake", project.root / ".odibi"):
        shutil.rmtree(place, ignore_errors=True)
    assert read_marks(project) == {}


def test_the_marks_of_another_environment_are_others(project: Project) -> None:
    project.open_state().set_hwm("shop.sales", 1)
    assert read_marks(project)["shop.sales"].value == 1
    text = project.path.read_text(encoding="utf-8")
    project.path.write_text(f"{text}environments: {{prod: {{}}}}\n", encoding="utf-8")
    prod = Project.load(project.path, "prod")
    assert read_marks(prod) == {}
    prod.open_state().set_hwm("shop.sales", 2)
    assert [read_marks(one)["shop.sales"].value for one in (project, prod)] == [1, 2]
