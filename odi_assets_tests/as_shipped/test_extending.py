"""The page on packages that add to odi_assets: its package is installed, used and uninstalled as the page shows it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from odi_assets_tests.as_shipped.installed import Installed, pip
from odi_assets_tests.as_shipped.test_console import Session, follow
from odi_assets_tests.extensions.packages import SQLITE
from odi_assets_tests.pages import blocks

PACKAGE = "odi-sqlite"


class SessionWithPip(Session):
    """A shell whose pip is the suite's: it installs into the environment, and reaches no index."""

    def type(self, command: str, printed: str) -> None:
        program, what, *rest = shlex.split(command)
        if program != "pip":
            super().type(command, printed)
            return
        how = ["--no-deps", "--no-index", "--no-build-isolation"] if what == "install" else []
        where = [str(self.here) if word == "." else word for word in rest]
        pip(what, *how, *where, python=self.installed.programs / "python")


@pytest.fixture
def session(installed: Installed, tmp_path: Path) -> Iterator[SessionWithPip]:
    """A shell in an empty folder; what it installed is gone afterwards."""
    opened = SessionWithPip(installed, tmp_path)
    yield opened
    opened.close()
    pip("uninstall", "--yes", PACKAGE, python=installed.programs / "python")


def test_the_page_shows_the_package_that_the_tests_install() -> None:
    shown = {block.file: block.text for block in blocks("extending.md") if block.file is not None}
    package = {path.name: path.read_text(encoding="utf-8") for path in SQLITE.iterdir() if path.is_file()}
    assert {name: shown.get(name) for name in package} == package


@pytest.mark.usefixtures("jvm")
def test_the_package_of_the_page_is_installed_used_and_missed_as_the_page_shows(session: SessionWithPip) -> None:
    follow(session, "extending.md")
    assert (session.folder / "lake" / "orders.noted").read_text(encoding="utf-8").count("version") == 2
