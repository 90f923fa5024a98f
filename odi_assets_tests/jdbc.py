"""JDBC drivers for the suite's Spark session."""

from __future__ import annotations

from pathlib import Path

import pytest

from odi_assets.sources.sql.dialects import Mysql, Postgres
from odi_assets_tests.jars import fetched
from odi_assets_tests.sources.sql.servers import mariadbd, postgres_program

PACKAGES = (Postgres.package, Mysql.package)


def jdbc_jars() -> list[Path]:
    """The JARs of the drivers; none if they cannot be had, or there is no server for them."""
    if postgres_program("initdb") is None and mariadbd() is None:
        return []
    return fetched(PACKAGES, [_jar(package) for package in PACKAGES])


def _jar(package: str) -> str:
    group, name, version = package.split(":")
    return f"{group}_{name}-{version}"


def needs_drivers() -> None:
    """Skip a test whose Spark fetches the drivers, where they cannot be had."""
    if not jdbc_jars():
        pytest.skip("the JDBC drivers cannot be fetched")
