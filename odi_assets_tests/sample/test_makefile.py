"""What a newcomer meets first: the Makefile, before anything is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
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
    for room in ("spark/jvm", "util"):
        (package / room).mkdir(parents=True)
    for name in (
        "__init__.py",
        "errors.py",
        "spark/__init__.py",
        "spark/jvm/__init__.py",
        "spark/jvm/java.py",
        "util/__init__.py",
        "util/extras.py",
    ):
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


@pytest.fixture
def installed(clone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with an environment that has no Java, in which pip says what it is asked for and installs nothing. The
    ``java`` on PATH is none that Spark can use."""
    on_path = clone / "programs" / "java"
    on_path.parent.mkdir()
    on_path.write_text("#!/bin/sh\nexit 1\n")
    on_path.chmod(0o755)
    monkeypatch.setenv("PATH", str(on_path.parent), prepend=os.pathsep)
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    # Without site-packages, where the Java of PyPI may be.
    python.write_text(f'#!/bin/sh\n[ "$2" = pip ] && echo "$@" || exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    (clone / ".venv" / ".installed").touch()
    return clone


@pytest.mark.parametrize("target", ["run", "test", "dev", "bench"])
def test_where_no_java_is_right_the_one_of_pypi_is_installed_and_a_message_comes_if_that_fails(
    installed: Path, target: str
) -> None:
    done = make(installed, target, f"JAVA_HOME={installed}/none")
    assert done.returncode != 0
    assert ".[java]" in done.stdout
    assert f"Spark needs Java 17 to 25, and none was found: JAVA_HOME is {installed}/none, and" in done.stderr
    assert all(way in done.stderr for way in ("unset JAVA_HOME", "apt-get install", "brew install", "conda install"))
    assert "Traceback" not in done.stderr


def test_a_java_that_is_too_old_is_named_with_its_version(installed: Path) -> None:
    java = installed / "old" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.24\" 2024-07-16' >&2\n")
    java.chmod(0o755)
    done = make(installed, "run", f"JAVA_HOME={installed}/old")
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
