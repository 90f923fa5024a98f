"""The lineage of the sample's columns, against a list that was made by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.lineage.planned_frames import PlannedFrames
from odi_assets.lineage.project_lineage import ProjectLineage
from odi_assets.lineage.trail import followed_down, followed_up
from odi_assets.nodes.project import Project

REPOSITORY = Path(__file__).resolve().parents[2]
FLIGHTS = "time_hour carrier flight tailnum origin dest distance sched_dep_time dep_time dep_delay sched_arr_time " \
    "arr_time arr_delay air_time"  # fmt: skip
WEATHER = "temp dewp humid wind_dir wind_speed wind_gust precip pressure visib"
RAW_FLIGHTS = "year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay carrier flight " \
    "tailnum origin dest air_time distance hour minute time_hour"  # fmt: skip
RAW_WEATHER = f"origin year month day hour time_hour {WEATHER}"


def same(columns: str, owner: str) -> dict[str, str]:
    return {name: f"{owner}.{name}" for name in columns.split()}


BY_HAND: dict[str, tuple[dict[str, str], str]] = {
    "raw_flights": (same(RAW_FLIGHTS, "landing:flights/*.csv"), ""),
    "raw_weather": (
        {
            **same(RAW_WEATHER, "landing:weather/*.jsonl"),
            "local_date": "landing:weather/*.jsonl.day landing:weather/*.jsonl.month landing:weather/*.jsonl.year",
        },
        "",
    ),
    "airlines": (same("carrier name", "landing:airlines.csv"), ""),
    "airports": (same("faa name lat lon alt tz dst tzone", "landing:airports.csv"), ""),
    "planes": (
        same("tailnum year type manufacturer model engines seats speed engine", "landing:planes.csv"),
        "",
    ),
    "flights": (
        {
            **same(FLIGHTS, "flights.raw_flights"),
            "local_date": "flights.raw_flights.day flights.raw_flights.month flights.raw_flights.year",
            "cancelled": "flights.raw_flights.dep_time",
        },
        # The row of a flight that stays is the first by all columns of `typed`.
        " ".join(f"flights.raw_flights.{name}" for name in [*FLIGHTS.split(), "year", "month", "day"]),
    ),
    "flights_enriched": (
        {
            **same(f"{FLIGHTS} local_date cancelled", "flights.flights"),
            **same(WEATHER, "flights.raw_weather"),
            **same("manufacturer model seats", "flights.planes"),
            "carrier_name": "flights.airlines.name",
            "dest_name": "flights.airports.name",
            "dest_lat": "flights.airports.lat",
            "dest_lon": "flights.airports.lon",
            "plane_year": "flights.planes.year",
        },
        " ".join(
            [
                *(f"flights.flights.{name}" for name in ("carrier", "dest", "tailnum", "origin", "time_hour")),
                "flights.airlines.carrier flights.airports.faa flights.planes.tailnum",
                *(f"flights.raw_weather.{name}" for name in [*RAW_WEATHER.split(), "local_date"]),
            ]
        ),
    ),
    "delays": (
        {
            **same("local_date carrier carrier_name cancelled", "flights.flights_enriched"),
            "flights": "",
            "late": "flights.flights_enriched.arr_delay",
            "mean_dep_delay": "flights.flights_enriched.dep_delay",
            "mean_arr_delay": "flights.flights_enriched.arr_delay",
            "worst_arr_delay": "flights.flights_enriched.arr_delay",
        },
        " ".join(f"flights.flights_enriched.{name}" for name in ("local_date", "carrier", "carrier_name")),
    ),
    "paid_orders": (
        {
            **same("order_id customer amount ordered_at", "landing:orders_payments/orders/*.json"),
            **same("payment_id paid_at", "landing:orders_payments/payments/*.json"),
        },
        " ".join(
            [
                *(f"landing:orders_payments/orders/*.json.{name}" for name in ("order_id", "ordered_at", "status")),
                *(f"landing:orders_payments/payments/*.json.{name}" for name in ("order_id", "paid_at")),
            ]
        ),
    ),
    "by_customer": (
        {
            "customer": "orders_payments.paid_orders.customer",
            "since": "orders_payments.paid_orders.ordered_at",
            "orders": "",
            "amount": "orders_payments.paid_orders.amount",
        },
        "orders_payments.paid_orders.customer orders_payments.paid_orders.ordered_at",
    ),
}
"""By node: of each column the columns whose values go in; and the columns that decide about all of them."""


@pytest.fixture
def lineage(tmp_path: Path, spark: SparkSession) -> ProjectLineage:
    """Of the sample before it was run: no table is there."""
    shutil.copy(REPOSITORY / "odibi.yaml", tmp_path)
    project = Project.load(tmp_path / "odibi.yaml")
    return ProjectLineage(project, lambda found: PlannedFrames(found, spark))


def test_the_sample_is_made_of_what_a_list_by_hand_says(lineage: ProjectLineage) -> None:
    assert {key.node for key in lineage.project.graph.nodes} == BY_HAND.keys()
    for key in lineage.project.graph.order(None):
        values, conditions = BY_HAND[key.node]
        found = lineage.node(key)
        assert found.columns is not None
        assert {*found.columns} == values.keys()
        for column in found.columns:
            made = found.made_of(column)
            goes_in = {f"{one.owner}.{one.column}" for one in made if one.how == "value"}
            decides = {f"{one.owner}.{one.column}" for one in made if one.how == "condition"}
            assert (key.node, column, goes_in) == (key.node, column, {*values[column].split()})
            assert (key.node, column, decides) == (key.node, column, {*conditions.split()})


def test_a_column_is_followed_up_to_the_files_and_down_to_the_last_table(lineage: ProjectLineage) -> None:
    project = lineage.project
    trail = followed_up(lineage, project.node_named("delays"), "worst_arr_delay")
    assert trail.is_whole
    assert [(str(one.owner), one.column) for one in trail.entries if one.how == "value"] == [
        ("flights.flights_enriched", "arr_delay"),
        ("flights.flights", "arr_delay"),
        ("flights.raw_flights", "arr_delay"),
        ("landing:flights/*.csv", "arr_delay"),
    ]
    below = followed_down(lineage, project.node_named("airlines"), "name")
    assert [(str(one.owner), one.column) for one in below.entries if one.how == "value"] == [
        ("flights.flights_enriched", "carrier_name"),
        ("flights.delays", "carrier_name"),
    ]
