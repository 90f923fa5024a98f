"""Many processes at once, and processes that are killed: nothing acknowledged is lost."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from odi_assets_tests.state import writers
from odi_assets_tests.state.conftest import Reopen
from odi_assets_tests.state.killed import Writer, started

NAMES = [f"w{n}" for n in range(8)]


def test_writers_of_distinct_keys_lose_nothing_and_never_wait(kind: str, tmp_path: Path, reopen: Reopen) -> None:
    running = writers.start(kind, tmp_path, "set_own_keys", 10, NAMES)
    writers.go(running)
    assert all(len(told) == 10 for told in writers.acknowledged(running))
    found = {entry.key: entry.value for entry in reopen().list_hwms()}
    assert found == {f"{name}.{n % 5}": n for name in NAMES for n in range(6, 11)}
    assert {entry.revision for entry in reopen().list_hwms()} == {2}


def test_compare_and_set_from_many_processes_counts_exactly(kind: str, tmp_path: Path, reopen: Reopen) -> None:
    running = writers.start(kind, tmp_path, "increment_shared", 4, NAMES)
    writers.go(running)
    won = Counter(value for told in writers.acknowledged(running) for value in told)
    assert won == Counter(range(1, 33))
    assert reopen().get_hwm("shared") == 32


@pytest.mark.parametrize("kind", ["catalog"])
def test_processes_that_make_the_tables_at_once_all_succeed(tmp_path: Path, kind: str) -> None:
    for attempt in range(2):
        folder = tmp_path / str(attempt)
        running = writers.start(kind, folder, "set_one_shared_document", 1, NAMES)
        writers.go(running)
        assert writers.acknowledged(running) == [[1]] * 8
        found = writers.open_backend(kind, folder).list_hwms()
        assert [entry.key for entry in found] == NAMES


@pytest.mark.parametrize("kind", ["local"])
def test_fifty_sets_of_eight_processes_are_all_in_the_json_file(kind: str, tmp_path: Path, reopen: Reopen) -> None:
    running = writers.start(kind, tmp_path, "set_one_shared_document", 50, NAMES)
    writers.go(running)
    writers.acknowledged(running)
    assert {(e.key, e.value, e.revision) for e in reopen().list_hwms()} == {(name, 50, 50) for name in NAMES}


def test_writers_killed_at_thirty_random_moments_lose_no_acknowledged_write(
    kind: str, tmp_path: Path, reopen: Reopen
) -> None:
    draw = random.Random(2013)
    gone: list[Writer] = []
    for round_ in range(10):
        with started(kind, tmp_path, [f"w{round_}.{number}" for number in range(3)]) as running:
            for writer in running:
                writer.hear_one()
            for writer in draw.sample(running, 3):
                time.sleep(draw.random() / 20)
                writer.kill()
        # Whatever they left half done, the next writer goes on at once, and readers see whole writes.
        reopen().set_hwm("next", round_)
        assert {writer.name: missing for writer in running if (missing := writer.missing(reopen()))} == {}
        gone += running
    reopen().maintain()
    assert reopen().get_hwm("next") == 9
    assert {writer.name: missing for writer in gone if (missing := writer.missing(reopen()))} == {}
    assert len(reopen().history("next")) == 10
