"""Which partition a row belongs to: each length, column type and time zone, across changes of the clock."""

from __future__ import annotations

import warnings
from datetime import UTC, date, datetime
from itertools import groupby

import pytest

from benchmarks.partitions.cases import DELTA, Case, cases
from odi_assets.config.models import PartitionConfig
from odi_assets.delta.files.spans import Span
from odi_assets.errors import ConfigError
from odi_assets.nodes.planning.partition_calendar import PartitionCalendar
from odi_assets.nodes.planning.range import partitions_within
from odi_assets.nodes.request import Bounds
from odi_assets.orchestration.partitions import PartitionKeys, partitions_definition

BY_ZONE = {
    zone: list(found) for zone, found in groupby(sorted(cases(), key=lambda one: one.zone), lambda one: one.zone)
}


def config(case: Case) -> PartitionConfig:
    return PartitionConfig.model_validate({**case.config, "end": date(2027, 1, 1)})


@pytest.mark.parametrize("zone", BY_ZONE)
def test_the_partition_of_a_value_is_the_one_that_arithmetic_gives(zone: str) -> None:
    for case in BY_ZONE[zone]:
        calendar = PartitionCalendar(config(case))
        for value, key in case.rows.values():
            found = calendar.partition_of(value, DELTA[case.kind])
            assert (found.key if found else None) == key, f"{case}: {value}"


@pytest.mark.parametrize("zone", BY_ZONE)
def test_a_range_of_one_partition_holds_its_values_and_no_others_or_is_refused(zone: str) -> None:
    for case in BY_ZONE[zone]:
        for part in case.parts:
            found = partitions_within(config(case), Bounds.of(part.start, part.end))
            assert [one.key for one in found] == [part.key], str(case)
            span, kind = Span("at", found, case.every), DELTA[case.kind]
            if part.shared and kind in ("timestamp_ntz", "integer"):
                with pytest.raises(ConfigError, match="twice"):
                    span.require(kind)
                continue
            held = {number for number, (value, _) in case.rows.items() if span.holds(value, kind)}
            assert held == {number for number, (_, key) in case.rows.items() if key == part.key}, f"{case}: {part}"


@pytest.mark.parametrize("zone", BY_ZONE)
def test_a_range_of_all_of_them_holds_every_row(zone: str) -> None:
    for case in BY_ZONE[zone]:
        found = partitions_within(config(case), Bounds.of(case.parts[0].start, case.parts[-1].end))
        span = Span("at", found, case.every)
        outside = [value for value, _ in case.rows.values() if not span.holds(value, DELTA[case.kind])]
        assert not outside, str(case)


@pytest.mark.parametrize("zone", BY_ZONE)
def test_dagster_has_these_partitions(zone: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in [one for one in BY_ZONE[zone] if one.kind == "TIMESTAMP"]:
            definition = partitions_definition(config(case), "p")
            for part in case.parts:
                window = definition.time_window_for_partition_key(part.key)
                found = (window.start.astimezone(UTC), window.end.astimezone(UTC))
                assert found == (part.start, part.end), f"{case}: {part}"
                assert definition.has_partition_key(part.key), f"{case}: {part}"


def test_rows_are_counted_by_the_partitions_that_dagster_knows() -> None:
    case = Case("day", "TIMESTAMP", "Europe/Berlin", "back", 6)
    keys = PartitionKeys(config(case), {"at": "timestamp"})
    # In Berlin, 6 o'clock is 4 o'clock in UTC before the change, and 5 o'clock after it.
    values = {
        "2024-10-27 03:59:59": 1,
        "2024-10-27 04:59:59": 2,
        "2024-10-27 05:00:00": 4,
        "2030-01-01 00:00:00": 8,
        None: 9,
    }
    assert keys.rows({(value,): count for value, count in values.items()}) == {"2024-10-26": 3, "2024-10-27": 4}


def test_texts_and_integers_name_a_partition_in_several_ways() -> None:
    month = PartitionCalendar(PartitionConfig(column="at", every="month", start=date(2024, 1, 1)))
    hour = PartitionCalendar(PartitionConfig(column="at", every="hour", start=date(2024, 1, 1)))
    for value in ("2024-02", "2024-02-01"):
        assert month.partition_of(value, "string") == month.holding(datetime(2024, 2, 2, tzinfo=UTC))
    for value in ("2024-02-01-00:00", "2024-02-01 00:00:00", "2024-02-01"):
        assert hour.partition_of(value, "string") == hour.holding(datetime(2024, 2, 1, tzinfo=UTC))
    for value in ("2024-02-17", "February", "20240201", "99999-01"):
        assert month.partition_of(value, "string") is None
    assert month.partition_of("20240201", "integer") is None
    assert month.partition_of("1.5", "decimal(2,1)") is None
    assert month.partition_of("10000-01-01 00:00:00", "timestamp") is None


def test_a_small_integer_that_cannot_hold_the_number_of_a_partition_is_refused() -> None:
    found = partitions_within(
        PartitionConfig(column="at", start=date(2024, 1, 1)), Bounds.of("2024-01-01", "2024-01-02")
    )
    with pytest.raises(ConfigError, match="`at` is SMALLINT, which cannot hold 20240101"):
        Span("at", found).require("short")
    with pytest.raises(ConfigError, match="`at` is DOUBLE, which does not say to which partition a row belongs"):
        Span("at", found).require("double")


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ({"timezone": "Europe/Berlin", "hour_offset": 6}, "2023-12-31T06:00+01:00 --to 2024-01-02T06:00+01:00"),
        ({"every": "week"}, "--from 2024-01-01 --to 2024-01-08"),
        ({"every": "year"}, "--from 2024-01-01 --to 2025-01-01"),
        ({"every": "hour", "minute_offset": 30}, "--from 2023-12-31T23:30 --to 2024-01-02T00:30"),
    ],
)
def test_a_range_that_cuts_a_partition_is_refused_with_one_that_does_not(given: dict[str, object], fix: str) -> None:
    partition = PartitionConfig.model_validate({"column": "at", "start": date(2024, 1, 1), **given})
    bounds = Bounds.of("2024-01-01", "2024-01-02T00:00:01")
    with pytest.raises(ConfigError, match="cuts a partition in two") as caught:
        partitions_within(partition, bounds)
    assert fix in str(caught.value.fix)
    start, _, end = str(caught.value.fix).partition("--from ")[2].partition(" --to ")
    assert partitions_within(partition, Bounds.of(start, end))


def test_a_range_beside_the_end_of_times_is_refused() -> None:
    partition = PartitionConfig(column="at", every="year", start=date(2024, 1, 1))
    bounds = Bounds(datetime(9999, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC))
    with pytest.raises(ConfigError, match="not within the years 1 to 9999"):
        partitions_within(partition, bounds)
