"""What a newcomer meets first: the Makefile, before anything is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from odi_assets_tests.sample.conftest import REPOSITORY

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """As much of a fresh clone as `make` looks at before it installs."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(REPOSITORY / name, tmp_path)
    package = tmp_path / "odi_assets"
    (package / "spark").mkdir(parents=True)
    for name in ("__init__.py", "errors.py", "spark/__init__.py", "spark/java.py"):
        shutil.copy(REPOSITORY / "odi_assets" / name, package / name)
    return tmp_path


def make(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=clone, capture_output=True, text=True, timeout=60, check=False)


def test_help_is_what_make_alone_says_and_names_every_target(clone: Path) -> None:
    told = make(clone).stdout
    assert told == make(clone, "help").stdout
    assert re.findall(r"^make (\w+)", told, re.MULTILINE) == [
        "help",
        "install",
        "run",
        "test",
        "check",
        "dev",
        "lint",
        "bench",
    ]


@pytest.mark.parametrize("target", ["run", "test", "dev", "bench"])
def test_without_java_one_message_comes_before_anything_is_installed(clone: Path, target: str) -> None:
    done = make(clone, target, f"JAVA_HOME={clone}/none")
    assert done.returncode != 0
    assert "Spark needs Java 17 to 25" in done.stderr
    assert all(way in done.stderr for way in ("apt-get install", "brew install", "conda install"))
    assert "Traceback" not in done.stderr
    assert not (clone / ".venv").exists()


def test_a_java_that_is_too_old_is_named_with_its_version(clone: Path) -> None:
    java = clone / "old" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.24\" 2024-07-16' >&2\n")
    java.chmod(0o755)
    done = make(clone, "run", f"JAVA_HOME={clone}/old")
    assert done.returncode != 0
    assert "is Java 11.0.24" in done.stderr


def test_a_python_that_does_not_fit_is_named_with_the_ways_to_another(clone: Path) -> None:
    python = clone / "python"
    python.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" || exit 1\n')
    python.chmod(0o755)
    done = make(clone, "install", f"PYTHON={python}")
    assert done.returncode != 0
    assert "Python 3.11 to 3.14 is needed" in done.stderr
    assert "(Python 3.9.2)" in done.stderr
    assert "PYTHON=/path/to/python3.11 install" in done.stderr
    assert not (clone / ".venv").exists()


def test_the_environment_is_made_again_when_its_versions_change(clone: Path) -> None:
    (clone / ".venv").mkdir()
    (clone / ".venv" / ".installed").touch()
    assert "Nothing to be done" in make(clone, "install").stdout
    for name in ("pyproject.toml", "constraints.txt"):
        (clone / ".venv" / ".installed").touch()
        later = (clone / ".venv" / ".installed").stat().st_mtime + 5
        os.utime(clone / name, (later, later))
        assert "pip install" in make(clone, "-n", "install").stdout


def test_constraints_are_names_and_versions_and_no_addresses() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []
    assert {"pyspark", "dagster", "deltalake", "setuptools"} <= {line.partition("==")[0] for line in lines}
