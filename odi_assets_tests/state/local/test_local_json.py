"""The JSON file: Odibi's layout, damage, and what a crash may leave."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from odi_assets.errors import StateConflictError, StateError
from odi_assets.state import LocalJSONStateBackend, RunStatus, StateManager
from odi_assets_tests.state.test_runs_contract import run

ODIBI = {
    "pipelines": {
        "flights": {
            "last_run": "2013-01-01T12:30:00",
            "nodes": {"raw": {"success": True, "timestamp": "2013-01-01T12:00:00", "metadata": {"rows": 3}}},
        }
    },
    "hwm": {"orders": "2013-01-31 00:00:00", "raw.id": 41},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".odibi" / "state.json"


@pytest.fixture
def odibi(path: Path) -> LocalJSONStateBackend:
    path.parent.mkdir()
    path.write_text(json.dumps(ODIBI, indent=2))
    return LocalJSONStateBackend(path)


def change(path: Path, **hwm: Any) -> None:
    """Set values the way Odibi does: load the document, change `hwm`, write all of it."""
    document = json.loads(path.read_text())
    document["hwm"].update(hwm)
    path.write_text(json.dumps(document, indent=2, default=str))


def test_odibis_own_file_is_read_as_it_is(odibi: LocalJSONStateBackend) -> None:
    assert odibi.get_hwm("raw.id") == 41
    assert [(e.key, e.value, e.revision, e.value_type) for e in odibi.list_hwms()] == [
        ("orders", "2013-01-31 00:00:00", 0, None),
        ("raw.id", 41, 0, None),
    ]
    assert odibi.get_last_run_status("flights", "raw") is True
    assert odibi.get_last_run_info("flights", "raw")["metadata"] == {"rows": 3}
    assert odibi.get_last_run_status("flights", "typed") is None


def test_odibi_reads_what_we_write(odibi: LocalJSONStateBackend, path: Path) -> None:
    odibi.set_hwm("raw.id", 42)
    odibi.set_hwm("day", date(2013, 1, 31))
    odibi.save_pipeline_run("other", {"last_run": "now", "nodes": {"n": {"success": False, "metadata": {}}}})
    document = json.loads(path.read_text())
    assert document["hwm"] == {**ODIBI["hwm"], "raw.id": 42, "day": "2013-01-31"}
    assert document["pipelines"]["flights"] == ODIBI["pipelines"]["flights"]
    assert document["pipelines"]["other"]["nodes"]["n"]["success"] is False


def test_a_value_of_odibi_moves_forward_in_the_new_values_type(odibi: LocalJSONStateBackend) -> None:
    odibi.set_hwm("raw.id", 42)
    change(odibi.path, day="2013-01-31")
    with pytest.raises(StateError, match="lies before"):
        odibi.set_hwm("day", date(2013, 1, 30))
    with pytest.raises(StateError, match=r"is a str \(written by Odibi"):
        odibi.set_hwm("day", 5)
    assert odibi.set_hwm("day", date(2013, 2, 1)).revision == 1


def test_a_value_that_odibi_changed_counts_as_the_newer_revision(odibi: LocalJSONStateBackend) -> None:
    odibi.set_hwm("raw.id", 42)
    change(odibi.path, **{"raw.id": 50})
    entry = odibi.get_entry("raw.id")
    assert (entry.value, entry.revision, entry.value_type) == (50, 2, None)
    assert odibi.set_hwm("raw.id", 51).revision == 3
    assert [e.value for e in odibi.history("raw.id")] == [51, 50, 42, 41]


def test_a_key_that_was_removed_by_hand_is_deleted(odibi: LocalJSONStateBackend) -> None:
    odibi.set_hwm("raw.id", 42)
    document = json.loads(odibi.path.read_text())
    del document["hwm"]["raw.id"]
    odibi.path.write_text(json.dumps(document))
    assert odibi.get_hwm("raw.id") is None
    assert odibi.set_hwm("raw.id", 1).revision == 3


def test_what_we_do_not_know_in_the_file_stays(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"hwm": {}, "pipelines": {}, "future": {"x": [NaN]}}')
    LocalJSONStateBackend(path).set_hwm("k", 1)
    assert "NaN" in path.read_text()


@pytest.mark.parametrize(
    ("damage", "line", "column"),
    [('{\n  "hwm": {"a": 1,\n  "b" 2}\n}', 3, 7), ("", 1, 1), ('{"hwm"', 1, 7), ("[1]", 1, 1), ("{}\n\n  x", 3, 3)],
)
def test_a_damaged_file_is_told_with_line_and_column_and_never_reset(
    path: Path, damage: str, line: int, column: int
) -> None:
    path.parent.mkdir()
    path.write_text(damage)
    backend = LocalJSONStateBackend(path)
    for attempt in (lambda: backend.get_hwm("a"), lambda: backend.set_hwm("a", 1), backend.list_hwms):
        with pytest.raises(StateError, match=rf"state\.json:{line}:{column} is damaged") as told:
            attempt()
        assert (told.value.line, told.value.column) == (line, column)
    assert path.read_text() == damage
    assert path.with_name("state.json.corrupt-1").read_text() == damage
    assert not path.with_name("state.json.corrupt-2").exists()
    assert "corrupt-1" in str(told.value)


def test_bytes_that_are_no_text_are_damage_too(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{\n"a": "\xff"}')
    with pytest.raises(StateError, match=r"state\.json:2:7"):
        LocalJSONStateBackend(path).get_hwm("a")


def test_each_kind_of_damage_is_set_aside_once(path: Path) -> None:
    path.parent.mkdir()
    for damage in ("{", "{{", "{"):
        path.write_text(damage)
        with pytest.raises(StateError):
            LocalJSONStateBackend(path).get_hwm("a")
    assert sorted(p.name for p in path.parent.glob("*.corrupt-*")) == ["state.json.corrupt-1", "state.json.corrupt-2"]


def test_a_file_that_another_process_repaired_is_not_moved(path: Path) -> None:
    backend = LocalJSONStateBackend(path)
    backend.set_hwm("a", 1)
    good = path.read_text()
    path.write_text(good[:-5])
    (damaged,) = backend.damaged_files()
    path.write_text(good)
    with pytest.raises(StateConflictError, match="is not damaged any more"):
        backend.set_aside(damaged)
    assert backend.get_hwm("a") == 1
    path.write_text(good[:-5])
    assert backend.set_aside(damaged).read_text() == good[:-5]
    assert not path.exists()


@pytest.mark.parametrize(
    "damage",
    [
        {"hwm": []},
        {"odi": {"keys": []}},
        {"odi": {"keys": {"": {"a": [{"value": 1}]}}}},
        {"odi": {"keys": {"": {"a": 5}}}},
    ],
)
def test_a_document_of_another_shape_is_damage_too(path: Path, damage: dict[str, Any]) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps(damage))
    with pytest.raises(StateError, match=r"is damaged: `(hwm|odi\.keys)"):
        LocalJSONStateBackend(path).get_hwm("a")


def test_after_the_file_is_mended_work_goes_on(path: Path) -> None:
    backend = LocalJSONStateBackend(path)
    backend.set_hwm("a", 1)
    good = path.read_text()
    path.write_text(good[:-5])
    with pytest.raises(StateError):
        backend.set_hwm("a", 2)
    path.write_text(good)
    assert backend.set_hwm("a", 2).revision == 2


def test_a_full_disk_leaves_the_state_as_it_was_and_is_not_retried(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LocalJSONStateBackend(path)
    backend.set_hwm("a", 1)
    calls = []

    def full(_descriptor: int) -> None:
        calls.append(1)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StateError, match="No space left") as told:
            backend.set_hwm("a", 2)
    assert isinstance(told.value.__cause__, OSError)
    assert len(calls) == 1
    assert backend.get_hwm("a") == 1
    assert backend.set_hwm("a", 2).revision == 2


def test_a_path_that_cannot_hold_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="state file"):
        LocalJSONStateBackend(tmp_path / "file" / "state.json").set_hwm("a", 1)


def test_a_run_that_was_not_written_to_its_end_is_passed_over_and_dropped(path: Path) -> None:
    backend = LocalJSONStateBackend(path)
    backend.record_runs([run(1)])
    backend.record_runs([run(2)])
    runs = path.with_name("state.runs.jsonl")
    runs.write_bytes(runs.read_bytes()[:-20])
    assert [r.run_id for r in backend.list_runs()] == ["run-1"]
    backend.record_runs([run(3)])
    assert [r.run_id for r in backend.list_runs()] == ["run-3", "run-1"]


@pytest.mark.parametrize("lost", [1, 20, 900, 1200])
def test_of_runs_that_were_written_together_all_count_or_none(path: Path, lost: int) -> None:
    backend = LocalJSONStateBackend(path)
    backend.record_runs([run(1), run(2)])
    backend.record_runs([run(3), run(4), run(5)])
    runs = path.with_name("state.runs.jsonl")
    runs.write_bytes(runs.read_bytes()[:-lost])
    assert [r.run_id for r in backend.list_runs()] == ["run-2", "run-1"]
    assert backend.list_runs(run_id="run-3") == []
    backend.record_runs([run(6)])
    assert [r.run_id for r in backend.list_runs()] == ["run-6", "run-2", "run-1"]


def test_runs_that_could_not_be_made_safe_are_not_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LocalJSONStateBackend(path)
    backend.record_runs([run(1)])

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StateError, match="No space left"):
            backend.record_runs([run(2)])
    assert [r.run_id for r in backend.list_runs()] == ["run-1"]
    backend.record_runs([run(2)])
    assert [r.run_id for r in backend.list_runs()] == ["run-2", "run-1"]


def test_a_change_whose_folder_could_not_be_synced_is_told_to_be_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LocalJSONStateBackend(path)
    backend.set_hwm("a", 1)
    real = os.fsync

    def only_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", only_files)
        with pytest.raises(StateError, match="was written, but may not survive a power cut") as told:
            backend.set_hwm("a", 2)
    assert "nothing was changed" not in str(told.value)
    assert backend.get_hwm("a") == 2


def test_a_nan_that_odibi_wrote_is_a_nan(odibi: LocalJSONStateBackend) -> None:
    odibi.set_hwm("ratio", 0.5)
    change(odibi.path, ratio=float("nan"))
    assert str(odibi.get_hwm("ratio")) == "nan"
    assert [e.key for e in odibi.list_hwms()] == ["orders", "ratio", "raw.id"]
    assert odibi.set_hwm("ratio", 0.75).revision == 3
    assert [str(e.value) for e in odibi.history("ratio")] == ["0.75", "nan", "0.5"]


def test_a_run_history_that_is_one_torn_line_is_empty(path: Path) -> None:
    backend = LocalJSONStateBackend(path)
    backend.record_runs([run(1)])
    runs = path.with_name("state.runs.jsonl")
    runs.write_bytes(runs.read_bytes()[:20])
    assert backend.list_runs() == []
    backend.record_runs([run(2)])
    assert [r.run_id for r in backend.list_runs()] == ["run-2"]


def test_a_damaged_line_of_the_run_history_is_told_with_its_place(path: Path) -> None:
    backend = LocalJSONStateBackend(path)
    backend.record_runs([run(n) for n in range(400)])
    runs = path.with_name("state.runs.jsonl")
    lines = runs.read_text().splitlines()
    lines[199] = lines[199][:10] + "\x00" + lines[199][10:]
    runs.write_text("\n".join(lines) + "\n")
    with pytest.raises(StateError, match=r"state\.runs\.jsonl:200:11 is damaged"):
        backend.list_runs()
    assert len(backend.list_runs(limit=100)) == 100


def test_a_last_run_look_up_reads_only_the_end_of_a_long_history(path: Path) -> None:
    backend = LocalJSONStateBackend(path)
    backend.record_runs([run(n, error="x" * 500) for n in range(3000)])
    runs = path.with_name("state.runs.jsonl")
    runs.write_bytes(b"no run at all\n" + runs.read_bytes())
    assert backend.get_last_run("flights", "raw").run_id == "run-2999"


def test_a_file_that_changed_a_moment_ago_has_no_stamp(path: Path) -> None:
    backend = LocalJSONStateBackend(path)
    assert backend.hwms_stamp() is None
    backend.set_hwm("p.n", 1)
    # Another write may follow that leaves the time and the length of the file as they are.
    assert backend.hwms_stamp() is None
    os.utime(path, (1, 1))
    assert backend.hwms_stamp() is not None


def test_runs_do_not_touch_the_state_file(path: Path) -> None:
    backend = LocalJSONStateBackend(path)
    backend.record_runs([run(1, status=RunStatus.FAILURE)])
    assert not path.exists()
    assert backend.get_last_run_status("flights", "raw") is False


def test_a_manager_without_a_backend_keeps_its_state_in_the_projects_file(tmp_path: Path) -> None:
    StateManager(tmp_path).set_hwm("k", 1)
    assert json.loads((tmp_path / ".odibi" / "state.json").read_text())["hwm"] == {"k": 1}
    assert StateManager(str(tmp_path)).get_hwm("k") == 1


def test_a_run_that_the_disk_had_no_room_for_leaves_nothing_when_its_file_is_closed(tmp_path: Path) -> None:
    # A limit on the size of files stands for the full disk: the first part of the line is written, the rest is not.
    backend = LocalJSONStateBackend(tmp_path / "state.json")
    backend.record_runs([run(1)])
    (history,) = tmp_path.glob("*.runs.jsonl")
    before = history.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + len(before) * 2 // 3, hard))
    try:
        with pytest.raises(StateError, match="nothing was changed"):
            backend.record_runs([run(2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert history.read_bytes() == before
    backend.record_runs([run(2)])
    assert [record.run_id for record in backend.list_runs()] == ["run-2", "run-1"]
