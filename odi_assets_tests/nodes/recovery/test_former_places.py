"""Edits that lead a node elsewhere, in another format and followed in another way: an adoption is refused exactly while
the former definition would still read something."""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError, SourceError
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import Adoption, apply_adoption, plan_adoption
from odi_assets_tests.nodes.support import Sandbox

NODE = """
- pipeline: p
  nodes:
  - name: n
    read: {READ}
    write: {connection: lake, path: n, mode: append}
"""
FORMATS = ("csv", "json", "parquet", "delta")
DAY = dt.date(2024, 1, 1)


class Edited:
    """A node over two places, which are of two formats. It reads the first one, and after the edit the second one."""

    def __init__(self, root: Path, spark: SparkSession, before: str, after: str, *, by_column: bool) -> None:
        self.formats = {"a": before, "b": after}
        self.reads = {"a": read_of("a", before, "id" if by_column else None), "b": read_of("b", after, "day")}
        self.box = Sandbox(root, spark, NODE.replace("READ", self.reads["a"]))
        self.land("a", 1, 1)
        self.land("b", 1, 1)
        self.box.run("n")
        self.read("b")

    def read(self, place: str) -> None:
        file = self.box.root / "odibi.yaml"
        other = self.reads["a" if place == "b" else "b"]
        file.write_text(file.read_text("utf-8").replace(other, self.reads[place]), "utf-8")
        self.box.project = Project.load(file)

    def land(self, place: str, number: int, key: int) -> None:
        land(self.box, place, self.formats[place], number, key)

    def adoption(self) -> Adoption:
        adoption = plan_adoption(self.box.project, self.box.state, NodeKey("p", "n"), lambda: self.box.spark)
        assert adoption is not None
        return adoption


def read_of(place: str, kind: str, column: str | None) -> str:
    by_all = "version" if kind == "delta" else "files"
    increment = f"{{mode: stateful, column: {column}}}" if column else by_all
    path = place if kind == "delta" else f"{place}/*.{kind}"
    settings = {
        "csv": ', schema: "id BIGINT, day DATE", options: {header: "true"}',
        "json": ', schema: "id BIGINT, day DATE"',
    }
    return f"connection: landing, format: {kind}, path: {path}, incremental: {increment}{settings.get(kind, '')}"


def land(box: Sandbox, place: str, kind: str, number: int, key: int) -> None:
    day = DAY + dt.timedelta(days=key)
    rows = pa.table({"id": pa.array([key], pa.int64()), "day": pa.array([day])})
    if kind == "csv":
        box.land(f"{place}/{number}.csv", ["id,day", f"{key},{day}"])
    elif kind == "json":
        box.land(f"{place}/{number}.json", [f'{{"id": {key}, "day": "{day}"}}'])
    elif kind == "parquet":
        pq.write_table(rows, box.land(f"{place}/{number}.parquet", []))
    else:
        write_deltalake(str(box.root / "landing" / place), rows, mode="append")


@pytest.mark.parametrize("by_column", [True, False])
@pytest.mark.parametrize(("before", "after"), itertools.product(FORMATS, FORMATS))
def test_an_adoption_is_refused_exactly_while_the_former_definition_would_still_read_something(
    tmp_path: Path, spark: SparkSession, before: str, after: str, by_column: bool
) -> None:
    there = Edited(tmp_path, spark, before, after, by_column=by_column)
    # Of files in another form, nothing says that they hold what is loaded.
    are_files = "delta" not in (before, after) and not by_column
    if are_files and before != after:
        with pytest.raises(IdentityMismatchError, match=r"not all of .*b/.* is loaded: .*\n.*first the place"):
            there.adoption()
    else:
        assert "not looked at" not in "; ".join(there.adoption().changes)
    there.land("a", 2, 2)
    with pytest.raises(IdentityMismatchError, match=r"not all of .* is loaded: .*\n.*put the former definition back"):
        there.adoption()
    shutil.rmtree(tmp_path / "landing" / "a")
    assert "was loaded is not looked at" in "; ".join(there.adoption().changes)


HEADLESS = (
    'connection: landing, format: csv, path: a/*.csv, schema: "id BIGINT, day DATE", incremental: {mode: stateful, '
)


def test_a_former_place_that_cannot_be_read_as_before_refuses_until_it_is_as_it_was_when_all_was_loaded(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, NODE.replace("READ", HEADLESS + "column: id}"))
    box.land("a/1.csv", ["1,2024-01-02"])
    land(box, "b", "json", 1, 1)
    box.run("n")
    there = Edited.__new__(Edited)
    there.box, there.reads = box, {"a": HEADLESS + "column: id}", "b": read_of("b", "json", "day")}
    there.read("b")
    there.adoption()
    box.land("a/2.csv", ["2,2024-01-03"])
    with pytest.raises(IdentityMismatchError, match=r"is not known: its files have no header(.|\n)*run it once"):
        there.adoption()
    (tmp_path / "landing" / "a").rename(tmp_path / "landing" / "away")
    assert "was loaded is not looked at" in "; ".join(there.adoption().changes)
    (tmp_path / "landing" / "away").rename(tmp_path / "landing" / "a")
    there.read("a")
    box.run("n")
    there.read("b")
    land(box, "b", "json", 2, 2)
    apply_adoption(box.state, there.adoption())
    land(box, "b", "json", 3, 3)
    box.run("n")
    assert [row[0] for row in box.rows("n")] == [1, 2, 3]


@pytest.mark.parametrize(
    "where", ["landing: {type: local, base_path: elsewhere}", "other: {type: local, base_path: .}"]
)
def test_a_former_place_is_looked_at_though_its_connection_leads_elsewhere_or_is_gone(
    tmp_path: Path, spark: SparkSession, where: str
) -> None:
    there = Edited(tmp_path, spark, "csv", "csv", by_column=True)
    there.land("a", 2, 2)
    shutil.copytree(tmp_path / "landing" / "b", tmp_path / "elsewhere" / "a")
    file, name = tmp_path / "odibi.yaml", where.partition(":")[0]
    path = "a/*.csv" if name == "landing" else "elsewhere/a/*.csv"
    text = file.read_text("utf-8").replace("landing: {type: local, base_path: landing}", where)
    text = text.replace("connection: landing", f"connection: {name}").replace("path: b/*.csv", f"path: {path}")
    file.write_text(text, "utf-8")
    there.box.project = Project.load(file)
    with pytest.raises(IdentityMismatchError, match=r"not all of .* is loaded: .*\n.*put the former definition back"):
        there.adoption()


def test_a_definition_that_cannot_read_the_files_of_now_stops_the_adoption_with_a_way_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    there = Edited(tmp_path, spark, "json", "json", by_column=True)
    there.land("a", 2, 2)
    file = tmp_path / "odibi.yaml"
    settings = 'format: csv, options: {header: "true"}, path: a/*.json'
    file.write_text(file.read_text("utf-8").replace("format: json, path: b/*.json", settings), "utf-8")
    there.box.project = Project.load(file)
    with pytest.raises(SourceError, match=r"a/.*json cannot be read(.|\n)*→"):
        there.adoption()
