"""Data files are compared with what the log says of their values: another file in the place of one is found."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odi_assets.connections.location import Location
from odi_assets.delta.maintenance.verify import unreadable_files
from odi_assets.delta.table import TableHandle

UTC = dt.UTC
ONE_FILE_EACH: dict[str, tuple[pa.DataType, list[list[Any]]]] = {
    "integers": (pa.int64(), [[1, 2, None], [3, 4, None]]),
    "small integers": (pa.int8(), [[1, -2], [3, 4]]),
    "dates": (pa.date32(), [[dt.date(2024, 1, 1)], [dt.date(2024, 1, 2)]]),
    "times": (
        pa.timestamp("us", tz="UTC"),
        [[dt.datetime(2024, 1, 1, 1, 1, 1, 999_999, UTC)], [dt.datetime(2024, 1, 1, 1, 1, 2, 1_999, UTC)]],
    ),
    "text": (pa.string(), [["ä", "b"], ["c", "d"]]),
    "long text": (pa.string(), [["a" * 300, "b" * 300], ["a" * 299 + "b", "c" * 300]]),
    "NULLs of floats": (pa.float64(), [[None, 1.0], [2.0, 3.0]]),
}


def table_of(root: Path, kind: pa.DataType, files: list[list[Any]]) -> TableHandle:
    for values in files:
        rows = pa.table({"v": pa.array(values, kind), "n": pa.nulls(len(values), pa.int32())})
        write_deltalake(str(root), rows, mode="append")
    return TableHandle.open(Location(str(root)))


@pytest.mark.parametrize("kind", ONE_FILE_EACH)
def test_a_whole_file_in_the_place_of_another_one_is_found(kind: str, tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", *ONE_FILE_EACH[kind])
    assert unreadable_files(table) == []
    first, second = (tmp_path / "t" / file.path for file in table.live_files)
    shutil.copy(first, tmp_path / "kept")
    shutil.copy(second, first)
    shutil.copy(tmp_path / "kept", second)
    found = unreadable_files(table)
    assert len(found) == 2
    same_size = first.stat().st_size == second.stat().st_size
    assert all("is not the one that the log describes" in one.why for one in found) is same_size


HARMLESS: dict[str, Callable[[], pa.Array]] = {
    "NaN and negative zero": lambda: pa.array([float("nan"), -0.0, 0.0, float("inf"), None]),
    "decimals": lambda: pa.array([Decimal("0.10"), Decimal("99999999999999999999999999.01"), None]),
    "text of all lengths": lambda: pa.array(["", "a" * 31, "a" * 32, "a" * 33, "ß" * 64, "\U0010ffff" * 70, None]),
    "text that ends in the greatest character": lambda: pa.array(["a" * 64 + "\U0010ffff", "\x7f" * 200]),
    "booleans": lambda: pa.array([True, False, None]),
    "bytes": lambda: pa.array([b"\xff", b"", None]),
    "nothing": lambda: pa.nulls(3, pa.string()),
    "early dates": lambda: pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "early times": lambda: pa.array([dt.datetime(1, 1, 1, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
    "times without a zone": lambda: pa.array([dt.datetime(2024, 1, 1, 1, 1, 1, 999_999)], pa.timestamp("us")),
    "greatest integers": lambda: pa.array([2**63 - 1, -(2**63)]),
    "structs": lambda: pa.array([{"a": 1, "b": None}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
    "lists": lambda: pa.array([[1, None], None, []], pa.list_(pa.int64())),
    "maps": lambda: pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
}


@pytest.mark.parametrize("kind", HARMLESS)
def test_files_that_are_what_the_log_says_are_no_damage(kind: str, tmp_path: Path) -> None:
    values = HARMLESS[kind]()
    write_deltalake(str(tmp_path / "t"), pa.table({"v": values, "a.b": values}))
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    assert unreadable_files(TableHandle.open(Location(str(tmp_path / "t")))) == []


STATISTICS: dict[str, tuple[dict[str, Any] | None, bool]] = {
    "none": (None, True),
    "rows alone": ({"numRecords": 2}, True),
    "text that is cut off as Spark does": (
        {"numRecords": 2, "minValues": {"s": "a" * 32}, "maxValues": {"s": "b" * 32 + "\ufffd"}, "nullCount": {"s": 0}},
        True,
    ),
    "text that is cut off and counted up": (
        {"numRecords": 2, "minValues": {"s": "aaa"}, "maxValues": {"s": "bbc"}, "nullCount": {"s": 0}},
        True,
    ),
    "times cut to milliseconds": (
        {
            "numRecords": 2,
            "minValues": {"t": "2024-01-01T00:00:00.123Z"},
            "maxValues": {"t": "2024-01-02T00:00:00.123Z"},
            "nullCount": {"t": 0},
        },
        True,
    ),
    "other text": (
        {"numRecords": 2, "minValues": {"s": "aab"}, "maxValues": {"s": "c"}, "nullCount": {"s": 0}},
        False,
    ),
    "other times": (
        {
            "numRecords": 2,
            "minValues": {"t": "2024-01-01T00:00:00.120Z"},
            "maxValues": {"t": "2024-01-02T00:00:00.123Z"},
            "nullCount": {"t": 0},
        },
        False,
    ),
}


@pytest.mark.parametrize("which", STATISTICS)
def test_statistics_of_other_writers_count_as_far_as_they_go(which: str, tmp_path: Path) -> None:
    stats, is_right = STATISTICS[which]
    times = [dt.datetime(2024, 1, day, microsecond=123_456, tzinfo=UTC) for day in (1, 2)]
    rows = {"s": ["a" * 40, "b" * 40], "t": pa.array(times, pa.timestamp("us", tz="UTC"))}
    write_deltalake(str(tmp_path / "t"), pa.table(rows))
    commit = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = None if stats is None else json.dumps(stats)
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions), encoding="utf-8")
    found = unreadable_files(TableHandle.open(Location(str(tmp_path / "t"))))
    assert (found == []) is is_right
