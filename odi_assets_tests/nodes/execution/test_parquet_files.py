"""Parquet files with columns of no type, and with texts that are no text."""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import SourceError, TableError
from odi_assets_tests.nodes.execution.test_shapes_of_files import EVOLVE, FILES, Zone

NOTHING = pa.array([None], pa.null())


def texts(*values: bytes) -> pa.Array:
    """A column of texts with these bytes, which pyarrow does not look at."""
    ends = [sum(map(len, values[:count])) for count in range(len(values) + 1)]
    places = pa.py_buffer(struct.pack(f"{len(ends)}i", *ends))
    return pa.Array.from_buffers(pa.string(), len(values), [None, places, pa.py_buffer(b"".join(values))])


@pytest.mark.parametrize("write", ["mode: append", EVOLVE], ids=["fail", "evolve"])
def test_a_column_of_type_null_takes_its_type_from_other_files_of_the_run(
    tmp_path: Path, spark: SparkSession, write: str
) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}", write)
    zone.parquet("in/a.parquet", id=[1], n=NOTHING)
    zone.parquet("in/b.parquet", id=[2], n=["x"])
    zone.parquet("in/c.parquet", id=[3], n=NOTHING)
    assert [row["n"] for row in zone.load()] == [None, "x", None]
    zone.parquet("in/d.parquet", id=[4], n=NOTHING)
    assert [row["n"] for row in zone.load()] == [None, "x", None, None]


def test_a_first_file_with_a_column_of_type_null_leaves_the_type_to_the_next_one(
    tmp_path: Path, spark: SparkSession
) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}", EVOLVE)
    zone.parquet("in/a.parquet", id=[1], n=NOTHING)
    assert zone.load() == [{"id": 1}]
    zone.parquet("in/b.parquet", id=[2], n=["x"])
    assert zone.load() == [{"id": 1, "n": None}, {"id": 2, "n": "x"}]


def test_under_fail_the_type_that_comes_later_is_refused_and_a_full_refresh_takes_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}")
    zone.parquet("in/a.parquet", id=[1], n=NOTHING)
    assert zone.load() == [{"id": 1}]
    zone.parquet("in/b.parquet", id=[2], n=["x"])
    with pytest.raises(TableError, match="has no column `n`") as refused:
        zone.run("raw")
    assert "--full-refresh" in str(refused.value.fix)
    zone.run("raw", full_refresh=True)
    assert zone.stored() == [{"id": 1, "n": None}, {"id": 2, "n": "x"}]


def test_a_column_of_type_null_has_every_type_that_the_schema_says(tmp_path: Path, spark: SparkSession) -> None:
    schema = "id BIGINT, n STRING, d DATE, s STRUCT<a: INT, b: STRING>, l ARRAY<STRUCT<a: INT>>, e ARRAY<BINARY>"
    inner = pa.array([{"a": 1, "b": None}], pa.struct([("a", pa.int32()), ("b", pa.null())]))
    zone = Zone(tmp_path, spark, f'format: parquet, schema: "{schema}", {FILES}')
    zone.parquet(
        "in/a.parquet", id=[1], n=NOTHING, d=NOTHING, s=inner, l=NOTHING, e=pa.array([[]], pa.list_(pa.null()))
    )
    (row,) = zone.load()
    assert (row["n"], row["d"], row["l"], row["e"]) == (None, None, None, [])
    assert row["s"].asDict() == {"a": 1, "b": None}
    assert zone.types()["d"] == "date"


def test_a_field_of_type_null_is_left_out_and_a_list_of_nothing_is_refused_by_name(
    tmp_path: Path, spark: SparkSession
) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}", EVOLVE)
    inner = pa.struct([("a", pa.int32()), ("b", pa.null())])
    zone.parquet("in/a.parquet", id=[1], s=pa.array([{"a": 1, "b": None}], inner))
    zone.run("raw")
    assert zone.types() == {"id": "bigint", "s": "struct<a:int>"}
    zone.parquet("in/b.parquet", id=[2], l=pa.array([[]], pa.list_(pa.null())))
    with pytest.raises(TableError, match="column `l` is array<void>") as refused:
        zone.run("raw")
    assert "`read.schema`" in str(refused.value.fix)


def test_times_in_nanoseconds_beside_a_column_of_type_null_are_read(tmp_path: Path, spark: SparkSession) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}")
    zone.parquet("in/a.parquet", t=pa.array([1_000], pa.timestamp("ns")), n=NOTHING)
    (row,) = zone.load()
    assert list(row) == ["t"]
    assert row["t"].microsecond == 1


@pytest.mark.parametrize("kind", ["DOUBLE", "DECIMAL(20,0)", "STRING"])
def test_times_in_nanoseconds_are_no_numbers_and_no_texts(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    zone = Zone(tmp_path, spark, f'format: parquet, schema: "t {kind}", {FILES}')
    zone.parquet("in/a.parquet", t=pa.array([1_000], pa.timestamp("ns")))
    with pytest.raises(SourceError, match=r"column `t` is timestamp in in/a\.parquet"):
        zone.run("raw")


def test_a_transform_may_name_a_column_of_type_null(tmp_path: Path, spark: SparkSession) -> None:
    zone = Zone(
        tmp_path, spark, f"format: parquet, {FILES}}}\n    transform: {{sql: 'SELECT id, n AS m FROM df'", EVOLVE
    )
    zone.parquet("in/a.parquet", id=[1], n=NOTHING)
    assert zone.load() == [{"id": 1}]
    zone.parquet("in/b.parquet", id=[2], n=[5])
    assert zone.load() == [{"id": 1, "m": None}, {"id": 2, "m": 5}]


def test_under_rescued_a_column_of_type_null_fits_and_leaves_nothing_behind(
    tmp_path: Path, spark: SparkSession
) -> None:
    zone = Zone(tmp_path, spark, f'format: parquet, schema: "id BIGINT, n STRING", rescued: r, {FILES}')
    zone.parquet("in/a.parquet", id=[1], n=NOTHING, more=NOTHING)
    assert zone.load() == [{"id": 1, "n": None, "r": None}]


BAD: list[tuple[str, Any]] = [
    ("as the least text", texts(b"\xff\xfe", b"a")),
    ("between others", texts(b"a", b"b\xff", b"z")),
    ("within a struct", pa.StructArray.from_arrays([texts(b"a", b"b\xff", b"z")], ["part"])),
    ("within a list", pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), texts(b"a", b"b\xff", b"z"))),
    ("as a key", pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), texts(b"b\xff"), texts(b"a"))),
]


@pytest.mark.parametrize("schema", [False, True], ids=["as it is", "with schema"])
@pytest.mark.parametrize("column", [column for _, column in BAD], ids=[name for name, _ in BAD])
def test_bytes_that_are_not_utf_8_stop_the_run_and_name_file_and_column(
    tmp_path: Path, spark: SparkSession, column: pa.Array, schema: bool
) -> None:
    kinds = {"string": "STRING", "list<item: string>": "ARRAY<STRING>", "struct<part: string>": "STRUCT<part: STRING>"}
    kind = kinds.get(str(column.type), "MAP<STRING, STRING>")
    read = f'format: parquet, schema: "name {kind}", {FILES}' if schema else f"format: parquet, {FILES}"
    zone = Zone(tmp_path, spark, read)
    zone.parquet("in/a.parquet", name=column)
    with pytest.raises(SourceError, match=r"in/a\.parquet: column `name`: .* has bytes that are not UTF-8") as stopped:
        zone.run("raw")
    assert "`name` as BINARY" in str(stopped.value.fix)
    assert not zone.table("raw").exists


def test_the_ways_that_the_error_names_keep_the_bytes(tmp_path: Path, spark: SparkSession) -> None:
    column = texts(b"a", b"b\xff", b"z")
    (tmp_path / "binary").mkdir()
    zone = Zone(tmp_path / "binary", spark, f'format: parquet, schema: "name BINARY", {FILES}')
    zone.parquet("in/a.parquet", name=column)
    assert {bytes(row["name"]) for row in zone.load()} == {b"a", b"b\xff", b"z"}
    (tmp_path / "rescued").mkdir()
    zone = Zone(tmp_path / "rescued", spark, f'format: parquet, schema: "name STRING", rescued: r, {FILES}')
    zone.parquet("in/a.parquet", name=column, more=column)
    kept = [(row["name"], row["r"]) for row in zone.load()]
    assert sorted(kept, key=str) == [
        ("a", '{"more":"a"}'),
        ("z", '{"more":"z"}'),
        (None, '{"name":"Yv8=","more":"Yv8="}'),
    ]


def test_without_strict_such_texts_are_taken_as_spark_takes_them(tmp_path: Path, spark: SparkSession) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, strict: false, {FILES}")
    zone.parquet("in/a.parquet", id=[1, 2], name=texts(b"\xff\xfe", b"a"))
    zone.run("raw")
    assert zone.table("raw").rows == 2


LATER: list[tuple[str, pa.Array, pa.Array, str]] = [
    ("long, double", pa.array([1]), pa.array([2.5]), "a DOUBLE"),
    ("ntz, timestamp", pa.array([0], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "UTC")), "a TIMESTAMP"),
    ("date, timestamp", pa.array([0], pa.date32()), pa.array([1], pa.timestamp("us", "UTC")), "a TIMESTAMP"),
    ("long, text", pa.array([1]), pa.array(["x"]), "a STRING"),
    ("long, decimal", pa.array([1]), pa.array([Decimal("1.50")], pa.decimal128(5, 2)), "a DECIMAL(21,2)"),
]


@pytest.mark.parametrize(("first", "second", "wanted"), [one[1:] for one in LATER], ids=[one[0] for one in LATER])
def test_where_no_type_holds_both_files_the_remedy_names_a_schema_and_works(
    tmp_path: Path, spark: SparkSession, first: pa.Array, second: pa.Array, wanted: str
) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}", EVOLVE)
    zone.parquet("in/a.parquet", a=first)
    zone.run("raw")
    zone.parquet("in/b.parquet", a=second)
    with pytest.raises(TableError) as stopped:
        zone.run("raw")
    fix = str(stopped.value.fix)
    # Of a text, such a cast stops at what is no whole number.
    assert ("AS LONG" in fix) == (wanted == "a STRING")
    assert f"name the columns in `read.schema`, `{wanted}` among them, and rebuild" in fix
    with pytest.raises(SourceError) as united:
        zone.run("raw", full_refresh=True)
    assert f"`{wanted}` among them" in str(united.value.fix)
    zone = Zone(tmp_path, spark, f'format: parquet, schema: "{wanted}", {FILES}', EVOLVE)
    with pytest.raises(TableError, match="--full-refresh"):
        zone.run("raw")
    zone.run("raw", full_refresh=True)
    assert len(zone.stored()) == 2
    assert zone.types()["a"] == wanted.removeprefix("a ").lower()


def test_a_field_of_another_type_is_cast_with_its_struct_as_the_remedy_says(
    tmp_path: Path, spark: SparkSession
) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}", EVOLVE)
    narrow, wide = [pa.struct([("a", kind), ("b", pa.string())]) for kind in (pa.int32(), pa.int64())]
    zone.parquet("in/a.parquet", s=pa.array([{"a": 1, "b": "x"}], narrow))
    zone.run("raw")
    zone.parquet("in/b.parquet", s=pa.array([{"a": 2, "b": "y"}], wide))
    with pytest.raises(TableError, match=r"column `s\.a`") as stopped:
        zone.run("raw")
    found = re.search(r"CAST\(.+>\)", str(stopped.value.fix))
    assert found is not None
    zone = Zone(
        tmp_path, spark, f'format: parquet, {FILES}}}\n    transform: {{sql: "SELECT {found[0]} AS s FROM df"', EVOLVE
    )
    assert [row["s"].asDict() for row in zone.load()] == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}", EVOLVE)
    zone.run("raw", full_refresh=True)
    assert zone.types() == {"s": "struct<a:bigint,b:string>"}


def test_under_fail_the_remedy_of_a_wider_type_sets_evolve_before_the_full_refresh(
    tmp_path: Path, spark: SparkSession
) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}")
    zone.parquet("in/a.parquet", a=pa.array([1], pa.int32()))
    zone.run("raw")
    zone.parquet("in/b.parquet", a=pa.array([2], pa.int64()))
    with pytest.raises(TableError) as stopped:
        zone.run("raw")
    assert "(a value that does not fit stops the run then): CAST(a AS INTEGER)" in str(stopped.value.fix)
    assert "set `write.schema: evolve`, and rebuild the table with the new type: odi run" in str(stopped.value.fix)
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}", EVOLVE)
    zone.run("raw", full_refresh=True)
    assert zone.types() == {"a": "bigint"}


@pytest.mark.parametrize(
    ("wrong", "why", "rights"),
    [
        ({"compression": "brotli"}, "no codec for this compression", ["zstd", "snappy", "gzip", "lz4", "none"]),
        ({"column_encoding": {"a": "BYTE_STREAM_SPLIT"}}, "does not read this encoding", []),
    ],
)
def test_a_file_that_spark_has_no_reader_for_stops_the_run_with_what_to_write_instead(
    tmp_path: Path, spark: SparkSession, wrong: dict[str, Any], why: str, rights: list[str]
) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}")
    rows, file = pa.table({"a": [1.5, 2.5]}), zone.parquet("in/a.parquet", a=[1.5])
    pq.write_table(rows, file, use_dictionary=False, **wrong)
    with pytest.raises(SourceError, match=rf"a\.parquet cannot be read: .*{why}") as stopped:
        zone.run("raw")
    assert "nothing was loaded: write it with the" in str(stopped.value.fix)
    for number, compression in enumerate(rights):
        pq.write_table(rows, file, compression=compression)
        assert len(zone.load()) == 2 * (number + 1)
        file = zone.parquet(f"in/{number}.parquet", a=[1.5])
    for number, encoding in enumerate(() if rights else ("PLAIN", "RLE_DICTIONARY")):
        pq.write_table(rows, file, use_dictionary=encoding != "PLAIN")
        assert len(zone.load()) == 2 * (number + 1)
        file = zone.parquet(f"in/{number}.parquet", a=[1.5])
