"""Reads of files that lose data: by an option of Spark's reader, or by a path that nothing is looked at below.

Reader options: Spark leaves out files, lines or columns by them, and says nothing.
A file that was read with one of them would count as loaded, though some of it is in no table. The names come from
Spark's documentation: "Generic File Source Options", "CSV Files", "JSON Files", "Parquet Files".
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from odi_assets.config.diagnostics.mistakes import Mistake, about

_FILES = ("csv", "json", "parquet")
_TEXT = ("csv", "json")


class _Rule(NamedTuple):
    """An option that loses data.

    Attributes:
        message: what it does, and what to use instead.
        loses: whether it does so with a value.
        without_schema: it does so only as Spark looks for the columns by itself.
    """

    formats: tuple[str, ...]
    message: str
    loses: Callable[[str], bool] = lambda value: value.lower() != "false"
    without_schema: bool = False


_REPAIR = "repair the file, or give it a name that begins with `_`"
_RULES: Mapping[str, _Rule] = {
    "pathglobfilter": _Rule(_FILES, "leaves out files that count as loaded: write the glob in `path`, as in `*.csv`"),
    "modifiedafter": _Rule(_FILES, "leaves out files that count as loaded: use `incremental: {mode: files}`"),
    "modifiedbefore": _Rule(_FILES, "leaves out files that count as loaded: use `settle` of `mode: files`"),
    "ignorecorruptfiles": _Rule(_FILES, f"leaves out files that count as loaded: {_REPAIR}"),
    "ignoremissingfiles": _Rule(_FILES, "leaves out files that count as loaded: run the node again instead"),
    "recursivefilelookup": _Rule(_FILES, "is not needed: `path: folder` and `path: folder/**/*.csv` look below"),
    "basepath": _Rule(_FILES, "is not needed: folders like `day=2024-01-01` are columns already"),
    "comment": _Rule(("csv",), "leaves out lines: read them with `rescued`, and drop them in the transform"),
    "samplingratio": _Rule(
        _TEXT,
        "leaves out columns that the sample lacks: name the columns in `schema`",
        lambda value: value != "1.0",
        without_schema=True,
    ),
    "dropfieldifallnull": _Rule(("json",), "leaves out columns: name the columns in `schema`", without_schema=True),
    "unescapedquotehandling": _Rule(
        ("csv",),
        "`SKIP_VALUE` leaves out values: use `rescued`, which keeps what does not fit",
        lambda value: value.lower() == "skip_value",
    ),
    "singlevariantcolumn": _Rule(_TEXT, "is not taken: name a VARIANT's parts in `schema`", lambda value: bool(value)),
}
_MODE = "leaves out what does not fit `schema`, and says nothing: use `rescued: COLUMN`, which keeps it as JSON"

_WIDE = re.compile(r"(x-)?utf[-_]?(16|32)", re.IGNORECASE)
_BYTES = 'is cut into lines at bytes, in the middle of its characters: add `multiLine: "true"`, which cuts its text'


def losing_options(format_: str, options: Mapping[str, str], schema: str | None, rescued: str | None) -> list[Mistake]:
    """The options that would lose data, each as a mistake in a ``read``.

    Args:
        format_: of the files.
        schema: the columns that the project file names, in Spark's DDL.
        rescued: the column that keeps what does not fit.
    """
    by_name = {name.lower(): (name, value) for name, value in options.items()}
    mistakes = []
    for key, rule in _RULES.items():
        name, value = by_name.get(key, ("", ""))
        applies = format_ in rule.formats and not (rule.without_schema and schema)
        if name and applies and rule.loses(value):
            mistakes.append(Mistake(rule.message, at=("options", name), where="key"))
    name, encoding = by_name.get("encoding", by_name.get("charset", ("", "")))
    _, many_lines = by_name.get("multiline", ("", "false"))
    if format_ == "csv" and _WIDE.match(encoding) and many_lines.lower() != "true":
        mistakes.append(Mistake(f"`{encoding}` {_BYTES}", plain=_BYTES, at=("options", name)))
    name, mode = by_name.get("mode", ("", "failfast"))
    if format_ not in _TEXT or mode.lower() == "failfast":
        return mistakes
    if mode.lower() != "permissive" or not (rescued or _keeps_bad_lines(by_name, schema)):
        mistakes.append(Mistake(f"`{mode}` {_MODE}", plain=_MODE, at=("options", name)))
    return mistakes


def _keeps_bad_lines(options: Mapping[str, tuple[str, str]], schema: str | None) -> bool:
    """Whether Spark keeps lines that do not fit in a column that the schema names."""
    _, column = options.get("columnnameofcorruptrecord", ("", "_corrupt_record"))
    return column.lower() in (schema or "").lower().replace("`", "").replace(",", " ").split()


_HIDDEN = re.compile(r"(?:[_.]|\[[_.]+\])[^=]*|.*\._COPYING_", re.DOTALL)
"""A part of a path, or of a glob, that names nothing but what Spark leaves out: see ``sources.files.listing``."""


def hidden_parts(path: str) -> list[Mistake]:
    """The mistake of a path of files that leads to names which are never looked at; none if it does not.

    Args:
        path: below a connection; may be a glob.
    """
    parts = [part for part in posixpath.normpath(path).split("/") if part not in ("", ".", "..")]
    hidden = next((part for part in parts if part.startswith(".") or _HIDDEN.fullmatch(part)), None)
    if hidden is None:
        return []
    text = "is never looked at: names that begin with `_` or `.` (but for `_k=3`), or end with `._COPYING_`, are for "
    text += "unfinished files, as in Spark; rename it, or, if it is a folder, give a connection the `base_path`"
    return [about(hidden, text, at=("path",))]


_OF_STREAMS = {
    "latestfirst": "takes the newest files first, and rows of the older ones would come too late",
    "maxfilespertrigger": "has a key of its own: `max_files_per_batch` of the input, in `stream.inputs`",
    "maxbytespertrigger": "is not taken: use `max_files_per_batch` of the input, in `stream.inputs`",
    "maxfileage": "leaves out files that are older than the newest one by so much",
    "filenameonly": "leaves out files whose names other folders have, too",
    "cleansource": "is not taken: the files show later why a row is missing",
}
"""Options of Spark's file streams that lose rows or have a key of their own, in lower case."""


def taken_by_streams(options: Mapping[str, str]) -> Iterator[Mistake]:
    """Find options of Spark's streams that lose rows or have a key of their own, each as a mistake in a ``read``."""
    for name in options:
        if name.lower() in _OF_STREAMS:
            yield Mistake(_OF_STREAMS[name.lower()], at=("options", name), where="key")
