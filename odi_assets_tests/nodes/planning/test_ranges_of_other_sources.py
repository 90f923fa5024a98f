"""Parts of a table stand beside rows that were loaded before: of another source, or known otherwise, they are refused.

No later run would notice: a part moves no mark, and once the definition is put back, the marks measure what they did.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.planning.test_changed_definitions import redefine
from odi_assets_tests.nodes.support import Sandbox

KEY = NodeKey("p", "n")
D1, D4 = "2024-01-01", "2024-01-04"
COLUMNS = 'schema: "id BIGINT, day DATE, at TIMESTAMP", options: {header: "true"}'
FILES = f'read: {{connection: landing, format: csv, path: "a/*.csv", {COLUMNS}, incremental: files}}'
CURSOR = FILES.replace("incremental: files", "incremental: {mode: stateful, column: at}")
TABLE = "read: {connection: landing, format: delta, path: a/table, incremental: version}"
DAYS = "partition: {column: day, every: day, start: 2024-01-01}"
NODES = {
    "partitions of files": (FILES, DAYS, "mode: partition_overwrite"),
    "partitions by a cursor": (CURSOR, DAYS, "mode: partition_overwrite"),
    "partitions of a table": (TABLE, DAYS, "mode: partition_overwrite"),
    "a table that is replaced": (FILES, DAYS, "mode: overwrite"),
    "a range of a cursor": (CURSOR, "", "mode: upsert, keys: [id]"),
    "partitions by keys": (FILES, DAYS, "mode: upsert, keys: [id]"),
    "rows that are appended": (FILES, DAYS, "mode: append"),
}
ROWS = [(1, "2024-01-01"), (2, "2024-01-02"), (3, "2024-01-03")]


def ids(box: Sandbox) -> list[int]:
    return sorted(row[0] for row in box.rows("n"))


def made(root: Path, spark: SparkSession, read: str, partition: str, write: str) -> Sandbox:
    lines = ["- pipeline: p", "  nodes:", "  - name: n", f"    {read}", f"    {partition}" if partition else ""]
    box = Sandbox(root, spark, "\n".join([*lines, f"    write: {{connection: lake, path: n, {write}}}", ""]))
    for folder, rows in (("a", ROWS), ("b", [(100, "2024-01-01")])):
        box.land(f"{folder}/f.csv", ["id,day,at", *(f"{number},{day},{day}T05:00:00" for number, day in rows)])
        days = pa.array([day for _, day in rows]).cast(pa.date32())
        write_deltalake(
            str(root / "landing" / folder / "table"), pa.table({"id": [row[0] for row in rows], "day": days})
        )
    return box


@pytest.mark.parametrize("kind", NODES)
def test_a_part_of_another_source_is_refused_and_nothing_is_lost_once_it_is_put_back(
    tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    box = made(tmp_path, spark, *NODES[kind])
    box.run("n")
    before = box.rows("n")
    redefine(box, ("a/", "b/"))
    with pytest.raises(IdentityMismatchError, match="put the definition back"):
        box.run("n", start=D1, end=D4)
    redefine(box, ("b/", "a/"))
    box.run("n", start=D1, end=D4)
    assert box.run("n").status is RunStatus.NO_DATA
    assert box.rows("n") == before


def test_a_table_that_was_moved_is_the_same_source(tmp_path: Path, spark: SparkSession) -> None:
    box = made(tmp_path, spark, *NODES["partitions of a table"])
    box.run("n")
    before = box.rows("n")
    shutil.rmtree(tmp_path / "landing" / "b" / "table")
    (tmp_path / "landing" / "a" / "table").rename(tmp_path / "landing" / "b" / "table")
    redefine(box, ("a/", "b/"))
    box.run("n", start=D1, end=D4)
    assert box.rows("n") == before


@pytest.mark.parametrize("way", ["adopt", "put back", "full refresh"])
def test_a_table_of_parts_alone_is_of_one_source(tmp_path: Path, spark: SparkSession, way: str) -> None:
    box = made(tmp_path, spark, *NODES["partitions of files"])
    box.run("n", start=D1, end="2024-01-03")
    before = box.rows("n")
    redefine(box, ("a/", "b/"))
    for bounds in ({"start": "2024-01-03", "end": D4}, {}):
        with pytest.raises(
            IdentityMismatchError, match=r"its table has parts of .*/a/\*\.csv, and .*/b/\*\.csv is read now"
        ):
            box.run("n", **bounds)
    (disagreement,) = examine(box.project, box.state, [KEY])
    assert "its table has parts of" in disagreement.message
    assert box.rows("n") == before
    if way == "put back":
        redefine(box, ("b/", "a/"))
        box.run("n")
        assert ids(box) == [1, 2, 3]
        return
    if way == "adopt":
        adoption = plan_adoption(box.project, box.state, KEY, lambda: spark)
        assert adoption is not None
        apply_adoption(box.state, adoption)
        assert list(examine(box.project, box.state, [KEY])) == []
    box.run("n", full_refresh=way == "full refresh", accept_loss=way == "full refresh")
    # The first increment replaces the partitions of its rows, and no others.
    assert ids(box) == ([2, 100] if way == "adopt" else [100])
    assert box.run("n").status is RunStatus.NO_DATA


def test_a_rewind_to_parts_alone_keeps_what_they_are_of(tmp_path: Path, spark: SparkSession) -> None:
    box = made(tmp_path, spark, *NODES["partitions of files"])
    box.run("n", start=D1, end="2024-01-03")
    box.run("n")
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, KEY, lambda _: 0))
    assert ids(box) == [1, 2]
    redefine(box, ("a/", "b/"))
    with pytest.raises(IdentityMismatchError, match="its table has parts of"):
        box.run("n")


def test_the_shell_says_what_is_read_again_once_it_is_adopted(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    box = made(tmp_path, spark, *NODES["partitions by keys"])
    box.run("n")
    redefine(box, (", incremental: files", ""))
    assert main(["--config", str(tmp_path / "odibi.yaml"), "state", "adopt", "p.n", "--yes"]) == 0
    said = capsys.readouterr().err
    assert "p.n: it follows none of its sources any more." in said
    assert "reads its sources whole, and `upsert` adds no row twice" in said
    assert "is read again" not in said


def test_parts_alone_are_known_by_what_made_their_partitions(tmp_path: Path, spark: SparkSession) -> None:
    read, partition, write = NODES["partitions of files"]
    box = made(tmp_path, spark, f'{read}\n    transform: {{sql: "SELECT id, day AS day FROM df"}}', partition, write)
    box.run("n", start=D1, end=D4)
    redefine(box, ("day AS day", "date_add(day, 1) AS day"))
    for bounds in ({"start": D1, "end": D4}, {}):
        with pytest.raises(IdentityMismatchError, match=r"is DATE_ADD\(df\.day, 1\) now"):
            box.run("n", **bounds)


@pytest.mark.parametrize("kind", ["rows that are appended", "a table that is replaced"])
def test_a_part_is_refused_where_its_partitions_are_made_in_another_way(
    tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    read, partition, write = NODES[kind]
    box = made(tmp_path, spark, f'{read}\n    transform: {{sql: "SELECT id, day AS day FROM df"}}', partition, write)
    box.run("n")
    before = box.rows("n")
    redefine(box, ("day AS day", "date_add(day, 1) AS day"))
    with pytest.raises(IdentityMismatchError, match=r"`day` was df\.day and is DATE_ADD\(df\.day, 1\) now"):
        box.run("n", start=D1, end=D4)
    redefine(box, ("date_add(day, 1) AS day", "day AS day"))
    box.run("n", start=D1, end=D4)
    assert box.rows("n") == before


def test_what_follows_its_source_no_more_and_appends_cannot_be_adopted(tmp_path: Path, spark: SparkSession) -> None:
    box = made(tmp_path, spark, FILES, "", "mode: append")
    box.run("n")
    redefine(box, (", incremental: files", ""))
    with pytest.raises(IdentityMismatchError, match="each run would append all rows again"):
        box.run("n")
    with pytest.raises(IdentityMismatchError, match="each run would append all rows again"):
        plan_adoption(box.project, box.state, KEY, lambda: spark)
