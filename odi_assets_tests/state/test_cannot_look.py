"""What cannot be looked at is an error of ours in every store, at once, and never "there is nothing"."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from odi_assets.connections.location import Location
from odi_assets.delta.maintenance.restore import lost_files
from odi_assets.delta.retry import Retry
from odi_assets.delta.table import TableHandle
from odi_assets.errors import OdiError, Transient
from odi_assets.sources.files.loaded import ledger
from odi_assets.sources.files.loaded.ledger import LoadedFile
from odi_assets.store import StateStoreProvider
from odi_assets_tests.state.conftest import open_backend
from odi_assets_tests.state.test_real_faults import NOBODY, no_waiting
from odi_assets_tests.state.test_runs_contract import run

Calls = Mapping[str, Callable[[], Any]]


def backend_calls(kind: str, folder: Path) -> Calls:
    backend = open_backend(kind, folder, retry=Retry(sleep=no_waiting))
    return {
        "get_hwm": lambda: backend.get_hwm("k"),
        "get_entry": lambda: backend.get_entry("k", deleted=True),
        "list_hwms": backend.list_hwms,
        "history": lambda: backend.history("k"),
        "histories": backend.histories,
        "environments": backend.environments,
        "in another environment": lambda: backend.in_environment("dev").list_hwms(),
        "list_runs": backend.list_runs,
        "the runs of a node": lambda: backend.list_runs(pipeline="flights", node="raw", limit=1),
        "find_run_ids": lambda: backend.find_run_ids("run"),
        "get_last_run": lambda: backend.get_last_run("flights", "raw"),
        "get_last_run_status": lambda: backend.get_last_run_status("flights", "raw"),
        "get_last_run_info": lambda: backend.get_last_run_info("flights", "raw"),
        "maintain": lambda: backend.maintain(dry_run=True),
        "set_hwm": lambda: backend.set_hwm("k", 1),
        "set_hwm_batch": lambda: backend.set_hwm_batch([{"key": "k", "value": 1}]),
        "delete_hwm": lambda: backend.delete_hwm("none"),
        "record_runs": lambda: backend.record_runs([run(1)]),
    }


def store_calls(folder: Path) -> Calls:
    def provider() -> StateStoreProvider:
        return StateStoreProvider(folder / "store", retry=Retry(sleep=no_waiting))

    return {
        "latest_version": lambda: provider().latest_version(),
        "versions": lambda: provider().versions(),
        "get_store": lambda: provider().get_store(1).get(b"k"),
        "maintain": lambda: provider().maintain(),
        "clean": lambda: provider().clean(),
    }


def table_calls(folder: Path) -> Calls:
    table = Location(str(folder / "table"))
    handle = TableHandle.open(table)
    (part,), _ = ledger.extend(table, (), [LoadedFile("a.csv", 1, 1)], "landing")
    return {
        "open": lambda: TableHandle.open(table).exists,
        "open at a version": lambda: TableHandle.open(table, 0).version,
        "is_kept": lambda: handle.is_kept(0),
        "its log": lambda: [commit.version for commit in handle.commits()],
        "lost_files": lambda: lost_files(table, handle.live_files),
        "the ledger's parts": lambda: ledger.is_there(table, (part,)),
        "the ledger": lambda: sorted(ledger.read_parts(table, (part,), "landing")),
    }


KINDS: dict[str, Callable[[Path], Calls]] = {
    "local": lambda folder: backend_calls("local", folder),
    "catalog": lambda folder: backend_calls("catalog", folder),
    "store": store_calls,
    "table": table_calls,
}


def fill(kind: str, folder: Path) -> None:
    """Something in every store."""
    folder.mkdir(parents=True)
    if kind == "store":
        with StateStoreProvider(folder / "store").get_store(0) as store:
            store.put(b"k", b"1")
            store.commit()
    elif kind == "table":
        table = Location(str(folder / "table"))
        write_deltalake(table.uri, pa.table({"id": [1]}))
        _, new = ledger.extend(table, (), [LoadedFile("a.csv", 1, 1)], "landing")
        assert new is not None
        ledger.write(table, new)
    else:
        backend = open_backend(kind, folder)
        backend.set_hwm("k", 1)
        backend.record_runs([run(0)])


@contextmanager
def no_access(folder: Path) -> Iterator[None]:
    """The folder is closed to who looks."""
    folder.chmod(0o700 if os.geteuid() == 0 else 0)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)
        folder.chmod(0o755)


@contextmanager
def no_access_inside(folder: Path) -> Iterator[None]:
    """The folder is open, and what is in it is not."""
    inside = [path for path in folder.iterdir() if path.is_dir()] or [folder]
    modes = [(path, path.stat().st_mode) for one in inside for path in (one, *one.rglob("*"))]
    modes += [(path, path.stat().st_mode) for path in folder.iterdir() if path.is_file()]
    for path, _ in reversed(modes):
        path.chmod(0o700 if os.geteuid() == 0 else 0)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)
        for path, mode in modes:
            path.chmod(mode)


@contextmanager
def in_its_place(folder: Path, put: Callable[[Path], None]) -> Iterator[None]:
    away = folder.with_name("away")
    folder.rename(away)
    put(folder)
    try:
        yield
    finally:
        folder.unlink()
        away.rename(folder)


TROUBLES: dict[str, Callable[[Path], Any]] = {
    "no access": no_access,
    "no access inside": no_access_inside,
    "a file in its place": lambda folder: in_its_place(folder, lambda path: path.write_text("in the way") and None),
    "a link that leads nowhere": lambda folder: in_its_place(folder, lambda path: path.symlink_to("/nowhere/at/all")),
    "a link to itself": lambda folder: in_its_place(folder, lambda path: path.symlink_to(path)),
}


def outcome(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"value": repr(call())}
    except OdiError as error:
        return {"error": error.message, "fix": error.fix, "transient": isinstance(error, Transient)}
    except BaseException as error:  # noqa: BLE001  deltalake's panics are no Exceptions
        return {"raw": repr(error)}


def look(kind: str, folder: Path) -> dict[str, dict[str, Any]]:
    """What each call says before the trouble, in each trouble, and after it."""
    folder.parent.chmod(0o755)
    fill(kind, folder)
    folder.chmod(0o755)
    calls = KINDS[kind](folder)
    told = {"before": {name: outcome(call) for name, call in calls.items()}}
    for name, trouble in TROUBLES.items():
        with trouble(folder):
            told[name] = {what: outcome(call) for what, call in calls.items()}
    told["after"] = {name: outcome(call) for name, call in calls.items()}
    return told


@pytest.fixture(scope="module", params=KINDS)
def told(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """What a store of this kind said, in a process that gives up being root for a while."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", __name__, request.param, f"{name}/folder"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users of this kind on this system")
@pytest.mark.parametrize("trouble", TROUBLES)
def test_every_call_of_every_store_says_that_it_cannot_look(told: dict[str, dict[str, Any]], trouble: str) -> None:
    assert all("value" in one for one in told["before"].values()), told["before"]
    wrong = {name: one for name, one in told[trouble].items() if "error" not in one}
    assert wrong == {}
    assert not any(one["transient"] for one in told[trouble].values())
    assert all(one["fix"] for one in told[trouble].values()), told[trouble]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users of this kind on this system")
def test_all_of_it_is_there_again_afterwards(told: dict[str, dict[str, Any]]) -> None:
    assert all("value" in one for one in told["after"].values()), told["after"]
    same = [name for name in told["before"] if name in ("get_hwm", "get_store", "lost_files", "the ledger")]
    assert same
    assert {name: told["after"][name] for name in same} == {name: told["before"][name] for name in same}


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1], Path(sys.argv[2]))))
