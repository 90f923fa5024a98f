"""Arrow tables as Spark's DataFrames, with the types that the Arrow tables have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.util.lazy import pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def dataframe_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """``rows`` as a DataFrame. Times without a zone stay so, in structs, lists and maps too.

    Without a schema, Spark takes them for times in the session's zone: their type would be TIMESTAMP.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    # PySpark takes nested columns apart, which Arrow refuses for slices with NULL.
    whole = [_unsliced(column) if pa.types.is_nested(column.type) else column for column in rows.columns]
    return spark.createDataFrame(pa.Table.from_arrays(whole, schema=rows.schema), schema)


def _unsliced(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # A concatenation of one array is that array, with its offset; of two, it is a copy.
    chunks = [pa.concat_arrays([chunk, chunk.slice(0, 0)]) for chunk in column.chunks]
    return pa.chunked_array(chunks, column.type)
