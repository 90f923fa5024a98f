"""Faults that are provoked for real: no permission, a full disk, a limit on the size of files. None is waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from odi_assets.delta.retry import Retry
from odi_assets.errors import StateError, Transient
from odi_assets.state import LocalJSONStateBackend
from odi_assets_tests.state.conftest import open_backend
from odi_assets_tests.state.test_runs_contract import run

NOBODY = 65534


def no_waiting(seconds: float) -> None:
    raise AssertionError(f"waited {seconds} s")


def write_under(kind: str, folder: Path, trouble: str) -> dict[str, Any]:
    """What a process that is in trouble is told when it writes."""
    command = [sys.executable, "-m", __name__, kind, str(folder), trouble]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def in_trouble(kind: str, folder: Path, trouble: str) -> dict[str, Any]:
    import resource

    backend = open_backend(kind, folder, retry=Retry(sleep=no_waiting))
    assert backend.get_hwm("k") == 1
    if trouble == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
    elif os.geteuid() == 0:
        os.seteuid(NOBODY)
    told = {}
    for what, write in (
        ("set", lambda: backend.set_hwm("k", 2)),
        ("batch", lambda: backend.set_hwm_batch([{"key": "k", "value": 2}, {"key": "l", "value": 2}])),
        ("runs", lambda: backend.record_runs([run(1), run(2)])),
    ):
        try:
            write()
        except StateError as error:
            told[what] = {"message": str(error), "transient": isinstance(error, Transient)}
    return told


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others may look into and not write to."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users of this kind on this system")
@pytest.mark.parametrize(
    ("trouble", "words"), [("limit", "File too large"), ("no permission", "Permission denied|Read-only|not permitted")]
)
def test_what_waiting_cannot_mend_is_told_at_once_and_changes_nothing(
    kind: str, folder: Path, trouble: str, words: str
) -> None:
    backend = open_backend(kind, folder)
    backend.set_hwm("k", 1)
    backend.record_runs([run(0)])
    if trouble == "no permission" and os.geteuid() != 0:
        for path in folder.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        folder.chmod(0o555)
    told = write_under(kind, folder, trouble)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    assert set(told) == {"set", "batch", "runs"}
    assert not any(error["transient"] for error in told.values())
    assert all(any(word in error["message"] for word in words.split("|")) for error in told.values()), told
    assert all("→" in error["message"] for error in told.values())
    assert [(e.key, e.value, e.revision) for e in backend.list_hwms()] == [("k", 1, 1)]
    assert [r.run_id for r in backend.list_runs()] == ["run-0"]
    assert backend.set_hwm("k", 2).revision == 2
    backend.record_runs([run(1)])
    assert len(backend.list_runs()) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only who may mount a small disk can fill one")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up_loses_nothing_acknowledged_and_work_goes_on_with_space(
    kind: str, small_disk: Path
) -> None:
    backend = open_backend(kind, small_disk, retry=Retry(sleep=no_waiting))
    backend.set_hwm("k", 0)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 1024):
            pass
    # Some pages are left for a few writes, which fail wherever the space happens to end.
    os.truncate(filler, filler.stat().st_size - 40 * 1024)
    acknowledged = [0]

    def write_on() -> None:
        for number in range(1, 200):
            backend.set_hwm(f"{'x' * 2000}{number}", number)
            backend.set_hwm("k", number)
            acknowledged.append(number)

    with pytest.raises(StateError, match=r"No space left|os error 28") as told:
        write_on()
    assert not isinstance(told.value, Transient)
    assert open_backend(kind, small_disk).get_hwm("k") == acknowledged[-1]
    filler.unlink()
    assert backend.set_hwm("k", 1000).value == 1000
    assert open_backend(kind, small_disk).get_hwm("k") == 1000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_json_file_that_finds_no_space_stays_as_it_was(tmp_path: Path) -> None:
    backend = LocalJSONStateBackend(tmp_path / "state.json")
    backend.set_hwm("k", 1)
    (tmp_path / "state.json.tmp").symlink_to("/dev/full")
    with pytest.raises(StateError, match="No space left"):
        backend.set_hwm("k", 2)
    assert backend.get_hwm("k") == 1
    (tmp_path / "state.json.tmp").unlink()
    assert backend.set_hwm("k", 2).revision == 2


if __name__ == "__main__":
    print(json.dumps(in_trouble(sys.argv[1], Path(sys.argv[2]), sys.argv[3])))
