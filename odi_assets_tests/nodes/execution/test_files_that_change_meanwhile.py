"""A file that changes between the look at it and the read of it is not committed as what it was before."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import SourceError
from odi_assets_tests.nodes.support import Sandbox

NODE = """
- pipeline: p
  nodes:
  - name: n
    read: {connection: landing, format: FORMAT, path: a, schema: "id BIGINT, v STRING", incremental: filesOPTIONS}
    transform: {function: "FUNCTION:f"}
    write: {connection: lake, path: n, MODE}
"""
FUNCTION = """
import os, shutil
from pathlib import Path

LANDING = Path({landing!r})

def f(df, spark):
    there, other = LANDING / "a/1.x", LANDING / "other.x"
    if other.exists():
        {change}
    return df
"""
CHANGES = {
    "replaced": "os.replace(other, there)",
    "grown": "there.write_bytes(there.read_bytes() + other.read_bytes()); other.unlink()",
    "gone": "there.unlink(); other.unlink()",
}


def box_of(folder: Path, spark: SparkSession, format: str, mode: str, change: str) -> Sandbox:
    name = f"fn_{abs(hash(str(folder))) % 10**9}"
    options = ', options: {header: "true"}' if format == "csv" else ""
    text = NODE.replace("FORMAT", format).replace("OPTIONS", options).replace("MODE", mode).replace("FUNCTION", name)
    function = FUNCTION.format(landing=str(folder / "landing"), change=CHANGES[change])
    (folder / f"{name}.py").write_text(function, encoding="utf-8")
    box = Sandbox(folder, spark, text)
    (folder / "landing/a").mkdir(parents=True)
    land(box, "a/1.x", format, (1, "a"), (2, "b"))
    return box


def land(box: Sandbox, name: str, format: str, *rows: tuple[int, str], header: bool = True) -> None:
    if format == "parquet":
        ids, texts = zip(*rows, strict=True)
        pq.write_table(pa.table({"id": pa.array(ids), "v": pa.array(texts)}), box.root / "landing" / name)
    elif format == "csv":
        box.land(name, [*(["id,v"] if header else []), *(f"{number},{text}" for number, text in rows)])
    else:
        box.land(name, [f'{{"id": {number}, "v": "{text}"}}' for number, text in rows])


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", ["mode: append", "mode: upsert, keys: [id]", "mode: overwrite"])
@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_nothing_of_a_file_is_loaded_that_changed_while_it_was_read(
    format: str, mode: str, change: str, tmp_path: Path, spark: SparkSession
) -> None:
    if (format, change) == ("parquet", "grown"):
        pytest.skip("nobody appends to such a file")
    box = box_of(tmp_path, spark, format, mode, change)
    land(box, "other.x", format, (5, "x"), (6, "y"), header=change != "grown")
    with pytest.raises(
        SourceError, match=r"1 file changed while .* read, a/1\.x|a/1\.x is not there any more"
    ) as error:
        box.run("n")
    assert error.value.fix
    assert not box.table("n").exists or box.rows("n") == []
    land(box, "a/2.x", format, (9, "z"))
    box.run("n")
    there = {"replaced": [5, 6], "grown": [1, 2, 5, 6], "gone": []}[change]
    assert sorted(row[0] for row in box.rows("n")) == sorted([*there, 9])


def test_a_file_that_is_touched_while_it_is_read_is_loaded(tmp_path: Path, spark: SparkSession) -> None:
    box = box_of(tmp_path, spark, "json", "mode: append", "gone")
    name = next(tmp_path.glob("fn_*.py"))
    name.write_text(name.read_text("utf-8").replace("there.unlink()", "os.utime(there)"), encoding="utf-8")
    box.land("other.x", [])
    box.run("n")
    assert sorted(row[0] for row in box.rows("n")) == [1, 2]
