"""What Spark could not read, as an error of ours: what it was, why, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from odi_assets.connections.location import Location
from odi_assets.errors import SourceError
from odi_assets.spark.lazy import java_errors, spark_errors
from odi_assets.spark.raised import error_text

# Spark's error conditions, in the words of its error-conditions.json; py4j hands over the text alone.
_FILE = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (\S+?)\.\s")
_GONE = (
    re.compile(r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (\S+?)\.\s"),
    re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (\S+?)\.(?:\s|$)"),
)
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+(?:Exception|Error): )?(.+)$", re.MULTILINE)
_LENGTHS = re.compile(r"^ Header length: ?(\d+), schema size: ?(\d+)$", re.MULTILINE)
_HEADER = re.compile(r"^ Header: ?(.*)\n Schema: ?(.*)$", re.MULTILINE)
_CSV_HEADER = "CSV header"
FIX_OF_QUOTES = (
    "quotes within quotes are doubled (RFC 4180); if the file writes a backslash before them, say so: "
    '`options: {escape: "\\\\"}`; `unescapedQuoteHandling: STOP_AT_DELIMITER` takes such values as written'
)
_FIXES = {
    # What an error says, and what to do about it in particular.
    "Unescaped quote character": FIX_OF_QUOTES,
    _CSV_HEADER: "`read.schema` must have the columns of the header, in its order: correct one of them; or set "
    "`read.rescued: COLUMN`, and files are read by the names in their headers",
    "maximum recursion depth": "land it with values that are nested less deeply; or name its columns in `read.schema`: "
    "a STRING keeps a value as it is written",
    "TIMESTAMP(NANOS": "Spark has no times in nanoseconds: make the column a BIGINT in `read.schema` (nanoseconds "
    "since 1970), or leave out `schema`: whole microseconds are read as times then",
}
_OF_PARQUET = (
    (
        re.compile(r"org\.apache\.hadoop\.io\.compress\.BrotliCodec|com\.hadoop\.compression\.lzo\.LzoCodec"),
        "Spark has no codec for this compression",
        "write it with the compression ZSTD, SNAPPY, GZIP, LZ4_RAW or none",
    ),
    (
        re.compile(r"Unsupported encoding: \w+"),
        "Spark does not read this encoding of such a column",
        "write it with the encodings PLAIN, RLE_DICTIONARY, DELTA_BINARY_PACKED or DELTA_BYTE_ARRAY",
    ),
)
"""What Spark says of files that it cannot read though they are whole, what that means, and how to write them."""

_LONGEST = 400


@contextmanager
def read_errors_named(label: str, tell: Iterable[Callable[[str], SourceError | None]]) -> Iterator[None]:
    """Within, an error of Spark that is about a source raises a SourceError that says what is wrong with it.

    Args:
        label: who reads: ``pipeline.node``.
        tell: what each of the sources makes of the text of an error; None if it is not about that source.
    """
    try:
        yield
    except (spark_errors.PySparkException, java_errors.Py4JError) as error:
        text = error_text(error)
        answers = (describe(text) for describe in tell)
        source_error = next((answer for answer in answers if answer is not None), None) or _gone_file(label, text)
        source_error = source_error or unreadable_file(label, text)
        if source_error is None:
            raise
        raise source_error from error


def unreadable_file(label: str, text: str) -> SourceError | None:
    """The error for a file that Spark names in the text of its error; None if it names none."""
    uri = unreadable_place(text)
    return None if uri is None else unreadable(label, uri, text)


def _gone_file(label: str, text: str) -> SourceError | None:
    """The error for a file that Spark names in the text of its error, and that is not there; None if it names none."""
    path = _gone_path(text)
    if path is None:
        return None
    return SourceError(
        f"{label}: {path} is not there any more",
        fix="type the command again; if that stops too, the file is lost: see `odi doctor`",
        node=label,
        path=path,
    )


def _gone_path(text: str) -> str | None:
    match = next(
        (candidate for candidate in (pattern.search(text) for pattern in _GONE) if candidate is not None), None
    )
    return None if match is None else _plain(match[1])


def _plain(uri: str) -> str:
    return unquote(re.sub(r"^file:/+", "/", uri))


def lost_data_file(label: str, text: str, table: Location) -> SourceError | None:
    """The error for a data file of a table that is damaged, or was removed after the plan had found it; None if it is
    none of its."""
    gone, damaged = _gone_path(text), unreadable_place(text)
    path = gone or (_plain(damaged) if damaged else None)
    if path is None or not path.startswith(f"{_plain(table.uri).rstrip('/')}/"):
        return None
    if gone is None:
        return SourceError(
            f"{label}: {path}, a data file of the table at {table.uri}, cannot be read{_reasons(text)}",
            fix="nothing was loaded: `odi doctor --deep` names all damaged files of the project's tables, and the ways "
            "on; put a file of another table back from a copy",
            node=label,
            path=path,
        )
    return SourceError(
        f"{label}: {path}, a data file of the table at {table.uri}, was removed while the run read it: "
        "`odi tables maintain` or another tool has cleaned up the table",
        fix="nothing was loaded: run it again; if that stops too, the file is lost: see `odi doctor`",
        node=label,
        path=path,
    )


def unreadable_place(text: str) -> str | None:
    """The URI of a file that Spark names in the text of its error; None if it names none."""
    match = _FILE.search(text)
    return None if match is None else match[1]


def is_about_header(text: str) -> bool:
    """Whether an error of Spark says that the header of a CSV file is not the schema's."""
    return _CSV_HEADER in text


def refused(label: str, files: str, text: str) -> SourceError:
    """The error for files that Spark does not read as the project file has it."""
    corrected = (
        "correct what this says of `read.schema` (a STRING holds texts of any length) or of `read.options`; or land "
        "the file with types and an encoding that Spark has"
    )
    why = " ".join(text.split("\n\nJVM stacktrace")[0].split())[:_LONGEST]
    return SourceError(
        f"{label}: {files} cannot be read: {why}",
        fix=f"nothing was loaded: {next((fix for what, fix in _FIXES.items() if what in text), corrected)}",
        node=label,
    )


def unreadable(label: str, path: str, text: str) -> SourceError:
    """The error for a file that Spark could not read.

    Args:
        label: who reads.
        text: what Spark said, with the causes.
    """
    why = _reasons(text)
    header = _HEADER.search(text)
    differs = f" (header: {header[1][:_LONGEST]}; schema: {header[2][:_LONGEST]})" if header else ""
    if lengths := _LENGTHS.search(text):
        differs = f" {lengths[1]} in the header, {lengths[2]} in the schema"
    of_parquet = next(((means, fix) for said, means, fix in _OF_PARQUET if said.search(text)), None)
    if of_parquet is not None:
        return SourceError(
            f"{label}: {path} cannot be read{why}: {of_parquet[0]}",
            fix=f"nothing was loaded: {of_parquet[1]}, and land it again",
            node=label,
            path=path,
        )
    whole = (
        "land the file again, whole (under a name that begins with `.` or `_` until it is complete), or say in `read` "
        "what it is like: `format`, `schema`, `options`"
    )
    return SourceError(
        f"{label}: {path} cannot be read{why}{differs}",
        fix=f"nothing was loaded: {next((fix for what, fix in _FIXES.items() if what in text), whole)}",
        node=label,
        path=path,
    )


def _reasons(text: str) -> str:
    return "".join(f": {cause[:_LONGEST].strip()}" for cause in _telling(_CAUSE.findall(text)))


def _telling(causes: list[str]) -> list[str]:
    """Of a chain of causes, Spark's last one and the deepest: which record is wrong, and what is wrong with it."""
    of_spark = [cause for cause in causes if cause.startswith("[") and not cause.startswith("[FAILED_READ_FILE")]
    return list(dict.fromkeys([*of_spark[-1:], *causes[-1:]]))
