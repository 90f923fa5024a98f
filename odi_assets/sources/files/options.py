"""The options with which Spark reads landing files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from odi_assets.errors import SourceError
from odi_assets.sources.files.settings import FileFormat

if TYPE_CHECKING:
    from odi_assets.connections.location import Location
    from odi_assets.sources.files.snapshot import FilesSnapshot

_STRICT: Mapping[str, Mapping[str, str]] = {
    # Spark's default turns a line that it cannot parse into NULLs, and says nothing. Quotes within quotes are doubled
    # (RFC 4180); what is neither that nor a plain value is an error.
    FileFormat.CSV: {
        "mode": "FAILFAST",
        "enforceSchema": "false",
        "unescapedQuoteHandling": "RAISE_ERROR",
    },
    FileFormat.JSON: {"mode": "FAILFAST"},
}
"""Reader options unless the project file says otherwise."""

_NO_FILE_LEFT_OUT = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
_NAMES_WITH_COLONS = {
    # Hadoop's own local file system looks for a checksum beside each file, and fails at the name of that.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}


def reader_options(
    files: FilesSnapshot, base: Location, paths: Iterable[str], more: Mapping[str, str], *, infers: bool = False
) -> dict[str, str]:
    """The options of a read of ``paths``: ours, unless the project file sets them, and ``more``, which decides.

    Args:
        base: the files' base, under the name by which Spark reaches it.
        infers: Spark is to look for the columns.

    Raises:
        SourceError: a file has a name that Spark cannot open with these options.
    """
    options = {**_NO_FILE_LEFT_OUT, **base.reader_options, **files.options}
    if base.is_local:
        options |= _for_names(files, paths)
    return {**_strict(files, options, infers=infers), **options, **more}


def _strict(files: FilesSnapshot, options: Mapping[str, str], *, infers: bool) -> dict[str, str]:
    """The options with which files are read by the standard of their format, without those that are in ``options``."""
    by_name = {name.lower(): value for name, value in options.items()}
    strict_options = {
        name: value for name, value in _STRICT.get(files.format, {}).items() if name.lower() not in by_name
    }
    if files.strict and files.format == FileFormat.CSV and "columnpruning" not in by_name:
        # Else a line with too many or too few values goes unseen where a query needs some columns alone.
        strict_options["columnPruning"] = "false"
    if files.strict and files.format == FileFormat.JSON and "allowsinglequotes" not in by_name:
        strict_options["allowSingleQuotes"] = "false"
    is_one = by_name.get("multiline", "").lower() == "true"
    if files.format == FileFormat.JSON and by_name.keys() & {"encoding", "charset"} and not is_one:
        # Spark demands it. A CR before LF is white space of JSON.
        strict_options["lineSep"] = "\n"
    if files.format == FileFormat.CSV:
        strict_options |= _quotes(by_name)
    if infers and files.format == FileFormat.CSV:
        # Column names can only be compared with a schema; inferring one takes Spark a pass of its own.
        strict_options["enforceSchema"] = "true"
    return strict_options


def _quotes(by_name: Mapping[str, str]) -> dict[str, str]:
    """How quotes within quotes are read, where ``by_name``, the options in lower case, does not say it."""
    quote = by_name.get("quote", '"')
    escape = by_name.get("escape", quote or "\\")
    options = {} if "escape" in by_name else {"escape": escape}
    if escape == quote and "chartoescapequoteescaping" not in by_name:
        # Spark's default is NUL then, and its parser leaves each NUL of a quoted value out.
        options["charToEscapeQuoteEscaping"] = quote
    return options


def _for_names(files: FilesSnapshot, paths: Iterable[str]) -> Mapping[str, str]:
    """What reads files on a local disk whose names have colons."""
    with_colon = next((path for path in paths if ":" in path), None)
    if with_colon is None:
        return {}
    if files.is_true("multiline"):
        raise SourceError(
            f"{files.label}: {with_colon} has a colon in its name, and Spark cannot open it with `multiLine`",
            fix="give it another name, or a `path` to the node that does not match it",
            path=with_colon,
        )
    return _NAMES_WITH_COLONS
