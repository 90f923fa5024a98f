"""Files that a stream reads: a value comes into the column that a header names, and a bad file is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import SourceError
from odi_assets.nodes.recovery.files import not_looked_at
from odi_assets.sources.files.listing import SourceFile, list_files
from odi_assets_tests.checkpoints.queries import settings
from odi_assets_tests.nodes.support import Sandbox

CSV = """
- pipeline: p
  nodes:
  - name: rows
    read:
      {{connection: landing, format: csv, path: rows, schema: "id BIGINT, a STRING, b STRING", options: {options}}}
    stream: {{}}
    transform: {{sql: "SELECT {columns} FROM df"}}
    write: {{connection: lake, path: rows, mode: append}}
"""
PARQUET = """
- pipeline: p
  nodes:
  - name: rows
    read: {connection: landing, format: parquet, path: rows/*.parquet, schema: "id BIGINT"}
    stream: {}
    write: {connection: lake, path: rows, mode: append}
"""
JSON = """
- pipeline: p
  nodes:
  - name: rows
    read: {{connection: landing, format: json, path: "{path}", schema: "id BIGINT"}}
    stream: {{}}
    write: {{connection: lake, path: rows, mode: append}}
"""
TWO_INPUTS = """
- pipeline: p
  nodes:
  - name: rows
    inputs:
      a: {read: {connection: landing, format: csv, path: a, schema: "id BIGINT", options: {header: "true"}}}
      b: {read: {connection: landing, format: csv, path: b, schema: "id BIGINT", options: {header: "true"}}}
    stream: {}
    transform: {sql: "SELECT * FROM a UNION ALL SELECT * FROM b"}
    write: {connection: lake, path: rows, mode: append}
"""
BY_FILE = "stream: {inputs: {df: {max_files_per_batch: 1}}}"
HEADER = '{header: "true"}'


def streamed(root: Path, spark: SparkSession, columns: str = "*", options: str = HEADER) -> Sandbox:
    return Sandbox(root, spark, CSV.format(columns=columns, options=options))


@pytest.mark.parametrize("columns", ["*", "id, b"])
@pytest.mark.parametrize("header", ["id,b,a", "id,a,c", "a,id,b"])
def test_a_header_in_another_order_or_with_another_name_stops_the_batch(
    tmp_path: Path, spark: SparkSession, header: str, columns: str
) -> None:
    box = streamed(tmp_path, spark, columns)
    box.land("rows/1.csv", ["id,a,b", "1,x,y"])
    box.run("rows")
    box.land("rows/2.csv", [header, "2,3,4"])
    shown = ", ".join(header.split(","))
    with pytest.raises(SourceError, match=rf"2\.csv .*header: {shown}; schema: id, a, b(.|\n)*read.rescued") as raised:
        box.run("rows")
    assert "stream its table" in str(raised.value)
    assert len(box.rows("rows")) == 1
    box.land("rows/2.csv", ["id,a,b", "2,3,4"])
    box.run("rows")
    assert {re.sub(r"\D", "", str(row[0])) for row in box.rows("rows")} == {"1", "2"}

    def changed() -> list[str]:
        found = not_looked_at(box.project, [NodeKey("p", "rows")], deep=True)
        return [one.message for one in found if "changed after" in one.message]

    assert changed() == []
    box.land("rows/2.csv", ["id,a,b", "2,3,4", "5,6,7"])
    assert "rows/2.csv" in changed()[0]


def test_a_header_with_more_or_fewer_columns_stops_the_batch(tmp_path: Path, spark: SparkSession) -> None:
    for number, header in enumerate(("id,a,b,c", "id,a")):
        root = tmp_path / str(number)
        root.mkdir()
        box = streamed(root, spark, "id")
        box.land("rows/1.csv", [header, header.replace("id", "1")])
        with pytest.raises(SourceError, match=r"1\.csv .*in the header, 3 in the schema"):
            box.run("rows")


def test_headers_that_differ_in_capitals_or_begin_with_a_byte_order_mark_are_the_same(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = streamed(tmp_path, spark)
    box.land("rows/1.csv", ["ID,A,b", "1,x,y"])
    box.land("rows/2.csv", ["\ufeffid,a,b", "2,x,y"])
    (tmp_path / "landing/rows/3.csv").write_bytes(b"")
    box.run("rows")
    assert box.rows("rows") == [(1, "x", "y"), (2, "x", "y")]


def test_columns_are_taken_by_position_where_the_project_file_says_so(tmp_path: Path, spark: SparkSession) -> None:
    box = streamed(tmp_path, spark, options='{header: "true", enforceSchema: "true"}')
    box.land("rows/1.csv", ["id,b,a", "1,x,y"])
    box.run("rows")
    assert box.rows("rows") == [(1, "x", "y")]


def test_doubled_quotes_are_one_and_others_stop_the_batch(tmp_path: Path, spark: SparkSession) -> None:
    box = streamed(tmp_path, spark)
    box.land("rows/1.csv", ["id,a,b", '1,"say ""x""",y'])
    box.run("rows")
    assert box.rows("rows") == [(1, 'say "x"', "y")]
    box.land("rows/2.csv", ["id,a,b", '2,"say "x"",y'])
    with pytest.raises(SourceError, match=r"2\.csv:2 (.|\n)*doubled"):
        box.run("rows")


def test_a_corrupt_file_stops_the_batch_although_the_session_reads_past_such_files(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, PARQUET)
    (tmp_path / "landing/rows").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "landing/rows/1.parquet")
    (tmp_path / "landing/rows/2.parquet").write_bytes(b"PAR1, and no more of it")
    with settings(spark, {"spark.sql.files.ignoreCorruptFiles": "true"}):
        with pytest.raises(SourceError, match=r"2\.parquet cannot be read"):
            box.run("rows")
        assert not DeltaTable.is_deltatable(str(tmp_path / "lake/rows"))
        pq.write_table(pa.table({"id": [2]}), tmp_path / "landing/rows/2.parquet")
        box.run("rows")
    assert box.rows("rows") == [(1,), (2,)]


def test_a_bad_file_of_the_second_input_is_named_as_one_of_that_input(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, TWO_INPUTS)
    box.land("a/1.csv", ["id", "1"])
    box.land("b/1.csv", ["no", "2"])
    with pytest.raises(SourceError, match=r"^landing:b: \S+/b/1\.csv cannot be read"):
        box.run("rows")


def test_a_file_with_a_colon_in_its_name_is_read_and_read_once(tmp_path: Path, spark: SparkSession) -> None:
    box = streamed(tmp_path, spark)
    for number, name in enumerate(("a.csv", "2024-01-01T10:00:00.csv", "b.csv")):
        box.land(f"rows/{name}", ["id,a,b", f"{number},x,y"])
        box.run("rows")
    assert [row[0] for row in box.rows("rows")] == [0, 1, 2]


def test_a_name_with_a_colon_below_a_glob_is_named(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, CSV.format(columns="*", options=HEADER).replace("path: rows,", 'path: "rows/*",'))
    box.land("rows/10:00.csv", ["id,a,b", "1,x,y"])
    with pytest.raises(SourceError, match=r"landing:rows/\*: `10:00\.csv` has a colon[\s\S]*name a folder in `path`"):
        box.run("rows")


def test_of_two_inputs_the_one_with_the_colon_is_named(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, TWO_INPUTS.replace("path: a,", 'path: "a/*",').replace("path: b,", 'path: "b/*",'))
    box.land("a/1.csv", ["id", "1"])
    box.land("b/10:00.csv", ["id", "1"])
    with pytest.raises(SourceError, match=r"^landing:b/\*: `10:00\.csv` has a colon"):
        box.run("rows")


def test_a_batch_looks_at_its_own_files_alone(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[int] = []

    def counting(*where: Any) -> list[SourceFile]:
        found = list_files(*where)
        listed.append(len(found))
        return found

    box = Sandbox(tmp_path, spark, CSV.format(columns="*", options=HEADER).replace("stream: {}", BY_FILE))
    for number in range(8):
        box.land(f"rows/{number}[1].csv", ["id,a,b", f"{number},x,y"])
    monkeypatch.setattr("odi_assets.sources.files.stream.list_files", counting)
    box.run("rows")
    assert len(box.rows("rows")) == 8
    assert listed.count(1) == 8
    assert listed.count(8) < 8


@pytest.mark.parametrize("first", ["", "id,a,b\n2,x,y\n"], ids=["empty at first", "appended to"])
def test_a_file_that_changes_after_its_batch_is_named(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture, first: str
) -> None:
    box = streamed(tmp_path, spark)
    box.land("rows/1.csv", ["id,a,b", "1,x,y"])
    (tmp_path / "landing" / "rows" / "2.csv").write_text(first, encoding="utf-8")
    box.run("rows")
    box.run("rows")
    key = NodeKey("p", "rows")
    assert "changed after" not in caplog.text
    assert not any("changed after" in one.message for one in not_looked_at(box.project, [key], deep=True))
    box.land("rows/2.csv", ["id,a,b", "2,x,y", "3,x,y"])
    box.run("rows")
    assert "changed after the stream had listed rows/2.csv" in caplog.text
    (named,) = [one for one in not_looked_at(box.project, [key], deep=True) if "changed after" in one.message]
    assert "rows/2.csv" in named.message
    assert named.remedy == "odi run p --node rows --full-refresh reads all files again"
    box.run("rows", full_refresh=True)
    assert sorted(int(row[0]) for row in box.rows("rows")) == [1, 2, 3]
    caplog.clear()
    box.run("rows")
    assert "changed after" not in caplog.text


FOLDERS = """
- pipeline: p
  nodes:
  - name: batch
    read: {connection: landing, format: FORMAT, path: rows, schema: "id BIGINT, k STRING", incremental: files}
    write: {connection: lake, path: batch, mode: append}
  - name: stream
    read: {connection: landing, format: FORMAT, path: rows, schema: "id BIGINT, k STRING"}
    stream: {}
    write: {connection: lake, path: stream, mode: append}
"""


@pytest.mark.parametrize("format", ["json", "csv"])
def test_folders_may_spell_a_column_in_several_ways_as_for_a_batch(
    tmp_path: Path, spark: SparkSession, format: str
) -> None:
    box = Sandbox(tmp_path, spark, FOLDERS.replace("FORMAT", format))
    for batch in range(2):
        for number, folder in enumerate(("k=1", "K=2", "x/k=3", "K=4/k=5")):
            id_ = 10 * batch + number
            box.land(f"rows/{folder}/{batch}.{format}", [f'{{"id": {id_}}}' if format == "json" else str(id_)])
        for name in ("batch", "stream"):
            box.run(name)
    wanted = [(10 * batch + number, k) for batch in range(2) for number, k in enumerate(("1", "2", "3", "5"))]
    assert sorted(box.rows("batch")) == wanted
    assert sorted(box.rows("stream")) == wanted


@pytest.mark.parametrize(
    ("path", "named", "deeper", "remedy"),
    [
        ("o/*", "o/1.json", "o/in/2.json", "o"),
        ("o/k=*/*", "o/k=1/1.json", "o/k=1/in/2.json", "o/k=*/**"),
        ("o/*/**/*.json", "o/in/1.json", "o/2.json", "o"),
    ],
)
def test_a_file_that_spark_reads_and_the_path_does_not_name_stops_the_stream_and_a_path_that_names_it_goes_on(
    tmp_path: Path, spark: SparkSession, path: str, named: str, deeper: str, remedy: str
) -> None:
    def box(path: str) -> Sandbox:
        return Sandbox(tmp_path, spark, JSON.format(path=path))

    box(path).land(named, ['{"id": 1}'])
    box(path).run("rows")
    box(path).land(deeper, ['{"id": 2}'])
    box(path).land(named.replace("1.json", "3.json"), ['{"id": 3}'])
    for _ in range(2):
        with pytest.raises(SourceError, match=rf"Spark reads {deeper}, too, .*does not name"):
            box(path).run("rows")
    box(remedy).run("rows")
    assert sorted(row[0] for row in box(remedy).rows("rows")) == [1, 2, 3]
