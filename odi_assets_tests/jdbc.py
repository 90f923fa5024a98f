"""JDBC drivers for the suite's Spark session: fetched once by Spark itself, and kept for later runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from odi_assets.sources.sql.dialects import Mysql, Postgres
from odi_assets_tests.sources.sql.servers import mariadbd, postgres_program

PACKAGES = (Postgres.package, Mysql.package)
_KEPT = Path.home() / ".cache" / "odi_assets_tests" / "jars"
_FETCH = """
import sys
from odi_assets.config.models import SparkConfig
from odi_assets.spark.session import open_session
conf = {"spark.jars.ivy": sys.argv[1]}
open_session(SparkConfig(master="local[1]", packages=sys.argv[2:], conf=conf)).stop()
"""
_SECONDS = 180


def jdbc_jars() -> list[Path]:
    """The JARs of the drivers; none if they are not kept yet and cannot be fetched, or there is no server for them."""
    if postgres_program("initdb") is None and mariadbd() is None:
        return []
    wanted = [_KEPT / f"{name}-{version}.jar" for _, name, version in (package.split(":") for package in PACKAGES)]
    if not all(jar.is_file() for jar in wanted):
        _fetch()
    return wanted if all(jar.is_file() for jar in wanted) else []


def _fetch() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _FETCH, folder, *PACKAGES]
        try:
            subprocess.run(command, check=True, timeout=_SECONDS, capture_output=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return
        _KEPT.mkdir(parents=True, exist_ok=True)
        for group, name, version in (package.split(":") for package in PACKAGES):
            shutil.copy(Path(folder) / "jars" / f"{group}_{name}-{version}.jar", _KEPT / f"{name}-{version}.jar")
