"""A node whose target's store fails for a while: the project's retry policy is followed, and data is there once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.delta.errors import StoreUnreachableError
from odi_assets.delta.table import TableHandle
from odi_assets.nodes.recovery.table_versions import at_version
from odi_assets_tests.nodes import support
from odi_assets_tests.nodes.support import Sandbox

PIPELINE = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "*.csv", schema: id BIGINT, options: {header: true}, incremental: files}
    write: {connection: lake, path: raw, mode: append}
"""


@pytest.fixture(
    params=[
        "retry: {retries: 2, base_delay: 0.001, jitter: 0}",
        "retry: {max_attempts: 3, backoff: constant, base_delay: 0.001, jitter: 0}",
    ]
)
def sandbox(
    request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Sandbox:
    monkeypatch.setattr(support, "HEAD", f"\n{request.param}{support.HEAD}")
    found = Sandbox(tmp_path, spark, PIPELINE)
    found.land("a.csv", ["id", "1", "2"])
    found.run("raw")
    found.land("b.csv", ["id", "3"])
    return found


def failing(monkeypatch: pytest.MonkeyPatch, times: int, *, landed: bool) -> None:
    """Let the next commits fail as a store that resets the connection does, carried out or not."""
    real, left = DeltaTable.create_write_transaction, [times]

    def commit(*arguments: Any, **options: Any) -> None:
        left[0] -= 1
        if left[0] < 0 or landed:
            real(*arguments, **options)
        if left[0] >= 0:
            raise ConnectionResetError("connection reset by peer")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)


def waits_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "trying again" in r.getMessage()]


def test_a_store_that_resets_connections_at_the_commit_is_asked_again(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing(monkeypatch, 2, landed=False)
    with caplog.at_level(logging.WARNING):
        result = sandbox.run("raw")
    assert (result.table_version, sandbox.rows("raw")) == (1, [(1,), (2,), (3,)])
    told = waits_of(caplog)
    assert len(told) == 2
    assert all("StoreUnreachableError" in text and "connection reset by peer" in text for text in told)
    assert "attempt 1 of 3" in told[0]


def test_a_commit_whose_answer_was_lost_is_not_made_again(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing(monkeypatch, 1, landed=True)
    with caplog.at_level(logging.WARNING):
        result = sandbox.run("raw")
    assert (result.table_version, sandbox.rows("raw")) == (1, [(1,), (2,), (3,)])
    assert waits_of(caplog) == []


def test_when_the_retries_are_used_up_nothing_was_written_and_the_next_run_goes_on(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        failing(patched, 3, landed=False)
        with pytest.raises(StoreUnreachableError) as told:
            sandbox.run("raw")
    assert told.value.__notes__ == ["given up after 3 attempts"]
    assert sandbox.rows("raw") == [(1,), (2,)]
    sandbox.run("raw")
    assert sandbox.rows("raw") == [(1,), (2,), (3,)]


def test_opening_the_target_is_tried_again(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real: Callable[..., Any] = DeltaTable
    left = [2]

    def opened(uri: str, *arguments: Any, **options: Any) -> Any:
        if uri.endswith("raw") and left[0]:
            left[0] -= 1
            raise TimeoutError("no answer")
        return real(uri, *arguments, **options)

    monkeypatch.setattr("odi_assets.delta.table.DeltaTable", opened)
    with caplog.at_level(logging.WARNING):
        sandbox.run("raw")
    assert sandbox.rows("raw") == [(1,), (2,), (3,)]
    assert len(waits_of(caplog)) == 2


def test_a_version_that_cannot_be_looked_at_is_not_told_to_be_gone(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., Any] = DeltaTable
    handle = TableHandle.open(sandbox.project.target(NodeKey("p", "raw")))

    def opened(uri: str, version: int | None = None, **options: Any) -> Any:
        if version is not None:
            raise TimeoutError("no answer")
        return real(uri, version=version, **options)

    assert at_version(0)(handle) == 0
    monkeypatch.setattr("odi_assets.delta.table.DeltaTable", opened)
    with pytest.raises(StoreUnreachableError):
        at_version(0)(handle)
