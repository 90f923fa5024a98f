"""Packages that add something to odi_assets: declared in a folder of Python's path, or installed by pip."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SQLITE = Path(__file__).with_name("odi_sqlite")
"""A package with a kind of source, a tool of cursor documents and a table engine; docs/extending.md has its text."""

SOURCES, TOOLS, ENGINES = "odi_assets.sources", "odi_assets.cursor_tools", "odi_assets.table_engines"


def declare(site: Path, package: str, points: Mapping[str, Mapping[str, str]], **modules: str) -> None:
    """Put a package into ``site``: its entry points by group, and the text of its modules by name."""
    metadata = site / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    lines = [
        line for group, names in points.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text, encoding="utf-8")


def pip_install(source: Path, site: Path) -> None:
    """Install the package in the folder ``source`` into the folder ``site``, by pip and without a network."""
    copy = site.with_name(f"{site.name}-source")
    shutil.copytree(source, copy)
    how = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-build-isolation")
    command = [sys.executable, "-m", "pip", "install", *how, "--target", str(site), str(copy)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
