"""Upper bounds from footers and statistics alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from odi_assets.config.models import StatefulIncrement
from odi_assets.connections.location import Location
from odi_assets.errors import IncrementError
from odi_assets.sources.cursor.parquet_bounds import ColumnBounds, column_bounds
from odi_assets.sources.cursor.types import fitting, less_lag, parse

Write = Callable[..., ColumnBounds | None]


@pytest.fixture
def bounds_of(tmp_path: Path) -> Write:
    def write(kind: pa.DataType, *files: list[Any], **options: Any) -> ColumnBounds | None:
        for number, values in enumerate(files):
            table = pa.table({"other": ["x"] * len(values), "at": pa.array(values, kind)})
            pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=2, **options)
        return column_bounds(Location(str(tmp_path)), [f"{number}.parquet" for number in range(len(files))], "at")

    return write


@pytest.mark.parametrize(
    ("kind", "name", "low", "high"),
    [
        (pa.int32(), "integer", 1, 2),
        (pa.int64(), "long", -(2**63), 2**63 - 1),
        (pa.date32(), "date", date(2024, 1, 1), date(2024, 2, 29)),
        (pa.decimal128(38, 10), "decimal(38,10)", Decimal("1.0"), Decimal("1234567890123456789012345678.0000000001")),
        (pa.timestamp("us", "UTC"), "timestamp", *[datetime(2024, 1, 1, 0, 0, 0, n, UTC) for n in (123456, 123457)]),
        (pa.timestamp("us"), "timestamp_ntz", *[datetime(2024, 1, 1, 0, 0, 0, n) for n in (123456, 123457)]),
    ],
    ids=str,
)
def test_footers_tell_the_greatest_value_of_a_column_exactly(
    bounds_of: Write, kind: pa.DataType, name: str, low: Any, high: Any
) -> None:
    assert bounds_of(kind, [low, None, None, high, low], [None, low]) == ColumnBounds(name, high, 3)
    assert bounds_of(kind, [None, None, None], []) == ColumnBounds(name, None, 3)


def test_footers_that_cannot_tell_say_so(bounds_of: Write) -> None:
    assert bounds_of(pa.string(), ["a"]) is None
    assert bounds_of(pa.float64(), [1.0]) is None
    assert bounds_of(pa.timestamp("ns"), [1]) is None
    assert bounds_of(pa.int64(), [1], write_statistics=False) is None
    assert bounds_of(pa.date32(), [date(1582, 10, 4)]) is None
    assert bounds_of(pa.date32(), [3_000_000]) is None


@pytest.mark.parametrize(
    ("value", "lag", "lower"),
    [
        (date(2024, 3, 1), "2h", date(2024, 2, 29)),
        (10, 2.5, 7),
        (Decimal("1.5"), 1, Decimal("0.5")),
        (1.5, Decimal("0.5"), 1.0),
        (Decimal("12345678901234567890123456789012345678"), 1, Decimal("12345678901234567890123456789012345677")),
        (datetime(2024, 3, 31, 1, 30, tzinfo=UTC), "1d", datetime(2024, 3, 30, 1, 30, tzinfo=UTC)),
        (datetime(1, 1, 1, tzinfo=UTC), "1d", None),
    ],
)
def test_a_lag_reaches_back_in_the_cursors_own_type(value: Any, lag: Any, lower: Any) -> None:
    increment = StatefulIncrement(mode="stateful", column="at", watermark_lag=lag)
    assert less_lag(value, increment.watermark_lag) == lower


def test_an_hwm_that_was_stored_without_a_type_takes_that_of_the_cursor() -> None:
    increment = StatefulIncrement(mode="stateful", column="at")
    stored = "2024-01-01T00:00:00"
    assert fitting(stored, "timestamp", increment, "x", typed=False) == datetime(2024, 1, 1, tzinfo=UTC)
    with pytest.raises(IncrementError, match=r"is timestamp now \(datetime with a zone\), and its HWM .* is str"):
        fitting(stored, "timestamp", increment, "x")


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("2024-01-01", "timestamp", datetime(2024, 1, 1, tzinfo=UTC)),
        ("2024-01-01T02:00:00+02:00", "timestamp", datetime(2024, 1, 1, tzinfo=UTC)),
        ("2024-01-01", "timestamp_ntz", datetime(2024, 1, 1)),
        ("2024-01-01", "date", date(2024, 1, 1)),
        ("12345678901234567890", "decimal(20,0)", Decimal("12345678901234567890")),
        ("00Q", "string", "00Q"),
        ("AAE=", "binary", b"\x00\x01"),
    ],
)
def test_an_initial_value_takes_the_type_of_its_column(text: str, name: str, value: Any) -> None:
    found = parse(text, name, StatefulIncrement(mode="stateful", column="at"), "x")
    assert (found, type(found)) == (value, type(value))
