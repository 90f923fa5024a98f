"""A cursor whose type is altered in the database: the command that the message names leads on, as it is typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.errors import IncrementError
from odi_assets.nodes.planning.planner import plan_node
from odi_assets.nodes.project import Project
from odi_assets.state.values.typed_text import to_text
from odi_assets_tests.nodes.support import HEAD
from odi_assets_tests.sources.sql.conftest import NODE, both
from odi_assets_tests.sources.sql.servers import Server

MOMENT = datetime(2024, 1, 1, 10, 0, 0, 7)
CHANGES: list[tuple[Any, str, Any]] = [
    (MOMENT.replace(tzinfo=UTC), "local", MOMENT),
    (MOMENT, "instant", MOMENT.replace(tzinfo=UTC)),
    (date(2024, 1, 1), "local", datetime(2024, 1, 1)),
    (7, "decimal", Decimal(7)),
    (Decimal("7.00"), "int", 7),
    (7, "float", 7.0),
]
MODES: dict[str, Callable[[Any], Any]] = {
    "{mode: stateful, column: at}": lambda value: value,
    "{mode: cursors, columns: [made, at], snapshot: {by: [id]}}": lambda value: {"cursors": {"made": 3, "at": value}},
}


@pytest.fixture
def project(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Project]:
    """A project in the current folder, whose node follows `events`."""
    monkeypatch.chdir(tmp_path)

    def made(increment: str) -> Project:
        node = NODE.replace("READ", f"table: events, incremental: {increment}").replace("WRITE", "mode: append")
        head = HEAD.replace("system:", f"{server.connection}system:")
        (tmp_path / "odibi.yaml").write_text(head + node.replace("\n", "\n  "), encoding="utf-8")
        # As an earlier run has left it.
        write_deltalake(tmp_path / "lake" / "events", pa.table({"id": pa.array([1], pa.int64())}))
        return Project.load(tmp_path / "odibi.yaml")

    return made


@both
@pytest.mark.parametrize("increment", MODES)
def test_the_command_for_a_cursor_of_another_type_leads_on(
    server: Server, project: Callable[[str], Project], increment: str
) -> None:
    found, key, stored = project(increment), NodeKey("p", "events"), MODES[increment]
    state = found.open_state()
    for before, kind, now in CHANGES:
        columns = f"id bigint PRIMARY KEY, made int, at {server.types[kind]}"
        server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events ({columns})")
        server.execute("INSERT INTO events (id, made) VALUES (1, 3)" if "made" in increment else "SELECT 1")
        assert main(["state", "set", "p.events", to_text(stored(before))]) == 0
        with pytest.raises(IncrementError, match=r"and its HWM .* is ") as stopped:
            plan_node(found, state, key)
        command = re.search(r"set the HWM to the same value of the new type: odi (.*); or load", str(stopped.value.fix))
        assert command, stopped.value.fix
        assert main(shlex.split(command[1])) == 0
        assert state.get_hwm("p.events") == stored(now)
        assert plan_node(found, state, key).nothing_new


def test_a_type_in_which_the_mark_means_nothing_leaves_the_full_refresh(
    server: Server, project: Callable[[str], Project]
) -> None:
    found = project("{mode: stateful, column: at}")
    for before, kind in ((7, "text"), (Decimal("7.5"), "bigint"), (MOMENT, "date")):
        server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events (id int, at {kind})")
        assert main(["state", "set", "p.events", to_text(before)]) == 0
        with pytest.raises(IncrementError) as stopped:
            plan_node(found, found.open_state(), NodeKey("p", "events"))
        fix = "if the column was changed on purpose, load everything again with odi run p --node events --full-refresh"
        assert stopped.value.fix == fix
