"""A session that lacks the connector of a store names the package that brings it."""

from __future__ import annotations

import re

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odi_assets.sources.errors import error_text
from odi_assets.spark.connectors import missing_connector

CONNECTORS = {
    "s3a://lake/orders": (
        "fs.s3a.impl",
        "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "'org.apache.hadoop:hadoop-aws:HADOOP'",
    ),
    "abfss://lake@account.dfs.core.windows.net/orders": ("", "", "'org.apache.hadoop:hadoop-azure:HADOOP'"),
    "gs://lake/orders": (
        "fs.gs.impl",
        "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        r"gcs-connector:….*Hadoop HADOOP",
    ),
}


@pytest.mark.parametrize("uri", CONNECTORS)
def test_the_package_of_a_connector_that_spark_lacks_is_named(spark: SparkSession, uri: str) -> None:
    setting, implementation, package = CONNECTORS[uri]
    reader = spark.read.option(setting, implementation) if setting else spark.read
    with pytest.raises(Exception, match="Exception") as raised:
        reader.parquet(uri)
    found = missing_connector(error_text(raised.value), "p.orders")
    assert found is not None, raised.value
    assert found.message == f"p.orders: Spark has no connector for {uri.partition(':')[0]}://"
    version = spark.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()  # type: ignore[union-attr]
    assert re.search(package.replace("HADOOP", re.escape(version)), str(found.fix))


def test_other_errors_are_about_no_connector(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.read.parquet("/no/such/folder")
    assert missing_connector(error_text(raised.value), "p.orders") is None
    assert missing_connector("ClassNotFoundException: org.postgresql.Driver", "p.orders") is None
