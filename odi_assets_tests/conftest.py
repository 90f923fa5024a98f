"""One Spark session for the whole suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.models import SparkConfig
from odi_assets.engine.session import open_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The suite's session: small, in UTC, with its warehouse out of the way."""
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    handle = open_session(SparkConfig(master="local[2]", conf=conf), app_name="odi_assets_tests")
    yield handle.spark
    handle.stop()
