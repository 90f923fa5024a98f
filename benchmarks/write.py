"""Writing 1.5 million rows × 8 columns: the embedded engine against plain Parquet and against an Arrow IO manager.

Each measure of memory is a process of its own: ``python -m benchmarks.write memory ours 1500000``.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Options, Row, alternate, in_child, peak_memory_mb, timed_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_500_000
TENTH = ROWS // 10
ROUNDS = 5
MEMORY_MB = 30.0


COLUMNS = {
    "id": "id",
    "customer": "cast(id % 1000 AS INT)",
    "name": "concat('order-', id)",
    "price": "cast(id % 100000 AS DECIMAL(12,2)) / 100",
    "ordered_at": "timestamp_micros(1356998400000000 + id * 1000000)",
    "day": "date_add(DATE'2013-01-01', cast(id % 365 AS INT))",
    "gift": "id % 7 = 0",
    "score": "cast(hash(id) AS DOUBLE)",
}
"""Eight columns of the usual types, each computed from ``id``."""


def rows(spark: SparkSession, count: int, partitions: int | None = None) -> DataFrame:
    """``count`` rows of :data:`COLUMNS`, the same in every run."""
    return rows_of(spark.range(0, count, 1, partitions))


def rows_of(ids: DataFrame) -> DataFrame:
    """The rows of some values of ``id``."""
    return ids.selectExpr(*[f"{sql} AS {name}" for name, sql in COLUMNS.items()])


def _session() -> SparkSession:
    from odi_assets.config.models import SparkConfig
    from odi_assets.spark.session import open_session

    return open_session(SparkConfig(conf={"spark.driver.memory": "4g"}), app_name="benchmarks").spark


def _ours(spark: SparkSession, count: int, target: Path) -> None:
    from odi_assets.config.models import LocalConnection, WriteMode
    from odi_assets.connections.location import resolve
    from odi_assets.delta.commit import Stamp
    from odi_assets.tables.embedded.engine import EmbeddedEngine
    from odi_assets.tables.engine import WriteSpec

    engine = EmbeddedEngine()
    handle = engine.open(resolve(LocalConnection(base_path=str(target.parent)), target.name, target.parent))
    stamp = Stamp("benchmark", handle.transaction_number("benchmark") + 1)
    engine.write(rows(spark, count), handle, WriteSpec(WriteMode.APPEND), stamp)


def _parquet(spark: SparkSession, count: int, target: Path) -> None:
    rows(spark, count).write.mode("append").parquet(str(target))


def _arrow(spark: SparkSession, count: int, target: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(target), rows(spark, count).toArrow(), mode="append")


WRITERS: dict[str, Callable[[SparkSession, int, Path], None]] = {"ours": _ours, "parquet": _parquet, "arrow": _arrow}


def seconds(options: Options) -> list[Row]:
    """Seconds of each writer in turn in one session."""
    import deltalake
    import pyspark

    folder = Path(tempfile.mkdtemp(prefix="odi-benchmark-"))
    try:
        spark = _session()
        options.say(f"{ROUNDS} rounds of {ROWS:,} rows, each writer in turn")
        took = alternate(
            {name: lambda name=name, write=write: write(spark, ROWS, folder / name) for name, write in WRITERS.items()},
            ROUNDS,
        )
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    parquet = f"df.write.parquet, pyspark {pyspark.__version__}"
    arrow = f"toArrow() + write_deltalake {deltalake.__version__}"
    return [
        timed_row("seconds for 1.5 M rows, against Parquet", took["ours"], took["parquet"], parquet, 1.15),
        timed_row("seconds for 1.5 M rows, against Arrow", took["ours"], took["arrow"], arrow, 1.15),
    ]


def memory(options: Options) -> list[Row]:
    """The driver's memory, in a process for each writer and size."""
    import deltalake

    mb = {}
    for name in ("ours", "arrow"):
        for count in (TENTH, ROWS):
            options.say(f"driver memory of {name} at {count:,} rows")
            mb[name, count] = in_child("benchmarks.write", "memory", name, str(count))["mb"]
    grown = mb["ours", ROWS] - mb["ours", TENTH]
    ratio = mb["ours", ROWS] / mb["arrow", ROWS]
    return [
        Row(
            "driver Python MB at 1.5 M rows, against a tenth of them",
            mb["ours", ROWS],
            mb["ours", TENTH],
            "itself at 150 k rows",
            grown,
            f"difference <= {MEMORY_MB:g} MB",
            grown <= MEMORY_MB,
        ),
        Row(
            "driver Python MB at 1.5 M rows, against Arrow",
            mb["ours", ROWS],
            mb["arrow", ROWS],
            f"toArrow() + write_deltalake {deltalake.__version__}",
            ratio,
            "ratio <= 1",
            ratio <= 1,
        ),
    ]


def _peak_memory_mb(name: str, count: int) -> float:
    folder = Path(tempfile.mkdtemp(prefix="odi-benchmark-"))
    spark = _session()
    try:
        return peak_memory_mb(lambda: WRITERS[name](spark, count, folder / name))
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


BENCHMARK = Benchmark(
    "write",
    "1.5 M rows into Delta, against plain Parquet and an Arrow IO manager: seconds, memory",
    {"seconds": seconds, "memory": memory},
)

if __name__ == "__main__":
    _, _, contender, size = sys.argv
    print(json.dumps({"mb": _peak_memory_mb(contender, int(size))}))
