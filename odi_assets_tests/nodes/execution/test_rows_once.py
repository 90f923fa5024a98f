"""An append with keys and a lag knows a row by its keys and its cursor: within an increment as across increments."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IncrementError
from odi_assets.nodes.audit.audit import audit
from odi_assets_tests.nodes.support import Sandbox

NODE = """
- pipeline: p
  nodes:
  - name: ev
    read: {connection: landing, format: json, path: "e/*", schema: "eid STRING, at TIMESTAMP, v INT",
           incremental: {mode: stateful, column: at, watermark_lag: 2h}}
    write: {connection: lake, path: ev, mode: append, keys: [eid]}
"""
A = '{"eid": "a", "at": "2024-11-01T10:00:00Z", "v": 1}'
B = '{"eid": "b", "at": "2024-11-01T11:00:00Z", "v": 2}'
LATER = '{"eid": "b", "at": "2024-11-01T11:30:00Z", "v": 3}'
NO_KEY = '{"at": "2024-11-01T11:30:00Z", "v": 4}'
DELIVERIES = [[A, A], [A, B, B], [B, LATER, NO_KEY, NO_KEY], [NO_KEY]]


def agreed(box: Sandbox) -> bool:
    return not audit(box.project, box.spark, box.state, NodeKey("p", "ev")).differing


def test_a_row_that_is_delivered_again_is_stored_once_in_one_increment_in_several_and_by_a_full_refresh(
    tmp_path: Path, spark: SparkSession
) -> None:
    found = []
    for name in ("single", "at once"):
        (tmp_path / name).mkdir()
        box = Sandbox(tmp_path / name, spark, NODE)
        for number, lines in enumerate(DELIVERIES):
            box.land(f"e/{number}.json", lines)
            if name == "single":
                box.run("ev")
        result = box.run("ev")
        assert name == "single" or (result.rows_read, result.rows_written) == (10, 4)
        found.append(box.rows("ev"))
        assert agreed(box)
        box.run("ev", full_refresh=True)
        found.append(box.rows("ev"))
        assert agreed(box)
    assert [row[2] for row in found[0]] == [1, 2, 3, 4]
    assert all(rows == found[0] for rows in found)


def test_rows_with_neither_a_key_nor_a_cursor_are_known_by_all_of_their_columns(
    tmp_path: Path, spark: SparkSession
) -> None:
    node = NODE.replace("watermark_lag: 2h", "on_null: include").replace("v INT", "v INT, m MAP<STRING, INT>")
    box = Sandbox(tmp_path, spark, node)
    box.land("e/1.json", [A, '{"v": 1}', '{"v": 1}', '{"v": 2}', '{"v": 2, "m": {"a": 1}}', '{"eid": "a", "v": 3}'])
    box.run("ev")
    assert sorted(row[2] for row in box.rows("ev")) == [1, 1, 2, 2, 3]
    box.land("e/2.json", [B, '{"v": 2, "m": {"a": 1}}', '{"v": 4}', '{"eid": "a", "v": 5}'])
    box.run("ev")
    box.land("e/3.json", ['{"v": 4}'])
    box.run("ev")
    # A row with a key is known by it: `v: 5` comes too late.
    assert sorted(row[2] for row in box.rows("ev")) == [1, 1, 2, 2, 2, 3, 4]


def test_a_transform_that_drops_the_cursor_is_refused_at_the_first_run(tmp_path: Path, spark: SparkSession) -> None:
    made = 'transform: {sql: "SELECT eid, v FROM df"}\n    write:'
    box = Sandbox(tmp_path, spark, NODE.replace("write:", made))
    box.land("e/1.json", [A])
    with pytest.raises(IncrementError, match="its rows lack `at`, by which rows that are read again are known"):
        box.run("ev")
