"""deltalake opens what our options say: a table in a server that speaks S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from moto.server import ThreadedMotoServer

from odi_assets.config.models import S3Connection
from odi_assets.connections import Location, resolve


@pytest.fixture(scope="module")
def bucket() -> Iterator[Location]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )
    client.create_bucket(Bucket="lake")
    connection = S3Connection.model_validate(
        {
            "type": "s3", "bucket": "lake", "base_path": "demo", "endpoint": endpoint, "region": "us-east-1",
            "access_key_id": "a", "secret_access_key": "s",
        }
    )  # fmt: skip
    yield resolve(connection, "", Path())
    server.stop()


def test_a_table_is_written_and_read_with_our_options(bucket: Location) -> None:
    table = bucket.child("flights")
    options = dict(table.storage_options)
    write_deltalake(table.uri, pa.table({"id": [1, 2]}), storage_options=options)
    write_deltalake(table.uri, pa.table({"id": [3]}), storage_options=options, mode="append")
    found = DeltaTable(table.uri, storage_options=options)
    assert found.version() == 1
    assert sorted(found.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
