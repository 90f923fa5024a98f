"""Snapshots and increments of real tables, killed at every step of the protocol while the tables change.

`python -m benchmarks snapshots --only kills` does the same by SIGKILL, thousands of times.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pkgutil import resolve_name
from typing import Any

import pytest
from deltalake import DeltaTable

from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.sql.conftest import Make, both
from odi_assets_tests.sources.sql.servers import Server
from odi_assets_tests.sources.sql.test_snapshots import Killed, cursors

POINTS = (
    ("odi_assets.nodes.execution.materialize.resolve", "after"),
    ("odi_assets.sources.sql.snapshots.storage_of", "after"),
    ("odi_assets.sources.sql.reader.RelationReader.chunks", "after"),
    ("odi_assets.tables.modes.base.written_files", "before"),
    ("odi_assets.delta.commit._commit_once", "before"),
    ("odi_assets.delta.commit._commit_once", "after"),
    ("odi_assets.nodes.execution.materialize.advance", "before"),
    ("odi_assets.nodes.execution.materialize.advance", "after"),
    ("odi_assets.nodes.run_node.plan_node", "after"),
)


def kill_at(patched: pytest.MonkeyPatch, function: str, moment: str, nth: int) -> None:
    holder, _, name = function.rpartition(".")
    original: Callable[..., Any] = getattr(resolve_name(holder), name)
    passed = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal passed
        passed += 1
        if passed == nth and moment == "before":
            raise Killed
        found = original(*args, **kwargs)
        if passed == nth:
            raise Killed
        return found

    patched.setattr(resolve_name(holder), name, wrapped)


class Life:
    """A table that grows and changes, and what of it has to be in the target."""

    def __init__(self, server: Server, draw: random.Random, *, changes: bool) -> None:
        self.server, self.draw, self.changes = server, draw, changes
        self.rows: dict[int, int] = {}
        self.clock = 0
        key = "" if server.type == "postgres" else " PRIMARY KEY"
        server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events (id bigint{key}, at bigint)")

    def go_on(self, count: int) -> None:
        statements = []
        for _ in range(count):
            self.clock += 1
            changed = self.changes and bool(self.rows) and self.draw.random() < 0.5
            id_ = self.draw.choice(list(self.rows)) if changed else self.clock
            self.rows[id_] = self.clock
            insert = f"INSERT INTO events VALUES ({id_}, {self.clock})"
            statements.append(f"UPDATE events SET at = {self.clock} WHERE id = {id_}" if changed else insert)
        self.server.execute(*statements)


@both
def test_runs_killed_at_every_step_lose_and_repeat_no_row(make: Make, server: Server) -> None:
    draw = random.Random(2013)
    is_postgres = server.type == "postgres"
    # By pages with append, and by key with upsert, where rows change in the middle of the snapshot.
    life = Life(server, draw, changes=not is_postgres)
    box = make(cursors("rows: 2"), "mode: append" if is_postgres else "mode: upsert, keys: [id]")
    life.go_on(7)
    for number, (function, moment) in enumerate(draw.sample(POINTS, len(POINTS))):
        with pytest.MonkeyPatch.context() as patched, ExitStack() as stack:
            kill_at(patched, function, moment, draw.choice((1, 1, 2)))
            stack.callback(life.go_on, draw.randint(0, 3))
            with suppress(Killed):
                box.run("events", full_refresh=number == 4)
        if number % 3 == 2:
            box.run("events")
            assert dict(box.rows("events")) == life.rows, (function, moment)
        _no_version_repeats_a_row(box)
    box.run("events")
    assert dict(box.rows("events")) == life.rows


def _no_version_repeats_a_row(box: Sandbox) -> None:
    table = box.table("events")
    if not table.exists:
        return
    for version in range((table.version or 0) + 1):
        found = DeltaTable(table.location.uri, version=version).to_pyarrow_table()["id"].to_pylist()
        assert len(found) == len(set(found)), version
