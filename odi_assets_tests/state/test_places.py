"""Where system tables may be: relative paths, names with odd characters, disks that are mounted or not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from odi_assets.config.models import ProjectConfig
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import StateError, TableError
from odi_assets.state import create_state_backend
from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets.store import StateStoreProvider

WORKING = ["a b", "a#b", "a?b", "a:b", "100%", "\u00e4\u00f6\u00fc-\u65e5\u672c", "{a}", "a*b", "a&b=c", "a'b"]
REFUSED = ["a%20b", "a%2Fb", "a[b]", "a|b", "a^b", "a\\b", "a\tb"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_relative_paths_are_compacted_and_maintained_and_mean_the_folder_they_were_given_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = CatalogStateBackend("rel/r", "rel/s")
    for number in range(75):
        backend.set_hwm("k", number)
    folded = list((tmp_path / "rel" / "s").glob("*.folded.parquet"))
    assert folded
    assert caplog.records == []
    assert backend.maintain()["files_folded"] > 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert backend.get_hwm("k") == 74
    assert CatalogStateBackend(f"file://{tmp_path}/rel/r", f"file://{tmp_path}/rel/s").get_hwm("k") == 74
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_relative_state_store_is_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = StateStoreProvider("rel/store", writer="w")
    for version in range(12):
        with provider.get_store(version) as store:
            store.put(b"k", str(version).encode())
            store.commit()
    provider.maintain()
    monkeypatch.chdir("/")
    assert provider.get_store(12).get(b"k") == b"11"
    assert provider.uri == str(tmp_path / "rel" / "store")


@pytest.mark.parametrize("name", WORKING)
@pytest.mark.parametrize("relative", [True, False])
def test_names_with_odd_characters_work(tmp_path: Path, name: str, relative: bool) -> None:
    base = name if relative else str(tmp_path / name)
    for number in range(3):
        CatalogStateBackend(f"{base}/r", f"{base}/s").set_hwm("k", number)
    backend = CatalogStateBackend(f"{base}/r", f"{base}/s")
    backend.save_pipeline_run("p", {"nodes": {"n": {"success": True}}})
    assert backend.maintain()["files_folded"] == 3
    assert [entry.value for entry in backend.history("k")] == [2, 1, 0]
    assert backend.get_last_run_status("p", "n") is True
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_deltalake_misreads_are_refused_by_name_at_once_before_anything_is_made(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(sleep=lambda seconds: pytest.fail(f"it waited {seconds} s"))
    monkeypatch.setattr("odi_assets.delta.retry.time", clock)
    backend = CatalogStateBackend(f"{name}/r", f"{name}/s")
    for call in (lambda: backend.get_hwm("k"), lambda: backend.set_hwm("k", 1), backend.list_runs, backend.maintain):
        with pytest.raises(StateError, match="in a path for something else"):
            call()
    with pytest.raises(TableError, match="rename the folder, or choose another path"):
        TableHandle.open(Location(str(tmp_path / name)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%20b"])
def test_in_a_store_what_ends_a_uri_is_refused_without_asking(name: str) -> None:
    with pytest.raises(TableError, match="in a path for something else"):
        TableHandle.open(Location(f"s3://bucket/{name}"))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder in which a disk may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    try:
        mount(place)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only who may mount a disk can take one away")
    yield place
    while os.path.ismount(place):
        subprocess.run(["umount", "-l", str(place)], check=True)


def mount(place: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], check=True, capture_output=True)


@pytest.mark.parametrize("base", ["disk", "disk/below"])
def test_a_disk_that_is_not_mounted_is_missed(tmp_path: Path, disk: Path, base: str) -> None:
    config = ProjectConfig.model_validate(
        {
            "project": "x",
            "connections": {"lake": {"type": "local", "base_path": base}},
            "system": {"connection": "lake"},
        }
    )
    backend = create_state_backend(config, tmp_path)
    assert backend.get_hwm("k") is None
    backend.set_hwm("k", 1)
    assert backend.list_runs() == []
    subprocess.run(["umount", str(disk)], check=True)
    for call in (lambda: backend.get_hwm("k"), backend.list_hwms, lambda: backend.set_hwm("k", 2)):
        with pytest.raises(StateError, match="made on another disk") as told:
            call()
        assert "mount that disk" in str(told.value)
    assert list(disk.iterdir()) == []
    (tmp_path / ".odibi" / "meta_state.disk").unlink()
    assert create_state_backend(config, tmp_path).get_hwm("k") is None


@pytest.mark.parametrize("early", [False, True])
def test_a_disk_is_missed_whichever_environment_made_its_tables_last(tmp_path: Path, early: bool) -> None:
    def of(lake: str) -> ProjectConfig:
        connections = {"lake": {"type": "local", "base_path": lake}}
        return ProjectConfig.model_validate(
            {"project": "x", "connections": connections, "system": {"connection": "lake"}}
        )

    note = tmp_path / ".odibi" / "meta_state.disk"
    create_state_backend(of("lake"), tmp_path).set_hwm("k", 1)
    made = json.loads(note.read_text(encoding="utf-8"))
    if early:
        ((table, device),) = made.items()
        note.write_text(json.dumps({"table": table, "device": device}), encoding="utf-8")
    create_state_backend(of("test_lake"), tmp_path).set_hwm("k", 2)
    elsewhere = {table: device + 1 for table, device in json.loads(note.read_text(encoding="utf-8")).items()}
    note.write_text(json.dumps(elsewhere), encoding="utf-8")
    for lake in ("lake", "test_lake"):
        (tmp_path / lake).rename(tmp_path / f"away_{lake}")
        with pytest.raises(StateError, match="made on another disk"):
            create_state_backend(of(lake), tmp_path).get_hwm("k")


def test_tables_that_were_deleted_on_their_disk_are_lost_state(tmp_path: Path) -> None:
    config = ProjectConfig.model_validate(
        {
            "project": "x",
            "connections": {"lake": {"type": "local", "base_path": "lake"}},
            "system": {"connection": "lake"},
        }
    )
    create_state_backend(config, tmp_path).set_hwm("k", 1)
    (tmp_path / "lake").rename(tmp_path / "away")
    assert create_state_backend(config, tmp_path).get_hwm("k") is None
    create_state_backend(config, tmp_path).set_hwm("k", 2)
