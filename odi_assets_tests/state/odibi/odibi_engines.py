"""Odibi 3.15.1 itself, in an environment of its own, driven by the tests; on pandas and on Spark.

It is installed from the packages' registry (Odibi is licensed under the Apache License 2.0), and Spark's connector for
Delta fetched from Maven's: once, then kept. Where they cannot be had, the tests that need them are skipped and say why.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import py4j
import pyspark
import pytest

from benchmarks.peers import PeerEnvironment, PeerUnavailable
from odi_assets.spark.jvm.java import find_java
from odi_assets.spark.jvm.scripts_home import home_for_scripts
from odi_assets_tests.jars import fetched

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
_DELTA_JARS = (
    *("io.delta_delta-spark_4.2_2.13-4.4.0", "io.delta_delta-storage-4.4.0", "io.delta_delta-kernel-api-4.4.0"),
    *("io.delta_delta-kernel-defaults-4.4.0", "io.delta_delta-kernel-unitycatalog-4.4.0"),
    *("io.unitycatalog_unitycatalog-client-0.6.0", "io.unitycatalog_unitycatalog-hadoop-0.6.0"),
)
_SESSION = {
    "spark.master": "local[2]",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@functools.cache
def delta_settings() -> dict[str, str]:
    """Settings of a Spark session with Delta's own connector; skips the test if it cannot be had."""
    jars = fetched([DELTA], _DELTA_JARS)
    if not jars:
        pytest.skip(f"Delta's connector for Spark, {DELTA}, cannot be fetched from here")
    return {**_SESSION, "spark.jars": ",".join(map(str, jars))}


@functools.cache
def interpreter() -> Path:
    """Odibi's interpreter; skips the test if Odibi cannot be installed."""
    try:
        environment = PeerEnvironment("odibi")
        environment.make(print)
    except PeerUnavailable as error:
        pytest.skip(str(error))
    return environment.program("python")


class Odibi:
    """A process of Odibi's, which works on one folder of system tables at a time; see ``odibi_driver.py``."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def __call__(self, name: str, **arguments: Any) -> Any:
        """What the driver answers.

        Raises:
            RuntimeError: it failed.
        """
        self.begin(name, **arguments)
        return self.answer()

    def begin(self, name: str, **arguments: Any) -> None:
        """Begin, without waiting for the answer."""
        assert self._process.stdin is not None
        assert self._process.poll() is None, self._log.read_text()[:6000]
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The answer to what was begun.

        Raises:
            RuntimeError: it failed.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Odibi ended with exit code {self._process.wait()}: {self._log.read_text()[:6000]}")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply["result"]


@contextmanager
def odibi(engine: str, scratch: Path) -> Iterator[Odibi]:
    """Odibi on ``pandas`` or ``spark``; what it logs is in a file of ``scratch``."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    settings: dict[str, str] = {}
    if engine == "spark":
        settings = {**delta_settings(), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
        # The same pyspark as ours: it is large, and Odibi pins none.
        for package in (pyspark, py4j):
            folder = Path(str(package.__file__)).parent
            (scratch / "packages").mkdir(exist_ok=True)
            (scratch / "packages" / folder.name).symlink_to(folder)
        environment["PYTHONPATH"] = str(scratch / "packages")
        environment["JAVA_HOME"] = str(home_for_scripts(find_java()))
    driver = Path(__file__).with_name("odibi_driver.py")
    command = [str(interpreter()), str(driver), engine, *(f"{name}={value}" for name, value in settings.items())]
    with (
        (scratch / f"{engine}.log").open("w") as log,
        subprocess.Popen(
            command,
            cwd=scratch,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        yield Odibi(process, scratch / f"{engine}.log")
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)
