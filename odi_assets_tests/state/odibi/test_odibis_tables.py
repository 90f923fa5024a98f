"""Tables that Odibi made, without Odibi: what stays as it is, what Odibi sets, and writers that die or meet."""

from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from odi_assets.delta.errors import UnsupportedFeatureError
from odi_assets.delta.retry import Retry
from odi_assets.errors import StateConflictError, StateError
from odi_assets.state.delta import share
from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets.state.delta.odibi import OdibiTable
from odi_assets_tests.state.conftest import QUICK
from odi_assets_tests.state.delta.test_catalog import NOW, odibi_sets, odibi_state, opened, table
from odi_assets_tests.state.delta.test_spark_only import WRITE_ONLY, require
from odi_assets_tests.state.test_runs_contract import run


def rows(folder: Path) -> dict[str, Any]:
    """What Odibi would read: each key's value; a key with several rows is an error."""
    found = table(folder).to_pyarrow_dataset().to_table().to_pylist()
    assert len({row["key"] for row in found}) == len(found)
    return {row["key"]: json.loads(row["value"]) for row in found}


def dies_before_odibis_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CatalogStateBackend, "_mirror", lambda *_: None)


def test_odibis_table_keeps_its_columns_its_properties_and_one_row_per_key(tmp_path: Path) -> None:
    odibi_state(tmp_path, orders="2013-01-31", raw=41)
    backend = opened(tmp_path)
    backend.set_hwm("raw", 42)
    backend.set_hwm_batch([{"key": f"k{number}", "value": number} for number in range(60)])
    backend.set_hwm("raw", 43)
    backend.maintain()
    assert [field.name for field in table(tmp_path).schema().fields] == ["key", "value", "environment", "updated_at"]
    assert table(tmp_path).metadata().configuration == {}
    assert rows(tmp_path) == {"orders": "2013-01-31", "raw": 43, **{f"k{number}": number for number in range(60)}}
    assert [(entry.revision, entry.value) for entry in opened(tmp_path).history("raw")] == [(2, 43), (1, 42), (0, 41)]


def test_a_table_of_ours_is_one_commit_a_write_and_has_no_other_beside_it(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    for number in range(3):
        backend.set_hwm("k", number)
    assert table(tmp_path).version() == 3
    assert [path.name for path in tmp_path.iterdir()] == ["meta_state"]


@pytest.mark.parametrize("value", [7, 3, "2013-02-03", {"a": 1}])
def test_what_odibi_sets_after_us_counts_whatever_its_clock_says(tmp_path: Path, value: Any) -> None:
    odibi_state(tmp_path, raw=1)
    backend = opened(tmp_path)
    backend.set_hwm("raw", 5)
    row = {"key": ["raw"], "value": [json.dumps(value)], "environment": pa.array([None], pa.string())}
    early = pa.table({**row, "updated_at": pa.array([NOW], pa.timestamp("us", "UTC"))})
    table(tmp_path).merge(
        early, "t.key = s.key", source_alias="s", target_alias="t"
    ).when_matched_update_all().execute()
    entry = opened(tmp_path).get_entry("raw")
    assert (entry.value, entry.revision, entry.value_type) == (value, 2, None)
    with pytest.raises(StateConflictError):
        backend.compare_and_set("raw", 9, expected_revision=1)
    assert backend.reset_hwm("raw", 8).revision == 3
    assert [one.value for one in backend.history("raw")] == [8, value, 5, 1]
    assert rows(tmp_path) == {"raw": 8}


def test_a_key_that_odibi_removes_is_deleted_and_can_be_set_again(tmp_path: Path) -> None:
    odibi_state(tmp_path, raw=1, other=1)
    backend = opened(tmp_path)
    backend.set_hwm("raw", 5)
    table(tmp_path).delete("key = 'raw'")
    assert backend.get_hwm("raw") is None
    tombstone = backend.get_entry("raw", deleted=True)
    assert (tombstone.deleted, tombstone.revision) == (True, 2)
    assert [entry.key for entry in backend.list_hwms()] == ["other"]
    assert backend.set_hwm("raw", 2).revision == 3
    assert [(one.revision, one.value) for one in backend.history("raw")] == [(3, 2), (2, None), (1, 5), (0, 1)]
    assert rows(tmp_path) == {"raw": 2, "other": 1}


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("repair", ["read", "write", "maintain"])
def test_a_row_that_a_killed_writer_left_out_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool, repair: str
) -> None:
    odibi_state(tmp_path, other=1)
    backend = opened(tmp_path)
    if not first:
        backend.set_hwm("raw", 4)
    with monkeypatch.context() as patch:
        dies_before_odibis_row(patch)
        backend.set_hwm("raw", 5)
    assert rows(tmp_path) == ({"other": 1} if first else {"other": 1, "raw": 4})
    assert {entry.key: entry.value for entry in opened(tmp_path).list_hwms()} == {"other": 1, "raw": 5}
    if repair == "maintain":
        assert opened(tmp_path).maintain(dry_run=True)["rows_mirrored"] == 1
        assert opened(tmp_path).maintain()["rows_mirrored"] == 1
    elif repair == "read":
        assert opened(tmp_path).get_hwm("raw") == 5
    else:
        opened(tmp_path).set_hwm("raw", 6)
    assert rows(tmp_path) == {"other": 1, "raw": 6 if repair == "write" else 5}


def test_what_odibi_sets_after_a_killed_writer_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odibi_state(tmp_path, raw=1)
    odibi_sets(tmp_path, "raw", 2)
    backend = opened(tmp_path)
    with monkeypatch.context() as patch:
        dies_before_odibis_row(patch)
        backend.set_hwm("raw", 5)
    assert backend.history("raw")[0].value == 5
    odibi_sets(tmp_path, "raw", 3)
    assert opened(tmp_path).get_hwm("raw") == 3
    assert [one.value for one in backend.history("raw")] == [3, 5, 2]
    backend.set_hwm("raw", 6)
    assert rows(tmp_path) == {"raw": 6}


def test_a_deletion_that_a_killed_writer_left_out_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odibi_state(tmp_path, raw=1)
    backend = opened(tmp_path)
    with monkeypatch.context() as patch:
        dies_before_odibis_row(patch)
        backend.delete_hwm("raw")
    assert rows(tmp_path) == {"raw": 1}
    assert opened(tmp_path).get_hwm("raw") is None
    assert rows(tmp_path) == {}


def test_what_odibi_sets_between_our_commits_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odibi_state(tmp_path, raw=1)
    backend = opened(tmp_path)
    put = OdibiTable.put

    def late(self: OdibiTable, *arguments: Any) -> None:
        monkeypatch.setattr(OdibiTable, "put", put)
        odibi_sets(tmp_path, "raw", 7)
        put(self, *arguments)

    monkeypatch.setattr(OdibiTable, "put", late)
    backend.set_hwm("raw", 5)
    assert rows(tmp_path) == {"raw": 7}
    assert opened(tmp_path).get_hwm("raw") == 7
    assert [one.value for one in backend.history("raw")] == [7, 5, 1]


def test_the_row_of_another_environment_is_left_alone(tmp_path: Path) -> None:
    odibi_state(tmp_path, raw=1)
    nameless, dev = opened(tmp_path), opened(tmp_path, environment="dev")
    dev.set_hwm("raw", 50)
    assert (nameless.get_hwm("raw"), dev.get_hwm("raw")) == (1, 50)
    assert rows(tmp_path) == {"raw": 1}
    dev.set_hwm("mine", 3)
    odibi_sets(tmp_path, "mine", 9)
    assert (nameless.get_hwm("mine"), dev.get_hwm("mine")) == (9, 3)
    assert dev.set_hwm("mine", 4).revision == 2
    assert rows(tmp_path) == {"raw": 1, "mine": 9}
    assert opened(tmp_path).environments() == [None, "dev"]


def test_a_table_without_environments_is_that_of_the_one_without_a_name(tmp_path: Path) -> None:
    moment = pa.array([NOW], pa.timestamp("us", "UTC"))
    write_deltalake(str(tmp_path / "meta_state"), pa.table({"key": ["raw"], "value": ["1"], "updated_at": moment}))
    backend, dev = opened(tmp_path), opened(tmp_path, environment="dev")
    assert backend.get_hwm("raw") == 1
    backend.set_hwm("raw", 2)
    dev.set_hwm("raw", 50)
    assert (backend.get_hwm("raw"), dev.get_hwm("raw"), rows(tmp_path)) == (2, 50, {"raw": 2})


def test_a_column_of_no_type_as_odibi_makes_it_with_newer_versions_of_deltalake_is_left_empty(tmp_path: Path) -> None:
    moment = pa.array([NOW], pa.timestamp("us", "UTC"))
    made = pa.table({"key": ["raw"], "value": ["1"], "environment": pa.nulls(1), "updated_at": moment})
    write_deltalake(str(tmp_path / "meta_state"), made)
    backend = opened(tmp_path)
    backend.set_hwm("raw", 2)
    backend.set_hwm("other", 3)
    opened(tmp_path, environment="dev").set_hwm("raw", 9)
    assert rows(tmp_path) == {"raw": 2, "other": 3}
    assert {entry.key: entry.value for entry in opened(tmp_path).list_hwms()} == {"raw": 2, "other": 3}


def test_a_column_of_somebody_elses_and_a_row_that_stands_twice_do_no_harm(tmp_path: Path) -> None:
    odibi_state(tmp_path, raw=1, other=1)
    odibi_state(tmp_path, raw=2)
    noted = table(tmp_path).to_pyarrow_dataset().to_table().append_column("note", pa.array(["mine"] * 3))
    write_deltalake(str(tmp_path / "meta_state"), noted, mode="overwrite", schema_mode="overwrite")
    backend = opened(tmp_path)
    backend.set_hwm("raw", 5)
    assert rows(tmp_path) == {"raw": 5, "other": 1}
    assert backend.get_hwm("raw") == 5


def test_a_table_that_holds_no_high_water_marks_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "meta_state"), pa.table({"id": [1]}))
    with pytest.raises(StateError, match="holds no high-water marks"):
        opened(tmp_path).set_hwm("raw", 1)
    assert table(tmp_path).version() == 0


def test_many_writers_of_ours_at_once_lose_nothing_and_each_key_has_its_row(tmp_path: Path) -> None:
    odibi_state(tmp_path, shared=0)

    def write(name: int) -> None:
        backend = CatalogStateBackend(str(tmp_path / "r"), str(tmp_path / "meta_state"), retry=Retry(QUICK))
        for number in range(5):
            backend.set_hwm(f"k{name}", number)

    writers = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert rows(tmp_path) == {"shared": 0, **{f"k{name}": 4 for name in range(4)}}
    assert all(entry.revision == 5 for entry in opened(tmp_path).list_hwms() if entry.key != "shared")


def test_a_table_of_odibis_that_cannot_be_written_says_that_the_mark_is_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odibi_state(tmp_path, raw=1)
    require(tmp_path / "meta_state", {**WRITE_ONLY})
    with pytest.raises(StateError, match="the high-water mark is set, but Odibi's own table does not tell it"):
        opened(tmp_path).set_hwm("raw", 2)
    with caplog.at_level(logging.WARNING):
        assert opened(tmp_path).get_hwm("raw") == 2
    assert "is older than its high-water mark" in caplog.text
    with pytest.raises((UnsupportedFeatureError, StateError)):
        opened(tmp_path, spark_session=object()).set_hwm("raw", 3)
    assert len(table(tmp_path).schema().fields) == 4


def test_runs_in_odibis_table_have_odibis_columns_and_lose_nothing(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    assert backend.share_with_odibi() == {"meta_state": 0, "meta_runs": 0}
    names = [field.name for field in table(tmp_path, "meta_runs").schema().fields]
    record = run(
        1,
        metrics={"rows": 3},
        started_at=datetime(2024, 1, 1, tzinfo=UTC),
        attempt=2,
        hwm_before=date(2024, 1, 1),
        table_version=7,
        error="boom",
    )
    backend.record_runs([record])
    assert [field.name for field in table(tmp_path, "meta_runs").schema().fields] == names
    assert "started_at" not in names
    [found] = opened(tmp_path).list_runs()
    assert (found.metrics, found.started_at, found.attempt) == ({"rows": 3}, record.started_at, 2)
    assert (found.table_version, found.error, found.hwm_before) == (7, "boom", "2024-01-01")
    assert table(tmp_path, "meta_runs").metadata().configuration == {}


@pytest.mark.parametrize("dies_at", ["_write_revisions", "_replace", None])
def test_sharing_keeps_all_that_there_is_and_may_be_killed_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str | None
) -> None:
    backend, dev = opened(tmp_path), opened(tmp_path, environment="dev")
    for number in range(3):
        backend.set_hwm("day", date(2024, 1, 1 + number))
        backend.record_runs([run(number)])
    backend.set_hwm("gone", 1)
    backend.delete_hwm("gone")
    dev.set_hwm("day", 5)
    odibi_sets(tmp_path, "merged", "x")
    before = backend.histories(), dev.histories(), backend.list_runs()
    if dies_at is not None:
        with monkeypatch.context() as patch:
            patch.setattr(share, dies_at, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                backend.share_with_odibi()
        assert (backend.histories(), dev.histories(), backend.list_runs()) == before
    backend.set_hwm("late", 1)
    opened(tmp_path).share_with_odibi()
    late = backend.histories().pop("late")
    assert [entry.value for entry in late] == [1]
    after = {key: found for key, found in backend.histories().items() if key != "late"}, dev.histories()
    assert (*after, backend.list_runs()) == before
    assert rows(tmp_path).keys() == {"day", "merged", "late"}
    assert table(tmp_path).metadata().configuration["delta.logRetentionDuration"] == "interval 30 days"
    assert backend.set_hwm("day", date(2024, 2, 1)).revision == 4
    assert backend.share_with_odibi() == {"meta_state": 0, "meta_runs": 0}


def test_a_backend_that_is_open_while_its_tables_are_shared_goes_on(tmp_path: Path) -> None:
    backend, other = opened(tmp_path), opened(tmp_path)
    backend.set_hwm("k", 1)
    other.share_with_odibi()
    assert backend.set_hwm("k", 2).revision == 2
    assert rows(tmp_path) == {"k": 2}
