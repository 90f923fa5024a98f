"""Two connections to one bucket in one JVM: each has its own credentials, on a server that checks them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from odi_assets_tests.jars import s3a_jars
from odi_assets_tests.state.clouds.clouds import Cloud, s3

SCRIPT = """
    import json, sys
    from pathlib import Path
    from odi_assets.config.models import S3Connection, SparkConfig, WriteMode
    from odi_assets.connections import cached, resolve
    from odi_assets.delta.commit import Stamp
    from odi_assets.delta.table import TableHandle
    from odi_assets.spark.session import open_session
    from odi_assets.tables.embedded import EmbeddedEngine
    from odi_assets.tables.engine import WriteSpec

    jars, values, keys, order = json.loads(sys.stdin.read())
    NO_RETRIES = {"fs.s3a.attempts.maximum": "1", "fs.s3a.retry.limit": "1"}
    conf = {"spark.driver.extraClassPath": jars, "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"}
    conf |= {f"spark.hadoop.{name}": value for name, value in NO_RETRIES.items()}
    spark = open_session(SparkConfig(master="local[1]", conf=conf)).spark

    def place(secret):
        return resolve(S3Connection.model_validate({**values, "secret_access_key": secret}), "t", Path("/"))

    def outcome(work):
        try:
            return work()
        except Exception as error:
            return "refused" if "403" in str(error) or "FORBIDDEN" in str(error) else repr(error)

    def read(where):
        return outcome(lambda: spark.read.options(**where.reader_options).parquet(where.child("x").uri).count())

    def read_twice(secret):
        found = place(secret)
        return [read(found.for_spark), read(found)]

    spark.range(3).write.options(**place(keys["right"]).reader_options).parquet(place(keys["right"]).child("x").uri)
    cached._holders.clear()
    jvm = spark._jvm
    jvm.org.apache.hadoop.fs.FileSystem.closeAll()
    answers = [read_twice(keys[name]) for name in order]

    def upserted():
        # As a connection that came second: staged, matched by file and read under the scheme of its own.
        where = place(keys["right"]).child("table")
        spec = WriteSpec(WriteMode.UPSERT, keys=("id",))
        for number in (1, 2):
            rows = spark.range(number, number + 2)
            EmbeddedEngine().write(rows, TableHandle.open(where), spec, Stamp("app", number))
        found = EmbeddedEngine().read(spark, TableHandle.open(where))
        return [where.for_spark.uri.partition("-")[0], sorted(row.id for row in found.collect())]

    print(json.dumps([answers, outcome(upserted)]))
"""


@pytest.fixture(scope="module")
def store() -> Iterator[Cloud]:
    """A server that checks each signature."""
    if not s3a_jars():
        pytest.skip("Hadoop's connector for S3 is not there and cannot be fetched")
    with s3(strict=True) as cloud:
        yield cloud


@pytest.mark.usefixtures("jvm")
def test_each_connection_is_judged_by_its_own_credentials(store: Cloud) -> None:
    connection = {**store.resolved("key"), "base_path": "demo"}
    keys = {"right": connection["secret_access_key"], "wrong": "wrong"}
    asked = json.dumps([":".join(map(str, s3a_jars())), connection, keys, ["wrong", "right", "wrong", "right"]])
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    answers, upserted = json.loads(done.stdout.splitlines()[-1])
    refused, read = ["refused", "refused"], [3, 3]
    assert answers == [refused, read, refused, read]
    assert upserted == ["s3", [1, 2, 3]]
