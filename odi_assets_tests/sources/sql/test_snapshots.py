"""Snapshots of real tables in chunks, and the increments after them: every row once, wherever a run ends."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from odi_assets.sources.marks import SnapshotMark
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.sql.conftest import Make, both
from odi_assets_tests.sources.sql.servers import Server


def filled(server: Server, rows: int, key: str = "id bigint PRIMARY KEY") -> None:
    """A table of `rows` rows: an id, a cursor that grows with it, and a text."""
    server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events ({key}, at bigint, note varchar(40))")
    add(server, 1, rows)


def add(server: Server, first: int, last: int) -> None:
    values = ", ".join(f"({number}, {number * 10}, 'n{number}')" for number in range(first, last + 1))
    server.execute(f"INSERT INTO events (id, at, note) VALUES {values}")


def cursors(snapshot: str = "rows: 4", more: str = "columns: at") -> str:
    return f"table: events, incremental: {{mode: cursors, {more}, snapshot: {{{snapshot}}}}}"


def ids(box: Sandbox) -> list[int]:
    return sorted(row[0] for row in box.rows("events"))


def left(box: Sandbox) -> int:
    chunks = SnapshotMark.of(box.hwm("events"), "").chunks
    return len(chunks.left) if chunks else 0


class Killed(BaseException):
    """A run that ends where it is."""


def step(box: Sandbox, monkeypatch: pytest.MonkeyPatch, commits: int = 1) -> None:
    """A run that is killed after so many commits."""
    from odi_assets.nodes.execution import steps

    real, made = steps.commit_once, itertools.count(1)

    def killed(*args: Any) -> Any:
        result = real(*args)
        if next(made) >= commits:
            raise Killed
        return result

    with monkeypatch.context() as patched:
        patched.setattr(steps, "commit_once", killed)
        with pytest.raises(Killed):
            box.run("events")


@both
def test_a_snapshot_is_a_commit_for_each_chunk_and_goes_on_where_it_was_killed(
    make: Make, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(server, 11)
    box = make(cursors())
    step(box, monkeypatch, 2)
    assert (left(box), len(ids(box))) == (1, 8)
    # What comes or changes meanwhile is above the maxima, and read after the snapshot.
    server.execute("UPDATE events SET at = 1000 WHERE id = 10", "INSERT INTO events VALUES (0, 2000, 'low')")
    result = box.run("events")
    assert (result.status, result.rows_written, result.metrics["commits"]) == (RunStatus.SUCCESS, 4, 2)
    assert ids(box) == list(range(12))
    assert box.hwm("events") == {"cursors": {"at": 2000}}
    assert box.plan("events").nothing_new
    add(server, 300, 301)
    assert (box.run("events").rows_written, len(ids(box))) == (2, 14)
