"""``odi sample``."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from odi_assets.nodes.project import Project
from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import environment
from odi_assets_tests.sample.conftest import landed, project

__all__ = ["project"]


@pytest.fixture
def sample(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sample with January landed; it is the current folder."""
    monkeypatch.chdir(project)
    return project


def flights(sample: Path) -> int:
    return sum(name.startswith("flights/") for name in landed(sample))


def test_reset_keeps_days_and_arrive_lands_the_next(sample: Path, odi: Odi) -> None:
    answer = odi("sample", "reset", "--yes", "--days", "15")
    assert (answer.code, answer.out) == (0, "")
    assert flights(sample) == 15
    answer = odi("sample", "arrive", "--days", "2")
    assert answer.code == 0
    assert sorted(answer.out.splitlines()) == [
        "data/landing/flights/2013-01-16.csv",
        "data/landing/flights/2013-01-17.csv",
        "data/landing/weather/2013-01-16.jsonl",
        "data/landing/weather/2013-01-17.jsonl",
    ]
    assert "2 days landed, 2013-01-16 to 2013-01-17" in answer.err
    assert flights(sample) == 17


def test_arrive_alone_lands_one_day(sample: Path, odi: Odi) -> None:
    """As the words of `odi sample reset` tell to type it."""
    assert "`odi sample arrive`" in odi("sample", "reset", "--yes", "--days", "15").err
    assert odi("sample", "arrive").code == 0
    assert flights(sample) == 16


def test_without_a_terminal_reset_does_nothing_unless_told_so(
    sample: Path, odi: Odi, monkeypatch: pytest.MonkeyPatch
) -> None:
    Project.load().open_state().reset_hwm("flights.raw_flights", {"mtime_ns": 1, "path": "flights/2013-01-01.csv"})
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        answer = odi("sample", "reset", "--days", "3")
    assert (answer.code, answer.out) == (2, "")
    assert "high-water marks flights.raw_flights" in answer.err
    assert "--yes" in answer.err
    assert flights(sample) == 31


@pytest.mark.slow
@pytest.mark.parametrize(("reply", "code", "days"), [("n\n", 1, 31), ("y\n", 0, 3)])
def test_on_a_terminal_reset_asks(sample: Path, reply: str, code: int, days: int) -> None:
    terminal, side = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "odi_assets.cli", "sample", "reset", "--days", "3"],
        cwd=sample,
        env=environment(),
        stdin=side,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.write(terminal, reply.encode())
    out, err = running.communicate(timeout=60)
    os.close(terminal)
    os.close(side)
    assert running.returncode == code, err
    assert out == ""
    assert "Go on?" in err
    assert flights(sample) == days


@pytest.mark.parametrize("arguments", [["arrive", "--days", "0"], ["reset", "--yes", "--days", "32"]])
def test_a_number_of_days_that_cannot_be_is_bad_usage(odi: Odi, arguments: list[str]) -> None:
    answer = odi("sample", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert "--days" in answer.err


@pytest.mark.usefixtures("shop")
def test_a_project_that_is_not_the_sample_is_left_alone(odi: Odi) -> None:
    assert odi("sample", "arrive", "--days", "1").code == 1
    answer = odi("sample", "reset", "--yes")
    assert answer.code != 0
    assert "Traceback" not in answer.err
