"""What puts a key in order is altered in the middle of a snapshot: its chunks would be others now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.sources.reads import Read
from odi_assets.sources.sql import position as plain
from odi_assets.sources.sql.chunks import key_orders
from odi_assets.sources.sql.marks import Chunks, SnapshotMark
from odi_assets.sources.sql.source import CursorTableSource
from odi_assets.sources.sql.statements import Relation
from odi_assets_tests.nodes.support import HEAD
from odi_assets_tests.sources.sql.conftest import NODE, Make, both
from odi_assets_tests.sources.sql.servers import Server
from odi_assets_tests.sources.sql.test_keys import cut, session
from odi_assets_tests.sources.sql.test_snapshots import cursors, left, step

FOLLOWED = "incremental: {mode: cursors, columns: at, snapshot: {rows: 2, by: k}}"
MOODS = (
    "DROP TYPE IF EXISTS odi_mood CASCADE",
    "DROP TYPE IF EXISTS odi_turned CASCADE",
    "CREATE TYPE odi_mood AS ENUM ('z', 'a')",
    "CREATE TYPE odi_turned AS ENUM ('a', 'z')",
)
OTHERS = {
    "postgres": {
        "a collation": ('text COLLATE "C"', 'text COLLATE "und-x-icu"', 'text "C"', 'text "und-x-icu"'),
        "text of the database": ("text", 'text COLLATE "C"', 'text "default"', 'text "C"'),
        "a type": ("bigint", "text", "whole number", 'text "default"'),
        "a zone": ("timestamptz", "timestamp", "timestamp with time zone", "timestamp without time zone"),
        "members": ("odi_mood", "odi_turned USING k::text::odi_turned", "odi_mood('z','a')", "odi_turned('a','z')"),
    },
    "mysql": {
        "a collation": (
            "varchar(20) COLLATE utf8mb4_general_ci",
            "varchar(20) COLLATE utf8mb4_bin",
            "text utf8mb4_general_ci",
            "text utf8mb4_bin",
        ),
        "a type": ("int", "varchar(20)", "whole number", "text utf8mb4_general_ci"),
        "a zone": ("timestamp(6)", "datetime(6)", "timestamp", "datetime"),
        "members": ("enum('z','a')", "enum('a','z')", "enum('z','a')", "enum('a','z')"),
        "members of a set": ("set('z','a')", "set('a','z')", "set('z','a')", "set('a','z')"),
    },
}
ALIKE = {
    "postgres": {
        "a longer text": ("varchar(20)", "text"),
        "greater numbers": ("int", "bigint"),
        "one more member": ("odi_mood", "ALTER TYPE odi_mood ADD VALUE 'm'"),
    },
    "mysql": {
        "a longer text": ("varchar(20)", "mediumtext"),
        "greater numbers": ("int", "bigint unsigned"),
        "one more member": ("enum('z','a')", "enum('z','a','m')"),
    },
}
LENGTHS: dict[str, list[list[str]]] = {
    # From each type to the ones behind it, values are cut off or rounded.
    "postgres": [
        ["numeric", "numeric(14,4)", "numeric(12,1)", "numeric(12,-1)"],
        ["timestamp", "timestamp(3)", "timestamp(0)"],
        ["timestamptz(6)", "timestamptz(3)", "timestamptz(0)"],
        ["time", "time(2)", "time(0)"],
        ["interval", "interval(2)", "interval(0)"],
        ["text", "varchar(20)", "varchar(3)"],
        ["varchar", "varchar(20)", "varchar(3)"],
        ["bit varying", "bit varying(9)", "bit varying(2)"],
    ],
    "mysql": [
        ["decimal(14,4)", "decimal(12,1)", "decimal(12,0)"],
        ["datetime(6)", "datetime(3)", "datetime"],
        ["timestamp(6)", "timestamp(3)", "timestamp"],
        ["time(6)", "time(3)", "time"],
        ["mediumtext", "text", "varchar(20)", "varchar(3)"],
        ["varbinary(20)", "varbinary(3)"],
    ],
}
OfTable = Callable[[str], CursorTableSource]


@pytest.fixture
def followed(tmp_path: Path, server: Server) -> OfTable:
    """The source of a node that reads `events` in chunks by `k`."""

    def source(read: str = "table: events") -> CursorTableSource:
        node = NODE.replace("READ", f"{read}, {FOLLOWED}").replace("WRITE", "mode: append")
        head = HEAD.replace("system:", f"{server.connection}system:")
        (tmp_path / "odibi.yaml").write_text(head + node.replace("\n", "\n  "), encoding="utf-8")
        (found,) = Node.of(Project.load(tmp_path / "odibi.yaml"), NodeKey("p", "events")).sources
        assert isinstance(found, CursorTableSource)
        return found

    return source


def begun(server: Server, source: CursorTableSource, kind: str) -> SnapshotMark:
    """The mark of a snapshot by `k`, of which a chunk is left."""
    if server.type == "postgres":
        server.execute(*MOODS)
    server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events (id int, k {kind} NULL, at int)")
    server.execute("INSERT INTO events (id, at) VALUES (1, 1), (2, 2)")
    with session(server) as (_, ask, _asked):
        types = {"k": "integer" if "int" in kind else "string"}
        return SnapshotMark({"at": 2}, cut(source.relation, ["k"], ask, 9, **types))


def alter(server: Server, kind: str) -> None:
    if kind.startswith("ALTER"):
        server.execute(kind)
    elif server.type == "postgres":
        server.execute(f"ALTER TABLE events ALTER k TYPE {kind}")
    else:
        server.execute(f"ALTER TABLE events MODIFY k {kind} NULL")


def chunks_after(source: CursorTableSource, mark: SnapshotMark) -> Chunks:
    """The chunks of a snapshot that is planned to go on."""
    found = source.plan(SnapshotMark.of(mark.value, "")).before
    assert isinstance(found, SnapshotMark)
    assert found.chunks is not None
    return found.chunks


@both
def test_chunks_that_were_cut_in_another_order_stop_the_plan(server: Server, followed: OfTable) -> None:
    for name, (kind, other, then, now) in OTHERS[server.type].items():
        source = followed()
        mark = begun(server, source, kind)
        chunks_after(source, mark)
        alter(server, other)
        with pytest.raises(IdentityMismatchError) as caught:
            source.plan(SnapshotMark.of(mark.value, ""))
        said = str(caught.value)
        assert f"`k` was {then}" in said, (name, said)
        assert f", and is {now}" in said, (name, said)
        assert "--full-refresh" in str(caught.value.fix)


@both
def test_chunks_go_on_where_the_order_of_their_key_is_the_same(server: Server, followed: OfTable) -> None:
    for kind, other in ALIKE[server.type].values():
        source = followed()
        mark = begun(server, source, kind)
        alter(server, other)
        chunks_after(source, mark)


@both
def test_chunks_stop_where_values_of_their_key_got_shorter_and_go_on_where_they_may_be_longer(
    server: Server, followed: OfTable
) -> None:
    changes = [
        (ladder[at], ladder[to], at < to)
        for ladder in LENGTHS[server.type]
        for at in range(len(ladder))
        for to in range(len(ladder))
        if at != to
    ]
    source, wrong = followed(), []
    for before, now, is_shorter in changes:
        mark = begun(server, source, before)
        alter(server, f"{now} USING k::{now}" if server.type == "postgres" else now)
        try:
            chunks_after(source, mark)
            stopped = ""
        except IdentityMismatchError as error:
            stopped = str(error)
        if bool(stopped) is not is_shorter:
            wrong.append((before, now, stopped))
    assert not wrong


def test_chunks_of_a_query_stop_where_numbers_or_times_of_their_key_lost_digits(
    server: Server, followed: OfTable
) -> None:
    for before, now in (
        ("numeric(14,4)", "numeric(12,1)"),
        ("numeric", "numeric(12,1)"),
        ("timestamp", "timestamp(0)"),
    ):
        source = followed("query: 'SELECT at, k FROM events'")
        mark = begun(server, source, before)
        assert mark.chunks is not None
        relation, by = source.relation, mark.chunks.by
        driver = plain.driver_of(relation.dialect)
        assert driver is not None
        orders = plain.ask(
            relation.dialect,
            driver,
            "",
            lambda asked, relation=relation, by=by: key_orders(relation, by, asked.columns(relation.sql), asked.rows),
        )
        mark = replace(mark, chunks=replace(mark.chunks, order=orders))
        chunks_after(source, mark)
        alter(server, now)
        with pytest.raises(IdentityMismatchError, match=r"of [01] characters"):
            source.plan(mark)


@both
def test_chunks_of_a_query_know_the_collation_of_their_key(server: Server, followed: OfTable) -> None:
    query = "SELECT at, k FROM events"
    source = followed(f"query: '{query}'")
    kind, other, then, now = OTHERS[server.type]["a collation"]
    mark = begun(server, source, kind)
    assert isinstance(source.relation, Relation)
    chunks_after(source, mark)
    alter(server, other)
    with pytest.raises(IdentityMismatchError) as caught:
        source.plan(mark)
    assert then.removeprefix("text ") in str(caught.value)
    assert now.removeprefix("text ") in str(caught.value)


def test_a_collation_whose_library_was_upgraded_is_another_order(server: Server, followed: OfTable) -> None:
    source = followed()
    mark = begun(server, source, 'text COLLATE "und-x-icu"')
    assert mark.chunks is not None
    (order,) = mark.chunks.order
    name, _, version = order.removesuffix(" of any length").rpartition(" ")
    assert name == 'text "und-x-icu"'
    assert version[0].isdigit()
    earlier = replace(mark, chunks=replace(mark.chunks, order=(f"{name} 1.1",)))
    with pytest.raises(IdentityMismatchError, match=r"was text .und-x-icu. 1\.1, and is text .und-x-icu. \d"):
        source.plan(earlier)


@both
def test_marks_of_before_go_on_and_keep_the_order_from_then_on(server: Server, followed: OfTable) -> None:
    source = followed()
    mark = begun(server, source, "varchar(20)")
    assert mark.chunks is not None
    of_before = replace(mark, chunks=replace(mark.chunks, left=mark.chunks.left * 2, count=2, order=()))
    assert "order" not in of_before.value["snapshot"]
    assert isinstance(source.plan(of_before), Read)


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_run_stops_too_and_the_full_refresh_that_it_names_has_each_row_once(
    make: Make, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, other, *_ = OTHERS["mysql"]["a collation"]
    server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events (k {kind} PRIMARY KEY, id int, at bigint)")
    server.insert("events", *(("aBbZAczC"[number % 8] + str(number), number, number) for number in range(12)))
    box = make(cursors("rows: 4"))
    step(box, monkeypatch)
    server.execute(f"ALTER TABLE events MODIFY k {other} NOT NULL")
    with pytest.raises(IdentityMismatchError, match="utf8mb4_general_ci, and is text utf8mb4_bin"):
        box.run("events")
    assert left(box) == 2
    with monkeypatch.context() as patched:
        patched.setattr("odi_assets.sources.sql.position.driver_of", lambda _: None)
        with pytest.raises(IdentityMismatchError, match="utf8mb4_general_ci, and is text utf8mb4_bin"):
            box.run("events")
    box.run("events", full_refresh=True)
    assert sorted(row[1] for row in box.rows("events")) == list(range(12))
