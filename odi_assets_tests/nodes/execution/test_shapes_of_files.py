"""Landing files of different shape: what is stored does not depend on which files come in one increment."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IncrementError, SourceError, TableError
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.sources.files.look import files as looks
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.tables.support import read_table

NODE = """
- pipeline: p
  nodes:
  - name: raw
    read: {{connection: landing, path: "{path}", {read}}}
    write: {{connection: lake, path: raw, {write}}}
"""
FILES = "incremental: {mode: files}"
EVOLVE = "mode: append, schema: evolve"


class Zone(Sandbox):
    """A sandbox with one node that reads landing files."""

    def __init__(
        self, root: Path, spark: SparkSession, read: str, write: str = "mode: append", path: str = "in"
    ) -> None:
        super().__init__(root, spark, NODE.format(path=path, read=read, write=write))

    def parquet(self, path: str, **columns: Any) -> Path:
        return self.arrow(path, pa.table(columns))

    def arrow(self, path: str, rows: pa.Table) -> Path:
        file = self.land(path, [])
        at = file.stat().st_mtime_ns
        pq.write_table(rows, file)
        os.utime(file, ns=(at, at))
        return file

    def stored(self) -> list[dict[str, Any]]:
        frame = read_table(self.spark, self.table("raw"))
        return sorted((row.asDict() for row in frame.collect()), key=str)

    def load(self) -> list[dict[str, Any]]:
        self.run("raw")
        return self.stored()

    def types(self) -> dict[str, str]:
        return dict(read_table(self.spark, TableHandle.open(self.project.target(self.plan("raw").node.key))).dtypes)


def test_parquet_files_with_different_columns_are_united_by_name_in_one_increment_or_in_several(
    tmp_path: Path, spark: SparkSession
) -> None:
    wanted = [{"id": 1, "a": "x", "b": None}, {"id": 2, "a": None, "b": "y"}]
    for name in ("one", "several"):
        (tmp_path / name).mkdir()
        zone = Zone(tmp_path / name, spark, f"format: parquet, {FILES}", EVOLVE)
        zone.parquet("in/a.parquet", id=[1], a=["x"])
        if name == "several":
            zone.load()
        zone.parquet("in/b.parquet", id=[2], b=["y"])
        assert zone.load() == sorted(wanted, key=str)


def test_under_fail_files_with_different_columns_are_refused_by_name_and_the_remedy_leads_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}")
    zone.parquet("in/a.parquet", id=[1], a=["x"])
    zone.parquet("in/b.parquet", id=[2], b=["y"])
    with pytest.raises(SourceError, match=r"only in/a\.parquet has `a`; only in/b\.parquet has `b`") as refused:
        zone.run("raw")
    assert "schema: evolve" in str(refused.value.fix)
    assert refused.value.columns == ("a", "b")
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}", EVOLVE)
    assert len(zone.load()) == 2


def test_a_header_that_does_not_agree_with_the_schema_is_refused_and_rescuing_reads_it_by_name(
    tmp_path: Path, spark: SparkSession
) -> None:
    read = f'format: csv, options: {{header: "true"}}, schema: "name STRING, other STRING", {FILES}'
    zone = Zone(tmp_path, spark, read)
    zone.land("in/a.csv", ["other,name", "o1,n1"])
    with pytest.raises(SourceError, match=r"in/a\.csv .*header: other, name; schema: name, other") as refused:
        zone.run("raw")
    assert "read.rescued" in str(refused.value.fix)
    assert Zone(tmp_path, spark, f"{read}, rescued: rest").load() == [{"name": "n1", "other": "o1", "rest": None}]


@pytest.mark.parametrize("write", ["mode: append", EVOLVE, "mode: overwrite"])
def test_csv_headers_in_another_order_swap_no_values(tmp_path: Path, spark: SparkSession, write: str) -> None:
    zone = Zone(tmp_path, spark, f'format: csv, options: {{header: "true"}}, {FILES}', write)
    zone.land("in/a.csv", ["name,other", "n1,o1"])
    zone.land("in/b.csv", ["other,name", "o2,n2"])
    zone.land("in/c.csv", ['"name","other"', "n3,o3"])
    assert zone.load() == [{"name": f"n{i}", "other": f"o{i}"} for i in (1, 2, 3)]


def test_a_whole_read_and_a_cursor_unite_files_too(tmp_path: Path, spark: SparkSession) -> None:
    zone = Zone(tmp_path, spark, "format: parquet", "mode: overwrite")
    zone.parquet("in/a.parquet", id=[1], a=["x"])
    zone.parquet("in/b.parquet", id=[2], b=["y"])
    wanted = sorted([{"id": 1, "a": "x", "b": None}, {"id": 2, "a": None, "b": "y"}], key=str)
    assert zone.load() == wanted
    (tmp_path / "s").mkdir()
    zone = Zone(tmp_path / "s", spark, "format: parquet, incremental: {mode: stateful, column: id}", EVOLVE)
    zone.parquet("in/a.parquet", id=[1], a=["x"])
    zone.parquet("in/b.parquet", id=[2], b=["y"])
    assert zone.load() == wanted


def test_csv_files_without_header_and_with_other_numbers_of_values_are_read_apart(
    tmp_path: Path, spark: SparkSession
) -> None:
    zone = Zone(tmp_path, spark, f"format: csv, {FILES}", EVOLVE)
    zone.land("in/a.csv", ["1,x"])
    zone.land("in/b.csv", ['2,"y,z",3'])
    assert zone.load() == [{"_c0": "1", "_c1": "x", "_c2": None}, {"_c0": "2", "_c1": "y,z", "_c2": "3"}]


def test_types_that_widen_without_loss_are_united_and_others_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}", EVOLVE)
    zone.parquet("in/a.parquet", id=pa.array([1], pa.int32()), s=[{"a": 1}])
    zone.parquet("in/b.parquet", id=pa.array([2**40], pa.int64()), s=[{"b": 1}])
    assert [row["id"] for row in zone.load()] == [1, 2**40]
    assert zone.types()["s"] == "struct<a:bigint,b:bigint>"
    (tmp_path / "other").mkdir()
    zone = Zone(tmp_path / "other", spark, f"format: parquet, {FILES}", EVOLVE)
    zone.parquet("in/a.parquet", id=[1])
    zone.parquet("in/b.parquet", id=["x"])
    with pytest.raises(SourceError, match=r"`id` is string in in/b\.parquet and long in the files before"):
        zone.run("raw")


def test_json_files_with_other_keys_are_united_or_refused(tmp_path: Path, spark: SparkSession) -> None:
    zone = Zone(tmp_path, spark, f"format: json, {FILES}", EVOLVE)
    zone.land("in/a.json", ['{"id": 1, "a": "x"}'])
    zone.land("in/b.json", ['{"id": 2, "b": "y"}'])
    strict = Zone(tmp_path, spark, f"format: json, {FILES}")
    with pytest.raises(SourceError, match=r"a\.json has `a`; only .*b\.json has `b`"):
        strict.run("raw")
    zone = Zone(tmp_path, spark, f"format: json, {FILES}", EVOLVE)
    assert zone.load() == sorted([{"a": "x", "b": None, "id": 1}, {"a": None, "b": "y", "id": 2}], key=str)


def test_many_files_are_looked_at_by_spark(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "ON_DRIVER", 2)
    zone = Zone(tmp_path, spark, f'format: csv, options: {{header: "true"}}, {FILES}', EVOLVE)
    for i in range(6):
        zone.land(f"in/{i}.csv", ["a,b", f"a{i},b{i}"] if i % 2 else ["b,a", f"b{i},a{i}"])
    assert zone.load() == [{"b": f"b{i}", "a": f"a{i}"} for i in range(6)]


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
@pytest.mark.parametrize("schema", ["", 'schema: "id BIGINT, day DATE"'])
def test_folders_named_after_values_are_columns(tmp_path: Path, spark: SparkSession, format_: str, schema: str) -> None:
    options = 'options: {header: "true"}, ' if format_ == "csv" else ""
    zone = Zone(tmp_path, spark, f"format: {format_}, {options}{FILES}{', ' if schema else ''}{schema}", EVOLVE)

    def land(path: str, number: int) -> None:
        if format_ == "parquet":
            zone.parquet(path, id=[number])
        else:
            zone.land(path, ["id", str(number)] if format_ == "csv" else [json.dumps({"id": number})])

    land("in/day=2024-01-01/a", 1)
    land("in/day=2024-01-02/a", 2)
    land("in/day=__HIVE_DEFAULT_PARTITION__/a", 3)
    days = {1: "2024-01-01", 2: "2024-01-02", 3: None}
    if not (schema and format_ == "csv"):
        land("in/a", 4)
        days[4] = None
    found = {int(row["id"]): row["day"] and str(row["day"]) for row in zone.load()}
    assert found == days
    assert zone.types()["day"] == ("date" if schema else "string")


def test_values_of_folders_are_unescaped_and_what_is_no_value_of_the_type_is_named(
    tmp_path: Path, spark: SparkSession
) -> None:
    zone = Zone(tmp_path, spark, f"format: json, {FILES}")
    zone.land("in/at=10%3A00+x 5%/k%20y=ü/a.json", ['{"id": 1}'])
    assert zone.load() == [{"id": 1, "at": "10:00+x 5%", "k y": "ü"}]
    (tmp_path / "b").mkdir()
    zone = Zone(tmp_path / "b", spark, f'format: json, schema: "id BIGINT, day DATE", {FILES}')
    zone.land("in/day=monday/a.json", ['{"id": 1}'])
    with pytest.raises(SourceError, match="a folder day=monday, and `day` is date") as error:
        zone.run("raw")
    assert "STRING in `read.schema`" in str(error.value.fix)


def test_a_column_that_files_have_themselves_is_theirs(tmp_path: Path, spark: SparkSession) -> None:
    zone = Zone(tmp_path, spark, f'format: csv, options: {{header: "true"}}, schema: "day DATE, id BIGINT", {FILES}')
    zone.land("in/day=2024-01-01/a.csv", ["day,id", "2024-01-05,1"])
    zone.land("in/day=2024-01-02/b.csv", ["id", "2"])
    assert zone.load() == [{"day": dt.date(2024, 1, 2), "id": 2}, {"day": dt.date(2024, 1, 5), "id": 1}]


def test_times_in_nanoseconds_are_read_where_nothing_is_lost(tmp_path: Path, spark: SparkSession) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}")
    moment = dt.datetime(2024, 1, 1, 12, 0, 0, 250)
    rows = {"id": [1, 2], "at": pa.array([moment, None], pa.timestamp("ns"))}
    zone.parquet("in/a.parquet", **rows, utc=pa.array([moment, None], pa.timestamp("ns", "UTC")))
    loaded = zone.load()
    assert [row["at"] for row in loaded] == [moment, None]
    assert zone.types() == {"id": "bigint", "at": "timestamp_ntz", "utc": "timestamp"}
    zone.parquet(
        "in/b.parquet", id=[3], at=pa.array([1], pa.timestamp("ns")), utc=pa.array([1], pa.timestamp("ns", "UTC"))
    )
    with pytest.raises(SourceError, match="parts of a microsecond: 1") as error:
        zone.run("raw")
    assert "BIGINT" in str(error.value.fix)


def test_columns_that_differ_by_capitals_are_an_error_with_the_files_name(tmp_path: Path, spark: SparkSession) -> None:
    zone = Zone(tmp_path, spark, f"format: parquet, {FILES}")
    zone.parquet("in/a.parquet", id=[1], ID=[2])
    with pytest.raises(SourceError, match=r"in/a\.parquet has several columns `id`"):
        zone.run("raw")


def test_doubled_quotes_are_one_and_other_quotes_within_quotes_are_an_error(
    tmp_path: Path, spark: SparkSession
) -> None:
    zone = Zone(tmp_path, spark, f'format: csv, options: {{header: "true"}}, schema: "s STRING", {FILES}')
    zone.land("in/a.csv", ["s", '"a ""b"" c"', 'd "e" f'])
    assert zone.load() == [{"s": 'a "b" c'}, {"s": 'd "e" f'}]
    zone.land("in/b.csv", ["s", r'"a \"b\" c"'])
    with pytest.raises(SourceError, match=r"b\.csv:2 cannot be read") as error:
        zone.run("raw")
    assert r'options: {escape: "\\"}' in str(error.value.fix)


RESCUED = "rescued: rest"


def rescued(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["rest"] and json.loads(row["rest"]) for row in rows]


def test_what_of_csv_does_not_fit_is_rescued(tmp_path: Path, spark: SparkSession) -> None:
    zone = Zone(
        tmp_path, spark, f'format: csv, options: {{header: "true"}}, schema: "id INT, s STRING", {RESCUED}, {FILES}'
    )
    zone.land("in/a.csv", ["id,s", "1,x", "two,y", "3,z,more"])
    zone.land("in/b.csv", ["new,s,id", "n,v,4"])
    rows = sorted(zone.load(), key=lambda row: row["s"])
    assert [(row["id"], row["s"]) for row in rows] == [(4, "v"), (1, "x"), (None, "y"), (3, "z")]
    assert rescued(rows) == [{"new": "n"}, None, {"_corrupt_record": "two,y"}, {"_corrupt_record": "3,z,more"}]


def test_what_of_json_does_not_fit_is_rescued(tmp_path: Path, spark: SparkSession) -> None:
    schema = "id INT, at STRUCT<x: INT>"
    zone = Zone(tmp_path, spark, f'format: json, schema: "{schema}", {RESCUED}, {FILES}')
    lines = ['{"id": 1, "at": {"x": 1}}', '{"id": 2, "new": [1, {"k": 2.50}]}', '{"id": "3"', '{"id": "four"}']
    zone.land("in/a.json", [*lines, '{"id": 5, "at": {"y": 2, "x": 1}}'])
    rows = zone.load()
    by_id = {row["id"]: row for row in rows if row["id"]}
    assert {key: row["rest"] and json.loads(row["rest"]) for key, row in by_id.items()} == {
        1: None,
        2: {"new": [1, {"k": 2.5}]},
        5: {"at": {"x": 1, "y": 2}},
    }
    assert by_id[5]["at"].x == 1
    kept = sorted(json.loads(row["rest"])["_corrupt_record"] for row in rows if row["id"] is None)
    assert kept == sorted(lines[2:4])


def test_what_of_parquet_does_not_fit_is_rescued(tmp_path: Path, spark: SparkSession) -> None:
    zone = Zone(tmp_path, spark, f'format: parquet, schema: "id BIGINT, day STRING", {RESCUED}, {FILES}')
    zone.parquet("in/day=1/a.parquet", id=pa.array([1], pa.int32()))
    zone.parquet("in/day=2/b.parquet", id=["x"], more=[2])
    rows = zone.load()
    assert [(row["id"], row["day"]) for row in rows] == [(1, "1"), (None, "2")]
    assert rescued(rows) == [None, {"id": "x", "more": 2}]


ODD = (
    "a#b",
    "a?b",
    "a%20b",
    "a[1]",
    "a b",
    "ü日本",
    "a:b",
    "x{y}",
    "a+b",
    "a*b",
    "a\\b",
    "a;b",
    "a=b",
    "~a",
    "a::b",
    "a%",
)


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_files_and_folders_of_any_name_are_loaded_once(tmp_path: Path, spark: SparkSession, format_: str) -> None:
    (tmp_path / "landing").mkdir()
    zone = Zone(tmp_path, spark, f'format: {format_}, schema: "id BIGINT", {FILES}')
    for name in ODD:
        for path in (f"in/{name}.x", f"in/{'a:c' if ':' in name else name}/1.x"):
            if format_ == "parquet":
                zone.parquet(path, id=[1])
            else:
                zone.land(path, ['{"id": 1}' if format_ == "json" else "1"])
    count = sum(1 for path in (tmp_path / "landing").rglob("*") if path.is_file())
    assert len(zone.load()) == count
    assert zone.plan("raw").nothing_new


def test_a_large_file_that_is_only_touched_is_known_and_one_that_changed_in_the_middle_is_not(
    tmp_path: Path, spark: SparkSession
) -> None:
    zone = Zone(tmp_path, spark, f'format: csv, schema: "s STRING", {FILES}')
    text = ["x" * 99] * 4_000
    zone.land("in/a.csv", text)
    assert len(zone.load()) == 4_000
    for _ in range(2):
        zone.land("in/a.csv", text)
        assert zone.plan("raw").nothing_new
        zone.run("raw")
    (tmp_path / "landing/in/a.csv").rename(tmp_path / "landing/in/b.csv")
    zone.run("raw")
    zone.land("in/b.csv", text)
    assert zone.plan("raw").nothing_new
    zone.land("in/b.csv", [*text[:2_000], "y" * 99, *text[2_001:]])
    with pytest.raises(IncrementError, match=r"other content now: in/b\.csv"):
        zone.plan("raw")


@pytest.mark.parametrize("odd", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_text_that_would_become_null_in_a_partition_column_stops_the_run_until_the_transform_says_null(
    tmp_path: Path, spark: SparkSession, odd: str
) -> None:
    write = "mode: partition_overwrite, partition_by: [p]"
    read = f'format: json, schema: "id BIGINT, p STRING", {FILES}'
    zone = Zone(tmp_path, spark, read, write)
    zone.land("in/a.json", ['{"id": 2}', '{"id": 3, "p": "a"}'])
    zone.load()
    zone.land("in/b.json", [f'{{"id": 4, "p": "{odd}"}}'])
    with pytest.raises(TableError, match=r'partition column `p` is .*"id":4') as caught:
        zone.load()
    assert "nullif(p, '')" in str(caught.value.fix)
    null = f"{write}}}\n    transform: {{sql: \"SELECT id, nullif(p, '{odd}') AS p FROM df\""
    zone = Zone(tmp_path, spark, read, null)
    adoption = plan_adoption(zone.project, zone.state, NodeKey("p", "raw"), lambda: spark)
    assert adoption is not None
    apply_adoption(zone.state, adoption)
    zone.run("raw", full_refresh=True)
    assert sorted((row["id"], row["p"]) for row in zone.stored()) == [(2, None), (3, "a"), (4, None)]
    zone.land("in/c.json", [] if odd else ['{"id": 5, "p": ""}'])
    assert sorted(row["id"] for row in zone.load()) == [2, 3, 4, *([] if odd else [5])]


def test_files_that_are_links_are_loaded_whole_by_a_cursor_and_once(tmp_path: Path, spark: SparkSession) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "far.json").write_text('{"id": 1}\n')
    for number, increment in enumerate(["", "incremental: {mode: stateful, column: id}", FILES]):
        root = tmp_path / str(number)
        root.mkdir()
        zone = Zone(
            root, spark, f'format: json, schema: "id BIGINT"{", " if increment else ""}{increment}', "mode: overwrite"
        )
        (root / "landing/in").mkdir(parents=True)
        (root / "landing/in/link.json").symlink_to(outside / "far.json")
        (root / "landing/in/folder").symlink_to(outside)
        assert [row["id"] for row in zone.load()] == [1, 1]
