"""Bounds of every kind against columns of every type: Spark, the statistics of files and plain Python agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from odi_assets.config.models.checks import Check, CheckConfig, checks_of
from odi_assets.connections.location import Location
from odi_assets.delta.files.footers import WrittenFile, footer_statistics
from odi_assets.errors import ChecksFailedError, ConfigError
from odi_assets.nodes.execution.checks.by_files import passed_by_files
from odi_assets.nodes.execution.checks.conditions import condition_of, kind_of, require_comparable
from odi_assets_tests.nodes.support import Sandbox

BIG = 2**53
"""From here on, a DOUBLE does not hold every whole number."""
LATE, NEXT = datetime(2024, 1, 1, 23), datetime(2024, 1, 2, 1)
NEW_YEAR = date(2024, 1, 1)


def decimals(*texts: str) -> list[Any]:
    return [Decimal(text) for text in texts]


TIMES = [datetime(2024, 1, 1), LATE - timedelta(microseconds=1), LATE, LATE + timedelta(microseconds=1), NEXT]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "TINYINT": (pa.int8(), [-128, 0, 9, 10, 127]),
    "INT": (pa.int32(), [-(2**31), -10, 0, 1, 2, 9, 10, 2**31 - 1]),
    "BIGINT": (pa.int64(), [-(2**63), 0, 9, 10, BIG - 1, BIG, BIG + 1, BIG + 2, 2**63 - 1]),
    "DECIMAL(10,2)": (
        pa.decimal128(10, 2),
        decimals("-99999999.99", "-0.01", "0", "9.5", "10", "10.01", "99999999.99"),
    ),
    "DECIMAL(5,2)": (pa.decimal128(5, 2), decimals("-999.99", "-9.5", "0", "10.00", "10.01", "999.99")),
    "DECIMAL(10,0)": (pa.decimal128(10, 0), decimals("-1", "0", "1", "9", "10")),
    "DECIMAL(38,18)": (
        pa.decimal128(38, 18),
        decimals("0", "1e-18", "2e-18", "10.005", "10.005000000000000001", f"{BIG}", f"{BIG + 1}.000000000000000001")
        + decimals("12345678901234567890.123456789012345678", "12345678901234567890.123456789012345679"),
    ),
    "FLOAT": (pa.float32(), [float(np.float32(one)) for one in (-0.4, 0, 0.1, 9.5, 10, 10.005, 10.01, 16777216)]),
    "DOUBLE": (pa.float64(), [-0.4, 0.0, 0.1, 9.5, 10.0, 10.005, 10.01, float(BIG), float(BIG + 2)]),
    "DATE": (pa.date32(), [date(2023, 12, 31), NEW_YEAR, date(2024, 1, 2), date(1, 1, 1), date(9999, 12, 31)]),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), [one.replace(tzinfo=UTC) for one in TIMES]),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), TIMES),
    "STRING": (pa.string(), ["", "10", "9", "abc", "2024-01-01", "true", "Ä", "\U0001f600", "\uffff"]),
    "BOOLEAN": (pa.bool_(), [False, True]),
}
"""By type of a column: the type that Arrow has for it, and values."""

READ_BY_ARROW = ("TINYINT", "INT", "BIGINT", "DECIMAL", "STRING", "BOOLEAN")
"""Types whose values this process compares with those that a column may have."""

BOUNDS: dict[str, list[Any]] = {
    "a whole number": [-1, 0, 9, 10, 100000, BIG + 1, 2**63, -(2**63) - 1, 10**40],
    "a fraction": [-0.4, 0.1, 0.4, 9.5, 10.005, 1.0, 2.0, 1e30],
    "a number in quotes": [
        "10",
        "10.005",
        "1e-18",
        f"{BIG + 1}",
        f"{BIG}.5",
        "12345678901234567890.123456789012345678",
    ],
    "a date in quotes": ["2024-01-01", "2024-01-02"],
    "a time in quotes": ["2024-01-01T23:00:00", "2024-01-01 23:00", "2024-01-01T00:00:00.000001"],
    "a time with an offset": ["2024-01-01T23:00:00-02:00", "2024-01-01T00:00:00Z", "2024-01-02T01:00:00 +02:00"],
    "a date": [NEW_YEAR],
    "a time": [LATE, NEXT.replace(tzinfo=timezone(timedelta(hours=2)))],
    "true or false": [True, False],
    "a word": ["abc", "true", "01/01/2024", "20240101"],
}
"""By kind of a bound: some of that kind, as the project file or a node in Python gives them."""


def in_python(column: str, bound: Any, *, ordered: bool) -> Any:
    """A bound, or a value, for plain Python to compare; None if it cannot be compared with such a column."""
    is_number = isinstance(bound, int | float) and not isinstance(bound, bool)
    if column in ("STRING", "BOOLEAN"):
        if column == "BOOLEAN":
            return {"true": True, "false": False}.get(str(bound).lower())
        as_text = isinstance(bound, str) or (is_number and isinstance(bound, int) and not ordered)
        return str(bound) if as_text else None
    if column in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        return moment(column, bound)
    try:
        number = Decimal(str(bound)) if is_number or isinstance(bound, str | Decimal) else None
    except InvalidOperation:
        return None
    if number is None or column not in ("FLOAT", "DOUBLE"):
        return number
    with np.errstate(over="ignore"):
        return float(np.float32(float(number))) if column == "FLOAT" else float(number)


def moment(column: str, bound: Any) -> datetime | None:
    if isinstance(bound, str):
        try:
            bound = datetime.fromisoformat(bound.replace(" +", "+")) if "-" in bound else None
        except ValueError:
            return None
    if not isinstance(bound, date):
        return None
    found = bound if isinstance(bound, datetime) else datetime(bound.year, bound.month, bound.day)
    if column == "TIMESTAMP_NTZ":
        return found if found.tzinfo is None else None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def check_of(**given: Any) -> Check:
    ((_, check),) = checks_of([CheckConfig(**given)])
    return check


FAILS: dict[str, tuple[Callable[[Any], Check], Callable[[Any, Any], bool]]] = {
    "min": (lambda bound: check_of(range={"column": "v", "min": bound}), lambda value, bound: value < bound),
    "max": (lambda bound: check_of(range={"column": "v", "max": bound}), lambda value, bound: value > bound),
    "values": (
        lambda bound: check_of(accepted_values={"column": "v", "values": [bound]}),
        lambda value, bound: value != bound,
    ),
}
"""By use of a bound: the check that has it, and whether a value fails the check, in plain Python."""


def cases(column: str) -> Iterator[tuple[str, Check, list[bool] | None]]:
    """Each check, and which values fail it; None if it cannot be compared."""
    _, values = COLUMNS[column]
    for kind, bounds in BOUNDS.items():
        for bound in bounds:
            for use, (make, fails) in FAILS.items():
                other = in_python(column, bound, ordered=use != "values")
                mine = [in_python(column, value, ordered=True) for value in values]
                wanted = None if other is None else [fails(value, other) for value in mine]
                yield f"{use} {bound!r}, {kind}", make(bound), wanted


def written(column: str, values: Sequence[Any], folder: Path, name: str = "f.parquet") -> WrittenFile:
    """A file of these values, with the statistics that are taken from its footer."""
    kind, _ = COLUMNS[column]
    pq.write_table(pa.table({"v": pa.array(values, kind)}), folder / name)
    return WrittenFile(name, 1, 1, len(values), {}, footer_statistics(pq.read_metadata(folder / name)))


@pytest.mark.parametrize("column", COLUMNS)
def test_a_bound_is_compared_exactly_or_refused_whatever_the_columns_type(
    column: str, tmp_path: Path, spark: SparkSession
) -> None:
    _, values = COLUMNS[column]
    rows = spark.createDataFrame(list(enumerate([*values, None])), f"i INT, v {column}").coalesce(1)
    kind, location = kind_of(rows, ["v"]), Location(str(tmp_path))
    files = [written(column, [value], tmp_path, f"{number}.parquet") for number, value in enumerate(values)]
    asked: list[tuple[str, list[bool]]] = []
    conditions = []
    for text, check, wanted in cases(column):
        if wanted is None:
            with pytest.raises(ConfigError, match=r"p\.orders: its check `\w+` cannot compare `.*` with `v`, which"):
                require_comparable(check, rows, "p.orders")
            continue
        require_comparable(check, rows, "p.orders")
        condition = condition_of(check, rows)
        assert condition is not None
        conditions.append(condition.alias(str(len(asked))))
        asked.append((text, [*wanted, False]))
        by_files = [passed_by_files(check, location, [file], kind) for file in files]
        assert not [value for value, passed, fails in zip(values, by_files, wanted, strict=True) if passed and fails], (
            text
        )
        if check.kind == "range" and column.startswith(("TINYINT", "INT", "BIGINT", "DECIMAL(5", "DECIMAL(10")):
            assert by_files == [not fails for fails in wanted], text
        if check.kind == "accepted_values" and column.startswith(READ_BY_ARROW):
            assert by_files == [not fails for fails in wanted], text
    assert asked
    found = list(zip(*rows.orderBy("i").select(*conditions).collect(), strict=True))
    assert [(text, [fails is True for fails in row]) for (text, _), row in zip(asked, found, strict=True)] == asked


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("files", [1, 2])
def test_keys_that_come_twice_are_never_taken_for_unique_whatever_their_type(
    column: str, files: int, tmp_path: Path
) -> None:
    _, values = COLUMNS[column]
    location, unique = Location(str(tmp_path)), check_of(unique="v")
    for repeated in (None, *values):
        keys = [*values, None, None, *([] if repeated is None else [repeated])]
        parts = [keys] if files == 1 else [keys[:3], keys[3:]]
        chunks = [written(column, part, tmp_path, f"{number}.parquet") for number, part in enumerate(parts)]
        passed = passed_by_files(unique, location, chunks, "")
        assert passed is (repeated is None and column not in ("FLOAT", "DOUBLE", "BOOLEAN")), (repeated, keys)


@pytest.mark.parametrize("step", [1, 3, 1_000, 2**40])
@pytest.mark.parametrize("least", [-(2**63), -500, 0, 2**62])
def test_numbers_near_each_other_and_far_apart_are_compared_alike(least: int, step: int, tmp_path: Path) -> None:
    numbers = [least + step * index for index in range(1_000)]
    location, unique = Location(str(tmp_path)), check_of(unique="v")
    for keys, wanted in ((numbers[::-1], True), ([*numbers, numbers[500]], False)):
        assert passed_by_files(unique, location, [written("BIGINT", keys, tmp_path)], "long") is wanted


def test_columns_of_too_many_bytes_are_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location, files = Location(str(tmp_path)), [written("STRING", ["a", "b"], tmp_path)]
    checks = check_of(unique="v"), check_of(accepted_values={"column": "v", "values": ["a", "b"]})
    assert all(passed_by_files(check, location, files, "string") for check in checks)
    monkeypatch.setattr("odi_assets.nodes.execution.checks.by_files.MOST_BYTES", 8)
    assert not any(passed_by_files(check, location, files, "string") for check in checks)


def test_null_and_nan_among_bounds(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1.0,), (float("nan"),), (None,)], "v DOUBLE").coalesce(1)
    among = condition_of(check_of(accepted_values={"column": "v", "values": [float("nan")]}), rows)
    above = condition_of(check_of(range={"column": "v", "max": 10}), rows)
    assert among is not None
    assert above is not None
    assert [tuple(row) for row in rows.select(among, above).collect()] == [(True, False), (False, True), (None, None)]
    with pytest.raises(ConfigError, match="NaN is no end of a range"):
        require_comparable(check_of(range={"column": "v", "max": float("nan")}), rows, "p.orders")


def test_a_number_that_is_rounded_when_it_is_read_is_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1,)], "v BIGINT")
    with pytest.raises(ConfigError, match="more than 15 digits is rounded when read: put it in quotes"):
        require_comparable(check_of(range={"column": "v", "max": 12345678901234567.89}), rows, "p.orders")


TYPED = """
- pipeline: p
  nodes:
  - name: orders
    read: {connection: landing, format: csv, path: orders, schema: "v %s", incremental: files}
    write: {connection: lake, path: orders, mode: append}
    checks: [%s]
"""


@pytest.mark.parametrize(
    ("column", "check", "bad", "good"),
    [
        ("DECIMAL(10,2)", "range: {column: v, max: 10.005}", "10.01", "10.00"),
        ("DECIMAL(10,2)", "accepted_values: {column: v, values: [10.005, 9]}", "10.01", "9.00"),
        ("DECIMAL(10,0)", "range: {column: v, min: 0.4}", "0", "1"),
        ("DATE", 'range: {column: v, min: "2024-01-01T23:00:00"}', "2024-01-01", "2024-01-02"),
        ("BIGINT", "range: {column: v, max: 9.5}", "10", "9"),
        ("DECIMAL(5,2)", "range: {column: v, min: -0.001, max: 100000}", "-0.01", "999.99"),
        ("INT", "accepted_values: {column: v, values: [1.0, 2.0]}", "3", "2"),
        ("BIGINT", "range: {column: v, max: 9007199254740992}", "9007199254740993", "9007199254740992"),
    ],
)
def test_a_run_decides_by_the_bound_as_it_is_written(
    column: str, check: str, bad: str, good: str, tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, TYPED % (column, f"{{{check}}}"))
    box.land("orders/1.csv", [good])
    assert box.run("orders").rows_written == 1
    box.land("orders/2.csv", [good, bad])
    with pytest.raises(ChecksFailedError, match=f"1 of 2 rows has .*; as in v={bad}"):
        box.run("orders")
