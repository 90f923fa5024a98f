"""Parquet files that Spark cannot read with the columns of the project file, by what their footers say."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from odi_assets.errors import SourceError
from odi_assets.sources.files.parquet.footer import footer_schema

if TYPE_CHECKING:
    from odi_assets.sources.files.snapshot import FilesSnapshot

_OTHER_TYPE = re.compile(r"column: \[([^\]\n]*)\], physicalType: (\w+), logicalType: ([^\n]+)")
_NO_GROUP = re.compile(r"(?:optional|required|repeated) (\w+) (\S+)(?: \(\w+\))?(?: = \d+)? is not a group")
_NO_COLUMN = "Index 0 out of bounds for length 0"


def without_columns(files: FilesSnapshot, path: str) -> SourceError | None:
    """The error for a file that has no column, so that none of its rows has a value; None if it has one."""
    if len(footer_schema(files, path)) > 0:
        return None
    return SourceError(
        f"{files.label}: {path} is a Parquet file without a column, so it has nothing to load",
        fix="land it again with its columns; or take it away, or give it a name that begins with `_`; nothing was "
        "loaded",
        path=path,
    )


def misread(files: FilesSnapshot, path: str, text: str) -> SourceError | None:
    """The error for a file of which Spark says that a column has another type; None if it says something else.

    Args:
        text: what Spark said, with the causes.
    """
    if _NO_COLUMN in text and (error := without_columns(files, path)) is not None:
        return error
    other, group = _OTHER_TYPE.search(text), _NO_GROUP.search(text)
    if other is not None:
        column, physical, wanted_type = other[1].replace(", ", "."), other[2], other[3].strip().upper()
    elif group is not None:
        column, physical, wanted_type = group[2], group[1].upper(), "another type with parts"
    else:
        return None
    top = column.partition(".")[0]
    if group is not None and files.schema is not None:
        wanted_type = next(
            (field.dataType.simpleString().upper() for field in files.schema if field.name == top), wanted_type
        )
    if _is_null(files, path, column):
        what = f"column `{column}` has no value in all of the file, so Parquet's type NULL, which Spark does not read"
        return _refused(files, path, column, f"{what} as {wanted_type}", wanted_type, "such a column fits every type")
    what = f"column `{column}` is {physical} in the file, and {wanted_type} in `read.schema`"
    return _refused(files, path, column, what, wanted_type, "values are converted that are of the type as they are")


def _refused(files: FilesSnapshot, path: str, column: str, what: str, wanted: str, else_: str) -> SourceError:
    if files.strict:
        # Only a stream gets there: a batch reads each file by its own types, and converts its values.
        batch = "or load the files in a node with `incremental: files`"
        other = f"{batch}, where {else_}, and let the stream read the table of that node"
    else:
        other = f"or leave out `strict: false`: then {else_}"
    return SourceError(
        f"{files.label}: {path}: {what}",
        fix=f"land the file again, under its name, with the column as {wanted}; {other}; no row of it was loaded",
        path=path,
        column=column,
    )


def _is_null(files: FilesSnapshot, path: str, column: str) -> bool:
    schema = footer_schema(files, path)
    leaves = [schema.column(number) for number in range(len(schema))]
    own = [leaf for leaf in leaves if leaf.path.lower().endswith(column.lower())]
    return any(json.loads(leaf.logical_type.to_json())["Type"] == "Null" for leaf in own)
