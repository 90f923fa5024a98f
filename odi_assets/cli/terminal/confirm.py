"""Asking before something is lost."""

from __future__ import annotations

import sys

import typer

from odi_assets.cli.terminal.exit_codes import BAD_INPUT, FAILED
from odi_assets.cli.terminal.output import note


def require_consent(yes: bool, untouched: str = "nothing was changed", unasked: int = BAD_INPUT) -> None:
    """Go on if ``yes`` was given or is typed; the caller has shown what will happen.

    Args:
        yes: whether ``--yes`` was given.
        untouched: says how things are if not.
        unasked: the exit code where there is nobody to ask.

    Raises:
        Exit: with 1 if the answer is no, with ``unasked`` if there is nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        note(f"odi: {untouched}: there is no terminal to ask on\n  → say --yes if that is what you want")
        raise typer.Exit(unasked)
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        note(f"{untouched[0].upper()}{untouched[1:]}.")
        raise typer.Exit(FAILED)
