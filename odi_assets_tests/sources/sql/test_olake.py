"""Snapshots that OLake began are finished here, and those begun here have a state that OLake reads."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from odi_assets.cli import main
from odi_assets.cli.cursors.transfer import export_nodes, import_to_node
from odi_assets.config.graph import NodeKey
from odi_assets.config.models import ServerConnection
from odi_assets.documents import CursorDocument, Tool, parse
from odi_assets.documents.handover.olake import given_out, plan_takeover, stream_of
from odi_assets.documents.model import FINISHED
from odi_assets.errors import ConfigError, CursorDocumentError, StateError
from odi_assets.nodes.node import Node
from odi_assets.sources.sql.dialects import dialect_of
from odi_assets.sources.sql.marks import Chunks, SnapshotMark, TableChunk
from odi_assets.sources.sql.olake import apart, stream_state
from odi_assets.sources.sql.source import CursorTableSource
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.sql.conftest import NODE, Make
from odi_assets_tests.sources.sql.servers import Server
from odi_assets_tests.sources.sql.test_snapshots import both, cursors, filled, ids, pages, step


def of(kind: str) -> Any:
    return dialect_of(ServerConnection.model_validate({"type": kind, "database": "shop"}))


def snapshot(by: tuple[str, ...], *bounds: tuple[Any, Any]) -> SnapshotMark:
    chunks = tuple(TableChunk(low, high) for low, high in bounds)
    return SnapshotMark({"at": 7}, Chunks(by, chunks, 9))


@pytest.mark.parametrize(
    ("kind", "mark", "chunks"),
    [
        ("mysql", snapshot(("id",), (None, ("1",)), (("1",), ("5",)), (("5",), None)),
         [{"min": None, "max": "1"}, {"min": "1", "max": "5"}, {"min": "5", "max": None}]),
        ("mysql", snapshot(("a", "b"), (("x", "1"), ("y", "2"))), [{"min": "x,1", "max": "y,2"}]),
        ("postgres", snapshot(("ctid",), (None, ("(8,0)",)), (("(8,0)",), None)),
         [{"min": "'(0,0)'", "max": "'(8,0)'"}, {"min": "'(8,0)'", "max": "'(4294967295,0)'"}]),
        ("postgres", snapshot(("id",), (("1",), ("10001",)), (("10001",), None)),
         [{"min": 1, "max": 10001}, {"min": 10001, "max": None}]),
    ],
)  # fmt: skip
def test_chunks_are_written_as_olake_writes_them(kind: str, mark: SnapshotMark, chunks: list[Any]) -> None:
    assert stream_state(mark, of(kind), "t") == {"chunks": chunks, "at": 7}


@pytest.mark.parametrize(
    ("kind", "mark"),
    [
        ("mysql", snapshot(("b", "a"), (None, ("1", "2")))),
        ("mysql", snapshot(("name",), (None, ("a,b",)))),
        ("mysql", snapshot(("name",), (None, ("a ",)))),
        ("postgres", snapshot(("name",), (None, ("a",)))),
        ("postgres", snapshot(("a", "b"), (None, ("1", "2")))),
    ],
)
def test_chunks_that_olake_would_read_otherwise_are_not_written(kind: str, mark: SnapshotMark) -> None:
    with pytest.raises(CursorDocumentError, match="let a run complete the snapshot"):
        stream_state(mark, of(kind), "t")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (2**63 - 1, 2**63 - 1),
        (Decimal("12.50"), "12.50"),
        (date(2024, 2, 29), "2024-02-29T00:00:00.000000000Z"),
        (datetime(2024, 2, 29, 1, 2, 3, 4), "2024-02-29T01:02:03.000004000Z"),
        (datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "2024-02-29T01:02:03.000000000Z"),
        ("text", "text"),
        (None, None),
    ],
)
def test_cursors_are_written_as_olake_writes_them(value: Any, written: Any) -> None:
    assert stream_state(SnapshotMark({"at": value}), of("mysql"), "t") == {"chunks": [], "at": written}


KEY = NodeKey("p", "events")


def document(name: str, state: dict[str, Any]) -> CursorDocument:
    """A document of OLake with the state of one stream, and that of another one."""
    namespace, _, table = name.partition(".")
    streams = [
        {"stream": table, "namespace": namespace, "sync_mode": "", "state": state},
        {"stream": "other", "namespace": namespace, "sync_mode": "", "state": {"chunks": [], "n": 1}},
    ]
    return parse(json.dumps({"type": "STREAM", "version": 7, "streams": streams}), tool=Tool.OLAKE)


def take_over(box: Sandbox, state: dict[str, Any]) -> None:
    """Let the node go on where OLake stopped."""
    name = stream_of(Node.of(box.project, KEY))
    plan_takeover(box.project, box.state, KEY, document(name, state)).apply()


def source_of(box: Sandbox) -> CursorTableSource:
    (source,) = Node.of(box.project, KEY).sources
    assert isinstance(source, CursorTableSource)
    return source


@pytest.mark.parametrize(
    ("chunks", "wanted"),
    [
        ([("1", "20"), ("10", "30")], [("1", "20"), ("20", "30")]),
        ([("9", "10"), ("10", "20"), ("10", "20")], [("9", "10"), ("10", "20")]),
        ([("30", None), ("10", "40"), (None, "12")], [(None, "12"), ("12", "40"), ("40", None)]),
        ([(None, None), ("1", "2")], [(None, None)]),
        ([("1", "30"), ("2", "3"), ("20", "31")], [("1", "30"), ("30", "31")]),
        ([("20", "10"), ("-5", "1.5")], [("-5", "1.5")]),
        ([("(2,0)", "(10,0)"), ("(9,0)", None)], [("(2,0)", "(10,0)"), ("(10,0)", None)]),
        ([("1,5", "2,1"), ("1,9", "3,0")], [("1,5", "2,1"), ("2,1", "3,0")]),
    ],
)
def test_rows_in_two_chunks_are_read_with_one(chunks: Any, wanted: Any) -> None:
    def bound(text: str | None) -> tuple[str, ...] | None:
        return None if text is None else (text,) if text.startswith("(") else tuple(text.split(","))

    found = apart(TableChunk(bound(low), bound(high)) for low, high in chunks)
    assert found == [TableChunk(bound(low), bound(high)) for low, high in wanted]


@both
def test_overlapping_chunks_of_a_document_give_each_row_once(make: Make, server: Server) -> None:
    filled(server, 40)
    quoted = (lambda n: str(n)) if server.type == "mysql" else (lambda n: n)
    left = [{"min": quoted(1), "max": quoted(20)}, {"min": quoted(10), "max": quoted(30)}]
    box = make(cursors("by: id"))
    take_over(box, {"chunks": left, "at": 400})
    box.run("events")
    assert ids(box) == [*range(1, 30)]


@both
def test_a_snapshot_that_olake_left_by_ranges_of_a_key_is_finished(make: Make, server: Server) -> None:
    filled(server, 20)
    quoted = (lambda n: str(n)) if server.type == "mysql" else (lambda n: n)
    left = [{"min": quoted(16), "max": None}, {"min": quoted(6), "max": quoted(11)}]
    # The maxima are of before: 19 and 20 are read by the first increment, from whichever chunk they are.
    box = make(cursors("by: id"))
    take_over(box, {"chunks": left, "at": 180})
    result = box.run("events")
    assert (ids(box), result.metrics["commits"]) == ([*range(6, 11), *range(16, 21)], 3)
    assert box.hwm("events") == {"cursors": {"at": 200}}


@both
@pytest.mark.parametrize("by", ["", "by: id"])
def test_a_chunk_that_is_open_on_both_sides_is_one_of_the_nodes_key(make: Make, server: Server, by: str) -> None:
    filled(server, 20)
    box = make(cursors(by))
    take_over(box, {"chunks": [{"min": None, "max": None}], "at": 200})
    box.run("events")
    assert ids(box) == [*range(1, 21)]


def test_a_snapshot_that_olake_left_by_pages_is_finished(make: Make, server: Server) -> None:
    pages(server)
    box = make(cursors(""))
    page = "(SELECT min(id), max(id) FROM events WHERE ctid >= '(2,0)' AND ctid < '(4,0)')"
    opened = server.connect()
    low, high = opened.execute(page).fetchone()
    first_of_last = opened.execute("SELECT min(id) FROM events WHERE ctid >= '(9,0)'").fetchone()[0]
    opened.close()
    left = [{"min": "'(9,0)'", "max": "'(4294967295,0)'"}, {"min": "'(2,0)'", "max": "'(4,0)'"}]
    take_over(box, {"chunks": left, "at": 100})
    box.run("events")
    assert ids(box) == [*range(low, high + 1), *range(first_of_last, 101)]


@both
def test_a_finished_snapshot_of_olake_is_followed_by_its_cursors(make: Make, server: Server) -> None:
    kind = "timestamp(6) NULL" if server.type == "mysql" else "timestamptz"
    zone = "" if server.type == "mysql" else "+00"
    server.execute(
        "DROP TABLE IF EXISTS events",
        f"CREATE TABLE events (id bigint PRIMARY KEY, at {kind}, made date)",
        f"INSERT INTO events VALUES (1, '2024-03-01 00:00:00{zone}', '2024-03-01')",
        f"INSERT INTO events VALUES (2, '2024-03-02 00:00:01{zone}', '2024-03-02')",
        "INSERT INTO events VALUES (3, NULL, '2024-03-02'), (4, NULL, '2024-03-03')",
    )
    box = make(cursors(more="columns: [at, made]"))
    # Of MySQL, OLake's first maximum is a text in the zone of the server.
    at = "2024-02-29 19:00:00" if server.type == "mysql" else "2024-03-01T00:00:00.000000000Z"
    take_over(box, {"chunks": [], "at": at, "made": "2024-03-02T00:00:00.000000000Z"})
    box.run("events")
    assert ids(box) == [2, 4]
    source = source_of(box)
    state = source.stream_state(SnapshotMark.of(box.hwm("events"), ""))
    assert state["chunks"] == []
    assert state["made"] == "2024-03-03T00:00:00.000000000Z"
    assert source.taken_over(state).value == box.hwm("events")


@both
def test_what_is_left_of_a_snapshot_goes_to_olake_and_back(
    make: Make, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(server, 11)
    box = make(cursors("by: id, rows: 4"))
    step(box, monkeypatch)
    source = source_of(box)
    mark = SnapshotMark.of(box.hwm("events"), "")
    back = source.taken_over(source.stream_state(mark))
    assert (back.cursors, back.chunks and back.chunks.left) == (mark.cursors, mark.chunks and mark.chunks.left)


def test_a_stream_that_olake_follows_by_its_log_cannot_be_taken_over(make: Make, server: Server) -> None:
    filled(server, 2)
    box = make(cursors())
    with pytest.raises(CursorDocumentError, match="has no `at`: OLake did not begin"):
        take_over(box, {"chunks": [{"min": "'(0,0)'", "max": "'(4294967295,0)'"}]})
    with pytest.raises(CursorDocumentError, match="has no `chunks` and no `at`"):
        take_over(box, {})


def test_a_document_keeps_its_other_streams_and_goes_round(
    make: Make, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    filled(server, 11)
    box = make(cursors("by: id, rows: 4"))
    file = tmp_path / "state.json"
    file.write_text(document("public.things", {"at": 1, "chunks": []}).text, encoding="utf-8")
    before = file.read_text(encoding="utf-8")
    with pytest.raises(StateError, match="has no position yet"):
        export_nodes(box.project, str(file), ["p.events"], force=False)
    step(box, monkeypatch)
    export_nodes(box.project, str(file), ["p.events"], force=False)
    text = file.read_text(encoding="utf-8")
    assert text.startswith(before[: before.index("]}", before.index("other"))])
    assert [one["stream"] for one in json.loads(text)["streams"]] == ["things", "other", "events"]
    box.run("events")
    export_nodes(box.project, str(file), ["p.events"], force=False)
    assert json.loads(file.read_text(encoding="utf-8"))["streams"][2]["state"] == {"at": 110, "chunks": []}
    # Back to where it was a moment ago: asked for, and told.
    known = parse(text, tool=Tool.OLAKE)
    with pytest.raises(StateError, match="has a position of its own"):
        import_to_node(box.project, known, "p.events", None, force=False, dry_run=False)
    import_to_node(box.project, known, "p.events", None, force=True, dry_run=True)
    assert "p.events: at 110 → snapshot: 2 of 2 chunks left, at 110: nothing was written" in capfd.readouterr().err
    with pytest.raises(CursorDocumentError, match="has no state of public"):
        import_to_node(box.project, known, "p.events", "public.nothing", force=True, dry_run=False)


def test_a_node_with_a_position_of_its_own_gets_another_one_only_once_it_is_said_what_that_repeats_or_loses(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    filled(server, 20)
    text = NODE.replace("READ", cursors("by: id")).replace("WRITE", "mode: append")
    box = Sandbox(tmp_path, None, text, server.connection)
    box.state.reset_hwm("p.events", {"cursors": {"at": 150}})
    monkeypatch.chdir(tmp_path)

    def imported(state: dict[str, Any], *options: str) -> tuple[int, str, Any]:
        Path("state.json").write_text(document("public.events", state).text, encoding="utf-8")
        code = main(["cursors", "import", "state.json", "--node", "events", *options])
        return code, capfd.readouterr().err, box.hwm("events")

    back, on = {"chunks": [], "at": 100}, {"chunks": [], "at": 200}
    code, said, hwm = imported(back)
    assert (code, hwm) == (1, {"cursors": {"at": 150}})
    assert "say --force" in said
    for options, expected in (["--force"], 2), (["--force", "--dry-run"], 0):
        code, said, hwm = imported(back, *options)
        assert (code, hwm) == (expected, {"cursors": {"at": 150}})
        assert "p.events: `at` 150 → 100 goes back: rows above it are read again." in said
        assert "that are read again will be there twice" in said
        assert "`odi state rewind p.events`" in said
        code, said, hwm = imported(on, *options)
        assert (code, hwm) == (expected, {"cursors": {"at": 150}})
        assert "`at` 150 → 200 goes forward: rows up to it that were not read are never read." in said
        assert "twice" not in said
    code, said, hwm = imported({"chunks": [{"min": 5, "max": 9}], "at": 150}, "--force", "--dry-run")
    assert "1 chunk of its snapshot, read before: their rows are read again." in said
    assert imported({"chunks": [], "at": 150}, "--force")[0] == 0, "the same position needs no consent"
    code, said, hwm = imported(back, "--force", "--yes")
    assert (code, hwm) == (0, {"cursors": {"at": 100}})


def test_nodes_that_do_not_follow_tables_as_olake_does_are_told_apart(make: Make, server: Server) -> None:
    filled(server, 1)
    box = make("table: events, incremental: {mode: stateful, column: at}")
    with pytest.raises(ConfigError, match="does not read a table of a database by cursors"):
        given_out(box.project, box.state, [KEY], None)
    box = make('query: "SELECT * FROM events", incremental: {mode: cursors, columns: at, snapshot: {by: id}}')
    assert box.run("events").status is RunStatus.SUCCESS
    with pytest.raises(ConfigError, match="reads a query"):
        given_out(box.project, box.state, [KEY], None)


DRIVEN = NODE.replace("    write:", "    cursor: {document: state.json, stream: public.events}\n    write:")


def test_a_node_that_a_document_drives_goes_on_where_olake_stopped(make: Make, server: Server, tmp_path: Path) -> None:
    filled(server, 20)
    box = make(cursors("by: id"), text=DRIVEN)
    left = [{"min": 6, "max": 11}, {"min": 16, "max": None}, {"min": 11, "max": 13}]
    known = document("public.events", {"chunks": left, "at": 180})
    (tmp_path / "state.json").write_text(known.text, encoding="utf-8")
    import_to_node(box.project, known, "p.events", None, force=False, dry_run=False)
    assert box.plan("events").nothing_new
    # The document drives it: it reads once OLake has finished its snapshot, chunk after chunk and on to the maximum.
    done = document("public.events", {"chunks": [], "at": 180})
    (tmp_path / "state.json").write_text(done.text, encoding="utf-8")
    assert box.run("events").status is RunStatus.SUCCESS
    assert ids(box)[:9] == [*range(6, 13), 16, 17]
    (given,) = [one for one in given_out(box.project, box.state, [KEY], None).streams if one.id == "public.events"]
    assert given.snapshot == FINISHED
