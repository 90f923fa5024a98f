"""``meta_batches``: the batches of stream nodes, written once or more, read once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from odi_assets.connections.location import Location
from odi_assets.state.delta.batches import BatchLog, BatchRecord, OperatorFigures

JOIN = OperatorFigures(
    operator=0, name="symmetricHashJoin", rows_total=7, rows_dropped=2, custom={"rocksdbGetCount": 9}
)


def batch(number: int, query: str = "q1", node: str = "p.matched") -> BatchRecord:
    return BatchRecord(
        node=node,
        query=query,
        batch=number,
        watermark=datetime(2024, 1, 1, 10, number, 0, 123_000, tzinfo=UTC) if number else None,
        offsets={"orders": {"end": {"logOffset": number}, "read": "ab12"}, "payments": {"end": None}},
        rows_in={"orders": 10, "payments": 0},
        operators=(JOIN,),
        table_version=number + 1,
    )


@pytest.fixture
def log(tmp_path: Path) -> BatchLog:
    return BatchLog(Location(str(tmp_path / "meta_batches")), "prod")


def test_a_batch_is_read_as_it_was_written(log: BatchLog) -> None:
    assert log.of_node("p.matched") == []
    log.record([batch(0), batch(1)])
    found = log.of_node("p.matched")
    assert [replace(one, written_at=None) for one in found] == [batch(0), batch(1)]
    assert all(one.written_at is not None for one in found)


def test_of_a_batch_that_is_written_twice_the_newest_row_counts(log: BatchLog) -> None:
    log.record([batch(0), batch(1)])
    log.record([replace(batch(0), rows_out=5)])
    assert [(one.batch, one.rows_out) for one in log.of_node("p.matched")] == [(0, 5), (1, None)]


def test_batches_are_of_a_node_a_query_and_an_environment(log: BatchLog, tmp_path: Path) -> None:
    log.record([batch(0), batch(1), batch(0, node="p.other")])
    log.record([batch(0, "another")])
    other = BatchLog(Location(str(tmp_path / "meta_batches")), None)
    other.record([batch(4)])
    assert [(one.query, one.batch) for one in log.of_node("p.matched")] == [("q1", 0), ("q1", 1), ("another", 0)]
    assert [one.batch for one in log.of_node("p.matched", "q1", since=1)] == [1]
    assert [one.batch for one in other.of_node("p.matched")] == [4]


def test_a_query_that_goes_back_forgets_its_later_batches(log: BatchLog) -> None:
    assert log.forget_after("p.matched", "q1", 0) == 0
    log.record([batch(0), batch(1), batch(2)])
    log.record([batch(1, "another")])
    assert log.forget_after("p.matched", "q1", 0) == 2
    assert [(one.query, one.batch) for one in log.of_node("p.matched")] == [("q1", 0), ("another", 1)]


def test_figures_that_a_later_version_added_are_passed_over() -> None:
    assert OperatorFigures.from_json({"operator": 1, "name": "dedupe", "new": 3}) == OperatorFigures(
        operator=1, name="dedupe"
    )
