"""Servers, sessions and projects for snapshots."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from odi_assets_tests.jdbc import jdbc_jars
from odi_assets_tests.sources.sql.servers import Server, mariadb, postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVERS = {"postgres": postgres, "mariadb": mariadb}


@contextmanager
def server(name: str) -> Iterator[Server]:
    """One of the servers, with its data in a folder that goes with it."""
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder, SERVERS[name](Path(folder)) as started:
        yield started


def session() -> SparkSession:
    """A Spark session with the JDBC drivers.

    Raises:
        RuntimeError: the drivers are not there and cannot be fetched.
    """
    from odi_assets.config.models import SparkConfig
    from odi_assets.spark.session import open_session

    jars = jdbc_jars()
    if not jars:
        raise RuntimeError("the JDBC drivers are not there and cannot be fetched")
    conf = {"spark.jars": ",".join(map(str, jars)), "spark.ui.enabled": "false"}
    return open_session(SparkConfig(conf=conf), app_name="snapshots").spark
