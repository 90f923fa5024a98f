"""JARs for Spark sessions of tests: fetched once by Spark itself, and kept for later runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

_KEPT = Path.home() / ".cache" / "odi_assets_tests" / "jars"
_FETCH = """
import sys
from odi_assets.config.models import SparkConfig
from odi_assets.spark.session import open_session
conf = {"spark.jars.ivy": sys.argv[1]}
open_session(SparkConfig(master="local[1]", packages=sys.argv[2:], conf=conf)).stop()
"""
_SECONDS = 180
DEBEZIUM = "3.6.1.Final"


def fetched(packages: Sequence[str], wanted: Sequence[str]) -> list[Path]:
    """The JARs ``wanted``, ``group_name-version`` each, of packages and what these need; none if they are not kept yet
    and cannot be fetched. One answer for the whole process: the suite's session has the JARs of its start."""
    return _fetched(tuple(packages), tuple(wanted))


@cache
def _fetched(packages: tuple[str, ...], wanted: tuple[str, ...]) -> list[Path]:
    jars = [_KEPT / f"{name}.jar" for name in wanted]
    if not all(jar.is_file() for jar in jars):
        _fetch(packages, wanted)
    return jars if all(jar.is_file() for jar in jars) else []


def s3a_jars() -> list[Path]:
    """Hadoop's connector for S3 and what it needs (690 MB); none if it cannot be had."""
    wanted = (
        "org.apache.hadoop_hadoop-aws-3.5.0",
        "software.amazon.awssdk_bundle-2.35.4",
        "software.amazon.s3.analyticsaccelerator_analyticsaccelerator-s3-1.3.1",
        "org.wildfly.openssl_wildfly-openssl-2.2.5.Final",
    )
    return fetched(["org.apache.hadoop:hadoop-aws:3.5.0"], wanted)


def kafka_jars() -> list[Path]:
    """A server of Kafka, with all that it needs (60 MB); none if it cannot be had."""
    return _all_of("kafka-4.1.1", ["org.apache.kafka:kafka_2.13:4.1.1"])


def debezium_jars() -> list[Path]:
    """Debezium's engine and its connector for PostgreSQL, with all that they need; none if they cannot be had."""
    parts = ("embedded", "connector-postgres")
    return _all_of(f"debezium-{DEBEZIUM}", [f"io.debezium:debezium-{part}:{DEBEZIUM}" for part in parts])


def _all_of(name: str, packages: Sequence[str]) -> list[Path]:
    """All JARs of packages, which are kept in a folder of that name."""
    folder = _KEPT / name
    if not folder.is_dir():
        _fetch(packages, None, folder)
    return sorted(folder.glob("*.jar"))


def _fetch(packages: Sequence[str], wanted: Sequence[str] | None, into: Path = _KEPT) -> None:
    """Fetch JARs, and keep the ``wanted`` ones; None: all."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _FETCH, folder, *packages]
        try:
            subprocess.run(command, check=True, timeout=_SECONDS, capture_output=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return
        if wanted is None:
            # Several processes of the suite may want them: the folder is there when it is whole.
            scratch = into.with_name(f".{into.name}.{os.getpid()}")
            shutil.copytree(Path(folder) / "jars", scratch)
            with suppress(OSError):
                scratch.rename(into)
            shutil.rmtree(scratch, ignore_errors=True)
            return
        into.mkdir(parents=True, exist_ok=True)
        for name in wanted:
            shutil.copy(Path(folder) / "jars" / f"{name}.jar", into / f"{name}.jar")
