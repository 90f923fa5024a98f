"""Parquet files with times in nanoseconds, as pandas writes them. Spark has no type for them, and neither has Delta.

Spark can be configured to read such a column as a number. Values in whole microseconds become times; other values stop
the read, because their nanoseconds would be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odi_assets.errors import SourceError
from odi_assets.sources.files.parquet.footer import footer_schema
from odi_assets.sources.files.parquet.nulls import readable
from odi_assets.spark.lazy import F, T, spark_errors
from odi_assets.spark.raised import stopped_by
from odi_assets.tables.columns import quoted
from odi_assets.util.lazy import pa

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from odi_assets.sources.files.snapshot import FilesSnapshot


def with_nanoseconds(spark: SparkSession, files: FilesSnapshot, paths: Sequence[str], cause: Exception) -> DataFrame:
    """The rows of files of one shape that Spark refused because of ``cause``.

    Raises:
        SourceError: they have a type that cannot be read even so.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = footer_schema(files, paths[0]).to_arrow_schema()
    try:
        schema = from_arrow_schema(columns, prefer_timestamp_ntz=True)
    except spark_errors.PySparkException as error:
        raise _unreadable(files, paths[0], str(cause)) from error
    nanos = [field.name for field in columns if _counts_nanoseconds(field.type)]
    hidden = [field.name for field in columns if field.name not in nanos and "timestamp[ns" in str(field.type)]
    if hidden or not nanos:
        what = f"column `{hidden[0]}` has times in nanoseconds within it" if hidden else str(cause)
        raise _unreadable(files, paths[0], what) from cause
    stored = [
        T.StructField(field.name, T.LongType() if field.name in nanos else readable(field.dataType)) for field in schema
    ]
    rows = files.load(spark, paths, T.StructType(stored))

    def value(field: T.StructField) -> Column:
        own = F.col(quoted(field.name))
        if field.name not in nanos:
            return own
        fix = f"name the columns in `read.schema`, with `{field.name} BIGINT`: it is read as nanoseconds since 1970"
        what = f": `{field.name}` has a time with parts of a microsecond: "
        stopped = stopped_by(F.input_file_name(), what, own.cast("string"), fix=fix)
        micros = F.when(own % 1_000 != 0, stopped.cast("bigint")).otherwise(F.expr(f"{quoted(field.name)} div 1000"))
        moment = F.timestamp_micros(micros)
        # The session's zone is UTC.
        return moment if isinstance(field.dataType, T.TimestampType) else moment.cast("timestamp_ntz")

    return rows.select(*[value(field).alias(field.name) for field in schema])


def _counts_nanoseconds(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.TimestampType) and kind.unit == "ns"


def _unreadable(files: FilesSnapshot, path: str, what: str) -> SourceError:
    return SourceError(
        f"{files.label}: {path} has a column that Spark cannot read: {what}",
        fix="name the columns to read, without that one, in `read.schema`; or land the file with another type for it; "
        "nothing was loaded",
        path=path,
    )
