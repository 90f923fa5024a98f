"""Small increments of new files, in a warm session, against Spark's own way to load each file once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import write
from benchmarks.exactly_once.append import NODE
from benchmarks.exactly_once.lab import SCHEMA, Lab, seconds_of
from benchmarks.exactly_once.sizes import Sizes
from benchmarks.harness import Row, timed_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WARM = 3


class Stream:
    """A query over a landing folder that ends when it has loaded what is there: file source, ``foreachBatch``.

    Each batch is one commit whose app transaction, the query's id and the batch's number, admits it once.
    """

    def __init__(self, spark: SparkSession, landing: Path, folder: Path) -> None:
        self.table = folder / "table"
        self._checkpoint = folder / "checkpoint"
        self._spark = spark
        self._landing = landing

    def run(self) -> None:
        """Load what is new."""
        rows = self._spark.readStream.schema(SCHEMA).parquet(f"{self._landing}/*")
        writer = rows.writeStream.foreachBatch(self._commit).option("checkpointLocation", str(self._checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def _commit(self, batch: DataFrame, number: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        app_id = json.loads((self._checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
        properties = CommitProperties(app_transactions=[Transaction(app_id, number)])
        if not DeltaTable.is_deltatable(str(self.table)):
            write_deltalake(str(self.table), batch.toArrow(), commit_properties=properties)
            return
        table = DeltaTable(str(self.table))
        done = table.transaction_version(app_id)
        if done is None or number > done:
            write_deltalake(table, batch.toArrow(), mode="append", commit_properties=properties)


def increments(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Both follow one landing folder; in each round a file lands, and they load it in turn."""
    import deltalake
    import pyspark

    spark, ours = lab.spark, lab.pipeline(NODE)
    stream = Stream(spark, ours.landing, lab.root / "stream")
    rounds = sizes.quick_rounds
    lab.say(f"{rounds} rounds of {sizes.increment:,} rows in a new file, each in turn")
    took: dict[str, list[float]] = {"ours": [], "stream": []}
    for number in range(_WARM + rounds):
        ours.land(lab.files(write.rows(spark, sizes.increment), 1))
        seconds = {"ours": ours.seconds(spark, "raw"), "stream": seconds_of(stream.run)}
        if number >= _WARM:
            for name, value in seconds.items():
                took[name].append(value)
    _require_same_rows(ours.target("raw").uri, str(stream.table))
    against = (
        f"Structured Streaming {pyspark.__version__}, availableNow, foreachBatch, deltalake {deltalake.__version__}"
    )
    name = f"increment of {sizes.increment:,} rows in a new file, seconds"
    yield timed_row(name, took["ours"], took["stream"], against, 1.0)


def _require_same_rows(ours: str, stream: str) -> None:
    from deltalake import DeltaTable

    found = {table: sum(DeltaTable(table).get_add_actions()["num_records"].to_pylist()) for table in (ours, stream)}
    if len(set(found.values())) > 1:
        raise RuntimeError(f"the tables do not hold the same number of rows: {found}")
