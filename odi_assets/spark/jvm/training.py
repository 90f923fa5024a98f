"""What a JVM does so that its class-data archive holds the classes of runs.

``python -m odi_assets.spark.jvm.training FOLDER`` reads the JVM's command line, a JSON list, from stdin.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONF = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "OFF",
}
_SCHEMA = "id BIGINT, name STRING, amount DECIMAL(10,2), day DATE, at TIMESTAMP"
_CSV = "id,name,amount,day,at\n1,a,1.50,2024-01-01,2024-01-01T00:00:00Z\n2,b,2.50,2024-01-02,2024-01-02T00:00:00Z\n"
_JSON = '{"id":1,"name":"a","amount":1.5,"day":"2024-01-01","at":"2024-01-01T00:00:00Z"}\n'


def work(spark: SparkSession, folder: Path) -> None:
    """Read, join, aggregate and write a few rows in the ways that nodes do."""
    for name, text in (("csv/1.csv", _CSV), ("json/1.json", _JSON)):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    csv = spark.read.schema(_SCHEMA).csv(str(folder / "csv"), header=True, mode="FAILFAST")
    json_rows = spark.read.schema(_SCHEMA).json(str(folder / "json"))
    for number, rows in enumerate((csv, json_rows)):
        rows.write.parquet(str(folder / f"parquet-{number}"))
    left = spark.read.parquet(str(folder / "parquet-0")).selectExpr("*", "_metadata.file_path", "_metadata.row_index")
    left.createOrReplaceTempView("l")
    spark.read.parquet(str(folder / "parquet-1")).createOrReplaceTempView("r")
    statements = (
        "SELECT l.day, count(*) AS n, sum(l.amount) AS s, max(l.at), count(DISTINCT l.name) FROM l GROUP BY l.day",
        "SELECT l.*, r.name AS other FROM l LEFT JOIN r ON l.id = r.id WHERE l.day >= DATE '2024-01-01'",
        "SELECT /*+ MERGE(r) */ l.id FROM l JOIN r ON l.id = r.id",
        "SELECT id FROM l WHERE id NOT IN (SELECT id FROM r) UNION ALL SELECT id FROM r",
        "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY name ORDER BY at DESC) AS n FROM l) WHERE n = 1",
        "SELECT CASE WHEN amount > 1 THEN upper(name) ELSE concat(name, 'x') END, unix_micros(at), hash(id) FROM l "
        "ORDER BY id LIMIT 5",
    )
    for number, statement in enumerate(statements):
        spark.sql(statement).write.parquet(str(folder / f"out-{number}"))
    spark.sql("SELECT count(*), min(id), max(at) FROM l").collect()
    left.cache().count()
    left.toArrow()
    left.write.partitionBy("day").parquet(str(folder / "partitioned"))
    _stream(spark, folder)


def _stream(spark: SparkSession, folder: Path) -> None:
    rows = spark.readStream.schema(_SCHEMA).csv(str(folder / "csv"), header=True)
    counted = rows.withWatermark("at", "1 hour").groupBy("name").count()

    def write(batch: Any, number: int) -> None:
        batch.write.parquet(str(folder / f"batch-{number}"))

    query = (
        counted.writeStream.foreachBatch(write)
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _end_with(parent: int, jvm: subprocess.Popen[bytes]) -> None:
    """End this process and the JVM when the process that started it has gone."""
    while os.getppid() == parent:
        time.sleep(0.2)
    jvm.kill()
    os._exit(1)


def main() -> int:
    """Start the JVM, do the work, and wait until the JVM has written its archive."""
    folder = Path(sys.argv[1])
    settings = [part for key, value in _CONF.items() for part in ("--conf", f"{key}={value}")]
    *line, shell = json.load(sys.stdin)
    info = Path(tempfile.mkdtemp(dir=folder)) / "gateway"
    jvm = subprocess.Popen(
        [*line, *settings, shell],
        env={**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info)},
        stdin=subprocess.PIPE,
    )
    threading.Thread(target=_end_with, args=(os.getppid(), jvm), daemon=True).start()
    while not info.exists():
        if jvm.poll() is not None:
            return 1
        time.sleep(0.05)
    port, size = struct.unpack("!ii", info.read_bytes()[:8])
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": info.read_bytes()[8:].decode()}
    from pyspark.sql import SparkSession

    assert size > 0
    builder: Any = SparkSession.builder
    for key, value in _CONF.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    work(spark, folder)
    spark.stop()
    assert jvm.stdin is not None
    jvm.stdin.close()
    return jvm.wait()


if __name__ == "__main__":
    raise SystemExit(main())
