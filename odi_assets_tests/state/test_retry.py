"""Retries: the documented waits, only for transient errors, told in the log."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from odi_assets.config.models import ProjectConfig, RetryConfig
from odi_assets.delta import table as delta_tables
from odi_assets.delta.retry import Retry
from odi_assets.errors import ConfigError, StateConflictError, StateError, TableConflictError, Transient
from odi_assets.state import create_state_backend
from odi_assets.state.delta import table as system_tables
from odi_assets.state.delta.backend import CatalogStateBackend
from odi_assets_tests.state.test_runs_contract import run


class Operation:
    """Fails with each of ``errors`` in turn, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def conflicts(number: int) -> list[Exception]:
    return [StateConflictError(f"conflict {n}") for n in range(number)]


def retrying(waits: list[float], config: RetryConfig | None = None) -> Retry:
    return Retry(config, sleep=waits.append, draw=lambda low, high: low + (high - low) / 2)


def test_what_succeeds_is_done_once_without_waiting() -> None:
    waits: list[float] = []
    assert retrying(waits).call(Operation(), "it") == "done"
    assert waits == []


def test_the_waits_double_from_one_to_sixteen_seconds_plus_up_to_one() -> None:
    waits: list[float] = []
    operation = Operation(*conflicts(5))
    assert retrying(waits).call(operation, "it") == "done"
    assert waits == [1.5, 2.5, 4.5, 8.5, 16.5]
    assert operation.calls == 6


def test_after_five_retries_the_last_error_is_raised_with_a_note() -> None:
    waits: list[float] = []
    operation = Operation(*conflicts(9))
    with pytest.raises(StateConflictError, match="conflict 5") as given_up:
        retrying(waits).call(operation, "it")
    assert operation.calls == 6
    assert given_up.value.__notes__ == ["given up after 6 attempts"]


def test_the_random_part_lies_between_nothing_and_the_jitter() -> None:
    waits: list[float] = []
    Retry(sleep=waits.append).call(Operation(*conflicts(5)), "it")
    assert all(base <= wait <= base + 1 for base, wait in zip((1, 2, 4, 8, 16), waits, strict=True))
    assert len({wait % 1 for wait in waits}) > 1


def test_retries_and_waits_are_configurable() -> None:
    waits: list[float] = []
    config = RetryConfig(retries=4, base_delay=0.5, max_delay=2, jitter=0)
    with pytest.raises(StateConflictError):
        retrying(waits, config).call(Operation(*conflicts(9)), "it")
    assert waits == [0.5, 1, 2, 2]


def test_no_retries_means_one_attempt() -> None:
    waits: list[float] = []
    with pytest.raises(StateConflictError):
        retrying(waits, RetryConfig(retries=0)).call(Operation(*conflicts(1)), "it")
    assert waits == []


@pytest.mark.parametrize(
    "error",
    [
        PermissionError("conflict: concurrent access denied"),
        OSError(28, "No space left on device"),
        StateError("schema mismatch"),
        ConfigError("conflict"),
        KeyError("conflict"),
    ],
)
def test_an_error_that_is_not_transient_is_raised_at_once_whatever_it_says(error: Exception) -> None:
    waits: list[float] = []
    with pytest.raises(type(error)):
        retrying(waits).call(Operation(error), "it")
    assert waits == []


def test_a_final_error_after_a_transient_one_ends_the_retries() -> None:
    waits: list[float] = []
    with pytest.raises(PermissionError):
        retrying(waits).call(Operation(TableConflictError("busy"), PermissionError("no")), "it")
    assert len(waits) == 1


def test_every_attempt_is_logged_with_what_it_met(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        retrying([]).call(Operation(*conflicts(2)), "set_hwm of `orders`")
    assert [record.getMessage() for record in caplog.records] == [
        "set_hwm of `orders`: attempt 1 of 6 met StateConflictError: conflict 0; trying again in 1.5 s",
        "set_hwm of `orders`: attempt 2 of 6 met StateConflictError: conflict 1; trying again in 2.5 s",
    ]


# -- through the backend -----------------------------------------------------------------------------------------------


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
def test_the_retries_of_the_project_file_are_those_of_the_backend(
    grown: Path, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    retry = {"retries": retries, "base_delay": 0.001, "max_delay": 0.001, "jitter": 0}
    document = {
        "project": "x",
        "connections": {"lake": {"type": "local", "base_path": str(grown)}},
        "system": {"connection": "lake", "path": ".", "retry": retry},
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
