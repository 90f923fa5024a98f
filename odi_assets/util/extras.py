"""The commands that install optional parts of this package."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path


def has_ui() -> bool:
    """Whether the extra ``ui`` is installed."""
    return find_spec("dagster_webserver") is not None


def install_command(extra: str) -> str:
    """The command that installs what ``extra`` of pyproject.toml needs, where this process runs.

    This package is installed there already, so pip looks for no other one of its name.
    """
    return pip_install(f"odi_assets[{extra}]")


def pip_install(package: str) -> str:
    """The command that installs a package where this process runs; a bare ``pip`` may be another Python's."""
    here, python = Path.cwd(), Path(sys.executable)
    shown = python.relative_to(here) if python.is_relative_to(here) else python
    return shlex.join([str(shown), "-m", "pip", "install", package])
