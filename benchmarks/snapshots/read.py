"""A snapshot of a million rows against one partitioned JDBC read of them that is written as Parquet."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Options, Row, alternate, timed_row
from benchmarks.snapshots.lab import SERVERS, server, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odi_assets.config.models import ServerConnection
    from odi_assets_tests.sources.sql.servers import Server

ROWS = 1_000_000
PARTS = 4
ROUNDS = 7
LIMIT = 1.1
FOUR_COMMITS = 2.0
"""Each commit takes a part of a second, whatever is in it."""

_TYPES = {"postgres": "timestamp", "mysql": "datetime(6)"}
_NUMBERS = {
    "postgres": f"generate_series(1, {ROWS}) AS s(n)",
    "mysql": f"(SELECT seq AS n FROM seq_1_to_{ROWS}) AS s",
}
_TIMES = {
    "postgres": "TIMESTAMP '2024-01-01' + n * interval '1 second'",
    "mysql": "TIMESTAMP '2024-01-01 00:00:00' + INTERVAL n SECOND",
}


def fill(on: Server) -> None:
    """A table of orders: numbers, texts, amounts and times."""
    on.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer int, name varchar(40), price decimal(12,2), "
        f"score double precision, changed_at {_TYPES[on.type]})",
        "INSERT INTO orders SELECT n, mod(n, 1000), concat('order-', n), mod(n, 100000) / 100.0, n * 1.5, "
        f"{_TIMES[on.type]} FROM {_NUMBERS[on.type]}",
        "CREATE INDEX orders_changed_at ON orders (changed_at)",
        "ANALYZE orders" if on.type == "postgres" else "ANALYZE TABLE orders",
    )


def _plain(spark: SparkSession, on: Server, target: Callable[[], Path]) -> None:
    from odi_assets.sources.sql.dialects import dialect_of

    connection = _connection(on)
    dialect = dialect_of(connection)
    password = connection.password.get_secret_value() if connection.password else ""
    options = {"driver": dialect.driver_class, "user": str(connection.user), "password": password, "fetchsize": "10000"}
    rows = spark.read.jdbc(dialect.url, "orders", "id", 1, ROWS, PARTS, properties=options)
    rows.write.parquet(str(target()))


def _connection(on: Server) -> ServerConnection:
    import yaml

    from odi_assets.config.models import ServerConnection

    return ServerConnection.model_validate(yaml.safe_load(on.connection)["db"])


def _ours(spark: SparkSession, on: Server, target: Callable[[], Path], snapshot: str) -> None:
    from odi_assets_tests.nodes.support import Sandbox

    folder = target()
    folder.mkdir()
    node = f"""
    - pipeline: p
      nodes:
      - name: orders
        read:
          connection: db
          format: sql
          table: orders
          incremental: {{mode: cursors, columns: changed_at, snapshot: {{{snapshot}}}}}
        write: {{connection: lake, path: orders, mode: append}}
    """
    result = Sandbox(folder, spark, node, on.connection).run("orders")
    if result.rows_written != ROWS:
        raise AssertionError(f"{result.rows_written:,} rows of {ROWS:,} were written")


def read(options: Options) -> list[Row]:
    """Seconds of both, in turn in one session, on each server."""
    spark = session()
    found = [row for name in SERVERS for row in _on(name, spark, options)]
    spark.stop()
    return found


def _on(name: str, spark: SparkSession, options: Options) -> list[Row]:
    import pyspark

    folder, numbers = Path(tempfile.mkdtemp(prefix="odi-benchmark-")), itertools.count()

    def target() -> Path:
        return folder / f"{next(numbers)}"

    try:
        with server(name) as on:
            fill(on)
            options.say(f"{ROUNDS} rounds of {ROWS:,} rows of {name}")
            ours = {one: partial(_ours, spark, on, target, one) for one in SETTINGS}
            took = alternate({"plain": partial(_plain, spark, on, target), **ours}, ROUNDS, warm=2)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    against = f"spark.read.jdbc of {PARTS} partitions, df.write.parquet, pyspark {pyspark.__version__}"
    return [
        timed_row(f"seconds for 1 M rows of {name}, {setting}", took[one], took["plain"], against, limit)
        for one, (setting, limit) in SETTINGS.items()
    ]


SETTINGS = {
    "": ("one chunk, one commit, as unless given", LIMIT),
    "rows: 250000": ("4 chunks, a commit for each", FOUR_COMMITS),
}
"""What is measured → it in words, and how many times as long as the plain read it may take."""
