"""Retries: the documented waits, only for transient errors, told in the log."""

from __future__ import annotations

import logging

import pytest

from odi_assets.config.models import RetryConfig
from odi_assets.delta.errors import OutcomeUnknownError
from odi_assets.delta.retry import MOST_RACES, Retry, raced
from odi_assets.errors import ConfigError, StateConflictError, StateError, TableConflictError


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


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (RetryConfig(backoff="linear", max_attempts=4), [1.5, 2.5, 3.5]),
        (RetryConfig(backoff="constant", max_attempts=4), [1.5, 1.5, 1.5]),
        (RetryConfig(enabled=False), []),
    ],
)
def test_waits_may_grow_otherwise_and_retries_be_turned_off(config: RetryConfig, expected: list[float]) -> None:
    waits: list[float] = []
    with pytest.raises(StateConflictError):
        retrying(waits, config).call(Operation(*conflicts(9)), "it")
    assert waits == expected


@pytest.mark.parametrize("found", [None, "found"])
def test_a_commit_whose_outcome_is_unknown_is_looked_for_before_it_is_made_again(found: str | None) -> None:
    unknown = OutcomeUnknownError("no answer")
    answers: list[str | Exception | None] = [unknown, found]

    def look() -> str | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    unknown.look = look
    operation, waits = Operation(unknown), list[float]()
    assert retrying(waits).call(operation, "it") == (found or "done")
    assert (operation.calls, len(waits), answers) == (1 if found else 2, 2, [])


def test_a_lost_race_is_begun_anew_at_once_and_another_error_is_raised() -> None:
    operation = Operation(*conflicts(3))
    assert raced(operation, lambda error: isinstance(error, StateConflictError)) == "done"
    with pytest.raises(StateError, match="damaged"):
        raced(Operation(*conflicts(1), StateError("damaged")), lambda error: isinstance(error, StateConflictError))
    endless = Operation(*conflicts(100))
    with pytest.raises(StateConflictError, match=f"conflict {MOST_RACES - 1}"):
        raced(endless, lambda _error: True)
