"""Snapshots of real tables in chunks, and the increments after them: every row once, wherever a run ends."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from odi_assets.config.graph import NodeKey
from odi_assets.errors import IdentityMismatchError, IncrementError, SourceError
from odi_assets.nodes.execution.outcomes import failure
from odi_assets.nodes.history.repair import attempt_of, row_of, stamps_without_row
from odi_assets.nodes.recovery.adopt import apply_adoption, plan_adoption
from odi_assets.nodes.recovery.doctor import unfinished
from odi_assets.nodes.result import RunInfo
from odi_assets.sources.sql.marks import SnapshotMark
from odi_assets.sources.sql.snapshots import CursorTable
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.sql.conftest import NODE, Make, both
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
    from odi_assets.nodes import run_node

    real, made = run_node.commit_once, itertools.count(1)

    def killed(*args: Any) -> Any:
        result = real(*args)
        if next(made) >= commits:
            raise Killed
        return result

    with monkeypatch.context() as patched:
        patched.setattr(run_node, "commit_once", killed)
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


KEYS: dict[str, tuple[str, str, str, list[tuple[Any, ...]]]] = {
    # What a test calls it: columns, key, `by`, and the values of the key, in no order.
    "negative numbers": ("k bigint PRIMARY KEY", "k", "", [(-5,), (2**62,), (0,), (7,), (-(2**62),), (3,)]),
    "numbers with many twins": ("k bigint", "k", "by: k, ", [(1,)] * 5 + [(None,)] * 2 + [(2,)] * 4 + [(9,)]),
    "text by its collation": (
        "k varchar(20) PRIMARY KEY",
        "k",
        "",
        [("a",), ("B",), ("c'\"\\",), ("ö",), ("Z%s",), ("_",), ("😀",), ("a,b",), ("?",)],
    ),
    "several columns": (
        "k varchar(9) NOT NULL, j int NOT NULL, PRIMARY KEY (k, j)",
        "k, j",
        "",
        [("a", 2), ("a", 1), ("b", 1), ("b", 3), ("a", 3), ("c", 0), ("b", 2), ("B2", 1)],
    ),
    "several columns with NULLs": (
        "k int, j int",
        "k, j",
        "by: [k, j], ",
        [(1, None), (None, 1), (1, 1), (2, 2), (None, None), (1, 2), (2, None), (2, 3), (3, 1)],
    ),
    "times": (
        "k timestamp NOT NULL PRIMARY KEY",
        "k",
        "",
        [(f"2024-03-{day:02} 02:30:00",) for day in range(1, 10)],
    ),
    "decimals": ("k decimal(30,10) PRIMARY KEY", "k", "", [(f"{n}.000000000{n}",) for n in range(7)]),
    "bytes": ("k BYTES NOT NULL PRIMARY KEY", "k", "", [(bytes([n, 39, 92, 0]),) for n in (3, 1, 255, 128, 0, 7)]),
}

KEYS_OF_ONE: dict[str, dict[str, tuple[str, str, str, list[tuple[Any, ...]]]]] = {
    "mysql": {
        "members of an ENUM": (
            "k enum('z', 'a', 'B', '10', '') NOT NULL, j int, PRIMARY KEY (k, j)",
            "k, j",
            "",
            [(member, number) for number in range(3) for member in ("10", "z", "", "B", "a")],
        ),
        "members of a SET": ("k set('z', 'a', 'b')", "k", "by: k, ", [("b",), ("z,b",), ("",), ("a",), (None,)] * 2),
        "bits": ("k bit(12) PRIMARY KEY", "k", "", [(number * 37,) for number in range(12)]),
        "days that are none": (
            "k date NOT NULL, j int, PRIMARY KEY (j, k)",
            "k",
            "by: [k, j], ",
            [(day, number) for number in range(5) for day in ("0000-00-00", "2024-03-01", "2024-02-00")],
        ),
        "UUIDs": (
            "k uuid PRIMARY KEY",
            "k",
            "",
            [(f"{n * 7 % 9}0000000-0000-0000-0000-000000000000",) for n in range(9)],
        ),
    },
    "postgres": {
        "rows": ("k odi_key PRIMARY KEY", "k", "", [(f"({n % 3},{'' if n % 2 else 'x'})",) for n in range(6)]),
        "arrays": ("k int[] PRIMARY KEY", "k", "", [([n % 3, n],) for n in range(7)]),
        "members of an enum": ("k odi_level", "k", "by: k, ", [("low",), ("high",), ("a",), (None,)] * 3),
    },
}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Chunks of a few rows are read in parts too; how many chunks were read at once, and in how many parts."""
    read: list[tuple[int, int]] = []
    real = CursorTable.side_by_side

    def noted(*args: Any) -> Any:
        parts = real(*args)
        read.append((len(args[2]), len(parts)))
        return parts

    monkeypatch.setattr("odi_assets.sources.sql.snapshots.LEAST_ROWS", 1)
    monkeypatch.setattr(CursorTable, "side_by_side", noted)
    return read


@both
def test_chunks_of_every_kind_of_key_and_their_parts_hold_each_row_once(
    make: Make, server: Server, small_parts: list[tuple[int, int]]
) -> None:
    if server.type == "postgres":
        server.execute(
            *("DROP TYPE IF EXISTS odi_key CASCADE", "CREATE TYPE odi_key AS (a int, b text)"),
            *("DROP TYPE IF EXISTS odi_level CASCADE", "CREATE TYPE odi_level AS ENUM ('low', 'high', 'a')"),
        )
    for name, (columns, key, by, values) in {**KEYS, **KEYS_OF_ONE[server.type]}.items():
        if server.name == "mysql" and " uuid " in columns:
            continue
        kind = "varbinary(20)" if server.type == "mysql" else "bytea"
        columns = columns.replace("BYTES", kind)
        server.execute("DROP TABLE IF EXISTS events", f"CREATE TABLE events (id bigint, at bigint, {columns})")
        server.insert("events", *((number, number, *value) for number, value in enumerate(values)))
        text = NODE.replace("path: events", f"path: '{name}'")
        small_parts.clear()
        asked = ", columns: {k: CAST(k AS CHAR)}" if "none" in name else ""
        box = make(cursors(f"{by}rows: 3, pieces: 9, chunks_per_commit: 16") + asked, text=text)
        assert box.run("events").status is RunStatus.SUCCESS
        assert all(parts > chunks > 1 for chunks, parts in small_parts), (name, small_parts)
        assert small_parts
        assert ids(box) == list(range(len(values))), (name, key)
        assert box.hwm("events") == {"cursors": {"at": len(values) - 1}}
        box.state.delete_hwm("p.events")


def pages(server: Server) -> None:
    """A table of PostgreSQL without a key, on many pages."""
    server.execute(
        "DROP TABLE IF EXISTS events",
        "CREATE TABLE events (id bigint, at bigint, note text)",
        "INSERT INTO events SELECT n, n, repeat('x', 900) FROM generate_series(1, 100) n",
    )


def test_a_table_without_a_key_is_cut_by_its_pages(
    make: Make, server: Server, monkeypatch: pytest.MonkeyPatch, small_parts: list[tuple[int, int]]
) -> None:
    for analyzed in (False, True):
        pages(server)
        if analyzed:
            server.execute("ANALYZE events")
        box = make(cursors("rows: 30, chunks_per_commit: 2"), text=NODE.replace("path: events", f"path: e{analyzed}"))
        step(box, monkeypatch)
        assert 0 < len(ids(box)) < 100
        assert left(box) > 1
        server.execute("INSERT INTO events SELECT n, n, 'late' FROM generate_series(101, 120) n")
        assert box.run("events").status is RunStatus.SUCCESS
        assert ids(box) == list(range(1, 121))
        assert any(parts > chunks for chunks, parts in small_parts)
        box.state.delete_hwm("p.events")


def test_a_table_that_was_rewritten_in_the_middle_of_a_snapshot_by_pages_stops_it(
    make: Make, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages(server)
    box = make(cursors("rows: 40"))
    step(box, monkeypatch)
    server.execute("DELETE FROM events WHERE id > 90", "VACUUM FULL events")
    with pytest.raises(IncrementError, match="rewritten in the middle of its snapshot"):
        box.run("events")
    assert box.run("events", full_refresh=True).status is RunStatus.SUCCESS
    assert ids(box) == list(range(1, 91))


def test_a_partitioned_table_is_cut_by_the_pages_of_its_parts(make: Make, server: Server) -> None:
    server.execute(
        "DROP TABLE IF EXISTS events",
        "CREATE TABLE events (id bigint, at bigint, note text) PARTITION BY RANGE (id)",
        "CREATE TABLE events_a PARTITION OF events FOR VALUES FROM (1) TO (11)",
        "CREATE TABLE events_b PARTITION OF events FOR VALUES FROM (11) TO (201)",
        "INSERT INTO events SELECT n, n, repeat('x', 900) FROM generate_series(1, 100) n",
    )
    box = make(cursors("rows: 30, chunks_per_commit: 3"))
    assert box.run("events").metrics["commits"] > 1
    assert ids(box) == list(range(1, 101))
    server.execute("DROP TABLE events")


TWO = "columns: [at, made]"


@both
def test_two_cursors_are_two_independent_maxima(make: Make, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.execute("DROP TABLE IF EXISTS events", "CREATE TABLE events (id bigint PRIMARY KEY, at bigint, made bigint)")
    server.insert("events", (1, 10, 900), (2, None, 50), (3, 30, None), (4, None, 40), (5, 20, 60))
    box = make(cursors("rows: 2", TWO))
    step(box, monkeypatch)
    server.insert("events", (6, 31, 1), (7, None, 901), (8, 30, 5000), (9, None, 899))
    assert box.run("events").status is RunStatus.SUCCESS
    # 8 is not above the first maximum, and 9 not above the second: they are rows that the snapshot still came to.
    assert ids(box) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert box.hwm("events") == {"cursors": {"at": 31, "made": 5000}}
    server.insert("events", (10, 31, 9000), (11, None, 9000), (12, 32, None), (13, None, 5001))
    assert box.run("events").rows_written == 3
    assert ids(box) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13]
    assert box.plan("events").nothing_new


@both
def test_rows_without_a_cursor_stop_the_run_or_belong_to_the_snapshot(make: Make, server: Server) -> None:
    server.execute("DROP TABLE IF EXISTS events", "CREATE TABLE events (id bigint PRIMARY KEY, at bigint, made bigint)")
    server.insert("events", (1, 10, None), (2, None, 50), (3, None, None))
    with pytest.raises(IncrementError, match="1 rows of db:events have NULL in `at` and `made`"):
        make(cursors(more=TWO)).run("events")
    for policy, expected in (("snapshot", [1, 2, 3]), ("exclude", [1, 2])):
        box = make(cursors(more=f"{TWO}, on_null: {policy}"), text=NODE.replace("path: events", f"path: {policy}"))
        box.run("events")
        server.insert("events", (4, None, None), (5, 11, None))
        box.run("events")
        assert ids(box) == [*expected, 5]
        server.execute("DELETE FROM events WHERE id > 3")
        box.state.delete_hwm("p.events")


@both
def test_without_a_plain_driver_spark_asks_the_same(
    make: Make, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(server, 5)
    monkeypatch.setattr("odi_assets.sources.sql.position.driver_of", lambda _: None)
    box = make(cursors("rows: 2, chunks_per_commit: 2"))
    step(box, monkeypatch)
    assert (left(box), len(ids(box))) == (1, 4)
    assert box.run("events").rows_written == 1
    assert box.hwm("events") == {"cursors": {"at": 50}}
    assert box.run("events").status is RunStatus.NO_DATA
    add(server, 6, 6)
    assert (box.run("events").rows_written, ids(box)) == (1, [1, 2, 3, 4, 5, 6])


def test_a_full_refresh_begins_a_snapshot_and_goes_on_when_it_is_killed(
    make: Make, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(server, 6)
    box = make(cursors("rows: 2"))
    box.run("events")
    server.execute("DELETE FROM events WHERE id IN (1, 6)")
    from odi_assets.nodes import run_node

    real = run_node.commit_once

    def killed(*args: Any) -> Any:
        real(*args)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(run_node, "commit_once", killed)
        with pytest.raises(Killed):
            box.run("events", full_refresh=True)
    assert ids(box) == [2, 3]
    assert box.run("events").rows_written == 2
    assert ids(box) == [2, 3, 4, 5]
    server.execute("DELETE FROM events")
    assert box.run("events").status is RunStatus.NO_DATA
    assert box.run("events", full_refresh=True).status is RunStatus.SUCCESS
    assert ids(box) == []
    add(server, 1, 2)
    assert (box.run("events").rows_written, ids(box)) == (2, [1, 2])


def test_a_snapshot_that_fails_says_how_far_it_came(make: Make, server: Server) -> None:
    filled(server, 6)
    server.execute("ALTER TABLE events ADD day date", "UPDATE events SET day = 'infinity' WHERE id = 5")
    box = make(cursors("rows: 2"))
    plan = box.plan("events")
    with pytest.raises(SourceError, match="`day` holds infinity") as caught:
        box.finish(plan)
    failed = failure(plan, RunInfo("r"), caught.value)
    assert "2 commits were made before; the next run goes on there: snapshot: 1 of 3 chunks left" in str(failed.error)
    server.execute("UPDATE events SET day = NULL")
    assert (box.run("events").rows_written, ids(box)) == (2, list(range(1, 7)))


def test_other_chunks_cursors_or_tables_stop_a_snapshot_in_its_middle(
    make: Make, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(server, 9)
    server.execute("CREATE TABLE IF NOT EXISTS others AS SELECT * FROM events")
    step(make(cursors("rows: 4")), monkeypatch)
    for read in (
        cursors("rows: 4, by: at"),
        cursors("rows: 4", "columns: id"),
        cursors("rows: 4", "columns: [at, id]"),
        cursors("rows: 4").replace("events", "others"),
        "table: events, incremental: {mode: stateful, column: at}",
    ):
        with pytest.raises(IdentityMismatchError, match="full-refresh"):
            make(read).run("events")
    box = make(cursors("rows: 4, by: id, chunks_per_commit: 2"))
    assert (box.run("events").rows_written, ids(box)) == (5, list(range(1, 10)))
    # Once it is complete, the chunks mean nothing any more, and what follows by the same column can be adopted.
    assert make(cursors("by: note")).plan("events").nothing_new
    box = make("table: events, incremental: {mode: stateful, column: at}")
    adoption = plan_adoption(box.project, box.state, NodeKey("p", "events"), lambda: box.spark)
    assert adoption is not None
    apply_adoption(box.state, adoption)
    add(server, 10, 10)
    assert (box.run("events").rows_written, box.hwm("events")) == (1, 100)
    box = make(cursors())
    adoption = plan_adoption(box.project, box.state, NodeKey("p", "events"), lambda: box.spark)
    assert adoption is not None
    apply_adoption(box.state, adoption)
    assert box.hwm("events") == {"cursors": {"at": 100}}
    add(server, 11, 11)
    assert (box.run("events").rows_written, ids(box)) == (1, list(range(1, 12)))


def test_a_run_that_vanished_in_a_snapshot_has_one_row_of_history(
    make: Make, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(server, 9)
    box = make(cursors("rows: 3"))
    step(box, monkeypatch, 2)
    key = NodeKey("p", "events")
    (stamp,) = stamps_without_row(box.project, key, box.table("events"), [])
    row = row_of(box.project, attempt_of(key, stamp))
    assert (row.status, row.rows_processed) == (RunStatus.LOST, 6)
    assert "in the middle of a snapshot: 1 of 3 chunks left" in str(row.error)
    assert unfinished(box.project, box.state, [key]) == {key: "snapshot: 1 of 3 chunks left, at 90"}
    box.run("events")
    assert unfinished(box.project, box.state, [key]) == {}


def test_rows_that_were_committed_late_are_read_with_a_lag(make: Make, server: Server) -> None:
    filled(server, 4)
    box = make(cursors(more="columns: at, watermark_lag: 20"), "mode: append, keys: [id]")
    box.run("events")
    server.execute("INSERT INTO events VALUES (99, 25, 'late'), (98, 15, 'too late'), (5, 50, 'new')")
    assert box.run("events").rows_written == 2
    assert ids(box) == [1, 2, 3, 4, 5, 99]
