"""What lies in a landing folder is loaded, kept aside or named, judged by the standard of its format."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import itertools
import json
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from benchmarks.deliveries.sweep import drawn, one_of_each, sweep
from odi_assets.cli import main
from odi_assets.errors import ConfigError, IncrementError, SourceError, TransformError
from odi_assets.sources.files.look import files as looks
from odi_assets_tests.nodes.execution.test_shapes_of_files import FILES, Zone
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.tables.support import read_table

HEADER = 'options: {header: "true"}, '


def zone(root: Path, spark: SparkSession, read: str, write: str = "mode: append", path: str = "in") -> Zone:
    root.mkdir(exist_ok=True)
    return Zone(root, spark, f"{read}, {FILES}", write, path)


def test_one_of_each_fault_is_loaded_kept_aside_or_named(tmp_path: Path, spark: SparkSession) -> None:
    tally = sweep(spark, one_of_each(1), tmp_path, print)
    assert (tally.silent, tally.unclear, tally.needless) == ([], [], [])
    assert min(tally.loaded, tally.rescued, tally.stopped) > 10


def test_drawn_files_that_once_fell_short_are_loaded_kept_aside_or_named(tmp_path: Path, spark: SparkSession) -> None:
    seeds = (10842, 10819, 10456, 13459)  # uint8 for TINYINT, a duration beside nanoseconds, `1d`, `12:30` inferred
    tally = sweep(spark, (one for seed in seeds for one in drawn(1, seed)), tmp_path, print)
    assert (tally.files, tally.silent, tally.unclear, tally.needless) == (len(seeds), [], [], [])


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ('{"id": 1}\n{"id": 2}{"id": 3}\n', "a.json:2", "behind the first value"),
        ('{"id": 1}, {"id": 2}\n', "a.json:1", "behind the first value"),
        ('{"id": 1, "id": 2}\n', "a.json:1", "key 'id' twice"),
        ('{"id": 1}\nnull\n', "a.json:2", "no object"),
        ('{"id": 1}\n{"id": \n', "a.json:2", "no JSON"),
        ('{"id": 1, "v": "\\ud800"}\n', "a.json:1", "half of a character"),
    ],
)
def test_a_line_of_json_that_spark_would_read_in_part_stops_the_run_or_is_kept(
    tmp_path: Path, spark: SparkSession, text: str, place: str, why: str
) -> None:
    read = 'format: json, schema: "id BIGINT, v STRING"'
    stopped = zone(tmp_path, spark, read)
    stopped.land("in/a.json", text.splitlines())
    with pytest.raises(SourceError, match=f"{place} cannot be read: .*{why}"):
        stopped.run("raw")
    rows = zone(tmp_path, spark, f"{read}, rescued: rest").load()
    kept = [json.loads(row["rest"])["_corrupt_record"] for row in rows if row["rest"]]
    good = [row for row in rows if not row["rest"]]
    assert len(kept) == 1
    assert kept[0] in text
    assert len(rows) == len([line for line in text.splitlines() if line.strip()])
    assert all(row["id"] == 1 for row in good)


@pytest.mark.parametrize(
    "write", ["upsert, keys: [id]", "append_once, keys: [id]", "partition_overwrite, partition_by: [id]"]
)
def test_rows_whose_key_is_kept_aside_stop_a_run_that_knows_rows_by_keys(
    tmp_path: Path, spark: SparkSession, write: str
) -> None:
    read = 'format: csv, schema: "id BIGINT, v STRING", options: {header: "true"}, rescued: rest'
    box = zone(tmp_path, spark, read, f"mode: {write}")
    box.land("in/a.csv", ["id,v", "1,a", "one,b", "two,c"])
    why = r"a row of file:\S+/in/a.csv has no `id`, which mode `\w+` goes by, .*one,b"
    with pytest.raises(SourceError, match=why) as error:
        box.run("raw")
    assert "`checks: [{not_null: id}]` and `quarantine: TABLE`" in str(error.value.fix)


BELOW = """
- pipeline: p
  nodes:
  - name: raw
    read:
      connection: landing
      path: in/*.csv
      format: csv
      schema: "id BIGINT, v STRING"
      options: {header: "true"}
      rescued: rest
      incremental: files
    write: {connection: lake, path: raw, mode: append}
  - name: below
    inputs: {raw: {node: raw, incremental: version}}
    transform: {sql: "SELECT id, v, rest FROM raw WHERE"}
    write: {connection: lake, path: below, mode: upsert, keys: [id]}
  - name: stream
    inputs: [raw]
    stream: {}
    transform: {sql: "SELECT id, v, rest FROM raw WHERE"}
    write: {connection: lake, path: stream, mode: upsert, keys: [id]}
"""


def test_nodes_and_streams_below_stop_at_rows_whose_key_is_kept_aside_and_the_remedy_leads_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, BELOW.replace("WHERE", "WHERE true"))
    box.land("in/a.csv", ["id,v", "1,a", "one,b", "two,c"])
    box.run("raw")
    for node in ("below", "stream"):
        with pytest.raises(
            TransformError, match=f"a row of p.{node} has no `id`, which mode `upsert` goes by"
        ) as error:
            box.run(node)
        assert "`WHERE rest IS NULL`" in str(error.value.fix)
        assert ("quarantine" in str(error.value.fix)) is (node == "below")
    box = Sandbox(tmp_path, spark, BELOW.replace("WHERE", "WHERE rest IS NULL"))
    for node in ("below", "stream"):
        box.run(node)
        assert [row["id"] for row in read_table(spark, box.table(node)).collect()] == [1]


def test_a_check_takes_the_rows_whose_key_is_kept_aside(tmp_path: Path, spark: SparkSession) -> None:
    read = 'format: csv, schema: "id BIGINT, v STRING", options: {header: "true"}, rescued: rest'
    # The brace that closes `write` stands behind this text: in a comment.
    checks = "\n    checks: [{not_null: id}]\n    quarantine: bad  # "
    box = zone(tmp_path, spark, read, f"mode: upsert, keys: [id]}}{checks}")
    box.land("in/a.csv", ["id,v", "1,a", "one,b", "two,c"])
    assert [row["id"] for row in box.load()] == [1]


def test_a_broken_line_hides_no_line_behind_it_that_spark_would_read_in_part(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The last line has no end, and is looked at apart from those before it."""
    box = zone(tmp_path, spark, 'format: json, schema: "id BIGINT", rescued: rest')
    file = box.land("in/a.json", [])
    file.write_bytes(b'{"id": 1}\n\0\0\n{"id": 2},{"id": 3}')
    kept = [json.loads(row["rest"])["_corrupt_record"] for row in box.load() if row["rest"]]
    assert kept == ["\0\0", '{"id": 2},{"id": 3}']


def test_a_line_of_no_object_and_one_of_two_are_not_two_rows(tmp_path: Path, spark: SparkSession) -> None:
    box = zone(tmp_path, spark, 'format: json, schema: "id BIGINT"')
    box.land("in/a.json", ['{"id": 1}', " ", '{"id": 2}{"id": 3}'])
    with pytest.raises(SourceError, match=r"a\.json:3 cannot be read: behind the first value"):
        box.run("raw")


def test_of_rows_that_fit_nothing_is_kept_aside_whatever_lines_and_columns_are_beside_them(
    tmp_path: Path, spark: SparkSession
) -> None:
    schema = (
        "id BIGINT, tags ARRAY<BIGINT>, part STRUCT<n: BIGINT, in: ARRAY<STRUCT<m: BIGINT>>>, "
        "more MAP<STRING, STRUCT<m: BIGINT>>"
    )
    box = zone(tmp_path, spark, f'format: json, schema: "{schema}", rescued: rest')
    fitting = [
        '{"id": 1, "tags": [1, 2], "part": {"n": 1, "in": [{"m": 1}, null]}, "more": {"a": {"m": 1}}}',
        '{"id": 2, "part": {"in": []}, "tags": null, "more": {}}',
        '{"id": 3}',
    ]
    odd = [
        '{"id": 4, "part": {"n": 1, "x": 2}}',
        '{"id": 5, "part": {"in": [{"m": 1}, {"x": 1}]}}',
        '{"id": 6, "more": {"a": {"m": 1, "x": 2}}}',
        '{"id": 7, "part": {"N": 1}}',
        '{"id": 8, "tags": ["x"]}',
        '{"id": 9, "x": 1}',
        '{"id": 10, "more": [1]}',
        '{"id": 11}{"id": 12}',
    ]
    box.land("in/a.json", [*fitting, *odd])
    rows = {row["id"]: row for row in box.load() if row["id"] is not None}
    assert {number for number, row in rows.items() if row["rest"] is None} == {1, 2, 3}
    assert (rows[1]["tags"], rows[1]["part"]["n"]) == ([1, 2], 1)
    assert {text for row in rows.values() if row["rest"] for text in json.loads(row["rest"]).values()} <= set(odd)
    assert len(box.rows("raw")) == len([*fitting, *odd])


def test_with_multi_line_a_file_is_one_text(tmp_path: Path, spark: SparkSession) -> None:
    lines = zone(tmp_path, spark, 'format: json, schema: "id BIGINT", options: {multiLine: "true"}')
    lines.land("in/a.json", ['{"id": 1}', '{"id": 2}'])
    with pytest.raises(SourceError, match=r"a\.json:2 cannot be read: .*`multiLine` reads one"):
        lines.run("raw")
    lines.land("in/a.json", ['[{"id": 1},', '{"id": 2}]'])
    assert [row["id"] for row in lines.load()] == [1, 2]


def test_a_quoted_line_break_stops_the_run_and_the_option_that_it_names_leads_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    read = 'format: csv, schema: "id BIGINT, v STRING", options: {header: "true"%s}'
    broken = zone(tmp_path, spark, read % "")
    broken.land("in/a.csv", ["id,v", '1,"a', '2,b"'])
    with pytest.raises(SourceError, match=r"a\.csv:2 cannot be read: a quoted value has a line break") as error:
        broken.run("raw")
    assert 'multiLine: "true"' in str(error.value.fix)
    assert zone(tmp_path, spark, read % ', multiLine: "true"').load() == [{"id": 1, "v": "a\n2,b"}]


def test_line_breaks_in_values_are_loaded_as_they_are_or_the_file_is_named(tmp_path: Path, spark: SparkSession) -> None:
    ends, stopped = ("\n", "\r\n", "\r"), []
    for number, (end, inner, header) in enumerate(itertools.product(ends, ends, ("id,v", ""))):
        options = 'multiLine: "true"' + (', header: "true"' if header else "")
        read = f'format: csv, schema: "id BIGINT, v STRING", options: {{{options}}}'
        root = tmp_path / str(number)
        (root / "landing/in").mkdir(parents=True)
        text = end.join([*([header] if header else []), f'1,"a{inner}b"', "2,c", '3,"d"', ""])
        (root / "landing/in/a.csv").write_bytes(text.encode())
        try:
            rows = zone(root, spark, read).load()
        except SourceError as error:
            stopped.append(str(error))
            if "\r" in end and len(end) == 1:
                said = read.replace("multiLine", 'lineSep: "\\r", multiLine')
                assert [row["v"] for row in zone(root, spark, said).load()] == [f"a{inner}b", "c", "d"]
        else:
            assert [row["v"] for row in rows] == [f"a{inner}b", "c", "d"]
    assert 6 < len(stopped) < 14
    assert all("a.csv:" in text for text in stopped)


def test_columns_that_spark_cannot_look_for_are_an_error_that_names_the_file(
    tmp_path: Path, spark: SparkSession
) -> None:
    read = 'format: csv, schema: "id BIGINT, v STRING", options: {multiLine: "true", header: "true"}, rescued: rest'
    broken = zone(tmp_path, spark, read)
    broken.land("in/a.csv", ["id,v", '1,""a"', '2,"b"'])
    with pytest.raises(SourceError, match=r"a\.csv:2 cannot be read: a value goes on behind its closing quote"):
        broken.run("raw")


def test_quotes_that_open_nothing_are_values(tmp_path: Path, spark: SparkSession) -> None:
    plain = zone(tmp_path, spark, f'format: csv, schema: "id BIGINT, v STRING", {HEADER[:-2]}')
    plain.land("in/a.csv", ["id,v", '1,5" pipe', '2,"a ""b"""'])
    assert plain.load() == [{"id": 1, "v": '5" pipe'}, {"id": 2, "v": 'a "b"'}]


def test_an_empty_text_in_quotes_is_one_and_no_value_is_null(tmp_path: Path, spark: SparkSession) -> None:
    kinds = "id BIGINT, v STRING, n DOUBLE, d DATE, t BOOLEAN"
    empty = zone(tmp_path, spark, f'format: csv, schema: "{kinds}", {HEADER[:-2]}')
    empty.land("in/a.csv", ["id,v,n,d,t", '1,"",1.5,2024-01-01,true', '2,,"","",""'])
    assert empty.load() == [
        {"id": 1, "v": "", "n": 1.5, "d": dt.date(2024, 1, 1), "t": True},
        {"id": 2, "v": None, "n": None, "d": None, "t": None},
    ]


WRONG = [
    ("DECIMAL(10,2)", "1.555"),
    ("DECIMAL(10,2)", "12345e-3"),
    ("TIMESTAMP", "12:30"),
    ("TIMESTAMP", "2024-01-01T00:00:00.1234567Z"),
    ("TIMESTAMP", "1700000000000"),
    ("TIMESTAMP_NTZ", "2024-01-01T00:00:00+02:00"),
    ("DATE", "2024-01-01 23:00:00"),
    ("DATE", "2024"),
    ("DOUBLE", "1e400"),
    ("BIGINT", "9223372036854775808"),
]


@pytest.mark.parametrize("format_", ["csv", "json"])
@pytest.mark.parametrize(("kind", "value"), WRONG)
def test_a_value_that_its_type_does_not_hold_stops_the_run_or_is_kept(
    tmp_path: Path, spark: SparkSession, format_: str, kind: str, value: str
) -> None:
    options = HEADER if format_ == "csv" else ""
    read = f'format: {format_}, {options}schema: "id BIGINT, v {kind}"'
    is_number = kind in ("DOUBLE", "BIGINT", "DECIMAL(10,2)")
    lines = ["id,v", f"1,{value}"] if format_ == "csv" else [f'{{"id": 1, "v": {value if is_number else repr(value)}}}']
    wrong = zone(tmp_path, spark, read)
    wrong.land(f"in/a.{format_}", [line.replace("'", '"') for line in lines])
    with pytest.raises(SourceError, match=rf"a\.{format_}") as error:
        wrong.run("raw")
    assert ("Infinity" if kind == "DOUBLE" and format_ == "json" else value) in str(error.value)
    (row,) = zone(tmp_path, spark, f"{read}, rescued: rest").load()
    assert row["v"] is None
    assert value in row["rest"]


def test_values_that_fit_as_they_are_written_are_loaded(tmp_path: Path, spark: SparkSession) -> None:
    kinds = "p DECIMAL(10,2), at TIMESTAMP, day DATE, parts STRUCT<at: TIMESTAMP>, tags ARRAY<DECIMAL(5,1)>"
    fitting = zone(tmp_path, spark, f'format: json, schema: "{kinds}"')
    fitting.land(
        "in/a.json",
        [
            '{"p": 1.550, "at": "2024-01-01T02:00:00.123456000+02:00", "day": "2024-01-01", "parts": {"at": null}, '
            '"tags": [1.0, 2.5]}',
            '{"p": "12345e-2", "at": 1700000000, "day": "2024-1-2", "tags": [1e1]}',
        ],
    )
    rows = fitting.load()
    assert [row["p"] for row in rows] == [Decimal("1.55"), Decimal("123.45")]
    assert [row["day"] for row in rows] == [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]
    assert [row["tags"] for row in rows] == [[Decimal("1.0"), Decimal("2.5")], [Decimal("10.0")]]
    moments = [row["at"].timestamp() for row in rows]
    assert moments == [dt.datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=dt.UTC).timestamp(), 1700000000]


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_bytes_that_are_no_text_stop_the_run_and_the_encoding_leads_on(
    tmp_path: Path, spark: SparkSession, format_: str
) -> None:
    read = f'format: {format_}, schema: "v STRING"'
    wrong = zone(tmp_path, spark, read)
    file = wrong.land(f"in/a.{format_}", [""])
    file.write_bytes("é\n".encode("latin-1") if format_ == "csv" else b'{"v": "ok"}\n{"v": "\xe9"}\n')
    with pytest.raises(SourceError, match=rf"a\.{format_}:\d cannot be read: the byte 0xe9 is not UTF-8") as error:
        wrong.run("raw")
    assert "encoding" in str(error.value.fix)
    rows = zone(tmp_path, spark, f"{read}, options: {{encoding: ISO-8859-1}}").load()
    assert [row["v"] for row in rows] == (["é"] if format_ == "csv" else ["ok", "é"])


def test_a_column_that_no_row_has_while_others_are_there_was_renamed(tmp_path: Path, spark: SparkSession) -> None:
    for number, format_ in enumerate(("json", "parquet")):
        read = f'format: {format_}, schema: "id BIGINT, v STRING"'
        root = tmp_path / str(number)
        renamed = zone(root, spark, read)
        if format_ == "parquet":
            renamed.parquet("in/a.x", key=[1], v=["a"])
        else:
            renamed.land("in/a.x", ['{"key": 1, "v": "a"}'])
        with pytest.raises(SourceError, match=r"a\.x has `id` of `read.schema`, and it has `key`"):
            renamed.run("raw")
        (row,) = zone(root, spark, f"{read}, rescued: rest").load()
        assert (row["id"], row["v"], json.loads(row["rest"])) == (None, "a", {"key": 1})


def test_a_sparse_column_is_no_renamed_one(tmp_path: Path, spark: SparkSession) -> None:
    sparse = zone(tmp_path, spark, 'format: json, schema: "id BIGINT, v STRING"')
    sparse.land("in/a.json", ['{"id": 1}', '{"id": 2}'])
    sparse.land("in/b.json", ['{"id": 3, "more": 1}', '{"id": 4, "v": "a"}'])
    assert [row["v"] for row in sparse.load()] == [None, None, None, "a"]


@pytest.mark.parametrize(
    ("kind", "values", "told"),
    [
        ("BIGINT", pa.array([1, 2**63], pa.uint64()), "9223372036854775808"),
        ("INT", pa.array([1, 2**31], pa.int64()), "2147483648"),
        ("DECIMAL(10,2)", pa.array([Decimal("1.555")], pa.decimal128(10, 3)), "1.555"),
        ("STRING", pa.array([b"\xff"], pa.binary()), "no value of string"),
        ("TIMESTAMP", pa.array([1], pa.timestamp("ns", "UTC")), "parts of a microsecond"),
        ("DATE", pa.array(["2024-01-01"]), "is string in"),
        ("TIMESTAMP", pa.array([1700000000000]), "is long in"),
    ],
)
def test_values_of_parquet_that_the_schema_does_not_hold_stop_the_run(
    tmp_path: Path, spark: SparkSession, kind: str, values: pa.Array, told: str
) -> None:
    other = zone(tmp_path, spark, f'format: parquet, schema: "v {kind}"')
    other.parquet("in/a.parquet", v=values)
    with pytest.raises(SourceError, match=r"a\.parquet") as error:
        other.run("raw")
    assert told in str(error.value)


def test_values_of_other_types_of_parquet_that_fit_are_loaded(tmp_path: Path, spark: SparkSession) -> None:
    kinds = "a BIGINT, b INT, c STRING, d TIMESTAMP, e DECIMAL(10,2), f BIGINT"
    other = zone(tmp_path, spark, f'format: parquet, schema: "{kinds}"')
    other.parquet(
        "in/a.parquet",
        a=pa.array([2**63 - 1], pa.uint64()),
        b=pa.array([7], pa.int64()),
        c=pa.array(["é".encode()], pa.binary()),
        d=pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("ns", "UTC")),
        e=pa.array([Decimal("1.550")], pa.decimal128(10, 3)),
        f=pa.array([1_000_001], pa.timestamp("ns")),
    )
    (row,) = other.load()
    assert (row["a"], row["b"], row["c"], row["e"], row["f"]) == (2**63 - 1, 7, "é", Decimal("1.55"), 1_000_001)
    assert row["d"].timestamp() == dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp()


def test_strict_false_reads_as_spark_does(tmp_path: Path, spark: SparkSession) -> None:
    lenient = zone(tmp_path, spark, 'format: json, strict: false, schema: "id BIGINT, p DECIMAL(10,2)"')
    lenient.land("in/a.json", ['{"id": 1, "p": 1.555}{"id": 2}'])
    assert lenient.load() == [{"id": 1, "p": Decimal("1.56")}]


def test_executors_look_at_many_files_without_this_package(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(looks, "ON_DRIVER", 2)
    for format_, line in (("json", '{"id": 1}'), ("csv", "1")):
        many = zone(tmp_path / format_, spark, f'format: {format_}, schema: "id BIGINT"')
        for number in range(4):
            many.land(f"in/{number}", [line])
        assert len(many.load()) == 4
        many.land("in/wrong", ['{"id": 1}{"id": 2}' if format_ == "json" else '"1'])
        with pytest.raises(SourceError, match="in/wrong:1 cannot be read"):
            many.run("raw")
    assert "could not look" not in caplog.text


def test_packed_files_are_looked_at_too(tmp_path: Path, spark: SparkSession) -> None:
    packed = zone(tmp_path, spark, 'format: json, schema: "id BIGINT"')
    file = packed.land("in/a.json.gz", [])
    file.write_bytes(gzip.compress(b'{"id": 1}\n') + gzip.compress(b'{"id": 2}\n'))
    assert [row["id"] for row in packed.load()] == [1, 2]
    packed.land("in/b.json.gz", []).write_bytes(gzip.compress(b'{"id": 3}\n{"id": 4}\n')[:-9])
    for read in ("", ", rescued: rest"):
        packed = zone(tmp_path, spark, f'format: json, schema: "id BIGINT"{read}')
        with pytest.raises(SourceError, match=r"b\.json\.gz cannot be read: it cannot be unpacked") as stopped:
            packed.run("raw")
        assert "rescued" not in str(stopped.value.fix)


@pytest.mark.parametrize("encoding", ["utf-8", "ISO-8859-1"])
@pytest.mark.parametrize(
    ("pack", "what", "end"),
    [
        (gzip.compress, "gzip", "gz"),
        (bz2.compress, "bzip2", "bz2"),
        (lambda data: pa.compress(data, "zstd", asbytes=True), "zstd", "zst"),
    ],
)
def test_a_packed_file_under_another_name_stops_the_run_with_the_end_that_it_needs(
    tmp_path: Path, spark: SparkSession, pack: Callable[[bytes], bytes], what: str, end: str, encoding: str
) -> None:
    packed = zone(tmp_path, spark, f'format: csv, schema: "v STRING", options: {{encoding: {encoding}}}')
    file = packed.land("in/a.csv.packed", [])
    file.write_bytes(pack(b"x\n"))
    why = rf"it is packed with {what}, and its name does not end with `\.{end}`"
    with pytest.raises(SourceError, match=why) as stopped:
        packed.run("raw")
    assert "give it that end" in str(stopped.value.fix)
    file.rename(file.with_name(f"a.csv.{end}"))
    assert packed.load() == [{"v": "x"}]
    packed.land(f"in/b.csv.{end}", ["y"])
    with pytest.raises(SourceError, match=f"b.csv.{end} cannot be read: .* not packed with {what}, as its name says"):
        packed.run("raw")


def test_a_text_that_begins_like_a_packed_file_is_a_text(tmp_path: Path, spark: SparkSession) -> None:
    plain = zone(tmp_path, spark, 'format: csv, schema: "v STRING"')
    plain.land("in/a.csv", ["BZh9 is how bzip2 begins"])
    assert plain.load() == [{"v": "BZh9 is how bzip2 begins"}]


def test_a_file_rewritten_with_its_size_and_time_as_before_is_noticed(tmp_path: Path, spark: SparkSession) -> None:
    written = zone(tmp_path, spark, 'format: csv, schema: "id BIGINT"')
    file = written.land("in/a.csv", ["1"])
    assert written.load() == [{"id": 1}]
    status = file.stat()
    file.write_text("2\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(IncrementError, match=r"other content now: in/a\.csv"):
        written.plan("raw")
    file.write_text("1\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert written.plan("raw").nothing_new


def test_a_text_cursor_that_nobody_named_is_refused_before_and_at_the_run(tmp_path: Path, spark: SparkSession) -> None:
    def of(read: str, more: str = "") -> Zone:
        increment = f"incremental: {{mode: stateful, column: id{more}}}"
        return Zone(tmp_path, spark, f"{read}, {increment}", "mode: append")

    untyped = of(f"format: csv, {HEADER[:-2]}")
    untyped.land("in/a.csv", ["id", "9"])
    with pytest.raises(IncrementError, match="`10` comes before `9`"):
        untyped.run("raw")
    for more, code in (("", 2), (", type: text", 0)):
        of(f"format: csv, {HEADER[:-2]}", more)
        assert main(["--config", str(tmp_path / "odibi.yaml"), "config", "check"]) == code
    said = of(f"format: csv, {HEADER[:-2]}", ", type: text")
    said.land("in/a.csv", ["id", "9"])
    assert said.load() == [{"id": "9"}]


def test_a_text_cursor_that_json_files_have_is_refused_at_the_run(tmp_path: Path, spark: SparkSession) -> None:
    guessed = Zone(tmp_path, spark, "format: json, incremental: {mode: stateful, column: id}", "mode: append")
    guessed.land("in/a.json", ['{"id": "9"}'])
    with pytest.raises(IncrementError, match="`10` comes before `9`") as error:
        guessed.run("raw")
    assert "type: text" in str(error.value.fix)


@pytest.mark.parametrize("transform", [None, "SELECT id, seq AS newest FROM df"])
def test_a_text_that_nobody_named_does_not_say_which_row_is_newer(
    tmp_path: Path, spark: SparkSession, transform: str | None
) -> None:
    def of(read: str) -> Zone:
        newer = "newest" if transform else "seq"
        more = f"}}\n    transform: {{sql: '{transform}'" if transform else ""
        return Zone(tmp_path, spark, read, f"mode: upsert, keys: [id], only_if_newer: {newer}{more}")

    untyped = of(f"format: csv, {HEADER[:-2]}, incremental: files")
    untyped.land("in/a.csv", ["id,seq", "1,9"])
    assert main(["--config", str(tmp_path / "odibi.yaml"), "config", "check"]) == 2
    with pytest.raises(ConfigError, match="`10` comes before `9`"):
        untyped.run("raw")
    guessed = of("format: json, incremental: files")
    (tmp_path / "landing/in/a.csv").unlink()
    guessed.land("in/a.json", ['{"id": 1, "seq": "9"}'])
    with pytest.raises(ConfigError, match="`10` comes before `9`"):
        guessed.run("raw")
    (tmp_path / "landing/in/a.json").unlink()
    named = of(f'format: csv, {HEADER[:-2]}, schema: "id INT, seq STRING", incremental: files')
    assert main(["--config", str(tmp_path / "odibi.yaml"), "config", "check"]) == 0
    named.land("in/b.csv", ["id,seq", "1,9"])
    assert named.load() == [{"id": 1, "newest" if transform else "seq": "9"}]


def test_the_nodes_of_a_landing_zone_whose_files_spark_misreads_stop_or_are_right(
    tmp_path: Path, spark: SparkSession
) -> None:
    def of(name: str, read: str) -> Zone:
        found = zone(tmp_path / name, spark, read, path="in/*")
        (tmp_path / name / "landing/in").mkdir(parents=True)
        return found

    kept = of("js", 'format: json, schema: "id BIGINT", rescued: r')
    kept.land("in/1", ['{"id":1}{"id":2}'])
    (row,) = kept.load()
    assert json.loads(row["r"]) == {"_corrupt_record": '{"id":1}{"id":2}'}
    by: Any = of("by", f'format: csv, {HEADER}schema: "id BIGINT"')
    by.land("in/a.csv", ["id", "1"])
    odd = os.fsencode(str(tmp_path / "by/landing/in")) + b"/M\xe4rz.csv"
    with open(odd, "wb") as stream:  # noqa: PTH123  the name is no text
        stream.write(b"id\n2\n")
    with pytest.raises(SourceError, match=r"in/M\\xe4rz\.csv has a name that is not UTF-8"):
        by.plan("raw")
    os.rename(odd, os.path.dirname(odd) + "/März.csv".encode())  # noqa: PTH104, PTH120
    assert sorted(row["id"] for row in by.load()) == [1, 2]


def test_a_header_of_another_length_than_the_schema_is_named_with_both_numbers(
    tmp_path: Path, spark: SparkSession
) -> None:
    short = zone(tmp_path, spark, f'format: csv, schema: "id BIGINT, v STRING", strict: false, {HEADER[:-2]}')
    short.land("in/a.csv", ["id,v,w", "1,a,b"])
    with pytest.raises(SourceError, match=r"fields in the schema: 3 in the header, 2 in the schema"):
        short.run("raw")
