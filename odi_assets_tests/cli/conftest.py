"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from odi_assets.cli import main
from odi_assets_tests.cli.shop import make_shop


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Odi = Callable[..., Answer]


@pytest.fixture(autouse=True)
def away_from_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test's command may find the repository's own project file."""
    for name in ("ODI_PROJECT", "ODI_DEBUG", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a tiny project that nothing was run in; it is the current folder."""
    root = tmp_path / "shop"
    make_shop(root)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def odi(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Odi:
    """``odi`` in this process: quick, and with the suite's Spark session for what needs one."""
    # What a run sets for its process must not outlive the test.
    monkeypatch.setenv("ODI_SPARK_LOG_LEVEL", "fatal")

    def call(*arguments: str) -> Answer:
        capfd.readouterr()
        code = main(arguments)
        printed = capfd.readouterr()
        return Answer(code, printed.out, printed.err)

    return call
