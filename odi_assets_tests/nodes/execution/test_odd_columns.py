"""Columns with odd names, values beyond what an HWM holds, and sources without content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.errors import IncrementError, SourceError
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

NODE = """
- pipeline: p
  nodes:
  - name: events
    read: {connection: landing, format: FORMAT, path: source, INCREMENT}
    write: {connection: lake, path: events, WRITE}
"""
Make = Callable[..., Sandbox]


@pytest.fixture
def make(tmp_path: Path, spark: SparkSession) -> Make:
    def box(increment: str, write: str = "mode: append", kind: str = "delta") -> Sandbox:
        text = NODE.replace("INCREMENT", increment).replace("WRITE", write).replace("FORMAT", kind)
        (tmp_path / "landing").mkdir(exist_ok=True)
        return Sandbox(tmp_path, spark, text)

    return box


def feed(box: Sandbox, **columns: Any) -> None:
    write_deltalake(str(box.root / "landing" / "source"), pa.table(columns), mode="append")


@pytest.mark.parametrize(
    "write", ["upsert, keys: [NAME]", "append_once, keys: [NAME]", "partition_overwrite, partition_by: [NAME]"]
)
def test_a_name_with_dots_or_backticks_is_a_name(make: Make, write: str) -> None:
    name = "a.b`c"
    box = make(
        f"incremental: {{mode: stateful, column: '{name}', watermark_lag: 1}}",
        "mode: " + write.replace("NAME", f"'{name}'"),
    )
    feed(box, id=[1, 2], **{name: [1, 2]})
    box.run("events")
    feed(box, id=[3], **{name: [3]})
    box.run("events")
    assert box.rows("events") == [(1, 1), (2, 2), (3, 3)]


def test_a_path_into_a_struct_is_no_cursor(make: Make) -> None:
    box = make("incremental: {mode: stateful, column: a.b}", kind="parquet")
    (box.root / "landing" / "source").mkdir()
    pq.write_table(pa.table({"a": [{"b": 1}]}), box.root / "landing" / "source" / "1.parquet")
    with pytest.raises(IncrementError, match=r"no column `a\.b`; it has a\b"):
        box.run("events")


@pytest.mark.parametrize(
    ("column", "message"), [("id", "`id` of .* is bigint"), ("other", "no column `other`; it has id")]
)
def test_a_rolling_window_needs_a_date_or_a_time(make: Make, column: str, message: str) -> None:
    box = make(f"incremental: {{mode: rolling_window, column: {column}, lookback: 2}}", "mode: overwrite")
    feed(box, id=[1])
    with pytest.raises(IncrementError, match=message):
        box.run("events")


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("s", "UTC"), pa.timestamp("s")])
def test_a_cursor_beyond_the_years_of_an_hwm_is_an_error_and_elsewhere_only_a_value(
    make: Make, kind: pa.DataType
) -> None:
    box = make("incremental: {mode: stateful, column: at}", kind="parquet")
    (box.root / "landing" / "source").mkdir()
    far = 3_000_000 if pa.types.is_date(kind) else 300_000_000_000
    file = box.root / "landing" / "source" / "1.parquet"
    pq.write_table(
        pa.table(
            {"id": [1], "at": pa.array([far], pa.int64() if not pa.types.is_date(kind) else pa.int32()).cast(kind)}
        ),
        file,
    )
    with pytest.raises(IncrementError, match=r"1 row of landing:source has a `at` after .*; id 1, at \+1\d{4}-"):
        box.run("events")
    box = make("incremental: {mode: stateful, column: at, max_ahead: none}", kind="parquet")
    with pytest.raises(IncrementError, match=r"the greatest `at` of landing:source is \+1\d{4}-"):
        box.run("events")
    box = make("incremental: {mode: files}", "mode: upsert, keys: [id]", kind="parquet")
    assert box.run("events").rows_written == 1


def test_a_file_that_goes_away_after_the_plan_is_an_error_and_the_next_run_goes_on(make: Make) -> None:
    box = make("schema: 'id BIGINT', incremental: {mode: files}", kind="json")
    (box.root / "landing" / "source").mkdir()
    for number in (1, 2):
        (box.root / "landing" / "source" / f"{number}.json").write_text(f'{{"id": {number}}}')
    planned = box.plan("events")
    (box.root / "landing" / "source" / "1.json").unlink()
    with pytest.raises(SourceError, match=r"went away since the run was planned[\s\S]*run the node again"):
        box.finish(planned)
    box.run("events")
    assert box.rows("events") == [(2,)]


def test_files_without_a_byte_are_nothing_to_read(make: Make) -> None:
    box = make("incremental: {mode: stateful, column: at}", kind="json")
    (box.root / "landing" / "source").mkdir()
    (box.root / "landing" / "source" / "1.json").touch()
    assert box.run("events").status is RunStatus.NO_DATA
    with pytest.raises(SourceError, match=r"it has no file with content[\s\S]*read\.schema"):
        make("options: {}", "mode: overwrite", kind="json").run("events")
