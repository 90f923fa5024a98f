"""What a plan makes of a node whose definition, name, project or place changed since its last run."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

pytestmark = pytest.mark.usefixtures("spark")

STATEFUL = """
- pipeline: p
  nodes:
  - name: raw
    read:
      {connection: landing, format: csv, path: "a/*.csv", schema: "id BIGINT, seq BIGINT", options: {header: "true"},
       incremental: {mode: stateful, column: id}}
    write: {connection: lake, path: raw, mode: append}
  - name: copy
    inputs: {raw: {node: raw, incremental: {mode: stateful, column: id}}}
    transform: {sql: "SELECT id, seq FROM raw"}
    write: {connection: lake, path: copy, mode: append}
"""
FILES = STATEFUL.replace(
    "{mode: stateful, column: id}}\n    write: {connection: lake, path: raw",
    "files}\n    write: {connection: lake, path: raw",
).replace(
    "raw: {node: raw, incremental: {mode: stateful, column: id}}", "raw: {node: raw, incremental: {mode: version}}"
)


def land(box: Sandbox, name: str, *rows: tuple[int, int]) -> Path:
    return box.land(name, ["id,seq", *(f"{one},{other}" for one, other in rows)])


def redefine(box: Sandbox, *changes: tuple[str, str], root: Path | None = None) -> None:
    """Change the text of the project file, and load it from ``root`` as a new process would."""
    box.root = root or box.root
    file = box.root / "odibi.yaml"
    text = file.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    box.project = Project.load(file)
    box.state = box.project.open_state()


def stops(box: Sandbox, node: str, message: str, pipeline: str = "p") -> None:
    """The node stops with this message and the ways on; doctor finds it too, and nothing is changed."""
    box.pipeline = pipeline
    before = box.table(node).version
    with pytest.raises(IdentityMismatchError, match=message) as raised:
        box.run(node)
    for remedy in (f"odi state adopt {pipeline}.{node}", "--full-refresh"):
        assert remedy in str(raised.value)
    (found,) = examine(box.project, box.state, [NodeKey(pipeline, node)])
    assert re.search(message, found.message)
    assert "odi state adopt" in found.remedy
    assert box.table(node).version == before


def adopt(box: Sandbox, node: str) -> None:
    found = plan_adoption(box.project, box.state, NodeKey(box.pipeline, node), lambda: box.spark)
    assert found is not None
    apply_adoption(box.state, found)
    assert plan_adoption(box.project, box.state, NodeKey(box.pipeline, node), lambda: box.spark) is None


def ids(box: Sandbox, node: str = "raw") -> list[int]:
    return [row[0] for row in box.rows(node)]


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    """Two nodes that follow a column and have loaded the rows 1 and 2."""
    (tmp_path / "here").mkdir()
    box = Sandbox(tmp_path / "here", spark, STATEFUL)
    land(box, "a/1.csv", (1, 11), (2, 12))
    box.run("raw")
    box.run("copy")
    return box


@pytest.fixture
def files(tmp_path: Path, spark: SparkSession) -> Sandbox:
    """A node that loads each file once, and one that follows its versions; the rows 1 and 2 are loaded."""
    (tmp_path / "here").mkdir()
    box = Sandbox(tmp_path / "here", spark, FILES)
    land(box, "a/1.csv", (1, 11), (2, 12))
    box.run("raw")
    box.run("copy")
    return box


# -- what stops --------------------------------------------------------------------------------------------------------

OTHER_CURSOR = (
    "{mode: stateful, column: id}}\n      write: {connection: lake, path: raw",
    "{mode: stateful, column: seq}}\n      write: {connection: lake, path: raw",
)


def test_another_cursor_stops_and_adoption_goes_on_above_all_that_is_loaded(box: Sandbox) -> None:
    redefine(box, OTHER_CURSOR)
    stops(box, "raw", "was followed by the column `id`, and is followed by the column `seq` now")
    adopt(box, "raw")
    assert box.hwm("raw") == 12
    assert box.run("raw").status is RunStatus.NO_DATA
    land(box, "a/2.csv", (0, 13))
    assert box.run("raw").rows_written == 1
    assert ids(box) == [0, 1, 2]


def test_a_definition_that_is_put_back_goes_on(box: Sandbox) -> None:
    redefine(box, OTHER_CURSOR)
    stops(box, "raw", "`seq` now")
    redefine(box, OTHER_CURSOR[::-1])
    land(box, "a/2.csv", (3, 1))
    assert box.run("raw").rows_written == 1
    assert ids(box) == [1, 2, 3]


def test_adoption_is_refused_while_the_former_definition_has_rows_to_read(box: Sandbox) -> None:
    land(box, "a/2.csv", (3, 5))
    redefine(box, OTHER_CURSOR)
    with pytest.raises(IdentityMismatchError, match=r"not all of landing:a/.* is loaded"):
        plan_adoption(box.project, box.state, NodeKey("p", "raw"), lambda: box.spark)
    assert box.run("raw", full_refresh=True).rows_written == 3
    assert (ids(box), box.hwm("raw")) == ([1, 2, 3], 12)


def test_another_path_stops_and_each_way_on_leads_to_its_rows(box: Sandbox) -> None:
    land(box, "b/1.csv", (1, 11), (2, 12))
    redefine(box, ('"a/*.csv"', '"b/*.csv"'))
    stops(box, "raw", r"was .*landing/a/\*\.csv, and is .*landing/b/\*\.csv now")
    adopt(box, "raw")
    land(box, "b/2.csv", (3, 13))
    assert box.run("raw").rows_written == 1
    assert ids(box) == [1, 2, 3]
    redefine(box, ('"b/*.csv"', '"c/*.csv"'))
    land(box, "c/1.csv", (1, 1))
    stops(box, "raw", r"landing/c/\*\.csv")
    box.run("raw", full_refresh=True)
    assert ids(box) == [1]


def test_another_base_path_beside_the_old_one_is_another_place(box: Sandbox) -> None:
    box.root.joinpath("other/a").mkdir(parents=True)
    box.root.joinpath("other/a/1.csv").write_text("id,seq\n1,1\n")
    redefine(box, ("base_path: landing", "base_path: other"))
    stops(box, "raw", r"was .*here/landing/a/\*\.csv.* and is .*here/other/a/\*\.csv")


def test_another_increment_of_an_input_stops(box: Sandbox) -> None:
    redefine(box, ("{node: raw, incremental: {mode: stateful, column: id}}", "{node: raw, incremental: version}"))
    stops(box, "copy", "the column `id`, and is followed by the table's versions now")
    adopt(box, "copy")
    land(box, "a/2.csv", (3, 13))
    box.run("raw")
    assert box.run("copy").rows_written == 1
    assert ids(box, "copy") == [1, 2, 3]


def test_a_column_instead_of_files_stops(files: Sandbox) -> None:
    redefine(files, ("incremental: files", "incremental: {mode: stateful, column: id}"))
    stops(files, "raw", "files that are new, and is followed by the column `id` now")
    adopt(files, "raw")
    land(files, "a/2.csv", (3, 13))
    assert files.run("raw").rows_written == 1
    assert ids(files) == [1, 2, 3]


def test_files_instead_of_a_column_stop(box: Sandbox) -> None:
    redefine(
        box,
        (
            "{mode: stateful, column: id}}\n      write: {connection: lake, path: raw",
            "files}\n      write: {connection: lake, path: raw",
        ),
    )
    stops(box, "raw", "the column `id`, and is followed by files that are new now")
    adopt(box, "raw")
    land(box, "a/2.csv", (1, 1))
    assert box.run("raw").rows_written == 1
    assert ids(box) == [1, 1, 2]


def test_other_files_stop_and_those_that_were_moved_count_as_loaded(files: Sandbox) -> None:
    zone = files.root / "landing"
    redefine(files, ('"a/*.csv"', '"b/*.csv"'))
    zone.joinpath("a").rename(zone / "b")
    stops(files, "raw", r"landing/b/\*\.csv")
    land(files, "b/2.csv", (3, 13))
    adopt(files, "raw")
    assert files.run("raw").rows_written == 1
    assert ids(files) == [1, 2, 3]


def test_an_appending_node_that_reads_everything_now_stops(box: Sandbox) -> None:
    redefine(box, (", incremental: {mode: stateful, column: id}}}", "}}"))
    with pytest.raises(
        IdentityMismatchError, match="is read whole now: each run would append all rows again"
    ) as raised:
        box.run("copy")
    assert "put `incremental` back" in str(raised.value)
    assert "state adopt" not in str(raised.value), "who adopted it would have all rows twice"
    assert ids(box, "copy") == [1, 2]


def test_a_node_that_replaces_its_table_is_never_wrong(box: Sandbox) -> None:
    redefine(box, ("path: raw, mode: append", "path: raw, mode: overwrite"))
    assert box.run("raw").status is RunStatus.NO_DATA
    redefine(box, OTHER_CURSOR)
    assert box.run("raw").rows_written == 2
    assert (ids(box), box.hwm("raw")) == ([1, 2], 12)


# -- another writer's table --------------------------------------------------------------------------------------------

RENAMED = (("name: copy", "name: copy2"),)


@pytest.mark.parametrize("way", ["adopt", "rename back", "rebuild"])
def test_a_renamed_node_does_not_append_its_rows_again(box: Sandbox, way: str) -> None:
    redefine(box, *RENAMED)
    stops(box, "copy2", "was written by p.copy of project test")
    if way == "adopt":
        adopt(box, "copy2")
        assert box.state.get_hwm("p.copy") is None
    elif way == "rebuild":
        assert box.run("copy2", full_refresh=True).rows_written == 2
    node = "copy2"
    if way == "rename back":
        redefine(box, *((new, old) for old, new in RENAMED))
        node = "copy"
    land(box, "a/2.csv", (3, 13))
    box.run("raw")
    assert box.run(node).rows_written == 1
    assert ids(box, node) == [1, 2, 3]
    assert box.run(node).status is RunStatus.NO_DATA
    if way == "adopt":
        redefine(box, *((new, old) for old, new in RENAMED))
        stops(box, "copy", "was written by p.copy2 of project test")


def test_a_renamed_pipeline_does_not_append_its_rows_again(box: Sandbox) -> None:
    redefine(box, ("pipeline: p", "pipeline: q"))
    for node in ("raw", "copy"):
        stops(box, node, f"was written by p.{node} of project test", "q")
        adopt(box, node)
    land(box, "a/2.csv", (3, 13))
    assert (box.run("raw").rows_written, box.run("copy").rows_written) == (1, 1)
    assert ids(box, "copy") == [1, 2, 3]


def test_a_renamed_node_that_keeps_its_state_key_stops_too(box: Sandbox) -> None:
    redefine(box, ("{mode: stateful, column: id}}}", "{mode: stateful, column: id, state_key: k}}}"))
    box.run("copy", full_refresh=True)
    redefine(box, *RENAMED)
    stops(box, "copy2", "was written by p.copy")
    adopt(box, "copy2")
    assert box.state.get_hwm("k") == {"raw": 2}
    assert box.run("copy2").status is RunStatus.NO_DATA


def test_a_renamed_node_is_known_when_the_log_was_cleaned(box: Sandbox) -> None:
    table = box.table("copy")
    table.shorten_log()
    for commit in Path(table.location.uri, "_delta_log").glob("*[0-9].json"):
        commit.unlink()
    redefine(box, *RENAMED)
    stops(box, "copy2", "was written by p.copy, ")


def test_a_table_that_others_added_rows_to_stays_the_nodes_own(box: Sandbox) -> None:
    write_deltalake(box.table("raw").location.uri, box.table("raw").table.to_pyarrow_table(), mode="append")
    land(box, "a/2.csv", (3, 13))
    assert box.run("raw").rows_written == 1


def test_projects_that_share_a_table_or_system_tables_are_told_apart(box: Sandbox, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(box.root / "landing", other / "landing")
    shutil.copy(box.root / "odibi.yaml", other)
    lake, system = str(box.root / "lake"), "system: {connection: lake, path: system}"
    one = box.root
    redefine(
        box,
        ("project: test", "project: other"),
        ("base_path: lake}", "base_path: lake}\n  shared: {type: local, base_path: " + lake + "}"),
        (system, system.replace("lake", "shared")),
        root=other,
    )
    stops_without_table(box, "the HWM under the state key `p.raw` belongs to p.raw of project test")
    redefine(box, ("write: {connection: lake", "write: {connection: shared"))
    stops(box, "raw", "was written by p.raw of project test")
    box.run("raw", full_refresh=True)
    redefine(box, root=one)
    stops(box, "raw", "was written by p.raw of project other")


def stops_without_table(box: Sandbox, message: str) -> None:
    with pytest.raises(IdentityMismatchError, match=message):
        box.run("raw")


def test_a_renamed_project_adopts_its_tables(box: Sandbox) -> None:
    redefine(box, ("project: test", "project: renamed"))
    for node in ("raw", "copy"):
        stops(box, node, "of project test")
        adopt(box, node)
        assert box.run(node).status is RunStatus.NO_DATA


def test_names_that_only_a_checkpoint_tells_are_all_named(box: Sandbox) -> None:
    redefine(box, *RENAMED)
    adopt(box, "copy2")
    table = box.table("copy2")
    write_deltalake(table.location.uri, pa.table({"id": [9], "seq": [9]}), mode="append")
    table.refreshed().shorten_log()
    commits = sorted(Path(table.location.uri, "_delta_log").glob("*[0-9].json"))
    for commit in commits[:-1]:
        commit.unlink()
    redefine(box, ("name: copy2", "name: copy3"))
    stops(box, "copy3", "was written by p.copy and p.copy2, ")
    adopt(box, "copy3")
    assert box.hwm("copy3") == {"raw": 2}
    assert box.run("copy3").status is RunStatus.NO_DATA


def test_an_hwm_that_a_node_does_not_read_does_not_stop_it(box: Sandbox) -> None:
    redefine(
        box,
        ("raw: {node: raw, incremental: {mode: stateful, column: id}}", "raw: raw"),
        ("path: copy, mode: append", "path: new, mode: overwrite"),
        ("name: copy", "name: copy2"),
    )
    entry = box.state.get_entry("p.copy")
    assert entry is not None
    box.state.reset_hwm("p.copy2", entry.value, origin=entry.origin)
    assert box.run("copy2").rows_written == 2


TWO = """
- pipeline: p
  nodes:
  - name: one
    read:
      {connection: landing, format: csv, path: "1/*.csv", schema: "id BIGINT, day STRING", options: {header: "true"},
       incremental: files}
    write: {connection: lake, path: one, mode: append}
  - name: two
    read:
      {connection: landing, format: csv, path: "2/*.csv", schema: "id BIGINT, day STRING", options: {header: "true"},
       incremental: files}
    write: {connection: lake, path: two, mode: append}
  - name: both
    inputs:
      a: {node: one, incremental: {mode: stateful, column: id}}
      b: {node: two, incremental: {mode: stateful, column: id}}
    transform: {sql: "SELECT * FROM a UNION ALL SELECT * FROM b"}
    write: {connection: lake, path: both, mode: partition_overwrite, partition_by: [day]}
"""


def test_each_input_keeps_its_own_mark_whatever_it_is_called(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, TWO)
    box.land("1/1.csv", ["id,day", "100,x"])
    box.land("2/1.csv", ["id,day", "5,x"])
    for node in ("one", "two", "both"):
        box.run(node)
    assert box.hwm("both") == {"a": 100, "b": 5}
    redefine(box, ("project: test", "project: other"), ("b: {node: two", "c: {node: two"), ("FROM b", "FROM c"))
    for node in ("one", "two", "both"):
        stops(box, node, "of project test")
        adopt(box, node)
    assert box.hwm("both") == {"a": 100, "c": 5}
    box.land("2/2.csv", ["id,day", "6,y"])
    box.run("two")
    assert box.run("both").rows_written == 1
    assert ids(box, "both") == [100, 5, 6]


def test_queries_of_a_union_may_change_places_and_not_what_makes_their_keys(
    tmp_path: Path, spark: SparkSession
) -> None:
    of = "SELECT id, day, '{}' AS side FROM {}".format
    sql = f"{of('x', 'a')} UNION ALL {of('y', 'b')}"
    box = Sandbox(
        tmp_path,
        spark,
        TWO.replace("SELECT * FROM a UNION ALL SELECT * FROM b", sql).replace("[day]", "[day, side]"),
    )
    for folder in "12":
        box.land(f"{folder}/1.csv", ["id,day", f"{folder},x"])
    for node in ("one", "two", "both"):
        box.run(node)
    exchanged = f"{of('y', 'b')} UNION ALL {of('x', 'a')}"
    redefine(box, (sql, exchanged))
    box.land("2/2.csv", ["id,day", "6,y"])
    box.run("two")
    assert box.run("both").rows_written == 1
    assert ids(box, "both") == [1, 2, 6]
    redefine(box, (exchanged, f"{of('x', 'b')} UNION ALL {of('y', 'a')}"))
    stops(box, "both", "`side` was 'y' or 'x' and is 'x' or 'y' now")


# -- what is the same stays the same -----------------------------------------------------------------------------------


def rename_folder(box: Sandbox) -> None:
    box.root.rename(box.root.with_name("there"))
    redefine(box, root=box.root.with_name("there"))


def copy_folder(box: Sandbox) -> None:
    shutil.copytree(box.root, box.root.with_name("there"))
    redefine(box, root=box.root.with_name("there"))


def move_lake(box: Sandbox) -> None:
    box.root.joinpath("lake").rename(box.root / "lake2")
    redefine(box, ("base_path: lake", "base_path: lake2"))


def move_landing(box: Sandbox) -> None:
    box.root.joinpath("landing").rename(box.root / "zone")
    redefine(box, ("base_path: landing", "base_path: zone"))
    box.root.joinpath("landing").symlink_to("zone")
    redefine(box)


def rename_connection(box: Sandbox) -> None:
    redefine(
        box,
        ("landing: {type: local, base_path: landing}", "zone: {type: local, base_path: landing}"),
        ("connection: landing", "connection: zone"),
    )


def split_path_otherwise(box: Sandbox) -> None:
    redefine(box, ("base_path: landing", "base_path: landing/a"), ('"a/*.csv"', '"*.csv"'))


def write_path_otherwise(box: Sandbox) -> None:
    redefine(box, ("base_path: landing", f"base_path: {box.root}/lake/../landing"), ('"a/*.csv"', '"./a//*.csv"'))


def describe(box: Sandbox) -> None:
    redefine(box, ("- name: raw", "- name: raw\n      description: rows\n      tags: [x]"))


def rename_input(box: Sandbox) -> None:
    redefine(box, ("inputs: {raw: ", "inputs: {rows: "), ("FROM raw", "FROM rows"))


def read_by_path(box: Sandbox) -> None:
    text = box.root.joinpath("odibi.yaml").read_text()
    (line,) = re.findall(r"inputs: \{raw: \{node: raw, (incremental: .*)\}\}\n", text)
    read = "read: {connection: lake, format: delta, path: raw, " + line + "}\n      depends_on: [raw]"
    redefine(box, ("inputs: {raw: {node: raw, " + line + "}}", read), ("FROM raw", "FROM df"))


SAME: tuple[Callable[[Sandbox], None], ...] = (
    rename_folder, copy_folder, move_lake, move_landing, rename_connection, split_path_otherwise,
    write_path_otherwise, describe, rename_input, read_by_path,
)  # fmt: skip


@pytest.mark.parametrize("change", SAME)
@pytest.mark.parametrize("kind", ["column", "files"])
def test_what_is_the_same_stops_nothing_and_repeats_nothing(
    request: pytest.FixtureRequest, kind: str, change: Callable[[Sandbox], None]
) -> None:
    box: Sandbox = request.getfixturevalue("box" if kind == "column" else "files")
    change(box)
    for node in ("raw", "copy"):
        assert box.run(node).status is RunStatus.NO_DATA
    zone = Path(box.project.location(box.project.graph.nodes[NodeKey("p", "raw")].read.connection, "").uri)  # type: ignore[union-attr]
    (folder := zone if zone.name == "a" else zone / "a").joinpath("2.csv").write_text("id,seq\n3,13\n")
    assert folder.joinpath("1.csv").exists()
    for _ in range(2):
        for node in ("raw", "copy"):
            box.run(node)
    assert ids(box, "raw") == ids(box, "copy") == [1, 2, 3]
    assert examine(box.project, box.state, [NodeKey("p", "raw"), NodeKey("p", "copy")]) == []


def test_files_are_known_by_their_place_below_another_base_path(files: Sandbox) -> None:
    redefine(files, ("base_path: landing", "base_path: ."), ('"a/*.csv"', '"./landing//a/*.csv"'))
    # Touched, so that they cannot be taken for files that were moved.
    os.utime(files.root / "landing/a/1.csv", (1_800_000_000, 1_800_000_000))
    assert files.run("raw").status is RunStatus.NO_DATA
    land(files, "a/2.csv", (3, 13))
    assert files.run("raw").rows_written == 1
    redefine(files, ("base_path: .", "base_path: landing/a"), ('"./landing//a/*.csv"', '"*.csv"'))
    os.utime(files.root / "landing/a/1.csv", (1_900_000_000, 1_900_000_000))
    assert files.run("raw").status is RunStatus.NO_DATA
    assert ids(files) == [1, 2, 3]


def _without_identities(facts: dict[str, Any]) -> dict[str, Any]:
    hwm = {name: value for name, value in facts["hwm"].items() if name != "measures"}
    return {name: value for name, value in {**facts, "hwm": hwm}.items() if name not in ("project", "root")}


@pytest.mark.parametrize("kind", ["column", "files"])
def test_tables_and_hwms_of_versions_that_stored_no_identity_go_on(request: pytest.FixtureRequest, kind: str) -> None:
    box: Sandbox = request.getfixturevalue("box" if kind == "column" else "files")
    for node in ("raw", "copy"):
        entry = box.state.get_entry(f"p.{node}")
        assert entry is not None
        box.state.compare_and_set(
            f"p.{node}", entry.value, expected_revision=entry.revision, target_commit=0, run_id=entry.run_id
        )
        (commit,) = Path(box.table(node).location.uri, "_delta_log").glob("*0.json")
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["odi_assets"] = _without_identities(line["commitInfo"]["odi_assets"])
        commit.write_text("\n".join(map(json.dumps, lines)) + "\n")
    land(box, "a/2.csv", (3, 13))
    for node in ("raw", "copy"):
        assert box.run(node).rows_written == 1
        assert ids(box, node) == [1, 2, 3]


# -- state of another time ---------------------------------------------------------------------------------------------

LOCAL = ("system: {connection: lake, path: system}\n", "")


def load(box: Sandbox, number: int) -> None:
    """Land a file and run both nodes."""
    land(box, f"a/{number}.csv", (number, number))
    for node in ("raw", "copy"):
        box.run(node)


@pytest.mark.parametrize("kind", ["column", "files"])
@pytest.mark.parametrize("backend", ["delta", "json"])
def test_state_that_is_put_back_from_a_copy_repeats_nothing(
    request: pytest.FixtureRequest, kind: str, backend: str
) -> None:
    box: Sandbox = request.getfixturevalue("box" if kind == "column" else "files")
    if backend == "json":
        redefine(box, LOCAL)
        load(box, 3)
    place = box.root / ("lake/system" if backend == "delta" else ".odibi")
    shutil.copytree(place, box.root / "copy")
    shutil.rmtree(place)
    load(box, 4)
    shutil.rmtree(place)
    shutil.copytree(box.root / "copy", place)
    load(box, 5)
    loaded = [1, 2, *([3] if backend == "json" else []), 4, 5]
    assert ids(box, "raw") == ids(box, "copy") == loaded


@pytest.mark.parametrize("kind", ["column", "files"])
def test_state_may_be_kept_elsewhere_and_back_again(request: pytest.FixtureRequest, kind: str) -> None:
    box: Sandbox = request.getfixturevalue("box" if kind == "column" else "files")
    for number, change in enumerate([LOCAL, LOCAL[::-1], LOCAL], 3):
        redefine(box, change if change[0] else ("pipelines:", f"{change[1]}pipelines:"))
        load(box, number)
    assert ids(box, "raw") == ids(box, "copy") == [1, 2, 3, 4, 5]


def test_an_hwm_that_was_set_by_hand_counts_until_a_run_has_seen_it(box: Sandbox) -> None:
    load(box, 3)
    place = box.root / "lake/system"
    box.state.reset_hwm("p.raw", 2)
    shutil.copytree(place, box.root / "copy")
    box.run("raw")
    assert ids(box, "raw") == [1, 2, 3, 3]
    shutil.rmtree(place)
    shutil.copytree(box.root / "copy", place)
    load(box, 4)
    assert ids(box, "raw") == [1, 2, 3, 3, 4]


def test_of_two_copies_of_state_the_younger_does_not_count_either(box: Sandbox) -> None:
    place = box.root / "lake/system"

    def put_back(copy: str) -> None:
        shutil.rmtree(place)
        shutil.copytree(box.root / copy, place)

    shutil.copytree(place, box.root / "old")
    load(box, 3)
    box.state.reset_hwm("p.raw", 2)
    shutil.copytree(place, box.root / "young")
    box.run("raw")
    put_back("old")
    load(box, 4)
    put_back("young")
    load(box, 5)
    assert ids(box, "raw") == [1, 2, 3, 3, 4, 5]


def test_state_of_a_table_that_was_made_again_does_not_count(box: Sandbox) -> None:
    load(box, 3)
    place = box.root / "lake/system"
    shutil.copytree(place, box.root / "copy")
    shutil.rmtree(box.root / "lake/raw")
    box.run("raw", full_refresh=True)
    shutil.rmtree(place)
    shutil.copytree(box.root / "copy", place)
    land(box, "a/4.csv", (4, 4))
    assert box.run("raw").rows_written == 1
    assert ids(box) == [1, 2, 3, 4]
