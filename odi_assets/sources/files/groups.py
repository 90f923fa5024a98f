"""Files of one shape as Spark reads them together, and the error that says how files differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odi_assets.errors import SourceError
from odi_assets.sources.files.deliveries import empty_option, stopping_columns, strict_rows
from odi_assets.sources.files.folders import column_name
from odi_assets.sources.files.parquet.footer import footer_schema
from odi_assets.sources.files.parquet.nanoseconds import with_nanoseconds
from odi_assets.sources.files.parquet.nulls import with_nulls
from odi_assets.sources.files.parquet.texts import with_utf_8
from odi_assets.sources.files.settings import FileFormat
from odi_assets.spark.lazy import F, spark_errors
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.sources.files.snapshot import FilesSnapshot

SHOWN = 3
"""How many columns a message names."""


@dataclass(frozen=True)
class FileGroup:
    """Files that Spark can read together: of one shape, below folders that name the same columns.

    Attributes:
        way: how they have to be read, as ``deliveries.looks`` found it.
    """

    paths: Sequence[str]
    keys: tuple[str, ...]
    way: str = ""

    def __str__(self) -> str:
        more = f" and {len(self.paths) - 1:,} more like it" if len(self.paths) > 1 else ""
        return f"{self.paths[0]}{more}"


def csv_columns(spark: SparkSession, files: FilesSnapshot, group: FileGroup, names: Sequence[str]) -> list[str]:
    """The ``names`` that are columns of the CSV files themselves: the others are in the names of their folders."""
    in_folders = {column_name(key).lower() for key in group.keys}
    own = files.load(spark, group.paths[:1]).columns
    if files.has_header:
        in_header = {name.lower() for name in own}
        return [name for name in names if name.lower() in in_header or name.lower() not in in_folders]
    without = [name for name in names if name.lower() not in in_folders]
    return without if len(own) == len(without) else list(names)


def read_as_is(
    spark: SparkSession, files: FilesSnapshot, paths: Sequence[str], way: str = "", *, takes_bytes: bool = False
) -> DataFrame:
    """The columns that files of one shape have themselves.

    Args:
        way: how they have to be read, as ``deliveries.looks`` found it.
        takes_bytes: texts of Parquet may have bytes that are not UTF-8: the caller looks for them.

    Raises:
        SourceError: two columns have one name, or a type is one that Spark does not have.
    """
    try:
        rows = files.load(spark, paths, **empty_option(way))
        rows.schema  # noqa: B018  Spark Connect looks at the files only now
    except spark_errors.AnalysisException as error:
        condition = error.getCondition() or ""
        if condition.startswith("PARQUET_TYPE"):
            rows = with_nanoseconds(spark, files, paths, error)
            return _of_parquet(files, paths, rows, takes_bytes=takes_bytes)
        if condition != "COLUMN_ALREADY_EXISTS":
            raise
        name = (error.getMessageParameters() or {}).get("columnName", "`?`")
        among = paths[0] if len(paths) == 1 else f"one of {len(paths):,} files, among them {paths[0]},"
        raise SourceError(
            f"{files.label}: {among} has several columns {name}, in capitals and small letters; Spark's names know "
            "no capitals",
            fix="land it with another name for one of them, or give it a name that begins with `_`; nothing was loaded",
            path=paths[0],
            column=name.strip("`"),
        ) from error
    if files.format == FileFormat.JSON and files.one_shape and len(paths) > 1:
        _require_same_keys(files, rows)
    if files.format == FileFormat.PARQUET:
        return _of_parquet(files, paths, rows, takes_bytes=takes_bytes)
    if not files.strict:
        return rows
    # Values may have other types than they are written in: those that Spark inferred.
    schema = rows.schema
    values = stopping_columns(files, schema, way)
    return strict_rows(spark, files, paths, schema, way).withColumns(values) if values else rows


def _of_parquet(files: FilesSnapshot, paths: Sequence[str], rows: DataFrame, *, takes_bytes: bool) -> DataFrame:
    checked = with_utf_8(rows) if files.strict and not takes_bytes else rows
    return with_nulls(checked, footer_schema(files, paths[0]).to_arrow_schema())


def _require_same_keys(files: FilesSnapshot, rows: DataFrame) -> None:
    """Raises SourceError unless all files of JSON have the same keys, each in any of its records."""
    names = rows.columns
    path = rows.metadataColumn("_metadata").getField("file_path")
    has = [F.max(F.col(quoted(name)).isNotNull()).alias(f"c{i}") for i, name in enumerate(names)]
    by_file = rows.groupBy(path.alias("path")).agg(*has)
    shapes = by_file.groupBy([f"c{i}" for i in range(len(names))]).agg(F.min("path").alias("path")).limit(2).collect()
    if len(shapes) < 2:
        return
    first, second = sorted(shapes, key=lambda row: str(row["path"]))
    only = [[name for i, name in enumerate(names) if a[i] and not b[i]] for a, b in ((first, second), (second, first))]
    differences = [
        f"only {row['path']} has {listed(some)}" for row, some in zip((first, second), only, strict=True) if some
    ]
    raise differing(files, differences, [*only[0], *only[1]])


def listed(names: Sequence[str]) -> str:
    """The first columns by name, and how many more there are."""
    more = f" and {len(names) - SHOWN:,} more columns" if len(names) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:SHOWN]) + more


def differing(files: FilesSnapshot, differences: Sequence[str], columns: Sequence[str]) -> SourceError:
    """The error for files that have different columns."""
    return SourceError(
        f"{files.label}: its files have different columns: {'; '.join(differences)}",
        fix="set `write.schema: evolve` (files are united by the names of their columns), or land files of one shape; "
        "nothing was loaded",
        path=files.base.uri,
        columns=tuple(sorted(columns)),
    )
