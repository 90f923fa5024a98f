"""The sample's project file is right, and what it says runs on the tracked data."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from odi_assets.config.graph import Graph
from odi_assets.config.loader import LoadedProject, load_project_file
from odi_assets.config.models import NodeConfig
from odi_assets.nodes.execution.transform import transformed
from odi_assets_tests.sample.conftest import REPOSITORY


@pytest.fixture(scope="module")
def sample() -> LoadedProject:
    return load_project_file(REPOSITORY / "odibi.yaml")


def node(sample: LoadedProject, name: str) -> NodeConfig:
    return next(node for node in sample.config.pipelines[0].nodes if node.name == name)


def run(sample: LoadedProject, name: str, **sources: DataFrame) -> DataFrame:
    spark = next(iter(sources.values())).sparkSession
    rows = transformed(spark, node(sample, name), sample.root, sources, name).cache()
    rows.count()
    for name in sources:
        spark.catalog.dropTempView(name)
    return rows


def read(spark: SparkSession, sample: LoadedProject, name: str, folder: Path) -> DataFrame:
    source = node(sample, name).read
    assert source is not None
    assert source.schema_ddl is not None
    options = {"mode": "FAILFAST", **({"enforceSchema": "false"} if source.format == "csv" else {}), **source.options}
    return spark.read.format(source.format).schema(source.schema_ddl).options(**options).load(str(folder / source.path))


@pytest.fixture
def landing(project: Path) -> Path:
    return project / "data" / "landing"


@pytest.fixture
def raw_flights(spark: SparkSession, sample: LoadedProject, landing: Path) -> DataFrame:
    return read(spark, sample, "raw_flights", landing)


def test_the_project_file_loads_without_problem_or_warning(sample: LoadedProject) -> None:
    assert sample.warnings == ()
    assert [key.node for key in Graph(sample.config).order("flights")][-2:] == ["flights_enriched", "delays"]


def test_every_node_says_what_it_is_and_every_source_has_a_schema(sample: LoadedProject) -> None:
    nodes = sample.config.pipelines[0].nodes
    assert [node.name for node in nodes if not node.description or not node.tags] == []
    assert [node.name for node in nodes if node.read and not node.read.schema_ddl] == []


def test_schemas_name_the_columns_of_the_files_in_their_order(sample: LoadedProject, landing: Path) -> None:
    for name in ("raw_flights", "airlines", "airports", "planes"):
        source = node(sample, name).read
        assert source is not None
        file = sorted(landing.glob(source.path))[0]
        header = next(csv.reader(file.open(encoding="utf-8")))
        assert [column.split()[0] for column in str(source.schema_ddl).split(",")] == header


def test_a_flight_that_was_delivered_twice_is_kept_once_and_the_fuller_row_stays(
    sample: LoadedProject, raw_flights: DataFrame
) -> None:
    from pyspark.sql import functions as F

    early = raw_flights.where("day = 1").withColumns(
        {name: F.lit(None).cast("int") for name in ("dep_time", "arr_time")}
    )
    flights = run(sample, "flights", raw_flights=raw_flights.where("day = 1").unionByName(early))
    assert flights.count() == 842
    assert flights.where("cancelled").count() == 4
    assert run(sample, "flights", raw_flights=raw_flights).count() == 27004


def test_weather_that_was_delivered_twice_does_not_multiply_flights(
    spark: SparkSession, sample: LoadedProject, raw_flights: DataFrame, landing: Path
) -> None:
    weather = run(sample, "raw_weather", df=read(spark, sample, "raw_weather", landing).where("day <= 2"))
    enriched = run(
        sample,
        "flights_enriched",
        flights=run(sample, "flights", raw_flights=raw_flights.where("day <= 2")),
        weather=weather.unionByName(weather),
        airlines=read(spark, sample, "airlines", landing),
        airports=read(spark, sample, "airports", landing),
        planes=read(spark, sample, "planes", landing),
    )
    assert enriched.count() == 842 + 943
    assert enriched.where("dest_name LIKE '%\\\\\\\\%'").count() == 0
    # In the hour of 12:00 on the first, EWR and JFK have no observation.
    assert {row[0] for row in enriched.where("temp IS NULL").select("time_hour").distinct().collect()} == {
        row[0] for row in spark.sql("SELECT TIMESTAMP '2013-01-01 17:00:00'").collect()
    }


def test_delays_are_what_a_reading_of_the_csv_without_spark_finds(
    spark: SparkSession, sample: LoadedProject, raw_flights: DataFrame, landing: Path
) -> None:
    weather = run(sample, "raw_weather", df=read(spark, sample, "raw_weather", landing))
    enriched = run(
        sample,
        "flights_enriched",
        flights=run(sample, "flights", raw_flights=raw_flights.where("day = 1")),
        weather=weather,
        airlines=read(spark, sample, "airlines", landing),
        airports=read(spark, sample, "airports", landing),
        planes=read(spark, sample, "planes", landing),
    )
    found = {row["carrier"]: row for row in run(sample, "delays", flights_enriched=enriched).collect()}
    rows = list(csv.DictReader((landing / "flights/2013-01-01.csv").open(encoding="utf-8")))
    assert set(found) == {row["carrier"] for row in rows}
    for carrier, delay in found.items():
        mine = [row for row in rows if row["carrier"] == carrier]
        arrivals = [int(row["arr_delay"]) for row in mine if row["arr_delay"]]
        assert delay["flights"] == len(mine)
        assert delay["cancelled"] == sum(not row["dep_time"] for row in mine)
        assert delay["late"] == sum(minutes >= 15 for minutes in arrivals)
        assert delay["mean_arr_delay"] == pytest.approx(sum(arrivals) / len(arrivals))
        assert delay["worst_arr_delay"] == max(arrivals)
