"""One Spark session for the whole suite, on this machine unless the environment names a cluster or a server."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.models import SparkConfig
from odi_assets.engine.session import open_session

MASTER_VARIABLE, REMOTE_VARIABLE = "ODI_TEST_MASTER", "ODI_TEST_REMOTE"
"""What the suite's session is opened on; only tests marked ``contract`` are meant for other than the default."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The suite's session: small, in UTC, with its warehouse out of the way."""
    conf = {"spark.sql.shuffle.partitions": "2"}
    remote, master = os.environ.get(REMOTE_VARIABLE), os.environ.get(MASTER_VARIABLE, "local[2]")
    if remote is None:
        conf |= {
            "spark.driver.memory": "2g" if master.startswith("local") else "1g",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        }
    if not master.startswith("local"):
        conf |= {"spark.executor.cores": "1", "spark.executor.memory": "512m", "spark.cores.max": "2"}
    handle = open_session(SparkConfig(master=master, remote=remote, conf=conf), app_name="odi_assets_tests")
    yield handle.spark
    handle.stop()
