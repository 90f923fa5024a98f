"""The number of the file that a row is in, in the order in which files are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from odi_assets.spark.lazy import F
from odi_assets.spark.raised import stopped_by
from odi_assets.tables.columns import quoted
from odi_assets.tables.reader import file_uri_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odi_assets.sources.files.snapshot import FilesSnapshot

_FILE, _URI = "__odi_file", "__odi_uri"


def with_numbers(rows: DataFrame, files: FilesSnapshot, column: str) -> DataFrame:
    """``rows`` of ``files``, each with the number of its file in ``column``, an INT."""
    base = files.base.for_spark
    uris = (quote(base.child(file.path).uri, safe="/:@=") for file in files.chosen)
    numbers = {file_uri_key(uri): number for number, uri in enumerate(uris)}
    # Spark's own spelling of a file: what it escapes is its own business.
    known = [(uri, numbers[key]) for uri in rows.inputFiles() if (key := file_uri_key(uri)) in numbers]
    places = rows.sparkSession.createDataFrame(known, f"{_URI} STRING, {quoted(column)} INT")
    named = rows.withColumn(_FILE, F.input_file_name())
    unknown = stopped_by(F.col(_FILE), " is none of the files that were planned", fix="run the node again")
    joined = named.join(F.broadcast(places), F.col(_FILE) == F.col(_URI), "left")
    number = F.coalesce(F.col(quoted(column)), unknown.cast("integer"))
    return joined.select(*map(quoted, rows.columns), number.alias(column))
