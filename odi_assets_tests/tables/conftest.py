"""A table in a temporary folder, and a short way to write rows into it. Any Spark session will do as ``spark``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.models import LocalConnection, WriteMode
from odi_assets.connections.location import Location, resolve
from odi_assets.delta.types import Stamp
from odi_assets.tables.engine import WriteResult, WriteSpec
from odi_assets.tables.upsert import arrow_rewrite as rewrite
from odi_assets_tests.tables.support import APP, ENGINE, Write, frame


@pytest.fixture
def table(tmp_path: Path) -> Location:
    return resolve(LocalConnection(base_path=str(tmp_path)), "lake/the table", tmp_path)


@pytest.fixture
def write(spark: SparkSession, table: Location) -> Write:
    """Write rows with the next fence number."""

    def do(rows: Any, schema: str = "id BIGINT, name STRING", **spec: Any) -> WriteResult:
        df = frame(spark, rows, schema) if isinstance(rows, list) else rows
        handle = ENGINE.open(table)
        stamp = Stamp(APP, handle.transaction_number(APP) + 1, {"run_id": "run"})
        return ENGINE.write(df, handle, WriteSpec(**{"mode": WriteMode.APPEND, **spec}), stamp)

    return do


@pytest.fixture(params=["arrow", "spark"])
def rewritten_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who carries the rows along that an upsert leaves as they are: small ones Arrow, large ones Spark."""
    if request.param == "spark":
        monkeypatch.setattr(rewrite, "MOST_BYTES", -1)
    return str(request.param)
