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
    import pyarrow as pa
    from deltalake import write_deltalake
    from odi_assets.config.models import S3Connection, SparkConfig
    from odi_assets.connections import cached, resolve
    from odi_assets.delta.table import TableHandle
    from odi_assets.spark.session import open_session
    from odi_assets.tables.reader import by_file_uri, file_uri_key, read_files

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

    def read_by_files():
        # As a connection that came second: files are read under the scheme of its own, and known by their paths.
        where = place(keys["right"]).child("table")
        options = dict(where.storage_options)
        for ids in ([1, 2], [3]):
            write_deltalake(where.uri, pa.table({"id": ids}), mode="append", storage_options=options)
        handle = TableHandle.open(where)
        rows = read_files(spark, handle, handle.live_files, file_as="file").collect()
        files = by_file_uri(where, handle.live_files)
        return [where.for_spark.uri[:3], sorted([row.id, files[file_uri_key(row.file)].rows] for row in rows)]

    print(json.dumps([answers, outcome(read_by_files)]))
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
    answers, by_files = json.loads(done.stdout.splitlines()[-1])
    refused, read = ["refused", "refused"], [3, 3]
    assert answers == [refused, read, refused, read]
    assert by_files == ["s3-", [[1, 2], [2, 2], [3, 1]]]
