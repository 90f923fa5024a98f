"""Partitions of assets that are no nodes: each kind, column type and time zone, twice, beside neighbours.

Dagster reads the annotations of assets as they stand, so they are not postponed here.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import resources
from odi_assets_tests.orchestration.small_project import make_project

START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
MANAGER = "delta_io_manager"
BERLIN = ZoneInfo("Europe/Berlin")
US, ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("partitions"))


@pytest.fixture(scope="module")
def dagster() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@dataclass
class Table:
    """An asset with partitions, whose function returns the rows that `frame` has at the moment."""

    project: Project
    instance: dg.DagsterInstance
    name: str
    definition: dg.PartitionsDefinition[Any]
    policy: dg.BackfillPolicy | None = None
    frame: pa.Table | None = None
    metadata: Mapping[str, Any] | None = None

    def asset(self) -> dg.AssetsDefinition:
        metadata = self.metadata or {"partition_column": "at"}

        @dg.asset(
            name=self.name,
            io_manager_key=MANAGER,
            partitions_def=self.definition,
            metadata=metadata,
            backfill_policy=self.policy or dg.BackfillPolicy.single_run(),
        )
        def made() -> pa.Table:
            assert self.frame is not None
            return self.frame

        return made

    def write(self, frame: pa.Table, *keys: str, fails: bool = False) -> list[Mapping[str, Any]]:
        """Write a partition, or a range of them; the metadata of each event, by its partition."""
        self.frame = frame
        where: dict[str, Any] = (
            {"partition_key": keys[0]} if len(keys) == 1 else {"tags": {START: keys[0], END: keys[1]}}
        )
        result = self.materialize([self.asset()], raise_on_error=not fails, **where)
        assert result.success is not fails
        return [
            {
                "partition": event.partition,
                **{
                    name: value.value
                    for name, value in event.step_materialization_data.materialization.metadata.items()
                },
            }
            for event in result.get_asset_materialization_events()
        ]

    def materialize(self, assets: Sequence[Any], **options: Any) -> dg.ExecuteInProcessResult:
        partition = options.pop("partition_key", None)
        return dg.materialize(
            assets, instance=self.instance, resources=resources(self.project), partition_key=partition, **options
        )

    def read(
        self, annotation: Any, key: str, mapping: dg.PartitionMapping | None = None, definition: Any = None
    ) -> list[int]:
        """The ids that an asset below gets of it, as its argument is annotated."""
        found: list[int] = []

        below_asset = _reader(self.name, annotation, mapping, definition or self.definition, found)
        self.materialize([self.asset(), below_asset], selection=["below"], partition_key=key)
        return sorted(found)

    @property
    def rows(self) -> list[int]:
        return sorted(pa.table(DeltaTable(str(self.project.root / "lake" / self.name)).scan())["id"].to_pylist())


def _ids(frame: Any) -> list[int]:
    if isinstance(frame, pa.Table):
        return list(frame["id"].to_pylist())
    return [row["id"] for row in frame.collect()]


def _reader(
    name: str, annotation: Any, mapping: dg.PartitionMapping | None, definition: Any, found: list[int]
) -> dg.AssetsDefinition:
    ins = {"rows": dg.AssetIn(name, partition_mapping=mapping)}

    def arrow(rows: pa.Table) -> None:
        found.extend(_ids(rows))

    def spark(rows: DataFrame) -> None:
        found.extend(_ids(rows))

    function = arrow if annotation is pa.Table else spark
    return dg.asset(name="below", ins=ins, partitions_def=definition)(function)


def _frame(kind: pa.DataType, *rows: tuple[int, Any]) -> pa.Table:
    return pa.table(
        {"id": pa.array([row[0] for row in rows], pa.int64()), "at": pa.array([row[1] for row in rows], kind)}
    )


def _utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def _in_berlin(text: str, fold: int = 0) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold)


_day, _time = dt.date.fromisoformat, dt.datetime.fromisoformat
DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
HOURLY = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2024-01-03-00:00")
WEEKLY = dg.WeeklyPartitionsDefinition("2023-12-31", end_date="2024-02-04")
MONTHLY = dg.MonthlyPartitionsDefinition("2023-12-01", end_date="2024-06-01")
YEARLY = dg.TimeWindowPartitionsDefinition(start="2022", cron_schedule="0 0 1 1 *", fmt="%Y", end="2026")
IN_BERLIN = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-11-30", timezone="Europe/Berlin")
FROM_SIX = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01", hour_offset=6, timezone="Europe/Berlin")
HOURS_OF_BERLIN = dg.HourlyPartitionsDefinition(
    "2024-10-27-00:00", end_date="2024-10-27-05:00", timezone="Europe/Berlin"
)
STATIC = dg.StaticPartitionsDefinition(["zebra", "ant", "mole"])
NUMBERED = dg.StaticPartitionsDefinition(["7", "10", "9"])

CASES: dict[str, tuple[Any, pa.DataType, dict[str, list[Any]]]] = {
    "days of dates": (
        DAILY,
        pa.date32(),
        {"2024-01-01": [_day("2024-01-01")], "2024-01-02": [_day("2024-01-02")], "2024-01-03": [_day("2024-01-03")]},
    ),
    "days of times": (
        DAILY,
        ZONED,
        {
            "2024-01-01": [_utc("2024-01-01 23:59:59.999999")],
            "2024-01-02": [_utc("2024-01-02"), _utc("2024-01-02 13:00")],
            "2024-01-03": [_utc("2024-01-03")],
        },
    ),
    "days of times without a zone": (
        DAILY,
        US,
        {
            "2024-01-01": [_time("2024-01-01 23:59:59.999999")],
            "2024-01-02": [_time("2024-01-02"), _time("2024-01-02 13:00")],
            "2024-01-03": [_time("2024-01-03")],
        },
    ),
    "days of texts": (DAILY, pa.string(), {one: [one] for one in ("2024-01-01", "2024-01-02", "2024-01-03")}),
    "days of integers": (
        DAILY,
        pa.int32(),
        {"2024-01-01": [20240101], "2024-01-02": [20240102], "2024-01-03": [20240103]},
    ),
    "hours of times": (
        HOURLY,
        ZONED,
        {
            "2024-01-01-23:00": [_utc("2024-01-01 23:30")],
            "2024-01-02-00:00": [_utc("2024-01-02 00:00"), _utc("2024-01-02 00:59")],
            "2024-01-02-01:00": [_utc("2024-01-02 01:00")],
        },
    ),
    "hours of times without a zone": (
        HOURLY,
        US,
        {
            "2024-01-01-23:00": [_time("2024-01-01 23:30")],
            "2024-01-02-00:00": [_time("2024-01-02 00:00")],
            "2024-01-02-01:00": [_time("2024-01-02 01:00")],
        },
    ),
    "hours of texts": (
        HOURLY,
        pa.string(),
        {
            "2024-01-01-23:00": ["2024-01-01-23:00"],
            "2024-01-02-00:00": ["2024-01-02-00:00", "2024-01-02"],
            "2024-01-02-01:00": ["2024-01-02 01:00:00"],
        },
    ),
    "hours of integers": (
        HOURLY,
        pa.int64(),
        {"2024-01-01-23:00": [2024010123], "2024-01-02-00:00": [2024010200], "2024-01-02-01:00": [2024010201]},
    ),
    "weeks of dates": (
        WEEKLY,
        pa.date32(),
        {
            "2023-12-31": [_day("2024-01-06")],
            "2024-01-07": [_day("2024-01-07"), _day("2024-01-13")],
            "2024-01-14": [_day("2024-01-14")],
        },
    ),
    "months of dates": (
        MONTHLY,
        pa.date32(),
        {
            "2024-01-01": [_day("2024-01-31")],
            "2024-02-01": [_day("2024-02-01"), _day("2024-02-29")],
            "2024-03-01": [_day("2024-03-01")],
        },
    ),
    "months of times": (
        MONTHLY,
        ZONED,
        {
            "2024-01-01": [_utc("2024-01-31 23:00")],
            "2024-02-01": [_utc("2024-02-29 23:59")],
            "2024-03-01": [_utc("2024-03-01")],
        },
    ),
    "months of integers": (
        MONTHLY,
        pa.int64(),
        {"2024-01-01": [202401], "2024-02-01": [202402], "2024-03-01": [202403]},
    ),
    "years of integers": (YEARLY, pa.int16(), {"2023": [2023], "2024": [2024], "2025": [2025]}),
    "years of dates": (
        YEARLY,
        pa.date32(),
        {"2023": [_day("2023-12-31")], "2024": [_day("2024-01-01"), _day("2024-12-31")], "2025": [_day("2025-01-01")]},
    ),
    "days of a zone, as times, where the clock goes forward": (
        IN_BERLIN,
        ZONED,
        {
            "2024-03-30": [_in_berlin("2024-03-30 23:59")],
            "2024-03-31": [_in_berlin("2024-03-31 00:00"), _in_berlin("2024-03-31 23:59")],
            "2024-04-01": [_in_berlin("2024-04-01 00:00")],
        },
    ),
    "days of a zone, as times, where the clock goes back": (
        IN_BERLIN,
        ZONED,
        {
            "2024-10-26": [_in_berlin("2024-10-26 23:59")],
            "2024-10-27": [
                _in_berlin("2024-10-27 02:30"),
                _in_berlin("2024-10-27 02:30", 1),
                _in_berlin("2024-10-27 23:59"),
            ],
            "2024-10-28": [_in_berlin("2024-10-28 00:00")],
        },
    ),
    "days of a zone, as times without one": (
        IN_BERLIN,
        US,
        {
            "2024-10-26": [_time("2024-10-26 23:59")],
            "2024-10-27": [_time("2024-10-27 00:00"), _time("2024-10-27 02:30"), _time("2024-10-27 23:59")],
            "2024-10-28": [_time("2024-10-28 00:00")],
        },
    ),
    "days of a zone, as dates": (
        IN_BERLIN,
        pa.date32(),
        {"2024-03-30": [_day("2024-03-30")], "2024-03-31": [_day("2024-03-31")], "2024-04-01": [_day("2024-04-01")]},
    ),
    "days that begin at six, as times": (
        FROM_SIX,
        ZONED,
        {
            "2024-01-01": [_in_berlin("2024-01-02 05:59")],
            "2024-01-02": [_in_berlin("2024-01-02 06:00"), _in_berlin("2024-01-03 05:59")],
            "2024-01-03": [_in_berlin("2024-01-03 06:00")],
        },
    ),
    "days that begin at six, as dates": (
        FROM_SIX,
        pa.date32(),
        {"2024-01-01": [_day("2024-01-01")], "2024-01-02": [_day("2024-01-02")], "2024-01-03": [_day("2024-01-03")]},
    ),
    "hours that the clock shows twice, as times": (
        HOURS_OF_BERLIN,
        ZONED,
        {
            "2024-10-27-02:00": [_in_berlin("2024-10-27 02:30")],
            "2024-10-27-02:00+0100": [_in_berlin("2024-10-27 02:30", 1)],
            "2024-10-27-03:00": [_in_berlin("2024-10-27 03:00")],
        },
    ),
    "hours that the clock shows twice, as texts": (
        HOURS_OF_BERLIN,
        pa.string(),
        {one: [one] for one in ("2024-10-27-02:00", "2024-10-27-02:00+0100", "2024-10-27-03:00")},
    ),
    "names out of order": (STATIC, pa.string(), {"zebra": ["zebra"], "ant": ["ant"], "mole": ["mole"]}),
    "numbers out of order": (NUMBERED, pa.int64(), {"7": [7], "10": [10], "9": [9]}),
}
"""Kind of partitions, type of the column, and values of three neighbours; the one in the middle is written again."""


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_partition_is_replaced_and_read_as_a_whole_and_its_neighbours_stay(
    case: str, shared: Project, dagster: dg.DagsterInstance
) -> None:
    definition, kind, values = CASES[case]
    table = Table(shared, dagster, "t_" + "".join(filter(str.isalnum, case)), definition)
    first, middle, last = values
    rows = {
        key: [(10 * at + n, value) for n, value in enumerate(found)]
        for at, (key, found) in enumerate(values.items(), 1)
    }
    if definition is HOURS_OF_BERLIN:
        # Dagster 1.13 begins a range with the second of two such hours: they are run one by one.
        events = [event for key in values for event in table.write(_frame(kind, *rows[key]), key)]
    else:
        events = table.write(_frame(kind, *(row for found in rows.values() for row in found)), first, last)
    counts = {event["partition"]: event["rows_written"] for event in events}
    assert {key: count for key, count in counts.items() if count} == {key: len(found) for key, found in rows.items()}
    assert counts == {event["partition"]: event["dagster/partition_row_count"] for event in events}
    again = [(100 + number, value) for number, value in rows[middle]]
    for _ in range(2):
        table.write(_frame(kind, *again), middle)
    others = [number for key in (first, last) for number, _ in rows[key]]
    assert table.rows == sorted([*others, *(number for number, _ in again)])
    assert table.read(pa.Table, middle) == [number for number, _ in again]
    table.write(_frame(kind), middle)
    assert table.rows == sorted(others)


TWICE = ("2024-10-27-02:00", "2024-10-27-02:00+0100")
PLACES = dg.StaticPartitionsDefinition(["a", "b"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [US, pa.int64()], ids=str)
@pytest.mark.parametrize("dimensions", [1, 2])
def test_an_hour_that_the_clock_shows_twice_is_written_and_read_whole_or_refused(
    shared: Project, dagster: dg.DagsterInstance, kind: pa.DataType, dimensions: int
) -> None:
    hours: list[Any] = [_time(f"2024-10-27 0{hour}:30") for hour in (1, 2, 2, 3)]
    if kind == pa.int64():
        hours = [int(f"{hour:%Y%m%d%H}") for hour in hours]
    frame, within = _frame(kind, *enumerate(hours)), ""
    definition: dg.PartitionsDefinition[Any] = HOURS_OF_BERLIN
    metadata: dict[str, Any] = {"partition_column": "at"}
    if dimensions == 2:
        frame, within = frame.append_column("place", pa.array(["a"] * 4)), "|a"
        definition = dg.MultiPartitionsDefinition({"hour": HOURS_OF_BERLIN, "place": PLACES})
        metadata = {"partition_column": {"hour": "at", "place": "place"}}
    table = Table(
        shared, dagster, f"twice_{dimensions}_{kind}".replace("[", "").replace("]", ""), definition, metadata=metadata
    )
    for key in TWICE:
        table.write(frame.slice(1, 1), f"{key}{within}", fails=True)
    assert not DeltaTable.is_deltatable(str(shared.root / "lake" / table.name))
    events = table.write(frame, f"2024-10-27-01:00{within}", f"2024-10-27-03:00{within}")
    counts = [event["rows_written"] for event in sorted(events, key=lambda event: _utc_of(event["partition"]))]
    assert counts == [1, 2, 0, 1]
    for _ in range(2):
        table.write(frame, f"2024-10-27-01:00{within}", f"2024-10-27-03:00{within}")
    assert table.rows == [0, 1, 2, 3]

    def reads(annotation: Any, *keys: str) -> list[int]:
        mapping = dg.SpecificPartitionsPartitionMapping([f"{key}{within}" for key in keys])
        return table.read(annotation, "only", mapping, dg.StaticPartitionsDefinition(["only"]))

    for annotation in (pa.Table, DataFrame):
        assert reads(annotation, *TWICE) == [1, 2]
        assert reads(annotation, "2024-10-27-01:00", *TWICE) == [0, 1, 2]
        for key in TWICE:
            with pytest.raises(dg.Failure, match="the clock shows 2024-10-27 02:00 twice"):
                reads(annotation, key)


def _utc_of(key: str) -> str:
    hour = str(key).partition("|")[0]
    return hour.replace("02:00+0100", "02:30")


class TestTwoDimensions:
    PARTS = dg.MultiPartitionsDefinition({"day": DAILY, "shop": STATIC})

    @pytest.fixture
    def table(self, shared: Project, dagster: dg.DagsterInstance, request: pytest.FixtureRequest) -> Table:
        columns = {"partition_column": {"day": "at", "shop": "shop"}}
        return Table(shared, dagster, "".join(filter(str.isalnum, request.node.name)), self.PARTS, metadata=columns)

    def _frame(self, *rows: tuple[int, str, str]) -> pa.Table:
        days = _frame(pa.date32(), *((number, _day(day)) for number, day, _ in rows))
        return days.append_column("shop", pa.array([shop for *_, shop in rows], pa.string()))

    @pytest.mark.slow
    def test_replaces_one_day_of_one_shop_and_reads_it(self, table: Table) -> None:
        table.write(self._frame((1, "2024-01-02", "ant")), "2024-01-02|ant")
        table.write(self._frame((2, "2024-01-02", "mole")), "2024-01-02|mole")
        table.write(self._frame((3, "2024-01-03", "ant")), "2024-01-03|ant")
        for _ in range(2):
            (event,) = table.write(self._frame((4, "2024-01-02", "ant"), (5, "2024-01-02", "ant")), "2024-01-02|ant")
        assert (event["partition"], event["rows_written"]) == ("2024-01-02|ant", 2)
        assert table.rows == [2, 3, 4, 5]
        assert table.read(pa.Table, "2024-01-02|ant") == [4, 5]

    def test_counts_the_rows_of_a_range_by_partition(self, table: Table) -> None:
        rows = [(1, "2024-01-02", "ant"), (2, "2024-01-03", "ant"), (3, "2024-01-03", "ant")]
        events = table.write(self._frame(*rows), "2024-01-02|ant", "2024-01-04|ant")
        counts = {event["partition"]: event["rows_written"] for event in events}
        assert counts == {"2024-01-02|ant": 1, "2024-01-03|ant": 2, "2024-01-04|ant": 0}

    def test_needs_a_column_for_each(self, table: Table) -> None:
        table.metadata = {"partition_column": "at"}
        table.write(self._frame((1, "2024-01-02", "ant")), "2024-01-02|ant", fails=True)


class TestAnInput:
    @pytest.fixture(scope="class")
    def table(self, shared: Project, dagster: dg.DagsterInstance) -> Table:
        table = Table(shared, dagster, "above", DAILY)
        days = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04")
        table.write(_frame(ZONED, *((n, _utc(day)) for n, day in enumerate(days, 1))), days[0], days[-1])
        return table

    DAY_BEFORE = dg.TimeWindowPartitionMapping(-1, -1, allow_nonexistent_upstream_partitions=True)
    TWO_RANGES = dg.SpecificPartitionsPartitionMapping(["2024-01-01", "2024-01-03", "2024-01-04"])

    @pytest.mark.parametrize(
        ("day", "mapping", "expected"),
        [
            ("2024-01-01", DAY_BEFORE, []),
            ("2024-01-02", DAY_BEFORE, [1]),
            ("2024-01-02", TWO_RANGES, [1, 3, 4]),
        ],
    )
    def test_of_none_one_or_several_ranges(
        self, table: Table, day: str, mapping: dg.PartitionMapping, expected: list[int]
    ) -> None:
        assert table.read(pa.Table, day, mapping) == expected

    def test_is_the_same_by_spark(self, table: Table, spark: SparkSession) -> None:
        del spark
        assert table.read(DataFrame, "2024-01-02", self.TWO_RANGES) == [1, 3, 4]
        assert table.read(DataFrame, "2024-01-01", self.DAY_BEFORE) == []


DAYS = [dt.date(1990, 1, 1) + dt.timedelta(days=number) for number in range(2_400)]
MANY: dict[str, tuple[dg.PartitionsDefinition[Any], dict[str, list[Any]]]] = {
    # Partitions, and by column of the table what it holds in each of them.
    "texts": (
        dg.StaticPartitionsDefinition([f"k{number}" for number in range(25_000)]),
        {"at": [f"k{number}" for number in range(25_000)]},
    ),
    "days as numbers": (
        dg.DailyPartitionsDefinition("1990-01-01", end_date="1996-07-28"),
        {"at": [int(f"{day:%Y%m%d}") for day in DAYS]},
    ),
    "days": (dg.DailyPartitionsDefinition("1990-01-01", end_date="1996-07-28"), {"at": DAYS}),
    "two dimensions": (
        dg.MultiPartitionsDefinition(
            {
                "day": dg.DailyPartitionsDefinition("1990-01-01", end_date="1990-03-02"),
                "place": dg.StaticPartitionsDefinition([f"p{number}" for number in range(50)]),
            }
        ),
        {"at": [day for day in DAYS[:60] for _ in range(50)], "place": [f"p{number}" for number in range(50)] * 60},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "annotation"),
    [("texts", pa.Table), *product(list(MANY)[1:], (pa.Table, DataFrame))],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_an_input_of_thousands_of_partitions_has_their_rows_alone(
    shared: Project, dagster: dg.DagsterInstance, which: str, annotation: Any
) -> None:
    definition, columns = MANY[which]
    keys, random = list(definition.get_partition_keys()), Random(which)
    if len(columns) == 2:
        keys = [f"{day}|{place}" for day, place in zip(*columns.values(), strict=True)]
    chosen = [at for at in range(len(keys)) if random.random() < 0.6]
    name = f"many_{annotation.__name__}_{which.replace(' ', '_')}"
    write_deltalake(str(shared.root / "lake" / name), pa.table({"id": [*range(len(keys))], **columns}))
    metadata = {"partition_column": "at" if len(columns) == 1 else {"day": "at", "place": "place"}}
    table = Table(shared, dagster, name, definition, metadata=metadata)
    mapping = dg.SpecificPartitionsPartitionMapping([keys[at] for at in chosen])
    assert table.read(annotation, "only", mapping, dg.StaticPartitionsDefinition(["only"])) == chosen
