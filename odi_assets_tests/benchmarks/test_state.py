"""The benchmark of state, small and without its peer: every part measures, and what needs no peer holds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.harness import Options, Row, in_labs
from benchmarks.peers import PeerCrashed
from benchmarks.state import parts
from benchmarks.state.lab import Lab, counted, lab
from benchmarks.state.sizes import SMALL

PARTS = parts(SMALL)
LAB = sys.modules[Lab.__module__]


@pytest.mark.parametrize("name", PARTS)
def test_every_part_measures_ours_and_loses_nothing(name: str) -> None:
    rows = PARTS[name](Options(say=print, peers=False))
    assert rows
    # What is counted holds at any size; what is timed says nothing at this one.
    assert [row for row in rows if isinstance(row.ours, int) and not row.holds] == []


class Dying:
    """A peer's environment whose interpreter says one line, or nothing, and dies."""

    title = "odibi 0"

    def __init__(self, python: Path) -> None:
        self._python = python

    def make(self, say: Callable[[str], None]) -> None:
        say("made")

    def program(self, _name: str) -> Path:
        return self._python


@pytest.mark.parametrize("part", ["shell", "json"])
def test_of_a_peer_that_crashes_each_row_says_so_and_ours_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    for name in ("python", "odibi"):
        (tmp_path / name).write_text("#!/bin/sh\necho Aborted >&2\nexit 134\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(LAB, "PeerEnvironment", lambda _name: Dying(tmp_path / "python"))
    said: list[str] = []
    rows = PARTS[part](Options(say=said.append))
    assert [row.peer for row in rows] == [None] * len(rows)
    assert all("odibi 0 crashed: " in row.against and "134" in row.against for row in rows)
    assert all(row.holds in (None, True) for row in rows)
    assert sum("measuring again" in line for line in said) == 2


def test_a_peer_that_crashes_now_and_then_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LAB, "PeerEnvironment", lambda _name: Dying(Path("none")))
    begun: list[bool] = []

    def measure(opened: Lab, _sizes: object) -> Iterator[Row]:
        begun.append(opened.odibi is not None)
        if len(begun) == 1:
            raise PeerCrashed("odibi 0 crashed: exit code -6")
        yield counted("rows", 1, 2, opened.against, "1", True)

    [row] = in_labs({"part": measure}, lab, None)["part"](Options(say=print))
    assert (begun, row.peer, row.against) == ([True, True], 2, "odibi 0")
