"""Delta tables as Spark DataFrames, by file list."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from odi_assets.connections.cached import without_own_scheme
from odi_assets.connections.location import Location
from odi_assets.delta.errors import DamagedTableError
from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.maintenance.restore import lost_files
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.spark.lazy import F, T
from odi_assets.tables.columns import quoted
from odi_assets.tables.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NOT_ASCII = re.compile("%[89A-Fa-f][0-9A-Fa-f]")
"""Other writers escape the bytes of UTF-8; Spark takes each for a character of its own."""


def read_files(
    spark: SparkSession, handle: TableHandle, files: Iterable[LiveFile], *, file_as: str | None = None
) -> DataFrame:
    """The rows of some of the table's files, with the table's columns in the table's order.

    Args:
        file_as: name of a column to be added at the end: the URI of the file that a row is in, as Spark spells it.
    """
    schema = spark_schema(handle.schema_json)
    chosen = list(files)
    if not chosen:
        return spark.createDataFrame([], schema.add(file_as, T.StringType()) if file_as else schema)
    partitioned = bool(handle.partition_columns)
    if partitioned and not _have_hive_paths(chosen):
        return _read_by_partition(spark, handle, chosen, schema, file_as)
    return _parquet(spark, handle.location, chosen, schema, base_path=partitioned, file_as=file_as)


def read_staged(
    spark: SparkSession,
    table: Location,
    files: Sequence[WrittenFile],
    schema_json: str,
    flag: str | None = None,
    number: str | None = None,
) -> DataFrame:
    """The rows of files that are in the table's folder and not committed yet.

    Args:
        schema_json: the table's schema.
        flag: name of a BOOLEAN column that the files hold in addition to the table's columns.
        number: name of an INT column that they hold in addition.
    """
    schema = spark_schema(schema_json)
    if flag:
        schema = schema.add(flag, "boolean")
    if number:
        schema = schema.add(number, "integer")
    if not files:
        return spark.createDataFrame([], schema)
    return _parquet(spark, table, files, schema, base_path=any(file.partition for file in files))


def _parquet(
    spark: SparkSession,
    location: Location,
    files: Iterable[LiveFile | WrittenFile],
    schema: StructType,
    *,
    base_path: bool = False,
    file_as: str | None = None,
) -> DataFrame:
    table, location, chosen = location, location.for_spark, list(files)
    by = set(chosen[0].partition) if base_path else set()
    # Spark takes names of folders for bytes as they are escaped, and for texts as they were.
    of_bytes = {field.name for field in schema if field.name in by and isinstance(field.dataType, T.BinaryType)}
    as_read = [T.StructField(field.name, T.StringType()) if field.name in of_bytes else field for field in schema]
    reader = spark.read.schema(T.StructType(as_read)).options(**location.reader_options)
    if base_path:
        reader = reader.option("basePath", location.uri)
    rows = reader.parquet(*[location.child(file.path).spark_path for file in chosen])
    _require_none_emptied(rows, table, chosen)
    # Spark puts the columns that it takes from folders last.
    columns = [
        F.col(quoted(name)).cast("binary").alias(name) if name in of_bytes else F.col(quoted(name))
        for name in schema.fieldNames()
    ]
    return rows.select(*columns, *([F.col("_metadata.file_path").alias(file_as)] if file_as else []))


def _require_none_emptied(rows: DataFrame, location: Location, files: Sequence[LiveFile | WrittenFile]) -> None:
    """Raises DamagedTableError if a file of ``rows`` has lost its bytes: Spark passes over a file without any, and its
    rows would be missing."""
    if _listed_bytes(rows) == sum(file.size for file in files):
        return
    emptied = next((lost for lost in lost_files(location, files) if lost.size == 0), None)
    if emptied is not None:
        raise DamagedTableError(
            f"{emptied.path}, a data file of the Delta table at {location.uri}, has no bytes any more",
            fix="put it back from a copy, and type the command again; where the table is a node's, odi doctor --deep "
            "names every such file and says what else to do",
            uri=location.uri,
            path=emptied.path,
        )


def _listed_bytes(rows: DataFrame) -> int | None:
    """The size of all files of ``rows``, as Spark has listed them; None where a session does not tell it."""
    if not hasattr(rows, "_jdf"):
        return None
    plan = rows._jdf.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "LogicalRelation":
        return None
    return int(plan.relation().location().sizeInBytes())


def _have_hive_paths(files: Sequence[LiveFile]) -> bool:
    """Whether Spark reads the partition values from the paths as the log has them."""
    return all(map(_has_hive_path, files)) and len({file.path.count("/") for file in files}) == 1


def _has_hive_path(file: LiveFile) -> bool:
    folders = file.path.split("/")[:-1]
    return all(any(folder.startswith(f"{name}=") for folder in folders) for name in file.partition) and all(
        "=" in folder and not folder.endswith("=") and not _NOT_ASCII.search(folder) for folder in folders
    )


def _read_by_partition(
    spark: SparkSession, handle: TableHandle, files: Sequence[LiveFile], schema: StructType, file_as: str | None
) -> DataFrame:
    """The rows with their partition values from the log: other writers need not name folders after them."""
    stored = T.StructType([field for field in schema if field.name not in handle.partition_columns])
    groups: dict[tuple[tuple[str, str | None], ...], list[LiveFile]] = defaultdict(list)
    for file in files:
        groups[tuple(file.partition.items())].append(file)
    frames = []
    for values, group in groups.items():
        rows = _parquet(spark, handle.location, group, stored, file_as=file_as)
        named = {name: F.lit(value).cast(schema[name].dataType) for name, value in values}
        frames.append(rows.withColumns(named).select(*map(quoted, [*schema.fieldNames(), *filter(None, [file_as])])))
    return reduce(lambda left, right: left.unionAll(right), frames)


def by_file_uri(location: Location, files: Iterable[LiveFile]) -> dict[str, LiveFile]:
    """Files under the URI that Spark's ``_metadata.file_path`` gives them (percent-encoded)."""
    return {place_key(location.child(file.path)): file for file in files}


def place_key(location: Location) -> str:
    """The URI of a location, in the form of :func:`file_uri_key`."""
    return file_uri_key(quote(location.uri, safe="/:@="))


def file_uri_key(uri: str) -> str:
    """A form of a file URI in which Spark's and ours agree: no ``file:`` scheme, no difference in encoding, and no
    scheme of ours for a bucket."""
    text = unquote(uri)
    return "/" + text.removeprefix("file:").lstrip("/") if text.startswith(("file:", "/")) else without_own_scheme(text)
