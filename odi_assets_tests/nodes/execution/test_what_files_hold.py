"""What Spark would lose or change of a landing file without a word stops the run, or is kept aside."""

from __future__ import annotations

import csv
import io
import itertools
import json
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import SourceError
from odi_assets_tests.nodes.execution.test_deliveries import zone
from odi_assets_tests.nodes.execution.test_shapes_of_files import Zone

CSV = 'format: csv, schema: "id BIGINT, v STRING", options: {header: "true"}'
JSON = 'format: json, schema: "id BIGINT, v STRING"'


def landed(root: Path, spark: SparkSession, read: str, content: str | bytes, name: str = "in/a.x") -> Zone:
    found = zone(root, spark, read, path="in/**")
    data = content.encode() if isinstance(content, str) else content
    found.land(name, []).write_bytes(data)
    return found


def stop(
    root: Path, spark: SparkSession, read: str, content: str | bytes, why: str, name: str = "in/a.x"
) -> SourceError:
    with pytest.raises(SourceError, match=why) as error:
        landed(root, spark, read, content, name).run("raw")
    return error.value


@pytest.mark.parametrize(
    ("line_end", "text"),
    [("\\r\\n", '{"id":1}\r\n{"id":2}\n{"id":3}\r\n'), ("|", '{"id":1}\n{"id":2}\n'), ("\\n", '{"id":1}\r{"id":2}\n')],
)
def test_rows_that_no_line_separator_of_json_parts_stop_the_run(
    tmp_path: Path, spark: SparkSession, line_end: str, text: str
) -> None:
    read = f'{JSON}, options: {{lineSep: "{line_end}"}}'
    for more in ("", ", rescued: rest"):
        stop(tmp_path, spark, read + more, text, r"a\.x:\d cannot be read: behind the first value")
    parted = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", line_end.encode().decode("unicode_escape"))
    assert len(landed(tmp_path, spark, read, parted).load()) == text.count("{")


@pytest.mark.parametrize("more", ["", ', multiLine: "true"'])
@pytest.mark.parametrize(
    ("line_end", "text"), [("|", "id,v\n1,a\n"), ("\\r", "id,v\r1,a\n"), ("\\n", "id,v\r\n1,a\r\n")]
)
def test_rows_that_no_line_separator_of_csv_parts_stop_the_run(
    tmp_path: Path, spark: SparkSession, line_end: str, text: str, more: str
) -> None:
    read = f'{CSV[:-1]}, lineSep: "{line_end}"{more}}}, rescued: rest'
    error = stop(tmp_path, spark, read, text, r"a\.x:\d cannot be read: a line break \w+ stands outside quotes")
    assert "leave `lineSep` out" in str(error.fix)
    assert [row["id"] for row in landed(tmp_path, spark, CSV, text).load()] == [1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id,v\n1,a\n" + "\0" * 4096 + "\n3,c\n", "a.x:3 .*0x00"),
        ("\0" * 4096, "a.x:1 .*0x00"),
        ("\0\0\nid,v\n1,a\n", "a.x:1 .*0x00"),
        ("id,v\n1,a\n\0\0", "a.x:3 .*0x00"),
        ("id,v\r1,a\r\x1a", "a.x:3 .*0x1a"),
    ],
)
def test_a_line_of_csv_that_is_damage_and_no_row_to_spark_stops_the_run(
    tmp_path: Path, spark: SparkSession, text: str, why: str
) -> None:
    for more in ("", ", rescued: rest"):
        stop(tmp_path, spark, CSV + more, text, f"{why}, which Spark takes for no row")


def test_a_csv_of_control_characters_alone_stops_a_run_that_reads_across_lines(
    tmp_path: Path, spark: SparkSession
) -> None:
    for more in ("", ", rescued: rest"):
        read = f'{CSV[:-1]}, multiLine: "true"}}{more}'
        stop(tmp_path, spark, read, "\0" * 64, r"a\.x:1 .*nothing but control characters")


def test_an_empty_line_is_a_row_of_a_file_with_one_column_and_the_option_that_is_named_loads_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    for number, more in enumerate(("", ', multiLine: "true"')):
        root = tmp_path / str(number)
        read = f'format: csv, schema: "v STRING", options: {{header: "true"{more}%s}}'
        error = stop(root, spark, read % "", "v\na\n\nb\n", r"a\.x:3 cannot be read: an empty line")
        assert r'{nullValue: "\\N"}' in str(error.fix)
        rows = landed(root, spark, read % r', nullValue: "\\N"', "v\na\n\\N\nb\n").load()
        assert [row["v"] for row in rows] == ["a", "b", None]


@pytest.mark.parametrize(
    ("quote", "more"),
    [('"', ""), ("'", ', quote: "\'"'), ("'", ', quote: "\'", escape: "\'"'), ('"', ', multiLine: "true"')],
)
def test_each_character_between_quotes_of_csv_is_one_of_the_value(
    tmp_path: Path, spark: SparkSession, quote: str, more: str
) -> None:
    texts = ["".join(drawn) for count in (1, 2, 3) for drawn in itertools.product(f"{quote}a\0,\x1f", repeat=count)]
    file = io.StringIO()
    writer = csv.writer(file, quotechar=quote, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([("id", "v", "w"), *((number, text, text) for number, text in enumerate(texts))])
    read = f'format: csv, schema: "id BIGINT, v STRING, w STRING", options: {{header: "true"{more}}}'
    rows = landed(tmp_path, spark, read, file.getvalue()).load()
    assert {row["id"]: (row["v"], row["w"]) for row in rows} == {n: (text, text) for n, text in enumerate(texts)}


@pytest.mark.parametrize("header", ["id,t,t", "id,t,T", '"id","t","t"', "\nid,t,t"])
@pytest.mark.parametrize("more", ["", ", rescued: rest", ', schema: "id BIGINT", rescued: rest'])
def test_two_columns_of_one_name_stop_the_run(tmp_path: Path, spark: SparkSession, more: str, header: str) -> None:
    read = f'format: csv, options: {{header: "true"}}{more}'
    stop(tmp_path, spark, read, f"{header}\n1,a,b\n", r"a\.x:[12] cannot be read: two columns .* are called `t`")
    assert len(landed(tmp_path / "empty", spark, read, "id,,\n1,a,b\n").load()) == 1


def test_a_name_of_a_header_that_holds_nul_is_named_with_its_file(tmp_path: Path, spark: SparkSession) -> None:
    read = 'format: csv, options: {header: "true", inferSchema: "true"}'
    stop(tmp_path, spark, read, "\0\0\0id,t\n1,a\n", r"a\.x:1 cannot be read: a name in its header holds the character")


def test_a_blank_behind_a_closing_quote_stops_the_run(tmp_path: Path, spark: SparkSession) -> None:
    for more in ("", ", rescued: rest"):
        stop(tmp_path, spark, CSV + more, 'id,v\n1,"a" \n', r"a\.x:2 cannot be read: a value goes on behind its clos")
    said = f"{CSV[:-1]}, unescapedQuoteHandling: STOP_AT_DELIMITER}}"
    assert landed(tmp_path, spark, said, 'id,v\n1,"a"b\n').load() == [{"id": 1, "v": '"a"b'}]


@pytest.mark.parametrize(
    ("kind", "good", "wrong"),
    [
        ("TINYINT", "127", "128"),
        ("ARRAY<TINYINT>", "[-128, 127]", "[1, 200]"),
        ("STRUCT<b: TINYINT>", '{"b": 1}', '{"b": 255}'),
        ("STRUCT<b: TINYINT>", '{"b": 1}', '{"b": 255, "c": 1}'),
        ("SMALLINT", "32767", "32768"),
        ("DATE", '"2024-01-01"', '"2024-01-01\\u0000"'),
        ("DATE", '"2024-01-01"', '"2024-01-1\\u0000"'),
        ("DOUBLE", "1.5", "NaN"),
        ("STRUCT<b: BIGINT>", '{"b": 1}', '{"b": 1, "c": 2}'),
        ("ARRAY<STRUCT<b: BIGINT>>", '[{"b": 1}]', '[{"c": 2}]'),
    ],
)
def test_a_value_of_json_that_spark_would_change_stops_the_run_or_is_kept(
    tmp_path: Path, spark: SparkSession, kind: str, good: str, wrong: str
) -> None:
    read = f'format: json, schema: "id BIGINT, v {kind}"'
    stop(tmp_path, spark, read, f'{{"id": 1, "v": {good}}}\n{{"id": 2, "v": {wrong}}}\n', r"a\.x")
    rows = landed(
        tmp_path, spark, f"{read}, rescued: rest", f'{{"id": 1, "v": {good}}}\n{{"id": 2, "v": {wrong}}}\n'
    ).load()
    assert [row["rest"] is None for row in rows] == [True, False]
    assert wrong.strip('[{}]"').split("\\")[0].replace(" ", "") in rows[1]["rest"].replace(" ", "").replace("\\", "")


@pytest.mark.parametrize(
    ("schema", "text", "keys"),
    [
        (', schema: "id BIGINT, v STRING"', '{"id":1,"v":"a"}\n{"ID":2,"v":"b"}\n', "`ID`.*`read.schema` has `id`"),
        ("", '{"id":1}\n{"ID":2}\n', "`id`.*there is `ID`"),
        (', options: {multiLine: "true"}', '[{"id":1},{"Id":2}]', "`id`.*there is `Id`"),
        (', schema: "id BIGINT, s STRUCT<a: BIGINT>"', '{"id":1,"s":{"A":1}}', r"`s\.A`.*`read.schema` has `s\.a`"),
        ("", '{"id":1,"":2}', "key without a name"),
    ],
)
def test_keys_of_json_that_differ_by_capitals_alone_stop_the_run(
    tmp_path: Path, spark: SparkSession, schema: str, text: str, keys: str
) -> None:
    stop(tmp_path, spark, f"format: json{schema}", text, rf"a\.x cannot be read: .*{keys}")


def test_keys_in_other_capitals_are_kept_by_rescued_and_those_of_two_files_are_compared(
    tmp_path: Path, spark: SparkSession
) -> None:
    text = '{"id":1,"v":"a"}\n{"ID":2,"v":"b","x":{"b":1}}\n{"id":3,"x":{"B":1}}\n'
    rows = landed(tmp_path, spark, f"{JSON}, rescued: rest", text).load()
    assert [row["id"] for row in rows] == [1, 3, None]
    assert '"ID":2' in json.loads(rows[2]["rest"])["_corrupt_record"]
    (tmp_path / "two").mkdir()
    two = landed(tmp_path / "two", spark, "format: json", '{"id":1}')
    two.land("in/b.x", ['{"ID":2}'])
    with pytest.raises(SourceError, match=r"[ab]\.x cannot be read: it has the key `(ID|id)`"):
        two.run("raw")


def test_keys_of_a_map_and_of_values_that_are_kept_as_text_may_differ_by_capitals(
    tmp_path: Path, spark: SparkSession
) -> None:
    read = 'format: json, schema: "m MAP<STRING, BIGINT>, t STRING"'
    (row,) = landed(tmp_path, spark, read, '{"m": {"a": 1, "A": 2}, "t": {"b": 1, "B": 2}}').load()
    assert row == {"m": {"a": 1, "A": 2}, "t": '{"b": 1, "B": 2}'}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("DOUBLE", "1d"),
        ("DOUBLE", "1f"),
        ("FLOAT", "0x1p3"),
        ("DOUBLE", "1.5\x01"),
        ("DECIMAL(10,2)", "1.5\x01"),
        ("DECIMAL(10,2)", '"1,234.5"'),
    ],
)
def test_a_number_of_csv_in_an_odd_spelling_stops_the_run(
    tmp_path: Path, spark: SparkSession, kind: str, value: str
) -> None:
    stop(tmp_path, spark, f'format: csv, schema: "id BIGINT, v {kind}"', f"1,{value}\n", "is no value of")


def test_numbers_in_the_usual_spellings_are_loaded(tmp_path: Path, spark: SparkSession) -> None:
    texts = ("1.5", "-2", ".5", "1e3", "+1.", " 7 ", "NaN", "Infinity")
    rows = landed(tmp_path, spark, 'format: csv, schema: "v DOUBLE, w STRING"', "".join(f"{one},x\n" for one in texts))
    assert sorted(str(row["v"]) for row in rows.load()) == sorted(str(float(text)) for text in texts)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        ('format: csv, options: {header: "true", inferSchema: "true"}', "id,v\n1,12:30\n"),
        ('format: csv, options: {header: "true", inferSchema: "true"}', "id,v\n1,2024-01-01T10:00:00.123456789\n"),
        ('format: json, options: {inferTimestamp: "true"}', '{"v": "2024-01-01T10:00:00.123456789"}'),
        ("format: json", '{"v": 1e400}'),
    ],
)
def test_a_value_that_an_inferred_type_does_not_hold_stops_the_run(
    tmp_path: Path, spark: SparkSession, read: str, text: str
) -> None:
    stop(tmp_path, spark, read, text, r"a\.x: column `v`: .* is no value of")


@pytest.mark.parametrize(
    ("kind", "value"),
    [("DECIMAL(4,2)", "1.555"), ("TIMESTAMP", "2024-01-01 10%3A00%3A00.1234567"), ("BOOLEAN", "yes"), ("DOUBLE", "1d")],
)
def test_the_name_of_a_folder_is_held_by_its_type_or_stops_the_run(
    tmp_path: Path, spark: SparkSession, kind: str, value: str
) -> None:
    read = f'format: csv, schema: "id BIGINT, v STRING, n {kind}", options: {{header: "true"}}'
    stop(tmp_path, spark, read, "id,v\n1,a\n", "there is a folder n=", f"in/n={value}/a.x")


def test_a_value_that_may_not_be_missing_is_there_or_stops_the_run(tmp_path: Path, spark: SparkSession) -> None:
    for number, (kind, text) in enumerate(
        (
            ("id BIGINT NOT NULL, v STRING", '{"id": null}\n'),
            ("id BIGINT, v STRUCT<a: BIGINT NOT NULL>", '{"v": {"a": null}}\n'),
            ("id BIGINT, v ARRAY<STRUCT<a: BIGINT NOT NULL>>", '{"v": [{"a": 1}, {}]}\n'),
        )
    ):
        root = tmp_path / str(number)
        stop(root, spark, f'format: json, schema: "{kind}"', text, r"a\.x: column `\w+` has no value in a row")
        assert len(landed(root, spark, f'format: json, schema: "{kind}", strict: false', text).load()) == 1
    rescued = 'format: json, schema: "id BIGINT NOT NULL", rescued: rest'
    assert landed(tmp_path / "kept", spark, rescued, '{"id": "x"}\n').load()[0]["id"] is None


PARTS: list[tuple[str, Any, str]] = [
    ("STRUCT<a: BIGINT>", pa.array([{"a": 1, "b": 2}]), r"`v\.b`.* no such part"),
    ("STRUCT<a: BIGINT>", pa.array([{"b": 2}]), r"`v\.b`.* no such part"),
    ("ARRAY<STRUCT<a: BIGINT>>", pa.array([[{"a": 1, "b": 2}]]), r"`v\.b`.* no such part"),
    ("STRUCT<a: BIGINT>", pa.array([{"a": 2**63}], pa.struct([("a", pa.uint64())])), r"`v\.a` is decimal"),
    ("BIGINT", pa.array([2.0**63]), "is no value of bigint"),
    ("INT", pa.array([2.0**31], pa.float32()), "is no value of int"),
]


@pytest.mark.parametrize(("kind", "values", "why"), PARTS)
def test_a_value_of_parquet_that_the_schema_holds_in_part_stops_the_run(
    tmp_path: Path, spark: SparkSession, kind: str, values: pa.Array, why: str
) -> None:
    other = zone(tmp_path, spark, f'format: parquet, schema: "v {kind}"')
    other.parquet("in/a.x", v=values)
    with pytest.raises(SourceError, match=why) as error:
        other.run("raw")
    assert "a.x" in str(error.value)


def test_values_of_another_type_of_parquet_are_kept_aside_one_by_one(tmp_path: Path, spark: SparkSession) -> None:
    schema = "u TINYINT, i INT, d BIGINT, f DECIMAL(4,1), t STRING, b STRING, k BINARY, day DATE, at TIMESTAMP"
    other = zone(tmp_path, spark, f'format: parquet, schema: "{schema}", rescued: rest')
    other.parquet(
        "in/a.x",
        u=pa.array([1, 200, None], pa.uint8()),
        i=pa.array([1, 2**31, None], pa.int64()),
        d=pa.array([1, 2**63, None], pa.uint64()),
        f=pa.array([1.5, 1.25, None]),
        t=pa.array([7, 8, None]),
        b=pa.array([b"a", b"\xff", None]),
        k=pa.array(["a", "b", None]),
        day=pa.array([5, 6, None]),
        at=pa.array([0, 1, None], pa.timestamp("us")),
    )
    first, second, third = (dict(row) for row in other.load())
    rest = [json.loads(one.pop("rest") or "{}") for one in (first, second, third)]
    start = first["at"].replace(tzinfo=None)
    assert first | {"at": start} == {
        "u": 1, "i": 1, "d": 1, "f": Decimal("1.5"), "t": "7", "b": "a", "k": b"a", "day": None, "at": start
    }  # fmt: skip
    assert (second["t"], second["k"], second["u"], second["i"], second["d"]) == ("8", b"b", None, None, None)
    assert rest == [{"day": 5}, {"u": 200, "i": 2**31, "d": 2**63, "f": 1.25, "b": "/w==", "day": 6}, {}]
    assert set(third.values()) == {None}


def test_durations_beside_times_in_nanoseconds_are_numbers_as_in_other_files(
    tmp_path: Path, spark: SparkSession
) -> None:
    spans = {"span": pa.array([5], pa.duration("ms")), "spans": pa.array([[6]], pa.list_(pa.duration("ns")))}
    for number, more in enumerate(({}, {"at": pa.array([1000], pa.timestamp("ns"))})):
        other = zone(tmp_path / str(number), spark, "format: parquet")
        other.parquet("in/a.x", **spans, **more)
        (row,) = other.load()
        assert (row["span"], list(row["spans"])) == (5, [6])


def test_a_number_of_java_in_a_column_that_spark_infers_stops_the_run_and_a_type_leads_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    options = 'options: {header: "true", inferSchema: "true"}'
    text = "id,v\n1,1d\n2,2.5\n"
    error = stop(tmp_path, spark, f"format: csv, {options}", text, r"in/a\.x: column `v`: 1d is no value of double")
    assert "give `v` a type in `read.schema`" in str(error.fix)
    rows = landed(tmp_path, spark, CSV, text).load()
    assert [row["v"] for row in rows] == ["1d", "2.5"]


def test_parts_of_parquet_that_are_absent_are_null_and_narrow_ones_fit(tmp_path: Path, spark: SparkSession) -> None:
    other = zone(tmp_path, spark, 'format: parquet, schema: "v STRUCT<a: BIGINT, b: STRING>"')
    other.parquet("in/a.x", v=pa.array([{"A": 1}], pa.struct([("A", pa.int32())])))
    assert [tuple(row["v"]) for row in other.load()] == [(1, None)]


def test_parts_of_parquet_that_are_absent_or_narrow_fit_under_rescued_too(tmp_path: Path, spark: SparkSession) -> None:
    columns = "v STRUCT<at: TIMESTAMP, n: BIGINT>, l ARRAY<STRUCT<n: BIGINT>>"
    other = zone(tmp_path, spark, f'format: parquet, schema: "{columns}", rescued: rest')
    items = pa.array([[{"n": 2}, None], None], pa.list_(pa.struct([("n", pa.int16())])))
    other.parquet("in/a.x", v=pa.array([{"N": 1}, None], pa.struct([("N", pa.int32())])), l=items)
    first, second = sorted(other.load(), key=lambda row: row["v"] is None)
    assert (tuple(first["v"]), first["l"], first["rest"]) == ((None, 1), [(2,), None], None)
    assert second == {"v": None, "l": None, "rest": None}
    other.parquet("in/b.x", v=pa.array([{"n": 1, "m": 2}]))
    other.run("raw")
    assert {row["rest"] for row in other.load()} == {None, '{"v":{"n":1,"m":2}}'}


def test_types_that_spark_does_not_have_are_an_error_that_names_the_file(tmp_path: Path, spark: SparkSession) -> None:
    for number, table in enumerate(
        (
            pa.table({"v": pa.array([Decimal(10) ** 50], pa.decimal256(60, 0))}),
            pa.table({"v": pa.array([5], pa.time64("us"))}),
            pa.table({}),
        )
    ):
        other = zone(tmp_path / str(number), spark, "format: parquet")
        other.arrow("in/a.x", table)
        with pytest.raises(SourceError, match=r"in/a\.x"):
            other.run("raw")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        ('format: csv, schema: "id BIGINT, v VARCHAR(3)"', "1,a\n"),
        ('format: csv, schema: "id BIGINT, d DATE", options: {dateFormat: "YYYY-ww"}', "1,2024-05\n"),
        ('format: json, schema: "v STRING", options: {encoding: windows-1252}', '{"v": "a"}\n'),
        ('format: json, schema: "v STRING", options: {encoding: UTF-16}', '{"v": "a"}\n'.encode("utf-16")),
    ],
)
def test_what_spark_does_not_read_is_an_error_that_says_what_to_correct(
    tmp_path: Path, spark: SparkSession, read: str, text: str | bytes
) -> None:
    error = stop(tmp_path, spark, read, text, "cannot be read")
    assert "`read.options`" in str(error.fix)


def test_json_of_another_encoding_needs_its_name_alone(tmp_path: Path, spark: SparkSession) -> None:
    read = 'format: json, schema: "v STRING", options: {encoding: %s}'
    for number, (encoding, end) in enumerate((("ISO-8859-1", "\r\n"), ("UTF-16LE", "\n"))):
        text = f'{{"v": "é"}}{end}{{"v": "ü"}}{end}'.encode(encoding)
        rows = landed(tmp_path / str(number), spark, read % encoding, text).load()
        assert [row["v"] for row in rows] == ["é", "ü"]


def test_damage_that_was_called_something_else_is_called_by_its_name(tmp_path: Path, spark: SparkSession) -> None:
    deep = '{"id": 1, "x": ' + "[" * 3000 + "]" * 3000 + "}\n"
    assert "less deeply" in str(stop(tmp_path, spark, JSON, deep, r"a\.x:1 .*nested too deeply").fix)
    behind = zlib.compress(b'{"id":1}\n') + zlib.compress(b'{"id":2}\n')
    stop(tmp_path / "packed", spark, JSON, behind, "goes on behind its end", "in/a.json.deflate")
    linked = landed(tmp_path / "linked", spark, JSON, '{"id":1}\n')
    (tmp_path / "linked/landing/in/b.x").symlink_to(tmp_path / "nowhere")
    with pytest.raises(SourceError, match="cannot be listed") as error:
        linked.plan("raw")
    assert "a link that leads nowhere" in str(error.value.fix)


@pytest.mark.parametrize(
    ("kind", "value"), [("BIGINT", "1.0"), ("INT", "2147483648"), ("BOOLEAN", "1"), ("INT", "[1]")]
)
def test_a_value_of_json_of_another_type_is_named_with_its_line(
    tmp_path: Path, spark: SparkSession, kind: str, value: str
) -> None:
    read = f'format: json, schema: "id BIGINT, v {kind}"'
    error = stop(tmp_path, spark, read, f'{{"id": 1}}\n{{"id": 2, "v": {value}}}\n', r"in/a\.x:2: column `v`: ")
    assert f"{value} is no value of {kind.lower()}" in str(error)
