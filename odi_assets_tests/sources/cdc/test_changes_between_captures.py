"""A short form of the sweep of what happens to captured tables between two captures."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.capture.changes.life import Life
from benchmarks.capture.changes.postgres.server import started
from benchmarks.capture.changes.postgres.steps import KINDS
from benchmarks.capture.changes.server import ServerInHand
from odi_assets_tests.sources.sql.servers import postgres_program


@pytest.fixture
def server_in_hand() -> Iterator[ServerInHand]:
    if postgres_program("initdb") is None:
        pytest.skip("no PostgreSQL server is installed (Debian: postgresql)")
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder, started(Path(folder)) as server:
        yield server


def test_after_each_step_tables_are_equal_or_the_run_stops_and_leads_on(
    tmp_path: Path, spark: SparkSession, server_in_hand: ServerInHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odi_assets.sources.cdc.postgres.waiting._PATIENCE", 1.0)
    monkeypatch.setattr("odi_assets.sources.cdc.source.MOST_CHANGES", 500_000)
    lives = [Life(seed, server_in_hand, KINDS, tmp_path / str(seed), spark) for seed in (5004, 2005)]
    assert [life.live() for life in lives] == [None] * len(lives), [life.told for life in lives]
    assert min(sum(life.runs for life in lives), sum(life.stops for life in lives)) > 0
