"""Retries through the backend: conflicts and stores that do not answer are waited for, refusals are not."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from odi_assets.config.models import ProjectConfig
from odi_assets.delta import table as delta_tables
from odi_assets.errors import StateConflictError, StateError, Transient
from odi_assets.state import create_state_backend
from odi_assets.state.delta import table as system_tables
from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets_tests.delta.test_retry import retrying
from odi_assets_tests.state.test_runs_contract import run


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """Tables past their first versions, at which writers start over at once instead of waiting."""
    state = CatalogStateBackend(str(tmp_path / "meta_runs"), str(tmp_path / "meta_state"))
    for number in range(22):
        state.set_hwm("k", number)
        state.record_runs([run(number)])
    return tmp_path


def opened(folder: Path, waits: list[float]) -> CatalogStateBackend:
    return CatalogStateBackend(str(folder / "meta_runs"), str(folder / "meta_state"), retry=retrying(waits))


def test_a_write_that_keeps_meeting_conflicts_looks_anew_waits_as_documented_and_tells_each_attempt(
    grown: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []
    rival, seen = opened(grown, []), []
    real = system_tables.write_deltalake

    def overtaken(table: DeltaTable, *args: Any, **options: Any) -> None:
        seen.append(table.version())
        with monkeypatch.context() as unhindered:
            unhindered.setattr(system_tables, "write_deltalake", real)
            rival.reset_hwm("k", 100 + len(seen))
        real(table, *args, **options)

    monkeypatch.setattr(system_tables, "write_deltalake", overtaken)
    with caplog.at_level(logging.WARNING), pytest.raises(StateConflictError) as given_up:
        opened(grown, waits).reset_hwm("k", -1)
    assert waits == [1.5, 2.5, 4.5, 8.5, 16.5]
    assert seen == sorted(set(seen))
    assert len(seen) == 6
    assert given_up.value.__notes__ == ["given up after 6 attempts"]
    told = [record.getMessage() for record in caplog.records]
    assert [text.partition(" met ")[0] for text in told] == [f"set_hwm of `k`: attempt {n} of 6" for n in range(1, 6)]
    assert all("CommitConflict" in text and "trying again in" in text for text in told)
    assert rival.get_hwm("k") == 106


READS = {
    "get_hwm": lambda state: state.get_hwm("k"),
    "list_hwms": lambda state: state.list_hwms(),
    "history": lambda state: state.history("k"),
    "list_runs": lambda state: state.list_runs(),
    "get_last_run_info": lambda state: state.get_last_run_info("flights", "raw"),
    "maintain": lambda state: state.maintain(),
}


@pytest.mark.parametrize("call", READS)
def test_a_store_that_is_away_for_a_while_is_waited_for_by_every_call(
    grown: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    waits: list[float] = []
    real = delta_tables.DeltaTable

    def away(*args: Any, **options: Any) -> DeltaTable:
        if len(waits) < 2:
            raise TimeoutError("no answer")
        return real(*args, **options)

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(delta_tables, "DeltaTable", away)
        READS[call](opened(grown, waits))
    assert waits == [1.5, 2.5]
    assert sum("StoreUnreachableError" in record.getMessage() for record in caplog.records) == 2


@pytest.mark.parametrize("call", READS)
def test_a_store_that_refuses_is_asked_without_waiting(grown: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    waits: list[float] = []

    def refused(*_: Any, **__: Any) -> DeltaTable:
        raise PermissionError(errno.EACCES, "conflict: concurrent access denied")

    monkeypatch.setattr(delta_tables, "DeltaTable", refused)
    with pytest.raises(StateError, match="access denied") as told:
        READS[call](opened(grown, waits))
    assert not isinstance(told.value, Transient)
    assert waits == []


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("where", ["system", "top"])
def test_the_retries_of_the_project_file_are_those_of_the_backend(
    grown: Path, monkeypatch: pytest.MonkeyPatch, retries: int, where: str
) -> None:
    retry = {"retries": retries, "base_delay": 0.001, "max_delay": 0.001, "jitter": 0}
    document = {
        "project": "x",
        "connections": {"lake": {"type": "local", "base_path": str(grown)}},
        "system": {"connection": "lake", "path": ".", **({"retry": retry} if where == "system" else {})},
        **({"retry": retry} if where == "top" else {}),
        "pipelines": [{"pipeline": "p", "nodes": [{"name": "n", "write": {"connection": "lake", "path": "n"}}]}],
    }
    state = create_state_backend(ProjectConfig.model_validate(document), grown)
    calls = []

    def busy(*_: Any, **__: Any) -> None:
        calls.append(1)
        raise CommitFailedError("busy")

    monkeypatch.setattr(system_tables, "write_deltalake", busy)
    with pytest.raises(StateConflictError):
        state.set_hwm("k", 1000)
    assert len(calls) == retries + 1
