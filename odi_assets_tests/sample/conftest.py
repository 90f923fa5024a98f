"""A project of its own for each test: the sample's project file and the tracked landing zone, copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
JANUARY_FLIGHTS = [f"flights/2013-01-{day:02d}.csv" for day in range(1, 32)]
JANUARY_WEATHER = [f"weather/2013-01-{day:02d}.jsonl" for day in range(1, 32)]
JANUARY = JANUARY_FLIGHTS + JANUARY_WEATHER


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of a project whose landing zone holds January, wherever the repository's own files are just now."""
    shutil.copy(REPOSITORY / "odibi.yaml", tmp_path)
    landing, held = REPOSITORY / "data" / "landing", REPOSITORY / "data" / "lake" / ".held"
    for name in [*JANUARY, "airlines.csv", "airports.csv", "planes.csv"]:
        target = tmp_path / "data" / "landing" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(landing / name if (landing / name).exists() else held / name, target)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    """Every finished file below ``folder``, by its name there."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def landed(project: Path) -> dict[str, bytes]:
    return contents(project / "data" / "landing")


def held(project: Path) -> dict[str, bytes]:
    return contents(project / "data" / "lake" / ".held")
