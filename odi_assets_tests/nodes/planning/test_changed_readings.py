"""What a run makes of an edit of how rows are read and known, where its mark depends on that."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError, IdentityMismatchError, IncrementError, OdiError
from odi_assets.nodes.audit.audit import audit
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.planning.forecast import forecast
from odi_assets.nodes.project import Project
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
from odi_assets.nodes.request import RunRequest
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

pytestmark = pytest.mark.usefixtures("spark")

NODE = """
- pipeline: p
  nodes:
  - name: n
    read:
      connection: landing
      format: csv
      path: "a/*.csv"
      schema: "id BIGINT, at TIMESTAMP, day STRING, v STRING"
      options: {header: "true"}
      incremental: {mode: stateful, column: id}
    write: {connection: lake, path: n, mode: append}
"""
HEAD = "id,at,day,v"
FIRST = (
    "1,2024-01-02 00:00:00,01/02/2024,a",
    "2,2024-02-01 00:00:00,02/01/2024,b",
    "3,2024-03-01 00:00:00,03/01/2024,b",
)


def changed(text: str, edits: Sequence[tuple[str, str]]) -> str:
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def box_of(tmp_path: Path, spark: SparkSession, *edits: tuple[str, str]) -> Sandbox:
    """A node that differs from NODE by some edits, and has loaded its first rows."""
    box = Sandbox(tmp_path, spark, changed(NODE, edits))
    box.land("a/1.csv", [HEAD, *FIRST])
    box.run("n")
    return box


def edit(box: Sandbox, *edits: tuple[str, str]) -> None:
    """Edit the node, and load the project as a new process would."""
    file = box.root / "odibi.yaml"
    head, _, node = file.read_text(encoding="utf-8").partition("pipelines:\n")
    node = textwrap.indent(changed(textwrap.dedent(node), edits), "  ")
    file.write_text(f"{head}pipelines:\n{node}", encoding="utf-8")
    box.project = Project.load(file)
    box.state = box.project.open_state()


def ids(box: Sandbox, column: int = 0) -> list[object]:
    return sorted(row[column] for row in box.rows("n"))


def stops(box: Sandbox, *words: str) -> str:
    """The next run stops, says these words and the ways on, and leaves the table as it is."""
    before = box.table("n").version
    with pytest.raises(OdiError) as raised:
        box.run("n")
    message = str(raised.value)
    for word in (*words, "--full-refresh", "back"):
        assert word in message
    assert box.table("n").version == before
    return message


def adopt(box: Sandbox) -> None:
    found = plan_adoption(box.project, box.state, NodeKey("p", "n"), lambda: box.spark)
    assert found is not None
    apply_adoption(box.state, found)
    assert plan_adoption(box.project, box.state, NodeKey("p", "n"), lambda: box.spark) is None


BY_DAY = ("column: id}", "column: day, type: text}")
BY_TIME = ("column: id}", "column: at}")
WITH_LAG = ("column: id}", "column: id, watermark_lag: 10}")
KEYED = ("mode: append}", "mode: append, keys: [id]}")
WRITE = "    write: {"
WITH_OTHER_KEYS = (WRITE, f'    transform: {{sql: "SELECT id + 100 AS id, v FROM df"}}\n{WRITE}')
WITH_A_COLUMN = (WRITE, f'    transform: {{sql: "SELECT *, upper(v) AS w FROM df -- why"}}\n{WRITE}')
FILES = ("incremental: {mode: stateful, column: id}", "incremental: files")
PARTITIONS = ("mode: append}", "mode: partition_overwrite, partition_by: [v]}")
BY_V = ("mode: append}", "mode: append_once, keys: [v, id]}")
ONCE_BY_TIME = ("mode: append}", "mode: append_once, keys: [at]}")
UPPER = (WRITE, f'    transform: {{sql: "SELECT id, upper(v) AS v FROM df"}}\n{WRITE}')
OVERWRITE = ("mode: append}", "mode: overwrite}")
LENIENT = ("mode: append", "schema: ignore, mode: append")
RESCUED = ('"true"}', '"true"}\n      rescued: rest')
CLOSED = ("column: id}", "column: id, boundary: closed}")


@pytest.mark.parametrize(
    ("given", "change", "words"),
    [
        ([BY_DAY], ("type: text}", "date_format: us}"), "`incremental.date_format` was not set and is 'us' now"),
        ([("column: id}", "column: day, date_format: us}")], ("date_format: us", "date_format: eu"), "was 'us' and is"),
        ([BY_TIME], ('"true"}', '"true", timestampFormat: "yyyy-dd-MM HH:mm:ss"}'), "`read.options.timestampformat`"),
        ([BY_TIME], ('"true"}', '"true"}\n      strict: false'), "`read.strict` was 'true' and is 'false' now"),
        ([BY_TIME], ("at TIMESTAMP", "at TIMESTAMP_NTZ"), "TIMESTAMP_NTZ"),
        ([], ('"true"}', '"true", nullValue: "3"}'), "`read.options.nullvalue` was not set and is '3' now"),
        ([], ("column: id}", "column: id, boundary: closed}"), "rows tied with the HWM"),
        ([CLOSED], ('"true"}', '"true", dateFormat: "dd"}'), "`read.options.dateformat`"),
        ([WITH_LAG, KEYED], ("keys: [id]", "keys: [id, v]"), "`write.keys` were `id` and are `id`, `v` now"),
        (
            [WITH_LAG, KEYED],
            WITH_OTHER_KEYS,
            "df.id + 1",
        ),
        ([KEYED, ("mode: append,", "mode: upsert,")], ("keys: [id]", "keys: [v]"), "`write.keys` were `id`"),
        ([FILES, PARTITIONS], ('"true"}', '"true", nullValue: "b"}'), "`read.options.nullvalue` was not set"),
        ([FILES, BY_V], ('"true"}', '"true", encoding: ISO-8859-1}'), "`read.options.encoding` was not set"),
        ([FILES, ONCE_BY_TIME], ('"true"}', '"true", timestampFormat: "yyyy-dd-MM HH:mm:ss"}'), "timestampformat"),
        ([FILES, BY_V, UPPER], ('"true"}', '"true", ignoreLeadingWhiteSpace: "true"}'), "leadingwhitespace"),
        ([BY_V], ('"true"}', '"true", emptyValue: "c"}'), "`read.options.emptyvalue` was not set and is 'c' now"),
    ],
)
def test_an_edit_of_how_the_mark_is_read_stops_and_once_put_back_goes_on(
    given: list[tuple[str, str]], change: tuple[str, str], words: str, tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path, spark, *given)
    box.land("a/2.csv", [HEAD, "4,2024-04-01 00:00:00,04/01/2024,c"])
    edit(box, change)
    stops(box, words)
    edit(box, change[::-1])
    box.run("n")
    assert ids(box) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ([], [("v STRING", "v STRING, w STRING")]),
        ([], [("id BIGINT", "id INT")]),
        ([], [('"true"}', '"true", timestampFormat: "yyyy-MM-dd HH:mm:ss"}')]),
        ([], [('"true"}', '"true"}\n      strict: false')]),
        ([], [('"true"}', '"true", encoding: "utf-8", delimiter: ","}')]),
        ([], [("schema: ignore", "schema: evolve")]),
        ([CLOSED], [("boundary: closed", "boundary: open")]),
        ([CLOSED], [("v STRING", "v STRING, w STRING")]),
        ([WITH_LAG, KEYED], [("watermark_lag: 10", "watermark_lag: 20")]),
        ([WITH_LAG, KEYED], [WITH_A_COLUMN]),
        (
            [("incremental: {mode: stateful, column: id}", "incremental: files")],
            [('"true"}', '"true", nullValue: "b"}')],
        ),
        ([FILES, BY_V], [('"true"}', '"true", dateFormat: "dd.MM.yyyy", encoding: "UTF-8"}')]),
        ([OVERWRITE], [("column: id}", "column: day, date_format: us}")]),
    ],
)
def test_an_edit_that_the_mark_does_not_depend_on_goes_on(
    given: list[tuple[str, str]], changes: list[tuple[str, str]], tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path, spark, *given, *([] if OVERWRITE in given else [LENIENT]))
    box.land("a/2.csv", [HEAD, "4,2024-04-01 00:00:00,04/01/2024,c"])
    if any("w STRING" in new for _, new in changes):
        for name in ("1", "2"):
            file = box.root / f"landing/a/{name}.csv"
            text = "".join(f"{line},{'w' if line == HEAD else ''}\n" for line in file.read_text().splitlines())
            box.land(f"a/{name}.csv", text.splitlines())
    edit(box, *changes)
    box.run("n")
    assert ids(box) == [1, 2, 3, 4]


def test_rows_tied_with_the_mark_stay_known_as_a_column_is_added(tmp_path: Path, spark: SparkSession) -> None:
    box = box_of(tmp_path, spark, CLOSED, ("mode: append", "schema: evolve, mode: append"))
    box.land("a/1.csv", [f"{HEAD},w", *(f"{row},x" for row in FIRST), "3,2024-03-01 00:00:00,03/01/2024,late,x"])
    edit(box, ("v STRING", "v STRING, w STRING"))
    box.run("n")
    assert [row[3] for row in box.rows("n") if row[0] == 3] == ["b", "late"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("v STRING", "v STRING, w STRING"), "`w` may have been in `rest`"),
        (("v STRING", "v INT"), "`v` was string and is int"),
        (("day STRING,", "other STRING,"), "`day` is there no more"),
        (("rescued: rest", "rescued: other"), "`rest` is there no more"),
    ],
)
def test_rows_tied_with_the_mark_that_look_otherwise_stop_the_run(
    change: tuple[str, str], words: str, tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path, spark, CLOSED, RESCUED, LENIENT)
    box.land("a/2.csv", [f"{HEAD},w", "3,2024-03-01 00:00:00,03/01/2024,5,x"])
    edit(box, change)
    with pytest.raises(IncrementError, match=words):
        box.run("n")
    edit(box, change[::-1])
    box.run("n")
    assert ids(box) == [1, 2, 3, 3]


def test_adopting_a_closed_boundary_counts_the_tied_rows_as_loaded_and_later_ones_are_read(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path, spark)
    edit(box, CLOSED)
    stops(box, "odi state adopt p.n")
    adopt(box)
    box.land("a/2.csv", [HEAD, "3,2024-03-01 00:00:00,03/01/2024,late"])
    box.run("n")
    assert ids(box) == [1, 2, 3, 3]


TIED = "3,2024-03-01 00:00:00,03/01/2024,late"


def test_adopting_reader_options_leaves_rows_tied_with_the_mark_that_are_not_loaded_to_the_next_run(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path, spark, CLOSED)
    box.land("a/2.csv", [HEAD, TIED])
    edit(box, ('"true"}', '"true", multiLine: "true"}'))
    stops(box, "odi state adopt p.n")
    adopt(box)
    box.run("n")
    assert ids(box) == [1, 2, 3, 3]


def test_reader_options_are_not_adopted_while_unread_rows_cannot_be_told_from_loaded_ones(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path, spark, CLOSED)
    box.land("a/2.csv", [HEAD, TIED])
    change = ('"true"}', '"true", nullValue: "b"}')
    edit(box, change)
    with pytest.raises(IncrementError, match=r"2 rows .* are tied with the HWM 3, and 1 of them are loaded"):
        adopt(box)
    edit(box, change[::-1])
    box.run("n")
    edit(box, change)
    adopt(box)
    box.run("n")
    assert ids(box) == [1, 2, 3, 3]


def test_adopting_a_renamed_node_leaves_rows_tied_with_the_mark_that_are_not_loaded_to_the_next_run(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path, spark, CLOSED)
    box.land("a/2.csv", [HEAD, TIED])
    edit(box, ("- name: n\n", "- name: m\n"))
    found = plan_adoption(box.project, box.state, NodeKey("p", "m"), lambda: box.spark)
    assert found is not None
    apply_adoption(box.state, found)
    box.run("m")
    assert sorted(row[0] for row in box.rows("m")) == [1, 2, 3, 3]


def test_another_increment_is_not_adopted_while_rows_tied_with_the_mark_are_unread(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path, spark, CLOSED)
    change = (FILES[0].replace("column: id}", "column: id, boundary: closed}"), FILES[1])
    box.land("a/2.csv", [HEAD, TIED])
    edit(box, change)
    with pytest.raises(IdentityMismatchError, match=r"would read 1 row tied with the HWM that came later"):
        adopt(box)
    edit(box, change[::-1])
    box.run("n")
    edit(box, change)
    adopt(box)
    box.land("a/3.csv", [HEAD, "4,2024-03-01 00:00:00,03/01/2024,new"])
    box.run("n")
    assert ids(box) == [1, 2, 3, 3, 4]


def test_adopting_a_date_format_counts_what_is_there_as_loaded(tmp_path: Path, spark: SparkSession) -> None:
    box = box_of(tmp_path, spark, BY_DAY)
    edit(box, ("type: text}", "date_format: us}"))
    adopt(box)
    box.land("a/2.csv", [HEAD, "4,2025-01-01 00:00:00,01/01/2025,c"])
    box.run("n")
    assert ids(box) == [1, 2, 3, 4]


def test_adopting_other_keys_goes_on_with_the_rows_that_are_there(tmp_path: Path, spark: SparkSession) -> None:
    box = box_of(tmp_path, spark, ("mode: append}", "mode: upsert, keys: [id]}"))
    edit(box, ("keys: [id]", "keys: [id, v]"))
    adopt(box)
    box.land("a/2.csv", [HEAD, "4,2024-04-01 00:00:00,04/01/2024,c"])
    box.run("n")
    assert ids(box) == [1, 2, 3, 4]


def test_a_rewind_brings_back_by_what_the_rows_are_known(tmp_path: Path, spark: SparkSession) -> None:
    box = box_of(tmp_path, spark, ("mode: append}", "mode: upsert, keys: [id]}"))
    edit(box, ("keys: [id]", "keys: [id, v]"))
    adopt(box)
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, NodeKey("p", "n"), lambda _: 0))
    stops(box, "`write.keys` were `id` and are `id`, `v` now")


def test_a_commit_of_before_goes_on_and_the_next_one_says_how_rows_are_known(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("odi_assets.nodes.planning.plan.known_after", lambda *_, **__: None)
        box = box_of(tmp_path, spark, ("mode: append}", "mode: upsert, keys: [id]}"))
    box.land("a/2.csv", [HEAD, "4,2024-04-01 00:00:00,04/01/2024,c"])
    box.run("n")
    stamp = TableHandle.open(box.project.target(NodeKey("p", "n"))).last_stamp("odi_assets:p.n")
    assert stamp is not None
    assert CommitFacts.of(stamp).known_by == {
        "keys": ["id"],
        "columns": {"`id`": "df.id", "`read.schema` of `id`": "a whole number"},
        "settings": {"id": {"read.format": "csv", "read.options.header": "true"}},
    }


@pytest.mark.parametrize("expression", ["uuid()", "rand()", "current_timestamp()", "row_number() OVER (ORDER BY v)"])
def test_a_key_that_another_run_makes_otherwise_is_refused_before_anything_runs(
    expression: str, tmp_path: Path, spark: SparkSession
) -> None:
    sql = f"    transform: {{sql: {json.dumps(f'SELECT *, {expression} AS k FROM df')}}}"
    text = NODE.replace("mode: append}", "mode: append_once, keys: [k]}").replace(WRITE, f"{sql}\n{WRITE}")
    with pytest.raises(ConfigError, match="another run makes another one"):
        Sandbox(tmp_path, spark, text)


@pytest.mark.parametrize("way", ["full refresh", "put back"])
def test_a_node_that_follows_nothing_any_more_goes_on_after_each_way_that_its_stop_names(
    way: str, tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path, spark, FILES)
    edit(box, ("      incremental: files\n", ""))
    stops(box, "put `incremental` back", "odi run p --node n --full-refresh")
    if way == "put back":
        edit(box, ("    write:", "      incremental: files\n    write:"))
        assert box.run("n").status is RunStatus.NO_DATA
        return
    box.run("n", full_refresh=True)
    assert ids(box) == [1, 2, 3]
    assert box.hwm("n") is None
    box.run("n")
    assert ids(box) == [1, 1, 2, 2, 3, 3], "each run of such a node adds all of its source"


@pytest.mark.parametrize("mode", ["append_once, keys: [id]", "upsert, keys: [id]", "overwrite"])
@pytest.mark.parametrize("way", ["full refresh", "put back", "state set"])
def test_rows_of_a_run_that_followed_nothing_are_not_appended_again_above_an_older_mark(
    way: str, mode: str, tmp_path: Path, spark: SparkSession
) -> None:
    box = box_of(tmp_path, spark)
    increment = "      incremental: {mode: stateful, column: id}\n"
    edit(box, (increment, ""), ("mode: append", f"mode: {mode}"))
    box.land("a/2.csv", [HEAD, "4,2024-04-01 00:00:00,04/01/2024,c"])
    box.run("n")
    edit(box, ("    write:", f"{increment}    write:"), (f"mode: {mode}", "mode: append"))
    stops(box, "put the definition back", "odi run p --node n --full-refresh", "odi state set p.n VALUE")
    box.land("a/3.csv", [HEAD, "5,2024-05-01 00:00:00,05/01/2024,c"])
    with pytest.raises(IdentityMismatchError, match="followed none of its sources"):
        plan_adoption(box.project, box.state, NodeKey("p", "n"), lambda: spark)
    if way == "put back":
        edit(box, (increment, ""), ("mode: append", f"mode: {mode}"))
    if way == "state set":
        set_hwm(box, "4")
    box.run("n", full_refresh=way == "full refresh")
    assert ids(box) == [1, 2, 3, 4, 5]
    if way != "put back":
        assert box.run("n").status is RunStatus.NO_DATA


def set_hwm(box: Sandbox, value: str) -> None:
    assert main(["--config", str(box.root / "odibi.yaml"), "state", "set", "p.n", value]) == 0


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("mode", ["partition_overwrite", "append_once, keys: [id]", "upsert, keys: [id]", "overwrite"])
def test_rows_of_a_part_that_was_run_in_another_mode_are_not_appended_again(
    mode: str, is_first: bool, tmp_path: Path, spark: SparkSession
) -> None:
    partition = "    partition: {column: at, every: month, start: 2024-01-01}\n    write:"
    text = changed(NODE, (("    write:", partition), ("mode: append", f"mode: {mode}")))
    box = Sandbox(tmp_path, spark, text)
    box.land("a/1.csv", [HEAD, *FIRST])
    if not is_first:
        box.run("n")
    box.land("a/2.csv", [HEAD, "4,2024-04-01 00:00:00,04/01/2024,c"])
    box.run("n", start="2024-01-01", end="2024-05-01")
    edit(box, (f"mode: {mode}", "mode: append"))
    stops(box, "put the definition back, run it (odi run p --node n)", "--full-refresh", "odi state set p.n VALUE")
    edit(box, ("mode: append", f"mode: {mode}"))
    box.run("n")
    edit(box, (f"mode: {mode}", "mode: append"))
    box.land("a/3.csv", [HEAD, "5,2024-05-01 00:00:00,05/01/2024,c"])
    box.run("n")
    assert ids(box) == [1, 2, 3, 4, 5]
    version = box.table("n").version
    box.run("n", start="2024-01-01", end="2024-05-01")
    box.land("a/4.csv", [HEAD, "6,2024-06-01 00:00:00,06/01/2024,c"])
    box.run("n")
    assert ids(box) == [1, 2, 3, 4, 5, 6], f"a part in the mode append, after version {version}"


LAG = (WITH_LAG[1], WITH_LAG[0])
OTHER_ID = (WRITE, f'    transform: {{sql: "SELECT id + 100 AS id, at, day, v FROM df"}}\n{WRITE}')
NO_OTHER_ID = (OTHER_ID[1], OTHER_ID[0])


@pytest.mark.parametrize(
    ("given", "uncompared", "compared"),
    [
        ([WITH_LAG, KEYED], [LAG, OTHER_ID], [WITH_LAG, NO_OTHER_ID]),
        ([WITH_LAG, KEYED], [LAG, OTHER_ID], [WITH_LAG]),
        ([KEYED], [], [WITH_LAG, OTHER_ID]),
        ([WITH_LAG, KEYED], [LAG, (KEYED[1], KEYED[0]), OTHER_ID], [WITH_LAG, KEYED]),
        ([KEYED], [], [("mode: append", "mode: upsert"), OTHER_ID]),
    ],
)
@pytest.mark.parametrize("way", ["adopt", "full refresh"])
def test_a_key_that_was_made_in_another_way_while_no_row_was_compared_by_it_stops_the_run_that_compares_it(
    tmp_path: Path,
    spark: SparkSession,
    given: list[tuple[str, str]],
    uncompared: list[tuple[str, str]],
    compared: list[tuple[str, str]],
    way: str,
) -> None:
    box = box_of(tmp_path, spark, *given)
    edit(box, *uncompared)
    box.land("a/2.csv", [HEAD, "4,2024-04-01 00:00:00,04/01/2024,c"])
    box.run("n")
    edit(box, *compared)
    box.land("a/3.csv", [HEAD, "5,2024-05-01 00:00:00,05/01/2024,c"])
    stops(box, "`id` was ")
    if way == "adopt":
        adopt(box)
        box.run("n")
    else:
        box.run("n", full_refresh=True)
        assert sorted(int(str(found)) % 100 for found in ids(box)) == [1, 2, 3, 4, 5]
    box.land("a/4.csv", [HEAD, "6,2024-06-01 00:00:00,06/01/2024,c"])
    box.run("n")


def test_rows_of_a_part_that_later_increments_hold_back_are_not_appended_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    upsert = ("mode: append}", "mode: upsert, keys: [id]}")
    held = ("column: id}", "column: at, on_ahead: hold}")
    box = box_of(tmp_path, spark, upsert, held)
    box.land("a/2.csv", [HEAD, "9,2090-04-01 00:00:00,04/01/2090,c"])
    box.run("n", start="2090-01-01", end="2091-01-01")
    box.land("a/3.csv", [HEAD, "4,2024-04-01 00:00:00,04/01/2024,c"])
    box.run("n")
    assert ids(box) == [1, 2, 3, 4, 9]
    found = audit(box.project, box.spark, box.state, NodeKey("p", "n"))
    assert "above the HWM of a part" in "; ".join(found.notes)
    edit(box, ("mode: upsert, keys: [id]", "mode: append"), ("on_ahead: hold", "max_ahead: 50000d"))
    stops(box, "put the definition back, run it (odi run p --node n) until it leaves no rows for later")
    edit(box, ("mode: append", "mode: upsert, keys: [id]"))
    box.run("n")
    edit(box, ("mode: upsert, keys: [id]", "mode: append"))
    box.land("a/4.csv", [HEAD, "10,2091-04-01 00:00:00,04/01/2091,c"])
    box.run("n")
    assert ids(box) == [1, 2, 3, 4, 9, 10]


def test_files_of_a_part_that_were_not_settled_are_not_appended_again(tmp_path: Path, spark: SparkSession) -> None:
    text = changed(
        NODE,
        (
            ("incremental: {mode: stateful, column: id}", "incremental: {mode: files, settle: 1d}"),
            ("mode: append}", "mode: partition_overwrite}"),
            ("    write:", "    partition: {column: at, every: month, start: 2024-01-01}\n    write:"),
        ),
    )
    box = Sandbox(tmp_path, spark, text)
    box.land("a/1.csv", [HEAD, *FIRST[:2]])
    box.land("a/2.csv", [HEAD, FIRST[2]])
    os.utime(box.root / "landing" / "a" / "1.csv", (0, 0))
    os.utime(box.root / "landing" / "a" / "2.csv")
    box.run("n", start="2024-03-01", end="2024-04-01")
    box.run("n")
    assert ids(box) == [1, 2, 3]
    edit(box, ("mode: partition_overwrite", "mode: append"), ("settle: 1d", "settle: 0s"))
    stops(box, "until it leaves no rows for later")


def test_an_adoption_keeps_in_mind_that_rows_of_a_part_are_not_counted(tmp_path: Path, spark: SparkSession) -> None:
    box = box_of(tmp_path, spark, ("mode: append}", "mode: upsert, keys: [id]}"), BY_TIME)
    box.land("a/2.csv", [HEAD, "4,2024-04-01 00:00:00,04/01/2024,c"])
    box.run("n", start="2024-04-01", end="2024-05-01")
    edit(box, ("keys: [id]", "keys: [id, v]"))
    adopt(box)
    edit(box, ("mode: upsert, keys: [id, v]", "mode: append"))
    stops(box, "above", "they would be appended again")
    set_hwm(box, "2024-04-01 00:00:00+00:00")
    box.run("n")
    assert ids(box) == [1, 2, 3, 4]


CHAIN = """
- pipeline: p
  nodes:
  - name: up
    read: {connection: landing, format: csv, path: "a/*.csv", schema: "id BIGINT, k BIGINT",
      options: {header: "true"}, incremental: files}
    write: {connection: lake, path: up, mode: append}
  - name: n
    inputs: {up: {node: up, incremental: version}}
    transform: {sql: "SELECT id, k FROM up"}
    write: {connection: lake, path: n, mode: partition_overwrite, partition_by: [k]}
"""


def test_a_plan_names_the_edit_that_stops_a_node_below_a_table_that_is_not_written_yet(
    tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, CHAIN)
    box.land("a/1.csv", ["id,k", "1,1"])
    box.run("up")
    box.run("n")
    edit(box, ("name: up", "name: other"), ("path: up,", "path: other,"), ("{node: up,", "{node: other,"))
    keys = [NodeKey("p", "other"), NodeKey("p", "n")]
    _, below = forecast(box.project, box.state, keys, RunRequest())
    box.run("other")
    assert str(below.error) == stops(box, "`k` was up.k and is other.k now")
    _, below = forecast(box.project, box.state, keys, RunRequest(full_refresh=True))
    assert below.error is None


OF_FILES = """
- pipeline: p
  nodes:
  - name: n
    read: {connection: landing, format: json, path: "o/*", schema: "id BIGINT", incremental: files}
    write: {connection: lake, path: n, mode: append}
"""


@pytest.mark.parametrize("mode", ["append", "upsert, keys: [id]"])
@pytest.mark.parametrize("path", ["new/*.json", "o/k=*/*"])
def test_files_of_another_pattern_are_loaded_once_after_an_adoption_whenever_they_land(
    tmp_path: Path, spark: SparkSession, path: str, mode: str
) -> None:
    box = Sandbox(tmp_path, spark, OF_FILES.replace("mode: append", f"mode: {mode}"))
    box.land("o/a.json", ['{"id": 1}', '{"id": 2}'])
    box.run("n")
    if "k=" in path:
        box.land("o/k=1/b.json", ['{"id": 3}'])
    (box.root / "landing" / "new").mkdir(exist_ok=True)
    edit(box, ("o/*", path))
    adopt(box)
    if "k=" not in path:
        assert box.run("n").status is RunStatus.NO_DATA
        box.land("new/b.json", ['{"id": 3}'])
    box.run("n")
    assert ids(box) == [1, 2, 3]
    assert box.run("n").status is RunStatus.NO_DATA
    edit(box, (path, "**"))
    adopt(box)
    box.run("n")
    assert ids(box) == [1, 2, 3]


def test_a_source_that_is_empty_is_not_adopted(tmp_path: Path, spark: SparkSession) -> None:
    box = box_of(tmp_path, spark)
    (box.root / "landing" / "other").mkdir()
    edit(box, ("column: id}", "column: at}"))
    (box.root / "landing" / "a" / "1.csv").write_text(f"{HEAD}\n")
    with pytest.raises(OdiError) as error:
        adopt(box)
    assert "--full-refresh" in str(error.value.fix)
    assert ids(box) == [1, 2, 3]


def test_a_rewind_keeps_in_mind_that_rows_of_a_part_are_not_counted(tmp_path: Path, spark: SparkSession) -> None:
    box = box_of(tmp_path, spark, ("mode: append}", "mode: upsert, keys: [id]}"), BY_TIME)
    box.land("a/2.csv", [HEAD, "4,2024-04-01 00:00:00,04/01/2024,c"])
    box.run("n", start="2024-04-01", end="2024-05-01")
    version = int(box.table("n").version or 0)
    box.land("a/3.csv", [HEAD, "5,2024-05-01 00:00:00,05/01/2024,c"])
    box.run("n")
    apply_rewind(box.project, box.state, plan_rewind(box.project, box.state, NodeKey("p", "n"), lambda _: version))
    edit(box, ("mode: upsert, keys: [id]", "mode: append"))
    stops(box, "they would be appended again")
