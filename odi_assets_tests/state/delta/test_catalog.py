"""The Delta tables: Odibi's own, their files and commits, and faults of the store."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arro3.core import Table
from deltalake import DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError
from deltalake.transaction import AddAction

from odi_assets.connections.location import Location
from odi_assets.delta.errors import CommitConflict
from odi_assets.delta.retry import Retry
from odi_assets.delta.table import LiveFile, TableHandle
from odi_assets.errors import StateConflictError, StateError, Transient
from odi_assets.state.delta import table as system_tables
from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets.state.delta.compaction import compact, compact_now, small_files
from odi_assets.state.delta.hwms import COLUMNS, HwmLog
from odi_assets.state.delta.system_columns import by_column
from odi_assets_tests.state import faults
from odi_assets_tests.state.test_runs_contract import run

NOW = datetime(2013, 1, 31, 12, tzinfo=UTC)


def opened(folder: Path, **options: Any) -> CatalogStateBackend:
    def no_waiting(seconds: float) -> None:
        raise AssertionError(f"waited {seconds} s")

    options.setdefault("retry", Retry(sleep=no_waiting))
    return CatalogStateBackend(str(folder / "meta_runs"), str(folder / "meta_state"), **options)


def table(folder: Path, name: str = "meta_state") -> DeltaTable:
    return DeltaTable(str(folder / name))


def odibi_state(folder: Path, **hwm: Any) -> None:
    """A `meta_state` as Odibi makes it: one row per key, JSON without types."""
    rows = pa.table(
        {
            "key": list(hwm),
            "value": [json.dumps(value, default=str) for value in hwm.values()],
            "environment": pa.array([None] * len(hwm), pa.string()),
            "updated_at": pa.array([NOW] * len(hwm), pa.timestamp("us", "UTC")),
        }
    )
    write_deltalake(str(folder / "meta_state"), rows, mode="append")


def odibi_sets(folder: Path, key: str, value: Any) -> None:
    """`set_hwm` as Odibi does it: a merge of one row."""
    row = pa.table(
        {"key": [key], "value": [json.dumps(value, default=str)], "environment": pa.array([None], pa.string())}
    ).append_column("updated_at", pa.array([datetime.now(UTC)], pa.timestamp("us", "UTC")))
    merge = table(folder).merge(row, "target.key = source.key", source_alias="source", target_alias="target")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


# -- Odibi's tables ----------------------------------------------------------------------------------------------------


def test_odibis_own_state_table_is_read_as_it_is(tmp_path: Path) -> None:
    odibi_state(tmp_path, orders="2013-01-31 00:00:00", raw=41)
    backend = opened(tmp_path)
    assert backend.get_hwm("raw") == 41
    assert [(e.key, e.value, e.revision) for e in backend.list_hwms()] == [
        ("orders", "2013-01-31 00:00:00", 0),
        ("raw", 41, 0),
    ]
    assert backend.history("raw")[0].updated_at == NOW
    assert table(tmp_path).version() == 0
    assert backend.hwms_stamp() is None, "two tables decide"


def test_odibis_own_state_table_is_taken_on_by_the_first_write(tmp_path: Path) -> None:
    odibi_state(tmp_path, orders="2013-01-31", raw=41)
    backend = opened(tmp_path)
    assert backend.set_hwm("raw", 42).revision == 1
    with pytest.raises(StateError, match="lies before"):
        backend.set_hwm("orders", date(2013, 1, 1))
    backend.set_hwm("orders", date(2013, 2, 1))
    assert {e.key: e.value for e in opened(tmp_path).list_hwms()} == {"orders": date(2013, 2, 1), "raw": 42}
    names = [field.name for field in table(tmp_path).schema().fields]
    assert names[:4] == ["key", "value", "environment", "updated_at"]


def test_odibi_reads_what_we_write(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    for number in range(3):
        backend.set_hwm("raw", number)
    backend.set_hwm("gone", 1)
    backend.delete_hwm("gone")
    # As Odibi looks a key up: all rows of the key, the latest by `updated_at`, JSON; nothing if the value is empty.
    rows = table(tmp_path).to_pyarrow_table().sort_by([("updated_at", "descending")]).to_pylist()
    latest = {row["key"]: row["value"] for row in reversed(rows)}
    assert latest == {"raw": "2", "gone": None}


def test_a_value_that_odibi_merged_over_ours_is_read(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    backend.set_hwm("raw", 1)
    backend.set_hwm("other", 1)
    odibi_sets(tmp_path, "raw", 5)
    odibi_sets(tmp_path, "new", "x")
    assert backend.get_hwm("raw") == 5
    assert backend.get_hwm("new") == "x"
    assert backend.set_hwm("raw", 6).revision == 3
    assert backend.set_hwm("new", "y").revision == 1
    assert {e.key: e.value for e in backend.list_hwms()} == {"raw": 6, "other": 1, "new": "y"}


@pytest.mark.parametrize("value", [7, "2013-02-03", None, {"a": 1}])
def test_whatever_odibi_merged_over_ours_is_its_value_and_the_newest_revision(tmp_path: Path, value: Any) -> None:
    """Its MERGE leaves our type, tombstone and revision on rows that hold its value now."""
    backend = opened(tmp_path)
    backend.set_hwm("raw", date(2013, 1, 1))
    backend.set_hwm("raw", date(2013, 1, 2))
    backend.set_hwm("gone", 1)
    backend.delete_hwm("gone")
    backend.set_hwm("other", 1)
    for key in ("raw", "gone"):
        odibi_sets(tmp_path, key, value)
    found = [(e.key, e.value, e.revision, e.value_type, e.deleted) for e in opened(tmp_path).list_hwms()]
    assert found == [
        ("gone", value, 3, None, False),
        ("other", 1, 1, "int", False),
        ("raw", value, 3, None, False),
    ]
    assert backend.get_entry("raw") == next(e for e in backend.list_hwms() if e.key == "raw")
    assert [(e.revision, e.value) for e in backend.history("raw")] == [(3, value)]
    assert backend.reset_hwm("raw", date(2013, 3, 1)).revision == 4
    backend.maintain()
    assert [(e.revision, e.value) for e in opened(tmp_path).history("raw")] == [(4, date(2013, 3, 1)), (3, value)]


def test_a_compare_and_set_that_was_planned_before_odibi_wrote_is_refused(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    seen = backend.set_hwm("raw", 1)
    odibi_sets(tmp_path, "raw", 5)
    with pytest.raises(StateConflictError, match="at revision 2, and was at revision 1 when"):
        backend.compare_and_set("raw", 2, expected_revision=seen.revision)
    with pytest.raises(StateError, match="lies before"):
        backend.set_hwm("raw", 2)
    again = backend.get_entry("raw")
    odibi_sets(tmp_path, "raw", 9)
    with pytest.raises(StateConflictError, match="another value"):
        backend.compare_and_set("raw", 6, expected_revision=again.revision, expected_value=again.value)
    latest = backend.get_entry("raw")
    entry = backend.compare_and_set("raw", 10, expected_revision=latest.revision, expected_value=latest.value)
    assert (latest.value, entry.revision, backend.get_hwm("raw")) == (9, latest.revision + 1, 10)


def test_a_row_that_another_tool_adds_counts_by_its_time(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    odibi_state(tmp_path, old=1)
    backend.set_hwm("old", 5)
    backend.set_hwm("new", 5)
    rows = {"key": ["new"], "value": ["7"], "environment": pa.array([None], pa.string())}
    for minute in (1, 2):
        later = pa.array([backend.get_entry("new").updated_at + timedelta(minutes=minute)], pa.timestamp("us", "UTC"))
        write_deltalake(table(tmp_path), pa.table({**rows, "updated_at": later}), mode="append", schema_mode="merge")
        assert (backend.get_hwm("old"), backend.get_hwm("new"), backend.get_entry("new").revision) == (5, 7, 1 + minute)
    for _ in range(2):
        assert [(e.key, e.value) for e in backend.list_hwms()] == [("new", 7), ("old", 5)]
        backend.maintain()
    assert backend.set_hwm("new", 8).revision == 4
    assert backend.get_hwm("new") == 8


def test_a_column_that_we_do_not_know_stays(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    backend.set_hwm("raw", 1)
    rows = table(tmp_path).to_pyarrow_table().append_column("note", pa.array(["mine"]))
    write_deltalake(str(tmp_path / "meta_state"), rows, mode="overwrite", schema_mode="overwrite")
    backend.set_hwm("raw", 2)
    assert backend.get_hwm("raw") == 2
    assert sorted(str(v) for v in table(tmp_path).to_pyarrow_table()["note"].to_pylist()) == ["None", "mine"]


def test_odibis_own_run_table_is_read_and_written(tmp_path: Path) -> None:
    """Odibi partitions it by pipeline and date, and calls a failure FAILED."""
    rows = pa.table(
        {
            "run_id": ["r1", "r2"],
            "project": ["p", "p"],
            "pipeline_name": ["flights", "flights"],
            "node_name": ["raw", "typed"],
            "status": ["SUCCESS", "FAILED"],
            "rows_processed": [3, 0],
            "duration_ms": [5, 6],
            "metrics_json": ['{"rows": 3}', "not json"],
            "environment": pa.array([None, None], pa.string()),
            "timestamp": pa.array([NOW, NOW], pa.timestamp("us", "UTC")),
            "date": [NOW.date(), NOW.date()],
        }
    )
    write_deltalake(str(tmp_path / "meta_runs"), rows, partition_by=["pipeline_name", "date"])
    backend = opened(tmp_path)
    assert backend.get_last_run_status("flights", "raw") is True
    assert backend.get_last_run_info("flights", "raw")["metadata"] == {"rows": 3}
    assert backend.get_last_run_status("flights", "typed") is False
    late = run(9, timestamp=datetime(2013, 2, 1, tzinfo=UTC), table_version=4)
    for number in range(70):
        backend.record_runs([run(number)])
    backend.record_runs([late])
    assert backend.get_last_run("flights", "raw") == late
    assert len(backend.list_runs()) == 73
    backend.maintain()
    assert len(backend.list_runs()) == 73
    assert backend.get_last_run("flights", "raw") == late


# -- files and commits -------------------------------------------------------------------------------------------------


def test_a_batch_is_one_commit_and_one_file(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    backend.set_hwm("k1", 1)
    before = table(tmp_path).version()
    backend.set_hwm_batch([{"key": f"k{n}", "value": 2} for n in range(500)])
    assert table(tmp_path).version() == before + 1
    assert len(table(tmp_path).file_uris()) == 2


def test_files_stay_few_and_the_log_short_whatever_is_written(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    for number in range(200):
        backend.set_hwm(f"k{number % 4}", number)
    assert len(table(tmp_path).file_uris()) <= 64 + 8
    backend.maintain()
    assert len(table(tmp_path).file_uris()) == 1
    assert backend.get_hwm("k3") == 199


def test_one_writer_in_64_compacts_so_that_a_long_compaction_is_not_begun_by_others_too(tmp_path: Path) -> None:
    begun: list[int] = []

    class Log(HwmLog):
        def rows_to_keep(self, handle: TableHandle, files: Sequence[LiveFile]) -> pa.Table:
            del handle
            begun.append(len(files))
            raise StateError("this compaction never ends")

    log = Log(Location(str(tmp_path / "meta_state")), None)
    for number in range(140):
        added = AddAction(f"{number}.parquet", 1, {}, 0, True, "{}")
        log.write(lambda now, add=added: now.table.create_write_transaction([add], "append", now.table.schema()))
    assert begun == [72, 136]


def test_compaction_keeps_the_newest_revisions_of_each_key(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    opened(tmp_path, environment="dev").set_hwm("k", "dev")
    for number in range(100):
        backend.set_hwm("k", number)
    backend.maintain()
    assert [e.revision for e in backend.history("k")] == list(range(100, 80, -1))
    assert opened(tmp_path, environment="dev").get_hwm("k") == "dev"


def test_maintenance_of_tables_that_do_not_exist_does_nothing(tmp_path: Path) -> None:
    assert set(opened(tmp_path).maintain().values()) == {0}
    assert list(tmp_path.iterdir()) == []


# -- writers that are late, and answers that are lost ------------------------------------------------------------------


def rows_of(backend: CatalogStateBackend, key: str) -> Table:
    entry = backend.reset_hwm(key, 1)
    row = {**entry._asdict(), "revision": entry.revision + 1, "value": "1", "written_at": entry.updated_at}
    return COLUMNS.to_arrow(by_column([row]))


def test_of_two_writers_that_saw_the_same_revision_the_second_is_refused(tmp_path: Path) -> None:
    rows = rows_of(opened(tmp_path), "k")
    system = HwmLog(Location(str(tmp_path / "meta_state")), None)
    first, second, other = system.open_for_writing(), system.open_for_writing(), system.open_for_writing()
    system.append_rows(first, rows, [Transaction("k", 2)], landed=lambda _: False, result=True)
    with pytest.raises(CommitConflict):
        system.append_rows(second, rows, [Transaction("k", 2)], landed=lambda _: False, result=True)
    system.append_rows(other, rows, [Transaction("l", 1)], landed=lambda _: False, result=True)


def test_an_append_survives_a_compaction_that_came_between(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    rows = rows_of(backend, "k")
    backend.set_hwm("other", 1)
    system = HwmLog(Location(str(tmp_path / "meta_state")), None)
    handle = system.open_for_writing()
    assert backend.maintain()["files_folded"] == 2
    system.append_rows(handle, rows, [Transaction("k", 2)], landed=lambda _: False, result=True)
    assert backend.get_entry("k").revision == 2
    assert backend.get_hwm("other") == 1


def test_two_compactions_at_once_do_not_double_the_rows(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    for number in range(5):
        backend.set_hwm("k", number)
    log = HwmLog(Location(str(tmp_path / "meta_state")), None)
    late = log.open_for_writing()
    compact_now(log)
    with pytest.raises(CommitConflict):
        compact(log, late, small_files(log, late))
    assert [e.revision for e in backend.history("k")] == [5, 4, 3, 2, 1]


def test_a_writer_that_slept_while_the_log_was_cleaned_meets_a_conflict(tmp_path: Path) -> None:
    """deltalake gives such a writer an error of no particular type, and the commits it would check are gone."""
    backend = opened(tmp_path)
    rows = rows_of(backend, "k")
    system = HwmLog(Location(str(tmp_path / "meta_state")), None)
    late = system.open_for_writing()
    for number in range(30):
        backend.set_hwm("other", number)
    log = tmp_path / "meta_state" / "_delta_log"
    for file in log.iterdir():
        os.utime(file, (time.time() - 3600,) * 2)
    backend.maintain()
    assert not (log / f"{late.table.version() + 1:020}.json").exists()
    with pytest.raises(CommitConflict):
        system.append_rows(late, rows, [Transaction("k", 2)], landed=lambda _: False, result=True)
    assert backend.get_hwm("k") == 1


def test_a_commit_that_took_long_is_looked_up_before_it_is_acknowledged(tmp_path: Path) -> None:
    rows = rows_of(opened(tmp_path), "k")
    system = HwmLog(Location(str(tmp_path / "meta_state")), None)
    slow = system.open_for_writing()
    slow.opened_at -= 60
    asked = []
    system.append_rows(slow, rows, [], landed=lambda handle: bool(asked.append(handle) or True), result=True)
    assert len(asked) == 1
    slow = system.open_for_writing()
    slow.opened_at -= 60
    with pytest.raises(CommitConflict, match="others went past it"):
        system.append_rows(slow, rows, [], landed=lambda _: False, result=True)


def test_a_commit_that_landed_although_its_answer_was_an_error_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = opened(tmp_path)
    backend.set_hwm("k", 1)
    real = system_tables.write_deltalake

    def answer_lost(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise OSError("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(system_tables, "write_deltalake", answer_lost)
        assert backend.compare_and_set("k", 2, expected_revision=1).revision == 2
        assert backend.set_hwm_batch([{"key": "k", "value": 3}, {"key": "l", "value": 3}])
        backend.record_runs([run(1)])
    assert [e.value for e in backend.history("k")] == [3, 2, 1]
    assert len(backend.list_runs()) == 1


@pytest.mark.parametrize("away", [1, 1_000_000])
def test_a_commit_whose_outcome_was_unknown_is_looked_for_before_it_is_made_again(tmp_path: Path, away: int) -> None:
    backend = opened(tmp_path, retry=Retry(sleep=lambda _seconds: None))
    backend.set_hwm("k", 1)
    backend.record_runs([run(0)])
    for write in (
        lambda: backend.compare_and_set("k", 2, expected_revision=1),
        lambda: backend.record_runs([run(1), run(2)]),
    ):
        with faults.injected(faults.gone_after_the_commit(away)):
            if away == 1:
                write()
                continue
            with pytest.raises(StateError, match=r"it is not known whether a commit to .* was made") as told:
                write()
            assert told.value.__notes__ == ["given up after 6 attempts"]
    assert [e.value for e in backend.history("k")] == [2, 1]
    assert [r.run_id for r in backend.list_runs()] == ["run-2", "run-1", "run-0"]


# -- faults ------------------------------------------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, *errors: BaseException) -> list[BaseException]:
    """Make the next appends raise these."""
    left = list(errors)
    real = system_tables.write_deltalake

    def faulty(*args: Any, **options: Any) -> None:
        if left:
            raise left.pop(0)
        real(*args, **options)

    monkeypatch.setattr(system_tables, "write_deltalake", faulty)
    return left


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "conflict: concurrent access denied"),
        OSError(28, "No space left on device"),
        DeltaError("Failed to parse parquet: External: No space left on device (os error 28)"),
        SchemaMismatchError("conflict"),
    ],
)
def test_what_waiting_cannot_mend_is_raised_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    backend = opened(tmp_path)
    backend.set_hwm("k", 1)
    failing(monkeypatch, error)
    with pytest.raises(StateError) as told:
        backend.set_hwm("k", 2)
    assert not isinstance(told.value, Transient)
    assert told.value.__cause__ is error
    assert told.value.fix
    assert backend.get_hwm("k") == 1
    assert backend.set_hwm("k", 2).revision == 2


@pytest.mark.parametrize("error", [CommitFailedError("conflict"), TimeoutError("slow"), OSError(11, "again")])
def test_a_passing_fault_is_tried_again_after_a_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    waits: list[float] = []
    backend = opened(tmp_path, retry=Retry(sleep=waits.append, draw=lambda low, _high: low))
    for number in range(25):
        backend.set_hwm("k", number)
    failing(monkeypatch, error, error)
    assert backend.set_hwm("k", 100).revision == 26
    assert waits == [1, 2]


def test_after_a_conflict_the_state_is_looked_at_before_any_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, rival = opened(tmp_path), opened(tmp_path)
    for number in range(25):
        backend.set_hwm("k", number)
    real = system_tables.write_deltalake
    others = [lambda: rival.set_hwm("k", 90), lambda: rival.set_hwm("k", 95)]

    def overtaken(*args: Any, **options: Any) -> None:
        if others:
            others.pop(0)()
        real(*args, **options)

    monkeypatch.setattr(system_tables, "write_deltalake", overtaken)
    with pytest.raises(StateError, match=r"lies before its present value 9\d"):
        backend.set_hwm("k", 80)
    with pytest.raises(StateConflictError, match="and was at revision"):
        backend.compare_and_set("k", 200, expected_revision=3)


def test_a_table_in_an_impossible_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "meta_state").write_text("a file, no folder")
    with pytest.raises(StateError, match="meta_state") as told:
        opened(tmp_path).set_hwm("k", 1)
    assert not isinstance(told.value, Transient)


def test_a_damaged_log_is_told_and_not_taken_for_no_state(tmp_path: Path) -> None:
    opened(tmp_path).set_hwm("k", 1)
    for file in (tmp_path / "meta_state" / "_delta_log").glob("*.json"):
        file.write_text('{"add": {')
    with pytest.raises(StateError, match=r"is damaged: _delta_log/\d+\.json is torn[\s\S]*odi tables repair --system"):
        opened(tmp_path).get_hwm("k")
    with pytest.raises(StateError):
        opened(tmp_path).set_hwm("k", 1)


def test_a_missing_data_file_is_told_and_not_taken_for_no_state(tmp_path: Path) -> None:
    opened(tmp_path).set_hwm("k", 1)
    for file in (tmp_path / "meta_state").glob("*.parquet"):
        file.unlink()
    with pytest.raises(StateError, match=r"reading a system table failed[\s\S]*odi tables repair --system"):
        opened(tmp_path).get_hwm("k")


def test_storage_options_are_never_shown(tmp_path: Path) -> None:
    backend = opened(tmp_path, storage_options={"account_key": "SECRET"})
    (tmp_path / "meta_state").write_text("")
    with pytest.raises(StateError) as told:
        backend.set_hwm("k", 1)
    assert "SECRET" not in repr(backend) + str(told.value) + repr(vars(told.value))


def _in_a_fork(backend: CatalogStateBackend, answers: Any) -> None:
    try:
        answers.put(str(backend.get_hwm("k")))
    except StateError as error:
        answers.put(str(error))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_is_told_to_use_spawn(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    backend.set_hwm("k", 1)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_a_fork, args=(backend, answers))
    child.start()
    child.join(30)
    assert "spawn" in answers.get()


def test_state_is_read_without_loading_what_it_does_not_need(tmp_path: Path) -> None:
    opened(tmp_path).set_hwm("k", 1)
    script = (
        "import sys, odi_assets.state as s\n"
        "assert 'deltalake' not in sys.modules\n"
        f"b = s.CatalogStateBackend({str(tmp_path / 'meta_runs')!r}, {str(tmp_path / 'meta_state')!r})\n"
        "assert b.get_hwm('k') == 1 and b.get_last_run_status('p', 'n') is None\n"
        "print({'pyspark', 'dagster', 'pandas', 'numpy', 'pyarrow'} & set(sys.modules))\n"
    )
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "set()\n"


def test_compaction_drops_runs_that_are_past_their_time_but_the_newest_of_each_node(tmp_path: Path) -> None:
    backend = opened(tmp_path, environment="dev", keep_runs_for=timedelta(days=30))
    others = opened(tmp_path, environment="prod")
    now = datetime.now(UTC)
    old = [run(number, node=f"n{number % 2}") for number in range(60)]
    backend.record_runs([run(0, node="new", timestamp=now - timedelta(days=29)), run(1, node="new", timestamp=now)])
    others.record_runs([run(1), run(2)])
    for record in old:
        backend.record_runs([record])
    for number in range(12):
        backend.record_runs([run(number, node="new", timestamp=now)])
    assert len(table(tmp_path, "meta_runs").file_uris()) < 20
    kept = sorted((record.node_name, record.run_id) for record in backend.list_runs() if record.node_name != "new")
    assert kept == [("n0", "run-58"), ("n1", "run-59")]
    assert len(backend.list_runs(node="new")) == 14
    assert len(others.list_runs()) == 2
