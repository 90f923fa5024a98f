"""``odi``: the project from the shell. Data goes to stdout, everything else to stderr."""

from odi_assets.cli.exit_codes import main

__all__ = ["main"]
