"""Landing files as Spark DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odi_assets.connections.location import Location
from odi_assets.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STRICT_OPTIONS = {
    # Spark's own default turns a line it cannot parse into NULLs, which loses it without a word.
    "csv": {"mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
}
"""Reader options unless the project file says otherwise."""


def read_source_files(
    spark: SparkSession,
    base: Location,
    paths: Sequence[str],
    file_format: str,
    schema_ddl: str | None,
    options: Mapping[str, str],
    *,
    label: str,
) -> DataFrame:
    """The rows of files below ``base``, lazily.

    Args:
        label: the source in words, for messages.

    Raises:
        SourceError: there is no file with content to take a schema from, or a file is gone.
    """
    from pyspark.errors import AnalysisException

    if not paths:
        if schema_ddl:
            return spark.createDataFrame([], schema_ddl)
        raise SourceError(
            f"{label}: all its files are empty, so there is none to take a schema from",
            fix="land a file with content, or name the columns in `read.schema`",
            path=base.uri,
        )
    reader = spark.read.format(file_format).options(**base.reader_options)
    given = {**STRICT_OPTIONS.get(file_format, {}), **options}
    if schema_ddl:
        reader = reader.schema(schema_ddl)
    elif file_format == "csv":
        # Names of columns only make sense against a schema; inferring one takes Spark a pass of its own.
        given["enforceSchema"] = "true"
    try:
        return reader.options(**given).load([base.child(path).spark_path for path in paths])
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise SourceError(
            f"{label}: a file went away since the run was planned: {error}",
            fix="run the node again: nothing was written, and it takes the files that are there then",
            path=base.uri,
        ) from error
