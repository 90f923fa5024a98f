"""A table in a temporary folder, and a short way to write rows into it. Any Spark session will do as ``spark``.

Tests marked ``every_engine`` are what each table engine has to do: they are made with each of ``ENGINES``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.models import LocalConnection, WriteMode
from odi_assets.connections.location import Location, resolve
from odi_assets.delta.commit import Stamp
from odi_assets.tables.engine import WriteResult, WriteSpec, engine_of
from odi_assets.tables.upsert import arrow_rewrite as rewrite
from odi_assets_tests.tables.packages import register_engine
from odi_assets_tests.tables.support import APP, Write, frame

ENGINES = ("embedded", "memory")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test once for each engine."""
    if any(mark.name == "every_engine" for mark in metafunc.definition.iter_markers()):
        metafunc.parametrize("engine", ENGINES, indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the table engine of ``table``."""
    name = str(getattr(request, "param", ENGINES[0]))
    if name == "memory":
        register_engine(name, "odi_assets_tests.tables.memory_engine:MemoryEngine", tmp_path / "site")
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return name


@pytest.fixture
def table(tmp_path: Path, engine: str) -> Location:
    connection = LocalConnection(base_path=str(tmp_path), table_engine=engine)
    return resolve(connection, "lake/the table", tmp_path)


@pytest.fixture
def write(spark: SparkSession, table: Location) -> Write:
    """Write rows with the next fence number."""

    def do(rows: Any, schema: str = "id BIGINT, name STRING", **spec: Any) -> WriteResult:
        df = frame(spark, rows, schema) if isinstance(rows, list) else rows
        engine = engine_of(table)
        handle = engine.open(table)
        stamp = Stamp(APP, handle.transaction_number(APP) + 1, {"run_id": "run"})
        return engine.write(df, handle, WriteSpec(**{"mode": WriteMode.APPEND, **spec}), stamp)

    return do


@pytest.fixture(params=["arrow", "spark"])
def rewritten_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who carries the rows along that an upsert leaves as they are: small ones Arrow, large ones Spark."""
    if request.param == "spark":
        monkeypatch.setattr(rewrite, "MOST_BYTES", -1)
    return str(request.param)
