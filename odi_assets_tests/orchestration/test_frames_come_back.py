"""What an asset returns comes back equal, or is refused by its name: frames of every library, odd ones among them.

A frame is written first, then once more to the same table, by the functions that the IO manager calls.
"""

import ast
import datetime as dt
import decimal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import odi_assets
from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import OdiError, TableError
from odi_assets.orchestration.assets.arrow_frames import arrow_of
from odi_assets.orchestration.assets.attempts import StepAttempt
from odi_assets.orchestration.assets.frames import AssetTable, write_frame
from odi_assets.orchestration.assets.inputs import Wanted, load_whole
from odi_assets.orchestration.assets.words import words_of_assets

NOT_OF_ASSETS = ("transform", "increment", "--full-refresh", "project file", "the node", "NODE", "write.")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., None]:
    """Writes a frame to the table of the asset ``prices``; each call is a materialization of its own."""

    def write(frame: Any, mode: str = "append", open_spark: Any = None, **options: Any) -> None:
        table = AssetTable("prices", Location(str(tmp_path / "prices")), WriteMode(mode), **options)
        attempt = StepAttempt(uuid.uuid4().hex, "run", None, lambda _: False)
        with words_of_assets():
            write_frame(table, frame, attempt, open_spark or pytest.fail)

    return write


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """The rows of that table."""

    def rows() -> list[dict[str, Any]]:
        table = DeltaTable(str(tmp_path / "prices"))
        found: list[dict[str, Any]] = pa.table(table.scan()).to_pylist()
        return sorted(found, key=str)

    return rows


def _moments(zone: str | None = None) -> Any:
    return pd.to_datetime(["2024-01-01 01:02:03.000004", "2024-01-02 00:00:00.000000"]).tz_localize(zone)


PANDAS = {
    "integers": pd.DataFrame({"a": [1, 2]}),
    "floats with NaN": pd.DataFrame({"a": [1.5, np.nan]}),
    "nullable integers": pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}),
    "small integers": pd.DataFrame({"a": np.array([1, 2], dtype="int8")}),
    "unsigned integers": pd.DataFrame({"a": np.array([1, 2**63], dtype="uint64")}),
    "half floats": pd.DataFrame({"a": np.array([1.5, 2], dtype="float16")}),
    "nullable booleans": pd.DataFrame({"a": pd.array([True, None], dtype="boolean")}),
    "texts": pd.DataFrame({"a": ["x", None]}),
    "string dtype": pd.DataFrame({"a": pd.array(["x", None], dtype="string")}),
    "arrow dtype": pd.DataFrame({"a": pd.array([1, None], dtype=pd.ArrowDtype(pa.int32()))}),
    "bytes": pd.DataFrame({"a": [b"x", None]}),
    "categories": pd.DataFrame({"a": pd.Categorical(["x", None])}),
    "categories of numbers": pd.DataFrame({"a": pd.Categorical([2, 1])}),
    "moments": pd.DataFrame({"a": _moments()}),
    "moments with zone": pd.DataFrame({"a": _moments("Europe/Paris")}),
    "days": pd.DataFrame({"a": [dt.date(2024, 1, 1), None]}),
    "decimals": pd.DataFrame({"a": [decimal.Decimal("1.5"), None]}),
    "lists": pd.DataFrame({"a": [[1, 2], []]}),
    "arrays": pd.DataFrame({"a": [np.array([1, 2]), None]}),
    "structs": pd.DataFrame({"a": [{"x": 1, "y": ["z"]}, None]}),
    "nested lists": pd.DataFrame({"a": [[[1], []], None]}),
}
POLARS = {
    "integers": pl.DataFrame({"a": [1, None]}),
    "categories": pl.DataFrame({"a": pl.Series(["x", None], dtype=pl.Categorical)}),
    "enums": pl.DataFrame({"a": pl.Series(["x", None], dtype=pl.Enum(["x", "y"]))}),
    "decimals": pl.DataFrame({"a": [decimal.Decimal("1.5"), None]}),
    "arrays": pl.DataFrame({"a": pl.Series([[1, 2], None], dtype=pl.Array(pl.Int64, 2))}),
    "lists": pl.DataFrame({"a": [[1, None], None]}),
    "structs": pl.DataFrame({"a": [{"x": 1, "y": "z"}, None]}),
    "bytes": pl.DataFrame({"a": [b"x", None]}),
    "moments with zone": pl.DataFrame({"a": [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None]}),
    "days": pl.DataFrame({"a": [dt.date(2024, 1, 1), None]}),
    "lists of categories": pl.DataFrame({"a": pl.Series([["x"], None], dtype=pl.List(pl.Categorical))}),
    "lazy": pl.LazyFrame({"a": [1.5, None]}),
}
ARROW = {
    "integers": pa.table({"a": pa.array([1, None], pa.int16())}),
    "large texts": pa.table({"a": pa.array(["x", None], pa.large_string())}),
    "dictionaries": pa.table({"a": pa.array(["x", None]).dictionary_encode()}),
    "fixed lists": pa.table({"a": pa.array([[1, 2], None], pa.list_(pa.int32(), 2))}),
    "maps": pa.table({"a": pa.array([[("x", 1)], None], pa.map_(pa.string(), pa.int64()))}),
    "structs": pa.table({"a": [{"x": [1], "y": {"z": None, "w": 1}}, None]})
    .select(["a"])
    .cast(
        pa.schema({"a": pa.struct({"x": pa.list_(pa.int64()), "y": pa.struct({"z": pa.string(), "w": pa.int64()})})})
    ),
    "moments of seconds": pa.table({"a": pa.array([dt.datetime(2024, 1, 1), None], pa.timestamp("s"))}),
    "batches": pa.record_batch({"a": [1, 2]}),
    "a reader": lambda: pa.table({"a": [1, 2]}).to_reader(),
}
FRAMES = {
    f"{library}: {kind}": frame
    for library, frames in (("pandas", PANDAS), ("polars", POLARS), ("pyarrow", ARROW))
    for kind, frame in frames.items()
}


def _plain(frame: Any) -> list[dict[str, Any]]:
    """The rows of a frame as Python has them, by the library's own way to it."""
    if isinstance(frame, pd.DataFrame):
        return [{name: _value(value) for name, value in row.items()} for row in frame.to_dict("records")]
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    found = frame.to_dicts() if isinstance(frame, pl.DataFrame) else (frame() if callable(frame) else frame)
    if isinstance(found, pa.RecordBatchReader):
        found = found.read_all()
    return [
        {name: _value(value) for name, value in row.items()}
        for row in (found if isinstance(found, list) else found.to_pylist())
    ]


def _value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _value(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_value(item) for item in value]
    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return None
    return value.to_pydatetime() if isinstance(value, pd.Timestamp) else value


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_comes_back_as_it_went_in(kind: str, write: Any, rows: Any) -> None:
    frame: Any = FRAMES[kind]
    for times in (1, 2):
        write(frame() if callable(frame) else frame)
        found = [{name: _value(value) for name, value in row.items()} for row in rows()]
        assert sorted(found, key=str) == sorted(_plain(frame) * times, key=str)


REFUSED = {
    "an index of texts without a name": (pd.DataFrame({"a": [1]}, index=["x"]), "an index of object without a name"),
    "an index of days without a name": (pd.DataFrame({"a": [1]}, index=_moments()[:1]), "index of datetime64[ns] with"),
    "an index named as a column": (pd.DataFrame({"a": [1]}, index=pd.Index(["x"], name="a")), "both named `a`"),
    "an index of which a level has no name": (
        pd.DataFrame({"a": [1]}, index=pd.MultiIndex.from_tuples([("x", 1)], names=["k", None])),
        "an index named ['k', None]",
    ),
    "columns of two levels": (
        pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])),
        "a column whose label is ('a', 'b')",
    ),
    "a column without a name": (pd.DataFrame([[1]], columns=[None]), "a column whose label is None"),
    "two columns of one name": (pd.DataFrame([[1, 2]], columns=["a", "a"]), "`a` twice"),
    "two columns of one name, capitals aside": (pd.DataFrame([[1, 2]], columns=["a", "A"]), "`A`"),
    "two Arrow columns of one name": (pa.table([[1], [2]], names=["a", "a"]), "two columns: `a` twice"),
    "values of several types": (pd.DataFrame({"a": [1, "x"]}), "column a"),
    "periods": (pd.DataFrame({"a": pd.period_range("2024-01", periods=1, freq="M")}), "column `a` has type"),
    "intervals": (pd.DataFrame({"a": pd.interval_range(0, 1)}), "column `a` has type"),
    "complex numbers": (pd.DataFrame({"a": [1j]}), "column a"),
    "sparse columns": (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), "column a"),
    "timedeltas": (pd.DataFrame({"a": pd.to_timedelta(["1D"])}), "column `a` has type"),
    "times of day": (pd.DataFrame({"a": [dt.time(1)]}), "column `a` has type"),
    "UUIDs": (pd.DataFrame({"a": [uuid.UUID(int=1)]}), "column `a` has type"),
    "numbers that no integer holds": (pd.DataFrame({"a": [2**70]}), "too large"),
    "nanoseconds": (pd.DataFrame({"a": pd.to_datetime(["2024-01-01 00:00:00.000000001"])}), "column `a` has values"),
    "text that is no Unicode": (pd.DataFrame({"a": ["\ud800"]}), "surrogates"),
    "a column of NULLs alone": (pd.DataFrame({"a": [None, None]}), "give it a type: all of it is NULL"),
    "lists without a value": (pd.DataFrame({"a": [[], []]}), "column `a` has type list"),
    "a frame without columns": (pd.DataFrame(), "has no columns"),
    "a series": (pd.Series([1]), "returned Series, which is no frame"),
    "a series of polars": (pl.Series([1]), "returned Series, which is no frame"),
    "Python objects in polars": (
        pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)}),
        "column `a` of type Object",
    ),
    "128 bits in polars": (pl.DataFrame({"a": pl.Series([1], dtype=pl.Int128)}), "pli128"),
    "durations in polars": (pl.DataFrame({"a": [dt.timedelta(1)]}), "column `a` has type"),
    "NULLs alone in polars": (pl.DataFrame({"a": [None]}), "give it a type: all of it is NULL"),
    "months in Arrow": (pa.table({"a": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}), "column `a` has type"),
    "decimals of hundreds": (pa.table({"a": pa.array([1200], pa.decimal128(5, -2))}), "column `a` has type decimal128"),
    "fields of one name, capitals aside": (pd.DataFrame({"a": [{"x": 1, "X": 2}]}), "column `a` has type struct"),
    "bytes as text": (
        pa.table(
            {
                "a": pa.Array.from_buffers(
                    pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
                )
            }
        ),
        "column `a` has values that string does not hold",
    ),
    "days and times as categories": (
        pd.DataFrame({"a": pd.Categorical(pd.Series([dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 5)], dtype=object))}),
        "column `a`",
    ),
    "wide decimals": (pa.table({"a": pa.array([1], pa.decimal256(50, 0))}), "column `a` has type"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_not_come_back_is_refused_by_its_name(kind: str, write: Any, tmp_path: Path) -> None:
    frame, message = REFUSED[kind]
    with pytest.raises(TableError) as raised:
        write(frame)
    assert message in str(raised.value)
    assert raised.value.fix
    assert not (tmp_path / "prices").exists()


ONE = (
    st.none()
    | st.dates()
    | st.datetimes()
    | st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)).map(pd.Timestamp)
    | st.integers(0, 10**18).map(pd.Timestamp)
    | st.text(max_size=2)
    | st.binary(max_size=2)
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.decimals()
)
CELL = st.recursive(
    ONE,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=3,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.one_of(st.lists(CELL, min_size=1, max_size=3), CELL.map(lambda cell: [cell, None])))
def test_objects_of_python_come_back_equal_or_are_refused(cells: list[Any]) -> None:
    frame = pd.DataFrame({"a": pd.Series(cells, dtype="object")})
    try:
        held = arrow_of(frame, "prices")["a"].to_pylist()
    except TableError:
        return
    top = [None if isinstance(cell, float) and cell != cell else cell for cell in cells]
    assert _without_none(held) == _without_none(top)


def _without_none(value: Any) -> Any:
    """A value whose dicts leave out what is NULL: Arrow gives all of a column the same fields."""
    if isinstance(value, dict):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value


class TestAnIndexOfPandas:
    def test_is_a_column_if_it_has_a_name(self, write: Any, rows: Any) -> None:
        write(pd.DataFrame({"price": [1.5]}, index=pd.Index(["x"], name="id")))
        assert rows() == [{"id": "x", "price": 1.5}]

    def test_is_several_columns_if_it_has_several_levels(self, write: Any, rows: Any) -> None:
        frame = pd.DataFrame({"day": [1, 1], "shop": ["x", "y"], "price": [1.5, 2.5]})
        write(frame.groupby(["day", "shop"]).sum())
        assert rows() == frame.to_dict("records")

    def test_may_have_a_number_as_its_name(self, write: Any, rows: Any) -> None:
        write(pd.DataFrame({"price": [1.5]}, index=pd.Index(["x"], name=0)))
        assert rows() == [{"0": "x", "price": 1.5}]

    def test_is_left_out_if_it_only_counts_rows(self, write: Any, rows: Any) -> None:
        frame = pd.DataFrame({"id": [1, 2, 3]})
        write(frame[frame["id"] > 1])
        assert rows() == [{"id": 2}, {"id": 3}]


EMPTY = {
    "pandas, from lists": pd.DataFrame({"day": [], "price": []}),
    "pandas, from names": pd.DataFrame(columns=["day", "price"]),
    "polars": pl.DataFrame({"day": [], "price": []}),
    "pyarrow": pa.table({"day": pa.nulls(0), "price": pa.nulls(0)}),
}


class TestAFirstFrameWithoutRows:
    @pytest.mark.parametrize("mode", ["append", "overwrite", "upsert", "append_once", "partition_overwrite"])
    @pytest.mark.parametrize("kind", EMPTY)
    def test_leaves_the_types_to_the_first_rows(
        self, kind: str, mode: str, write: Any, rows: Any, spark: SparkSession
    ) -> None:
        options = {"keys": ("day",), "partition_by": ("day",), "open_spark": lambda: spark}
        write(EMPTY[kind], mode, **options)
        assert rows() == []
        write(EMPTY[kind], mode, **options)
        write(pd.DataFrame({"day": ["2024-01-01"], "price": [[1, 2]]}), mode, **options)
        assert rows() == [{"day": "2024-01-01", "price": [1, 2]}]
        with pytest.raises(TableError, match=r"column `price` of the table at .* is array<long>"):
            write(pd.DataFrame({"day": ["2024-01-01"], "price": ["x"]}), "append", **options)

    def test_leaves_them_to_rows_of_spark_too(self, write: Any, rows: Any, spark: SparkSession) -> None:
        write(EMPTY["pandas, from lists"])
        write(spark.sql("SELECT 'x' AS day, 2L AS price"))
        assert rows() == [{"day": "x", "price": 2}]

    def test_decides_where_somebody_chose_the_type(self, write: Any) -> None:
        write(pd.DataFrame({"price": pd.array([], dtype="Int64")}))
        with pytest.raises(TableError, match="is long; the rows to write have string"):
            write(pd.DataFrame({"price": ["x"]}))

    def test_can_be_read_before_there_are_rows(self, write: Any, tmp_path: Path) -> None:
        write(EMPTY["pandas, from lists"])
        handle = TableHandle.open(Location(str(tmp_path / "prices")))
        found = load_whole(handle, Wanted(pd.DataFrame), pytest.fail)
        assert (list(found.columns), len(found)) == (["day", "price"], 0)


NAIVE = dt.datetime(2024, 7, 1, 5)
US = pa.timestamp("us")
NAIVE_TIMES = pa.table(
    {
        "id": [1, 2],
        "at": pa.array([NAIVE, None], US),
        "list": pa.array([[NAIVE, None], None], pa.list_(US)),
        "struct": pa.array([{"at": NAIVE, "all": [NAIVE]}, None], pa.struct([("at", US), ("all", pa.list_(US))])),
        "map": pa.array([[("k", NAIVE)], None], pa.map_(pa.string(), US)),
        "zoned": pa.array([NAIVE.replace(tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture(params=["UTC", "America/New_York"])
def spark_in_a_zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("first", ["arrow", "spark"])
def test_times_have_the_same_type_whether_arrow_or_spark_writes_them(
    first: str, write: Any, rows: Any, spark_in_a_zone: SparkSession
) -> None:
    by_spark = {"mode": "upsert", "keys": ("id",), "open_spark": lambda: spark_in_a_zone}
    nameless = NAIVE_TIMES.set_column(0, "id", pa.array([1, None], pa.int64()))
    for way in (first, "arrow" if first == "spark" else "spark"):
        if way == "arrow":
            write(NAIVE_TIMES, "upsert", keys=("id",))
        else:
            write(nameless, **by_spark)
    found = [{**row, "map": row["map"] and list(row["map"])} for row in rows() if row["id"] is not None]
    assert found == NAIVE_TIMES.to_pylist()
    assert len(rows()) == 3


def test_rows_that_spark_adds_once_keep_their_times(write: Any, rows: Any, spark: SparkSession) -> None:
    for _ in range(2):
        write(NAIVE_TIMES.slice(1), "append_once", keys=("id",), open_spark=lambda: spark)
        write(NAIVE_TIMES, "append_once", keys=("id",), open_spark=lambda: spark)
    assert [row["at"] for row in rows()] == [NAIVE, None]


def test_a_frame_without_a_zone_gets_one_as_the_message_says(write: Any, rows: Any) -> None:
    write(pd.DataFrame({"at": pd.to_datetime(["2024-07-01 05:00"]).tz_localize("UTC")}))
    frame = pd.DataFrame({"at": pd.to_datetime(["2024-07-01 06:00"])})
    with pytest.raises(TableError) as raised:
        write(frame)
    remedy = "frame['at'] = frame['at'].dt.tz_localize('UTC')"
    assert remedy in str(raised.value.fix)
    frame["at"] = frame["at"].dt.tz_localize("UTC")
    write(frame)
    assert [row["at"].hour for row in rows()] == [5, 6]


@pytest.mark.parametrize(
    "values",
    [
        [pd.Timestamp("2024-01-01", tz="Europe/Berlin"), pd.Timestamp("2024-01-02")],
        [dt.datetime(2024, 1, 1), None, dt.datetime(2024, 1, 2, tzinfo=dt.UTC)],
        [[dt.datetime(2024, 1, 1)], [dt.datetime(2024, 1, 2, tzinfo=dt.UTC)]],
        [{"t": dt.datetime(2024, 1, 1)}, {"t": dt.datetime(2024, 1, 2, tzinfo=dt.UTC)}],
    ],
)
def test_a_column_of_times_with_a_zone_and_times_without_one_is_refused(values: list[Any], write: Any) -> None:
    frame = pd.DataFrame({"id": range(len(values)), "at": pd.Series(values, dtype="object")})
    with pytest.raises(TableError, match="column `at` in which some times have a time zone and others have none"):
        write(frame)


def test_times_of_one_kind_and_none_are_taken_as_objects(write: Any, rows: Any) -> None:
    zoned = [pd.Timestamp("2024-01-01", tz="Europe/Berlin"), pd.NaT, None, pd.Timestamp("2024-01-01", tz="UTC")]
    write(pd.DataFrame({"id": range(4), "at": pd.Series(zoned, dtype="object")}))
    first, last = dt.datetime(2023, 12, 31, 23, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert [row["at"] for row in rows()] == [first, None, None, last]


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        (lambda: pd.DataFrame([[1, 2, 3]], columns=["id", "v", "v"]), "`v` twice"),
        (lambda: pd.DataFrame([[1, 2]], columns=[1, "1"]), "`1` twice"),
        (lambda: pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["v", "v"]), "`v` twice"),
        (lambda: pd.DataFrame([[1, 2]], columns=["v", "V"]), "`v` and `V`"),
    ],
)
def test_a_frame_with_a_name_twice_names_it(frame: Callable[[], Any], names: str, write: Any) -> None:
    with pytest.raises(TableError, match=f"has two columns: {names}") as raised:
        write(frame())
    assert "rename one of them" in str(raised.value.fix)


def test_a_frame_without_rows_takes_the_tables_types(write: Any, rows: Any, tmp_path: Path) -> None:
    write(pd.DataFrame({"day": ["x"], "price": [1]}))
    for mode in ("append", "overwrite"):
        write(EMPTY["pandas, from lists"], mode)
        assert TableHandle.open(Location(str(tmp_path / "prices"))).columns == {"day": "string", "price": "long"}
    assert rows() == []


def test_lists_without_a_value_take_the_tables_type(write: Any, rows: Any) -> None:
    write(pd.DataFrame({"a": [[1]]}))
    write(pd.DataFrame({"a": [[], None]}))
    assert rows() == [{"a": None}, {"a": [1]}, {"a": []}]


A = pd.DataFrame({"a": [1]})
FAULTS: dict[str, tuple[Any, Any, str, dict[str, Any], str]] = {
    "another type": (A, pd.DataFrame({"a": ["x"]}), "append", {}, "cast `a` to LONG in the asset's function"),
    "a new column": (A, A.assign(b=1), "append", {}, 'metadata={"schema": "evolve"}'),
    "a column less": (A.assign(b=1), A, "append", {}, "return it (`b` as NULL of type LONG"),
    "no key column": (None, A, "upsert", {"keys": ("id",)}, "in the asset's metadata"),
    "one key twice": (A, pd.DataFrame({"a": [2, 2]}), "upsert", {"keys": ("a",)}, "rows of one frame"),
    "no partition column": (None, A, "append", {"partition_by": ("day",)}, "in the asset's metadata"),
    "only partition columns": (None, A, "append", {"partition_by": ("a",)}, "partition by fewer columns"),
    "other partitions": (A.assign(b=1), A.assign(b=1), "append", {"partition_by": ("b",)}, "in the asset's metadata"),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_messages_speak_of_assets_and_name_a_way_on_that_they_have(kind: str, write: Any, spark: SparkSession) -> None:
    before, frame, mode, options, way = FAULTS[kind]
    if before is not None:
        write(before, keys=options.get("keys", ()))
    with pytest.raises(OdiError) as raised:
        write(frame, mode, open_spark=lambda: spark, **options)
    text = str(raised.value)
    assert way in text
    assert [word for word in NOT_OF_ASSETS if word in text] == []


def test_each_phrase_of_nodes_in_the_rooms_of_tables_has_one_of_assets() -> None:
    """Read from the source: a message that is added there has to be said in the words of assets too."""
    package = Path(odi_assets.__file__).parent
    sources = [*(package / "tables").rglob("*.py"), *(package / "delta").glob("*.py")]
    texts = [
        node.value
        for source in sources
        for call in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id.endswith("Error")
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert texts
    said = []
    for text in texts:
        with pytest.raises(OdiError) as raised, words_of_assets():
            raise OdiError(text)
        said.append(raised.value.message)
    assert [text for text in said if any(word in text for word in NOT_OF_ASSETS)] == []
