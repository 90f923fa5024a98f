"""Every end of a command becomes a message on stderr and an exit code."""

from __future__ import annotations

import os
import re
import sys
import traceback

from odi_assets.cli.terminal.output import note
from odi_assets.errors import ConfigError, OdiError
from odi_assets.spark.raised import without_stacks
from odi_assets.util.debugging import debugging

DONE, FAILED, BAD_INPUT, INTERRUPTED, READER_GONE = 0, 1, 2, 130, 141

_NO_COMMAND = re.compile(r"(?<=No such command ')[^']+")
_ELSEWHERE = {
    # Odibi, dbt, dlt, SQLMesh, Meltano, OLake and Dagster say so.
    **dict.fromkeys(("validate", "check", "lint", "parse", "compile"), "odi config check, and odi plan"),
    **dict.fromkeys(("list", "nodes", "pipelines"), "odi ls"),
    **dict.fromkeys(("dag", "docs"), "odi graph, or odi lineage NODE"),
    **dict.fromkeys(("drop", "reset", "clean"), "odi state reset NODE, or odi run --full-refresh"),
    **dict.fromkeys(("build", "materialize", "sync", "execute", "launch"), "odi run"),
    **dict.fromkeys(("backfill", "restate"), "odi run --node NODE --from TIME --to TIME"),
    **dict.fromkeys(("retry", "resume"), "odi run --resume"),
    **dict.fromkeys(("preview", "head", "evaluate", "query"), "odi show NODE"),
    **dict.fromkeys(("debug", "test", "info"), "odi doctor"),
    **dict.fromkeys(("ui", "serve", "webserver"), "odi dev"),
    "diff": "odi plan",
    "history": "odi runs list, or odi state history KEY",
    "schema": "odi config schema",
    "hwm": "odi state list",
    # It was a command of `stream` and of `checkpoint`.
    "explain": "odi explain NODE --key KEY, or odi explain --checkpoint PATH --key KEY",
}
"""Commands of other tools, and of versions before, and what does the same here."""


def report(error: BaseException) -> int:
    """Say on stderr what went wrong, for people, and return the exit code."""
    if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
        # How Typer ends when nobody reads its help.
        return reader_gone()
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if isinstance(error, KeyboardInterrupt):
        note("odi: interrupted")
        return INTERRUPTED
    if "pyspark" in sys.modules and isinstance(error, Exception):
        from odi_assets.spark.death import death_of_spark

        error = death_of_spark(error) or error
    if debugging() and not _is_usage(error):
        note("".join(traceback.format_exception(error)).rstrip())
    if _is_usage(error):
        return _report_usage(error)
    if isinstance(error, OdiError):
        note(f"odi: {readable(str(error))}")
        return BAD_INPUT if isinstance(error, ConfigError) else FAILED
    if isinstance(error, OSError):
        note(f"odi: {type(error).__name__}: {error}")
        return FAILED
    note(f"odi: {type(error).__name__}: {readable(str(error))}")
    note("  → this is a bug in odi_assets; please report it with what --debug prints")
    return FAILED


def readable(message: str) -> str:
    """``message`` without the Java stacks and query plans that Spark puts into its messages; whole with --debug."""
    return message if debugging() else without_stacks(message)


def _is_usage(error: BaseException) -> bool:
    # Typer keeps its usage errors in a private module; all of them, and nothing of ours, know an exit code.
    return hasattr(error, "exit_code") and hasattr(error, "format_message")


def _report_usage(error: BaseException) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return BAD_INPUT
    note(f"odi: {error.format_message()}")  # type: ignore[attr-defined]
    elsewhere = _ELSEWHERE.get((_NO_COMMAND.search(error.format_message()) or [""])[0])  # type: ignore[attr-defined]
    if elsewhere is not None:
        note(f"  → here it is: {elsewhere}")
    elif context is not None:
        note(f"  → `{context.command_path} --help` says what it takes")
    return BAD_INPUT


def reader_gone() -> int:
    """The exit code where nobody reads stdout any more; what is still buffered is dropped."""
    # Whatever is still buffered goes nowhere, or the interpreter would complain about it at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return READER_GONE
