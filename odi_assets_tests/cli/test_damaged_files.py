"""``odi doctor`` looks at every file: what is gone, cut or torn is named, with a remedy that leads to right rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from odi_assets.delta.errors import DamagedTableError
from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.test_tables_repair import empty, halve, ids
from odi_assets_tests.nodes.planning.test_behind import NODES, land
from odi_assets_tests.nodes.support import Sandbox


def remove(file: Path) -> None:
    file.unlink()


def change_one_byte(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[40] ^= 0xFF
    file.write_bytes(bytes(raw))


LOSSES: tuple[Callable[[Path], None], ...] = (remove, empty, halve)


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    box = Sandbox(tmp_path, spark, NODES)
    for number in (1, 2):
        land(box, number)
        box.run("raw")
        box.run("copy")
    monkeypatch.chdir(tmp_path)
    return box


def data_file(box: Sandbox, version: int = -1) -> Path:
    """The file of the newest rows of ``raw``."""
    table = box.table("raw")
    newest = sorted(table.live_files, key=lambda file: (box.root / "lake" / "raw" / file.path).stat().st_mtime_ns)
    return box.root / "lake" / "raw" / newest[version].path


def kinds(answer: str) -> set[str]:
    return {one["kind"] for one in json.loads(answer)} - {"not looked at"}


@pytest.mark.parametrize("lose", LOSSES)
def test_a_data_file_that_is_gone_or_cut_is_found_and_each_remedy_leads_on(
    box: Sandbox, odi: Odi, lose: Callable[[Path], None]
) -> None:
    lose(data_file(box))
    sick = odi("doctor", "--json")
    assert (sick.code, kinds(sick.out)) == (1, {"files missing"})
    kept = odi("tables", "maintain", "--yes")
    assert kept.code == 1
    assert "this is a bug" not in kept.err
    assert "odi run p --node raw --full-refresh" in kept.err
    assert odi("state", "rewind", "p.raw", "--to-version", "0", "--yes", "--cascade").code == 0
    assert odi("run").code == 0
    assert ids(box, "raw") == ids(box, "copy") == [1, 2]
    assert odi("doctor").code == 0


@pytest.mark.parametrize("read", [pa.table, lambda found: found.read_all()], ids=["pyarrow", "arro3"])
@pytest.mark.parametrize("lose", LOSSES)
def test_a_lost_file_is_one_error_whatever_reads_its_rows(
    box: Sandbox, lose: Callable[[Path], None], read: Callable[[Any], Any]
) -> None:
    lose(data_file(box))
    with pytest.raises(DamagedTableError, match="odi doctor --deep"), box.table("raw").reads("reading rows"):
        read(box.table("raw").table.scan())


@pytest.mark.parametrize("version", [0, 1])
def test_a_rewind_is_named_where_an_earlier_version_is_whole(box: Sandbox, odi: Odi, version: int) -> None:
    data_file(box, version).unlink()
    (sick,) = [one for one in json.loads(odi("doctor", "--json").out) if one["kind"] == "files missing"]
    assert ("odi state rewind p.raw --list" in sick["remedy"]) == (version > 0)
    assert (odi("state", "rewind", "p.raw", "--to-version", "0", "--yes", "--cascade").code == 0) == (version > 0)


@pytest.mark.parametrize("version", [0, 1])
def test_a_run_names_a_rewind_where_an_earlier_version_is_whole(box: Sandbox, odi: Odi, version: int) -> None:
    data_file(box, version).unlink()
    stopped = odi("run", "p", "--node", "raw")
    assert "odi run p --node raw --full-refresh" in stopped.err
    assert ("odi state rewind p.raw --list" in stopped.err) == (version > 0)


def test_a_rewind_is_not_named_where_the_whole_version_lost_files_too(box: Sandbox, odi: Odi) -> None:
    land(box, 3)
    box.run("raw")
    assert odi("run", "p", "--node", "raw", "--full-refresh").code == 0
    for file in (box.root / "lake" / "raw").rglob("*.parquet"):
        file.unlink()
    assert "odi state rewind" not in odi("doctor").out


@pytest.mark.parametrize("lose", LOSSES)
def test_a_table_with_cut_files_is_rebuilt_or_accepted(box: Sandbox, odi: Odi, lose: Callable[[Path], None]) -> None:
    lose(data_file(box))
    assert odi("state", "accept", "p.raw", "--yes").code == 0
    assert ids(box, "raw") == [1]
    assert odi("run", "p", "--full-refresh").code == 0
    assert ids(box, "raw") == ids(box, "copy") == [1, 2]
    assert odi("doctor", "--deep").code == 0


def test_a_byte_that_changed_in_a_data_file_is_found_by_reading_it(box: Sandbox, odi: Odi) -> None:
    change_one_byte(data_file(box))
    assert odi("doctor").code == 0
    assert "odi doctor --deep" in odi("doctor").err
    sick = odi("doctor", "--deep", "--json")
    assert (sick.code, kinds(sick.out)) == (1, {"files missing"})
    assert "odi state rewind p.raw" in sick.out
    assert "odi state accept" not in sick.out, "it reads no file, and would leave this one in the table"


@pytest.mark.parametrize("lose", LOSSES)
def test_a_ledger_that_is_gone_or_torn_is_found_and_a_full_refresh_writes_it_anew(
    box: Sandbox, odi: Odi, lose: Callable[[Path], None]
) -> None:
    for part in (box.root / "lake" / "raw" / "_odi_files").iterdir():
        lose(part)
    sick = odi("doctor", "--json")
    assert (sick.code, kinds(sick.out)) == (1, {"damaged"})
    land(box, 3)
    for answer in (sick, odi("plan"), odi("run", "p", "--node", "raw")):
        assert answer.code == 1
        assert "odi run p --node raw --full-refresh" in answer.out + answer.err
        assert "odi run --full-refresh" not in answer.out + answer.err, "it would load all nodes again"
    assert odi("run", "p", "--node", "raw", "--full-refresh").code == 0
    assert ids(box, "raw") == [1, 2, 3]
    assert odi("run", "p", "--full-refresh").code == 0
    assert odi("doctor").code == 0


@pytest.mark.parametrize("newest", [True, False])
def test_a_part_of_the_ledger_in_the_place_of_another_one_is_found_before_files_are_loaded_twice(
    box: Sandbox, odi: Odi, newest: bool
) -> None:
    first, second = sorted(
        (box.root / "lake" / "raw" / "_odi_files").iterdir(), key=lambda part: part.stat().st_mtime_ns
    )
    kept = second.read_bytes()
    second.write_bytes(first.read_bytes() if newest else (data_file(box)).read_bytes())
    sick = odi("doctor", "--json")
    assert (sick.code, kinds(sick.out)) == (1, {"damaged"})
    for answer in (sick, odi("plan"), odi("run", "p", "--node", "raw")):
        assert answer.code == 1
        assert second.name in answer.out + answer.err
        assert "odi run p --node raw --full-refresh" in answer.out + answer.err
    assert ids(box, "raw") == [1, 2]
    second.write_bytes(kept)
    land(box, 3)
    assert odi("run").code == 0
    assert ids(box, "raw") == [1, 2, 3]


def test_a_ledger_that_an_early_version_wrote_is_read(box: Sandbox, odi: Odi) -> None:
    for part in (box.root / "lake" / "raw" / "_odi_files").iterdir():
        rows = pq.read_table(part)
        pq.write_table(rows.drop_columns(["whole"]), part)
    land(box, 3)
    assert odi("run").code == odi("doctor").code == 0
    assert ids(box, "raw") == [1, 2, 3]


@pytest.mark.parametrize("lose", [*LOSSES, None])
def test_a_version_whose_list_of_loaded_files_is_lost_is_no_way_back_and_that_is_said_before(
    box: Sandbox, odi: Odi, lose: Callable[[Path], None] | None
) -> None:
    assert "what earlier versions of tables alone need" in odi("doctor", "--deep").err
    parts = sorted((box.root / "lake" / "raw" / "_odi_files").iterdir(), key=lambda part: part.stat().st_mtime_ns)
    if lose is None:
        parts[0].write_bytes(parts[1].read_bytes())
    else:
        lose(parts[0])
    back = odi("state", "rewind", "p.raw", "--to-version", "0", "--yes", "--cascade")
    assert back.code == 1
    assert "p.raw cannot go back to version 0: the list of files" in back.err
    assert parts[0].name in back.err
    assert "odi state rewind p.raw --list" in back.err
    if lose is remove:
        kept = odi("tables", "maintain", "--dry-run", "--json")
        (table,) = [one for one in json.loads(kept.out) if one["node"] == "raw"]
        assert table["rewindable_from"] == 1
        assert parts[0].name in odi("tables", "maintain", "--dry-run").err
    assert odi("run").code == 0
    assert ids(box, "raw") == [1, 2]


@pytest.mark.parametrize(("copied", "over", "left"), [(0, 1, [1]), (1, 2, [1, 2]), (2, 3, [1, 2, 3]), (2, 1, [1])])
def test_a_commit_that_was_copied_over_another_one_is_found_and_its_remedies_lead_on(
    box: Sandbox, odi: Odi, copied: int, over: int, left: list[int]
) -> None:
    land(box, 3)
    box.run("raw")
    log = box.root / "lake" / "raw" / "_delta_log"
    (log / f"{over:020d}.json").write_bytes((log / f"{copied:020d}.json").read_bytes())
    sick = odi("doctor", "--json")
    assert (sick.code, "damaged" in kinds(sick.out)) == (1, True)
    assert f"{over:020d}.json is a copy of the commit of version {copied}" in sick.out
    kept = odi("tables", "maintain", "raw", "--yes")
    assert (kept.code, "is a copy of the commit" in kept.err) == (1, True), "a checkpoint would make it last"
    assert odi("tables", "repair", str(box.root / "lake" / "raw"), "--yes").code == 0
    assert ids(box, "raw") == left
    assert odi("run", "p", "--node", "raw", "--full-refresh").code == 0
    assert odi("run", "p", "--node", "copy", "--full-refresh").code == 0
    assert ids(box, "raw") == ids(box, "copy") == [1, 2, 3]
    assert odi("doctor", "--deep").code == 0


def test_a_commit_copied_from_before_a_checkpoint_stops_maintenance_and_its_repair_loads_what_was_lost(
    box: Sandbox, odi: Odi
) -> None:
    land(box, 3)
    box.run("raw")
    table = box.root / "lake" / "raw"
    log, now = table / "_delta_log", DeltaTable(table).version()
    DeltaTable(table).create_checkpoint()
    land(box, 4)
    box.run("raw")
    (log / f"{now + 1:020d}.json").write_bytes((log / f"{0:020d}.json").read_bytes())
    kept = odi("tables", "maintain", "raw", "--yes")
    assert (kept.code, "is a copy of the commit of version 0" in kept.err) == (1, True)
    assert odi("tables", "repair", str(table), "--yes").code == 0
    assert odi("run", "p", "--node", "raw").code == 0
    assert ids(box, "raw") == [1, 2, 3, 4]


def test_a_link_that_leads_nowhere_is_found_where_no_row_is(box: Sandbox, odi: Odi) -> None:
    link = box.root / "lake" / "raw" / "part-unused.parquet"
    link.symlink_to("part-gone.parquet")
    sick = odi("doctor", "--deep", "--json")
    assert (sick.code, kinds(sick.out)) == (1, {"damaged"})
    assert "part-unused.parquet" in sick.out
    link.unlink()
    assert odi("doctor", "--deep").code == 0


def test_what_doctor_did_not_look_at_it_names(box: Sandbox, odi: Odi) -> None:
    assert box.table("raw").exists
    shallow, deep, part = (odi("doctor", *words) for words in ((), ("--deep",), ("p", "--node", "raw")))
    assert (shallow.code, deep.code, part.code) == (0, 0, 0)
    assert "Not looked at: what is inside data files" in shallow.err
    assert "what is inside data files" not in deep.err
    assert "1 node that the command did not name" in part.err
    listed = json.loads(odi("doctor", "--json").out)
    assert {one["kind"] for one in listed} == {"not looked at"}
    assert all(one["remedy"] for one in listed)


def test_a_data_file_that_another_one_has_replaced_is_found_by_reading_it(box: Sandbox, odi: Odi) -> None:
    first, second = data_file(box, 0), data_file(box, 1)
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    assert len(kept) == len(first.read_bytes())
    assert odi("doctor").code == 0
    sick = odi("doctor", "--deep", "--json")
    assert (sick.code, kinds(sick.out)) == (1, {"files missing"})
    assert "is not the one that the log describes: the bounds of `id` are others" in sick.out
    assert odi("run", "p", "--node", "raw", "--full-refresh").code == 0
    assert ids(box, "raw") == [1, 2]
    assert odi("doctor", "--deep").code == 0


VALUES_OF_ALL_TYPES = """
- pipeline: p
  nodes:
  - name: all
    read: {connection: landing, format: csv, path: ids, schema: "id BIGINT"}
    transform:
      sql: |
        SELECT id, CAST(id AS TINYINT) AS tiny, CAST(id AS DECIMAL(38, 10)) / 3 AS long_decimal, CAST(id / 7 AS DECIMAL(9, 2)) AS short_decimal,
          IF(id = 3, DOUBLE('NaN'), DOUBLE(id)) AS double, CAST(id AS FLOAT) AS float, id % 2 = 0 AS boolean, CAST(CAST(id AS STRING) AS BINARY) AS bytes,
          date_add(DATE'0001-01-01', CAST(id AS INT)) AS early_date, DATE'2024-01-01' AS date, IF(id > 5, NULL, repeat('ü', CAST(id * 30 AS INT))) AS text,
          concat(repeat('a', 200), id) AS long_text, TIMESTAMP'1582-10-10 00:00:00' AS early, timestamp_micros(1704067200123456 + id) AS time,
          CAST(timestamp_micros(1704067200123456 + id) AS TIMESTAMP_NTZ) AS time_ntz, CAST(NULL AS STRING) AS nothing,
          struct(id AS a, array(id) AS b) AS struct, map('k', id) AS map, array(NULL, id) AS list
        FROM df
    write: {connection: lake, path: all, mode: overwrite}
  - name: parts
    inputs: {all: {node: all}}
    transform: {sql: "SELECT * FROM all"}
    write: {connection: lake, path: parts, mode: overwrite, partition_by: [date, tiny]}
"""  # noqa: E501


def test_values_of_all_types_that_spark_and_arrow_wrote_are_what_the_log_says(
    tmp_path: Path, spark: SparkSession, odi: Odi, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Sandbox(tmp_path, spark, VALUES_OF_ALL_TYPES)
    box.land("ids/1.csv", [str(number) for number in range(20)])
    for _ in range(2):
        box.run("all")
        box.run("parts")
    monkeypatch.chdir(tmp_path)
    assert odi("doctor", "--deep").code == 0, odi("doctor", "--deep").out
    assert odi("tables", "maintain", "--yes").code == 0
    assert odi("doctor", "--deep").code == 0


READERS = """
- pipeline: p
  nodes:
  - name: foreign
    read: {connection: landing, format: delta, path: foreign}
    checks: [{not_null: id}]
    write: {connection: lake, path: foreign, mode: append}
  - name: below
    inputs: {foreign: foreign}
    checks: [{not_null: id}]
    write: {connection: lake, path: below}
"""


@pytest.mark.parametrize("place", ["landing/foreign", "lake/foreign", "lake/below"])
@pytest.mark.parametrize("lose", LOSSES)
def test_each_command_that_reads_rows_names_the_file_that_is_lost(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    odi: Odi,
    lose: Callable[[Path], None],
    place: str,
) -> None:
    box = Sandbox(tmp_path, spark, READERS)
    write_deltalake(str(tmp_path / "landing" / "foreign"), pa.table({"id": [1, 2]}))
    box.run("foreign")
    box.run("below")
    monkeypatch.chdir(tmp_path)
    (file,) = (tmp_path / place).rglob("*.parquet")
    lose(file)
    named = []
    for node in ("foreign", "below"):
        for command in (f"explain {node} --key id=1", f"audit {node}", f"checks {node}", f"show {node}"):
            answer = odi(*command.split())
            assert "this is a bug" not in answer.err, f"{command}: {answer.err}"
            named += [command] if file.name in answer.err.replace("\n", "") else []
    own = [f"{command} {place.rpartition('/')[2]}" for command in ("audit", "checks", "show")]
    assert set(named) >= set(own if place.startswith("lake/") else ["audit foreign"])
