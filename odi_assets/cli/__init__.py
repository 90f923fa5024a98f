"""``odi``: the project from the shell. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``odi`` with ``arguments`` (those of the process if None) and return its exit code.

    0 done, 1 failed, 2 bad usage or bad input, 130 interrupted, 141 the reader of stdout went away.
    """
    from odi_assets.cli.app import app
    from odi_assets.cli.exit_codes import run_guarded

    return run_guarded(app, arguments)
