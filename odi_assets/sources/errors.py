"""Files that Spark could not read, as an error of ours: which file, why, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from odi_assets.errors import SourceError

# Spark's error conditions, in the words of its error-conditions.json; py4j hands over the text alone.
_FILE = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (\S+?)\.\s")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+(?:Exception|Error): )?(.+)$", re.MULTILINE)
_LONGEST = 400


@contextmanager
def unreadable_files_named(label: str) -> Iterator[None]:
    """Within, a file that Spark cannot read raises a SourceError that names it.

    Args:
        label: who reads it: ``pipeline.node``.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        found = _FILE.search(text)
        if found is None:
            raise
        why = "".join(f": {cause[:_LONGEST].strip()}" for cause in _telling(_CAUSE.findall(text)))
        raise SourceError(
            f"{label}: {found[1]} cannot be read{why}",
            fix="nothing was loaded. Land the file again, whole (under a name that begins with `.` or `_` until it is "
            "complete), or say in `read` what it is like: `format`, `schema`, `options`",
            node=label,
            path=found[1],
        ) from error


def _telling(causes: list[str]) -> list[str]:
    """Of a chain of causes, Spark's last one and the deepest: which record is wrong, and what is wrong with it."""
    of_spark = [cause for cause in causes if cause.startswith("[") and not cause.startswith("[FAILED_READ_FILE")]
    return list(dict.fromkeys([*of_spark[-1:], *causes[-1:]]))
