"""Columns that are written in the names of folders, as Hive does: ``day=2024-01-01/``.

Spark guesses their types from the values that it reads together, so that a type would depend on which files come in
one increment. Here they are text, unless the project file names their types. A column that a file has itself is
taken from the file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from odi_assets.delta.files.footers import HIVE_NULL
from odi_assets.sources.files.values import Reading
from odi_assets.spark.lazy import F
from odi_assets.spark.raised import stopped_by
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


def folder_keys(path: str) -> tuple[str, ...]:
    """The columns that the folders of a file's path name, each once, as Hive escaped them: ``("day",)``."""
    names = (folder.partition("=") for folder in path.split("/")[:-1])
    return tuple(dict.fromkeys(name for name, equals, _ in names if name and equals))


def folder_values(path: str, columns: Collection[str] | None = None) -> dict[str, str]:
    """The values that the folders of a file's path give to its rows, by column in small letters.

    Args:
        columns: those that the rows can have, in small letters; None: all.

    Example:
        >>> folder_values("in/Day=2024%2D01/a.json")
        {'day': '2024-01'}
    """
    last = dict(folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder)
    values = {column_name(key).lower(): unquote(last[key]) for key in folder_keys(path)}
    return {
        name: value for name, value in values.items() if value != HIVE_NULL and (columns is None or name in columns)
    }


def column_name(key: str) -> str:
    """The name of a folder's column: Hive writes characters like ``:`` as ``%3A``."""
    return unquote(key)


def folder_column(rows: DataFrame, key: str, kind: DataType | None = None) -> Column:
    """The value of a folder's column for each row of files.

    Args:
        rows: as Spark reads them, not selected from yet.
        kind: the type that the project file gives it; None: text. A value that is none of this type stops the read.
    """

    def decoded(text: Column) -> Column:
        # In a path, `+` is no space, and `%` need not begin an escaped character.
        plain = F.regexp_replace(F.regexp_replace(text, r"\+", "%2B"), "%(?![0-9A-Fa-f]{2})", "%25")
        return F.coalesce(F.try_url_decode(plain), text)

    path = decoded(rows.metadataColumn("_metadata").getField("file_path"))
    # A file of a stream may have no such folder: NULL. Folders of one read may be `k=1` and `K=2`; of several in a
    # path, the last one counts.
    named = F.lit(rf"(?iu).*/{_java_quoted(key)}=([^/]*)/")
    value = decoded(F.get(F.regexp_extract_all(path, named, 1), F.lit(0)))
    text = F.when(value != HIVE_NULL, value)
    if kind is None or kind.simpleString() == "string":
        return text
    typed = Reading({}, empty="").checked(text, kind)
    assert typed is not None
    name, type_name = column_name(key), kind.simpleString()
    fix = f"rename the folder, or make `{name}` a STRING in `read.schema`"
    stopped = stopped_by(
        f"there is a folder {key}=", value, f", and `{name}` is {type_name} in the project file", fix=fix
    )
    return F.when(typed.misfits, stopped.cast(kind)).otherwise(typed.value)


def with_folder_columns(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """``rows`` with the columns of their folders behind their own, as text."""
    own = {name.lower() for name in rows.columns}
    more = [key for key in keys if column_name(key).lower() not in own]
    if not more:
        return rows
    return rows.select("*", *[folder_column(rows, key).alias(column_name(key)) for key in more])


def filled_from_folders(
    rows: DataFrame,
    keys: tuple[str, ...],
    schema: StructType | None = None,
    values: Mapping[str, Column] | None = None,
    more: Sequence[Column] = (),
) -> DataFrame:
    """``rows`` with the values of folders where a row has none of a column that a folder names.

    Args:
        schema: the columns to return, by default the columns of ``rows``; what neither row nor folder has is NULL.
        values: of columns that are not taken from ``rows`` as they are.
        more: columns to return behind them.
    """
    by_name = {column_name(key).lower(): key for key in keys}
    own = {**{field.name: F.col(quoted(field.name)) for field in rows.schema}, **(values or {})}
    own = {name.lower(): value for name, value in own.items()}
    columns = []
    for field in schema or rows.schema:
        name, key = field.name, by_name.get(field.name.lower())
        candidates = [own[name.lower()]] if name.lower() in own else []
        candidates += [folder_column(rows, key, field.dataType)] if key is not None else []
        value = candidates[0] if len(candidates) == 1 else F.coalesce(*candidates, F.lit(None).cast(field.dataType))
        columns.append(value.alias(name))
    return rows.select(*columns, *more)


def _java_quoted(text: str) -> str:
    return re.sub(r"([^\w\s%])", r"\\\1", text)
