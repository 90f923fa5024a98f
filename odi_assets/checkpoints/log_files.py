"""The files of a checkpoint: a version on the first line, JSON on the lines after it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from odi_assets.errors import CheckpointError

NEWEST_VERSION = 2
"""Of the logs of offsets, of commits and of operators, that Spark 4.2 writes."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def numbered_files(folder: Path) -> dict[int, Path]:
    """The files of a folder whose name is a number, by that number; empty if there is no such folder.

    Spark's checksums, and its files that are not renamed yet, have other names.
    """
    if not folder.is_dir():
        return {}
    return {int(entry.name): entry for entry in folder.iterdir() if entry.name.isascii() and entry.name.isdecimal()}


def read_lines(file: Path, newest_version: int = NEWEST_VERSION) -> tuple[int, list[str]]:
    """The version of a log file and the lines after it.

    Raises:
        CheckpointError: the file is empty, does not begin with a version, or is of a version after ``newest_version``.
    """
    lines = _text(file).split("\n")
    head = lines[0].strip()
    if not (head.startswith("v") and head[1:].isascii() and head[1:].isdecimal()):
        raise torn(file, "it is empty" if not head else f"it begins with {head[:20]!r}, not with a version such as v1")
    version = int(head[1:])
    if not 1 <= version <= newest_version:
        raise CheckpointError(
            f"{file} has version {version}; this package reads versions 1 to {newest_version}.",
            fix="upgrade odi_assets, or read the checkpoint with the Spark that wrote it",
            path=str(file),
        )
    return version, lines[1:]


def read_object(file: Path, text: str | None = None) -> dict[str, Any]:
    """The JSON object in ``text``, a part of ``file``; without ``text``, in the whole file.

    Raises:
        CheckpointError: it is not a JSON object.
    """
    try:
        value = json.loads(_text(file) if text is None else text)
    except json.JSONDecodeError as error:
        raise torn(file, f"its JSON ends or breaks at character {error.pos}: {error.msg}") from error
    if not isinstance(value, dict):
        raise torn(file, "its JSON is not an object")
    return value


def read_json(text: str) -> Any:
    """The JSON value that a text is; None if it is none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def instant(file: Path, milliseconds: Any) -> datetime | None:
    """The UTC time of a count of milliseconds since 1970; None for 0 or no count, which is Spark's "none yet"."""
    if milliseconds is None or milliseconds == 0:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except (TypeError, OverflowError) as error:
        raise torn(file, f"{milliseconds!r} is not a time in milliseconds") from error


def torn(file: Path, fault: str) -> CheckpointError:
    """The error for a log file whose content is not what Spark writes."""
    return CheckpointError(
        f"{file} is torn: {fault}.",
        fix=(
            "restore the file from a copy of the checkpoint. If it is the newest of offsets/ and has no twin in "
            "commits/, the batch never ran: remove it and Spark plans the batch again"
        ),
        path=str(file),
    )


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise torn(file, f"byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise CheckpointError(
            f"{file} cannot be read: {error.strerror}", fix="check that the file is there and readable", path=str(file)
        ) from error
