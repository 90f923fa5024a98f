"""What lies in a landing folder is loaded, or named: files of text, judged by the standard of their format.

Each file is looked at before Spark reads it (see ``look``), and each value as it is read (see ``values``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote

from odi_assets.errors import SourceError
from odi_assets.sources.errors import FIX_OF_QUOTES
from odi_assets.sources.files.folders import column_name, folder_keys
from odi_assets.sources.files.keys import KeyJudge, tree_of
from odi_assets.sources.files.look.files import as_text, looked_at
from odi_assets.sources.files.look.json_text import Key, Tree, json_look
from odi_assets.sources.files.look.json_values import require_types
from odi_assets.sources.files.look.text import Fault
from odi_assets.sources.files.parquet.misread import misread
from odi_assets.sources.files.settings import FileFormat
from odi_assets.sources.files.values import Checked, Reading
from odi_assets.spark.lazy import F, T
from odi_assets.spark.raised import stopped_by
from odi_assets.tables.columns import EXACT_TIMES, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

    from odi_assets.sources.files.snapshot import FilesSnapshot

EMPTY = "empty"
"""Files of CSV in which a value may be the empty text, in quotes."""

SPLIT = "split"
"""Files of JSON with lines that Spark reads in part only: their lines are looked at one by one."""

_SPLITTING = ("silent", "capitals")
_EMPTY_TEXT = "\x01an empty text\x01"
_FAR_AND_LARGE = 256 * 1024 * 1024
_OFF = "or `read.strict: false` reads such files as Spark does"
_FIXES = {
    "bytes": "say in `read.options` what it is, as `encoding: ISO-8859-1`; or land it again as UTF-8",
    "broken": "land the file again, whole; or set `read.rescued: COLUMN`, which keeps such lines",
    "unseen": "land it packed with gzip, bzip2 or zstd, or not at all, in UTF-8",
    "packed": "land the file again, whole, under a name that says how it is packed, with nothing behind its end",
    "name": "give it that end, or land it as it was before it was packed",
    "quote": FIX_OF_QUOTES,
    "names": "correct the names in the header, each for one column, and land the file again",
    "deep": "land it with values that are nested less deeply; or set `read.rescued: COLUMN`, which keeps such lines",
    "capitals": "write the key in one way; or, if it is part of a column, make the column a STRING in `read.schema`, "
    "which keeps it as it is written",
    "json": "land one object on a line (without `multiLine`) or one JSON text in a file (with it), each key once",
    "breaks": 'name the end of the lines, as `options: {lineSep: "\\n"}` or `"\\r"`, if it is one of them; or land the '
    "file with LF at the end of all lines",
    "ends": "leave `lineSep` out of `read.options`: lines end with LF, CR LF or CR then; or correct the file, and land "
    "it again",
    "blank": 'write a value there, as `\\N`, and name it: `options: {nullValue: "\\\\N"}`; or, if nothing was to be '
    "there, land the file again without such lines",
    "nanoseconds": "land it with times of type INT64 in microseconds, or with whole microseconds",
    "csv": 'values with line breaks need `options: {multiLine: "true"}`; otherwise correct the file, and land it again',
}


def looks(spark: SparkSession, files: FilesSnapshot, paths: Sequence[str]) -> Mapping[str, str]:
    """By path, how a file has to be read: ``EMPTY``, ``SPLIT``, or the empty text.

    Raises:
        SourceError: a file is not as the standard of its format has it, and Spark would not say so, or would not say
            where.
    """
    new = [path for path in paths if path not in files.findings]
    if new:
        files.findings.update(zip(new, _findings(spark, files, new, _look(files)), strict=True))
        if files.format == FileFormat.JSON:
            _judge_keys(files, paths)
    return {path: _way(files, path, files.findings[path]) for path in paths}


def _judge_keys(files: FilesSnapshot, paths: Sequence[str]) -> None:
    """Adds to the findings what is wrong with the keys of files."""
    of_folders = {column_name(key).lower() for path in paths for key in folder_keys(path)}
    schema = files.schema
    names = set() if schema is None else set(schema.names) - {files.corrupt_column}
    needed = {name for name in names if name.lower() not in of_folders}
    judge = KeyJudge(None if schema is None else tree_of(schema), needed, is_kept=files.rescued is not None)
    judged: dict[frozenset[Key], tuple[str, Any] | None] = {}
    for path in paths:
        keys = frozenset(map(tuple, files.findings[path].get("keys", ())))
        if keys not in judged:
            judged[keys] = judge.fault(set(keys))
        fault = judged[keys]
        files.findings[path] = {**files.findings[path], "keys": ()}
        if fault is not None:
            files.findings[path] = {"line": 0, "kind": fault[0], "why": fault[1]}


def require_standard(spark: SparkSession, files: FilesSnapshot, paths: Sequence[str], look: _Look) -> None:
    """Raises SourceError for the first of ``paths`` that ``look`` finds fault with."""
    for path, finding in zip(paths, _findings(spark, files, paths, look), strict=True):
        if "kind" in finding:
            raise _stopped(files, path, finding)


def _findings(spark: SparkSession, files: FilesSnapshot, paths: Sequence[str], look: _Look) -> list[Mapping[str, Any]]:
    sizes = {file.path: file.size for file in files.chosen}
    is_far = not files.base.is_local and sum(sizes.get(path, 0) for path in paths) > _FAR_AND_LARGE
    places = [files.base.child(path).uri for path in paths]
    return [json.loads(text) for text in looked_at(spark, as_text(look), places, by_spark=is_far)]


def remote_options(files: FilesSnapshot) -> Mapping[str, Any] | None:
    """fsspec's options for the store of files; None for local files."""
    return None if files.base.is_local else dict(files.base.fsspec_options)


_Look = Callable[[str], Mapping[str, Any]]


def _look(files: FilesSnapshot) -> _Look:
    remote = remote_options(files)
    if files.format == FileFormat.CSV:
        from odi_assets.sources.files.look.csv_text import csv_look

        return csv_look(files.options, remote)
    tree = tree_of(files.schema) if files.schema is not None else None
    rest: Tree | None = {} if tree is None or files.rescued else None
    return json_look(files.options, remote, tree or {}, rest)


def _way(files: FilesSnapshot, path: str, finding: Mapping[str, Any]) -> str:
    kind = finding.get("kind")
    if kind is None:
        return EMPTY if finding.get("empty") and not _says_what_is_null(files) else ""
    is_kept = files.rescued is not None or files.corrupt_column is not None
    if kind in ("broken", "deep") and is_kept and finding["line"]:
        return ""
    if kind in _SPLITTING and files.rescued and _can_be_split(files, path):
        return SPLIT
    if kind == "renamed":
        raise renamed(files, path, *finding["why"])
    raise unnamed_part(files, path, finding["why"]) if kind == "within" else _stopped(files, path, finding)


def way_of_all(files: FilesSnapshot) -> str:
    """How files have to be read that nobody has looked at."""
    has_texts = files.schema is not None and any(field.dataType.typeName() == "string" for field in files.schema)
    may_be_empty = files.format == FileFormat.CSV and has_texts and not _says_what_is_null(files)
    return EMPTY if files.strict and may_be_empty else ""


def _can_be_split(files: FilesSnapshot, path: str) -> bool:
    has_own_lines = {"multiline", "linesep", "encoding", "charset"} & {name.lower() for name in files.options}
    is_json = files.format == FileFormat.JSON and files.schema_ddl is not None
    return is_json and not has_own_lines and not folder_keys(path)


def _says_what_is_null(files: FilesSnapshot) -> bool:
    names = {name.lower() for name in files.options}
    of_spark = {
        "nullvalue",
        "emptyvalue",
        "inferschema",
        "locale",
        "timezone",
        "nanvalue",
        "positiveinf",
        "negativeinf",
    }
    return bool(names & of_spark)


def _stopped(files: FilesSnapshot, path: str, finding: Mapping[str, Any]) -> SourceError:
    location = f"{path}:{finding['line']}" if finding["line"] else path
    kind = str(finding["kind"])
    kept = "; or set `read.rescued: COLUMN`, which keeps such lines"
    kept = kept if kind in _SPLITTING and _can_be_split(files, path) else ""
    return SourceError(
        f"{files.label}: {location} cannot be read: {finding['why']}",
        fix=f"nothing was loaded: {_FIXES[files.format if kind == 'silent' else kind]}{kept}; {_OFF}",
        path=path,
        line=finding["line"],
    )


def renamed(files: FilesSnapshot, path: str, missing: Sequence[str], more: Sequence[str]) -> SourceError:
    """A file that lacks columns of the schema, and has others: somebody may have renamed them."""
    lacking, others = (", ".join(f"`{name}`" for name in names[:3]) for names in (missing, more))
    return SourceError(
        f"{files.label}: no row of {path} has {lacking} of `read.schema`, and it has {others}, which the schema lacks: "
        "a column may have been renamed",
        fix="correct `read.schema`; or set `read.rescued: COLUMN`, which keeps columns that it does not name; "
        "or `read.strict: false` makes NULL of what is missing; nothing was loaded",
        path=path,
        columns=tuple(missing),
    )


def unnamed_part(files: FilesSnapshot, path: str, name: str) -> SourceError:
    """A file with values that have a part that their type in the schema has not."""
    column = name.partition(".")[0]
    return SourceError(
        f"{files.label}: {path} has `{name}`, and the type of `{column}` in `read.schema` has no such part",
        fix="name it in `read.schema`; or set `read.rescued: COLUMN`, which keeps such values whole; or `read.strict: "
        "false` leaves it out; nothing was loaded",
        path=path,
        columns=(name,),
    )


def reading_of(files: FilesSnapshot, way: str) -> Reading:
    """How the values of files are read that :func:`looks` found to be of one ``way``."""
    options = {name.lower(): value for name, value in files.options.items()}
    return Reading(options, files.format == FileFormat.JSON, _EMPTY_TEXT if way == EMPTY else None, bool(files.rescued))


def empty_option(way: str) -> dict[str, str]:
    """Reader options of CSV that tell an empty text from none."""
    return {"emptyValue": _EMPTY_TEXT} if way == EMPTY else {}


def strict_rows(
    spark: SparkSession, files: FilesSnapshot, paths: Sequence[str], schema: StructType, way: str
) -> DataFrame:
    """The rows of files, with the columns of ``schema``; a value that its type does not hold stops the read.

    The rows can be selected from, with the columns that Spark adds to files.
    """
    return files.load(spark, paths, as_read(files, schema, way), **empty_option(way))


def as_read(files: FilesSnapshot, schema: StructType, way: str) -> StructType:
    """The types that Spark reads the columns of ``schema`` as."""
    reading = reading_of(files, way)
    corrupt_column = files.corrupt_column
    return T.StructType(
        [
            field if field.name == corrupt_column else T.StructField(field.name, reading.as_text(field.dataType))
            for field in schema
        ]
    )


def checked_columns(files: FilesSnapshot, schema: StructType, way: str) -> dict[str, Checked]:
    """The columns of ``schema``, of rows read as :func:`as_read` says, that need a look; by name."""
    reading = reading_of(files, way)
    checked_by_name = {
        field.name: reading.checked(F.col(quoted(field.name)), field.dataType)
        for field in schema
        if field.name != files.corrupt_column
    }
    return {name: checked for name, checked in checked_by_name.items() if checked is not None}


def stopping_columns(
    files: FilesSnapshot, schema: StructType, way: str, row_place: Column | None = None
) -> dict[str, Column]:
    """The columns of ``schema`` that need a look. What does not fit stops the read, or is kept by the column of
    ``schema`` that keeps what Spark cannot parse.

    Args:
        row_place: where a row is, in messages; by default its file.
    """
    checked, corrupt_column = checked_columns(files, schema, way), files.corrupt_column
    if corrupt_column is not None and checked:
        wrong = [F.when(check.misfits, F.col(quoted(name))).alias(name) for name, check in checked.items()]
        text = F.to_json(F.struct(*wrong), EXACT_TIMES)
        values = {name: F.when(~check.misfits, check.value) for name, check in checked.items()}
        return {**values, corrupt_column: F.coalesce(F.col(quoted(corrupt_column)), F.when(text != "{}", text))}
    fields = {field.name: field for field in schema}
    return {name: value_or_stop(fields[name], Misfit(*check), row_place) for name, check in checked.items()}


def without_missing(
    rows: DataFrame, schema: StructType, rescued: str | None, row_place: Column | None = None
) -> DataFrame:
    """``rows``; one that has no value where ``schema`` has NOT NULL stops the read, unless it was kept aside."""
    columns = {}
    row_place = F.input_file_name() if row_place is None else row_place
    for field in schema:
        own = F.col(quoted(field.name))
        lacks = _lacks(own, field.dataType, field.nullable)
        if lacks is None:
            continue
        is_kept = F.lit(False) if rescued is None else F.col(quoted(rescued)).isNotNull()
        fix = (
            f"leave out NOT NULL in `read.schema`, and give the node a `validation` of `{field.name}`; or correct the "
            "file, and land it again; nothing was loaded"
        )
        what = f": column `{field.name}` has no value in a row, and is NOT NULL in `read.schema`"
        stopped = stopped_by(row_place, what, fix=fix).cast(field.dataType)
        columns[field.name] = F.when(lacks & ~is_kept, stopped).otherwise(own)
    return rows.withColumns(columns) if columns else rows


def _lacks(column: Column, kind: DataType, nullable: bool) -> Column | None:
    """Whether a value, or a part of it, is missing that its type demands; None if it demands none."""
    missing = [] if nullable else [column.isNull()]
    if isinstance(kind, T.StructType):
        parts = [_lacks(column[field.name], field.dataType, field.nullable) for field in kind]
        missing += [column.isNotNull() & part for part in parts if part is not None]
    elif isinstance(kind, T.ArrayType | T.MapType):
        inner = kind.elementType if isinstance(kind, T.ArrayType) else kind.valueType
        values = column if isinstance(kind, T.ArrayType) else F.map_values(column)
        if _lacks(F.lit(None).cast(inner), inner, True) is not None:
            part = F.exists(values, lambda inner_value: cast("Column", _lacks(inner_value, inner, True)))
            missing.append(F.coalesce(part, F.lit(False)))
    return reduce(lambda left, right: left | right, missing) if missing else None


class Misfit(NamedTuple):
    """A value as its type has it, and whether it does not fit; ``why`` in words."""

    value: Column
    misfits: Column
    why: str = ""


def _fix_of_type(name: str) -> str:
    return (
        f"give `{name}` a type in `read.schema` that holds it (STRING holds all texts); or set `read.rescued: COLUMN`, "
        "which keeps what does not fit; or `read.strict: false` takes what Spark makes of it; nothing was loaded"
    )


def file_error(files: FilesSnapshot, uri: str, text: str) -> SourceError | None:
    """The error for a file that Spark stopped at, if its format says more than Spark does; else None.

    Args:
        uri: the file's URI, as Spark names it.
        text: what Spark said, with the causes.
    """
    path = next((file.path for file in files.chosen if unquote(uri).endswith(f"/{file.path}")), None)
    if path is None:
        return None
    try:
        if files.format == FileFormat.PARQUET:
            return misread(files, path, text)
        return _json_error(files, path) if files.strict and files.format == FileFormat.JSON else None
    except FileNotFoundError:
        # Its writer took it away, which Spark says too.
        return None


def _json_error(files: FilesSnapshot, path: str) -> SourceError | None:
    """The error for the first value that its type does not hold, in a file of JSON lines; None if there is none."""
    options = {name.lower(): value for name, value in files.options.items()}
    if files.schema is None or {"multiline", "linesep"} & set(options):
        return None
    kinds = {field.name: field.dataType for field in files.schema}
    encoding = options.get("encoding", options.get("charset", "utf-8"))
    names = {name: kind.typeName() for name, kind in kinds.items()}
    try:
        require_types(files.base.child(path).uri, remote_options(files), encoding, names)
    except Fault as fault:
        column = fault.kind
        if column not in kinds:
            return None
        what = f"column `{column}`: {fault.why} is no value of {kinds[column].simpleString()}"
        return SourceError(
            f"{files.label}: {path}:{fault.line}: {what}",
            fix=_fix_of_type(column),
            path=path,
            line=fault.line,
            column=column,
        )
    return None


def value_or_stop(field: StructField, misfit: Misfit, row_place: Column | None = None) -> Column:
    """The values of a column; one that does not fit stops the read, and is named with its file."""
    name, kind = field.name, field.dataType.simpleString()
    text = F.substring(F.col(quoted(name)).cast("string"), 1, 100)
    fix = _fix_of_type(name)
    what = f" {misfit.why} is no value of {kind}".replace("  ", " ")
    row_place = F.input_file_name() if row_place is None else row_place
    stopped = stopped_by(row_place, f": column `{name}`: ", text, what, fix=fix)
    return F.when(F.col(quoted(name)).isNotNull() & misfit.misfits, stopped.cast(field.dataType)).otherwise(
        misfit.value
    )
