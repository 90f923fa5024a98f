"""The command that installs an optional part of this package."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def install_command(extra: str) -> str:
    """The command that installs what ``extra`` of pyproject.toml needs, where this process runs.

    This package is installed there already, so pip looks for no other one of its name.
    """
    here, python = Path.cwd(), Path(sys.executable)
    shown = python.relative_to(here) if python.is_relative_to(here) else python
    return shlex.join([str(shown), "-m", "pip", "install", f"odi_assets[{extra}]"])
