"""Looks at many files: by threads of this process, or by Spark's executors."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

import pyarrow

from odi_assets.sources.files import look as package
from odi_assets.sources.files.look.text import Fault
from odi_assets.spark.lazy import java_errors, spark_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

ON_DRIVER = 1_000
"""Files that this process looks at by itself; more of them are a job for Spark."""

_READERS = 8
_IN_A_TASK = 250


def looked_at(
    spark: SparkSession, look: Callable[[str], str], places: Sequence[str], *, by_spark: bool = False
) -> list[str]:
    """What ``look`` finds at each of ``places``.

    Args:
        by_spark: let executors look though the files are few: they are large, and far away.
    """
    findings = _by_spark(spark, look, places) if by_spark or len(places) > ON_DRIVER else None
    if findings is not None:
        return findings
    with ThreadPoolExecutor(max_workers=min(_READERS, len(places) or 1)) as pool:
        return list(pool.map(look, places))


def as_text(look: Callable[[str], Mapping[str, Any]]) -> Callable[[str], str]:
    """``look`` as a function whose findings, or Fault, are JSON."""

    def found(path: str) -> str:
        try:
            return json.dumps(look(path))
        except Fault as fault:
            return json.dumps({"line": fault.line, "why": fault.why, "kind": fault.kind})
        except FileNotFoundError:
            # Spark says so next.
            return "{}"
        except OSError as error:
            return json.dumps({"line": 0, "why": f"it cannot be read: {error.strerror or error}", "kind": "unseen"})

    return found


def _by_spark(spark: SparkSession, look: Callable[[str], str], places: Sequence[str]) -> list[str] | None:
    """What ``look`` finds, found by executors; None if they cannot look: they may lack pyarrow, or fsspec."""
    from pyspark.cloudpickle import register_pickle_by_value

    # Executors may not have this package.
    register_pickle_by_value(package)  # type: ignore[no-untyped-call]

    def looked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            findings = pyarrow.array([look(path) for path in batch.column("place").to_pylist()], pyarrow.string())
            yield pyarrow.RecordBatch.from_arrays([batch.column("number"), findings], names=["number", "shape"])

    rows = spark.createDataFrame(list(enumerate(places)), "number BIGINT, place STRING")
    tasks = rows.repartition(max(2, len(places) // _IN_A_TASK))
    try:
        shape_rows = tasks.mapInArrow(looked, "number BIGINT, shape STRING").collect()
    except (spark_errors.PySparkException, java_errors.Py4JError, PicklingError) as error:
        _log.warning("Spark's executors could not look at the files, this process does: %s", str(error)[:400])
        return None
    return [row["shape"] for row in sorted(shape_rows)]
