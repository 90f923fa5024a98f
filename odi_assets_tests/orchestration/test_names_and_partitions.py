from __future__ import annotations

from datetime import date
from typing import Any

import dagster as dg
import pytest

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import PartitionConfig
from odi_assets.orchestration.naming import asset_key, node_key, source_key
from odi_assets.orchestration.partitions import PartitionKeys, partition_mapping, partitions_definition


def test_a_node_and_its_asset_key_name_each_other() -> None:
    key = NodeKey("flights", "raw_flights")
    assert asset_key(key).path == ["flights", "raw_flights"]
    assert node_key(asset_key(key)) == key


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("flights/*.csv", ["landing", "flights"]),
        ("flights/2013-*/part.csv", ["landing", "flights"]),
        ("flights/{a,b}.csv", ["landing", "flights"]),
        ("airlines.csv", ["landing", "airlines"]),
        ("./export/planes.json.gz", ["landing", "export", "planes"]),
        ("events/v1.2", ["landing", "events", "v1"]),
        ("*.csv", ["landing"]),
        (".hidden", ["landing", ".hidden"]),
    ],
)
def test_a_source_is_named_after_its_connection_and_its_path_up_to_the_first_wildcard(
    path: str, expected: list[str]
) -> None:
    assert source_key("landing", path).path == expected


def _partition(every: str, end: date | None = date(2013, 3, 1)) -> PartitionConfig:
    return PartitionConfig.model_validate({"column": "day", "every": every, "start": date(2013, 1, 1), "end": end})


@pytest.mark.parametrize(
    ("every", "count", "first", "last"),
    [
        ("hour", 59 * 24, "2013-01-01-00:00", "2013-02-28-23:00"),
        ("day", 59, "2013-01-01", "2013-02-28"),
        ("month", 2, "2013-01-01", "2013-02-01"),
    ],
)
def test_partitions_go_from_the_start_until_before_the_end(every: str, count: int, first: str, last: str) -> None:
    keys = partitions_definition(_partition(every), "p").get_partition_keys()
    assert (len(keys), keys[0], keys[-1]) == (count, first, last)


def test_partitions_without_an_end_go_on_until_now() -> None:
    definition = partitions_definition(_partition("day", end=None), "p")
    assert isinstance(definition, dg.DailyPartitionsDefinition)
    assert definition.get_last_partition_key() > "2024-01-01"


@pytest.mark.parametrize(
    ("every", "values", "expected"),
    [
        ("hour", ["2013-01-05 07:00:00", None], ["2013-01-05-07:00"]),
        ("day", ["2013-01-06", "2013-01-05", "2013-01-05"], ["2013-01-05", "2013-01-06"]),
        ("day", ["2012-12-31", "2013-03-01"], []),
        ("month", ["2013-02-17", "2013-02-01"], ["2013-02-01"]),
    ],
)
def test_values_of_the_partition_column_name_dagster_partitions(
    every: str, values: list[str | None], expected: list[str]
) -> None:
    kind = "timestamp" if every == "hour" else "date"
    assert PartitionKeys(_partition(every), {"day": kind}).of_all([(value,) for value in values]) == expected


EU_US: dict[str, Any] = {"column": "region", "values": ["us", "eu"]}
DAYS: dict[str, Any] = {"column": "day", "start": date(2024, 1, 1), "end": date(2024, 2, 1)}
BOTH: dict[str, Any] = {**DAYS, "and": EU_US}


def _of(given: dict[str, Any]) -> PartitionConfig:
    return PartitionConfig.model_validate(given)


def test_values_are_static_or_dynamic_partitions_and_beside_times_a_second_dimension() -> None:
    assert partitions_definition(_of(EU_US), "p").get_partition_keys() == ["us", "eu"]
    dynamic = partitions_definition(_of({**EU_US, "values": "dynamic"}), "shop/sales")
    assert isinstance(dynamic, dg.DynamicPartitionsDefinition)
    assert dynamic.name == "shop/sales"
    both = partitions_definition(_of(BOTH), "p")
    assert isinstance(both, dg.MultiPartitionsDefinition)
    assert both.get_partition_keys()[:3] == ["2024-01-01|us", "2024-01-01|eu", "2024-01-02|us"]


@pytest.mark.parametrize(
    ("given", "kinds", "values", "expected"),
    [
        (EU_US, {"region": "string"}, [("eu",), ("asia",), (None,), ("us",)], ["eu", "us"]),
        ({"column": "n", "values": [7, 10]}, {"n": "integer"}, [("7",), ("8",)], ["7"]),
        ({"column": "n", "values": "dynamic"}, {"n": "string"}, [("a",), (None,), ("a|b",), ("a...",)], ["a"]),
        (
            BOTH,
            {"day": "date", "region": "string"},
            [("2024-01-02", "eu"), ("2024-01-02", "x"), ("2023-01-01", "eu"), ("2024-01-01", None)],
            ["2024-01-02|eu"],
        ),
        (
            {**DAYS, "and": {"column": "a", "values": "dynamic"}},
            {"day": "date", "a": "string"},
            [("2024-01-02", "eu")],
            ["eu|2024-01-02"],
        ),
    ],
)
def test_values_of_the_partition_columns_name_dagster_partitions_of_values(
    given: dict[str, Any], kinds: dict[str, str], values: list[tuple[str | None, ...]], expected: list[str]
) -> None:
    assert PartitionKeys(_of(given), kinds).of_all(values) == expected


@pytest.mark.parametrize(
    ("own", "above", "all_of_them"),
    [
        (EU_US, EU_US, False),
        (EU_US, {**EU_US, "values": ["us"]}, True),
        (EU_US, {**EU_US, "values": "dynamic"}, True),
        (EU_US, DAYS, True),
        (BOTH, DAYS, False),
        (DAYS, BOTH, False),
        (BOTH, EU_US, False),
        (BOTH, BOTH, False),
        (BOTH, {**EU_US, "values": ["us"]}, True),
        (BOTH, {**BOTH, "and": {**EU_US, "values": ["us"]}}, True),
        (BOTH, {**DAYS, "timezone": "Europe/Berlin"}, True),
    ],
)
def test_partitions_depend_on_those_of_the_same_times_and_values_or_on_all(
    own: dict[str, Any], above: dict[str, Any], all_of_them: bool
) -> None:
    mapping = partition_mapping(_of(own), _of(above))
    assert isinstance(mapping, dg.AllPartitionMapping) if all_of_them else mapping is None
    below = dg.AssetSpec(
        "below",
        deps=[dg.AssetDep("above", partition_mapping=mapping)],
        partitions_def=partitions_definition(_of(own), "below"),
    )
    assets = [below, dg.AssetSpec("above", partitions_def=partitions_definition(_of(above), "above"))]
    dg.Definitions.validate_loadable(dg.Definitions(assets=assets))
