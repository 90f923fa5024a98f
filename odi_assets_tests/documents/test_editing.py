"""One stream of a document is changed, and every other byte stays."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cursors.documents import DOCUMENTS
from odi_assets.documents import (
    BinlogPosition,
    CursorChunk,
    CursorSnapshot,
    Move,
    PostgresLsn,
    SharedPosition,
    SnapshotStatus,
    compare,
    olake_text,
    parse,
    parse_olake,
    save,
    with_cursors,
    with_shared_position,
    with_stream,
    without_streams,
)
from odi_assets.documents.convert import convert
from odi_assets.errors import CursorDocumentError
from odi_assets.util.json_scan import locate, scan, splice, with_member, without_member
from odi_assets_tests.documents.documents import on_a_busy_machine

TEXT = """{"type":"STREAM", "version": 7,
  "global": {"state": {"lsn": "0/1A"}, "streams": ["public.a" , "public.z"]}, "note": 1.500,
  "streams": [
    {"stream":"a","namespace":"public","sync_mode":"","state":{"chunks":[]}},
    {"stream":"i","namespace":"public","sync_mode":"","state":{ "id": 1.50, "chunks":[] , "x":{"y":[ ]} }},
    {"stream":"b","namespace":"public","sync_mode":"","state":{"chunks":[{"max":null,"min":"9"},{"min":"5","max":"9"}]}}
  ]}
"""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_kept_byte_for_byte(name: str) -> None:
    assert parse(DOCUMENTS[name]).text == DOCUMENTS[name]


def test_one_value_is_set_and_nothing_else() -> None:
    changed = with_cursors(parse_olake(TEXT), "public.i", {"id": 2})
    assert changed.text == TEXT.replace("1.50, ", "2, ")
    assert with_cursors(changed, "public.i", {"at": "x"}).text == TEXT.replace("1.50, ", "2, ").replace(
        "[ ]} }}", '[ ]}, "at":"x" }}'
    )


def test_a_stream_goes_with_its_name_in_global() -> None:
    document = parse_olake(TEXT)
    changed = without_streams(document, ["public.a", "public.z"])
    assert changed.text == TEXT.replace('"public.a" , "public.z"', "").replace(
        '{"stream":"a","namespace":"public","sync_mode":"","state":{"chunks":[]}},\n    ', ""
    )
    assert without_streams(document, ["public.b"]).text.startswith(TEXT[: TEXT.index(',\n    {"stream":"b"')])


def test_a_chunk_that_is_read_goes_and_the_shared_position_stays() -> None:
    document = parse_olake(TEXT)
    stream = document.stream("public.b")
    assert stream is not None
    left = stream._replace(snapshot=CursorSnapshot(SnapshotStatus.PENDING, frozenset({CursorChunk('"9"', "null")})))
    changed = with_stream(document, left)
    assert changed.text == TEXT.replace(',{"min":"5","max":"9"}', "").replace(
        '{"max":null,"min":"9"}', '{"min":"9","max":null}'
    )
    assert [move.move for move in compare(document, changed)] == [Move.SAME, Move.FORWARD, Move.SAME, Move.SAME]
    assert with_stream(document, stream).text == TEXT


def test_a_stream_is_added_and_loses_a_column() -> None:
    document = parse_olake(TEXT)
    stream = document.stream("public.i")
    assert stream is not None
    assert with_stream(document, stream._replace(cursors={})).text == TEXT.replace('"id": 1.50, ', "")
    new = stream._replace(id="public.n", name="n")
    assert with_stream(document, new).stream("public.n") == new


def test_the_shared_position_is_set() -> None:
    assert with_shared_position(parse_olake(TEXT), {"lsn": "0/2B"}).text == TEXT.replace("0/1A", "0/2B")
    with pytest.raises(CursorDocumentError, match="share no `Pos`"):
        with_shared_position(parse_olake(TEXT), {"Pos": 7})


@pytest.mark.parametrize(
    ("name", "stream", "column", "value", "before", "after"),
    [
        ("airbyte message", "public.orders", "id", 6, '"cursor":"5"', '"cursor":"6"'),
        ("airbyte messages", "a", "id", 8, '"id":7', '"id":8'),
        ("airbyte legacy", "orders", "updated_at", "2025", "2024-01-01", "2025"),
        ("airbyte states", "commits", "org/repo.main.created_at", "2025", "2024-03-15T11:13:55Z", "2025"),
        ("airbyte export", "users", 'states[{"repo":"x"}].cursor.at', "2025", "2024-01-01", "2025"),
        ("meltano", "issues", 'partitions[{"repo":"a"}].at', "2024", "2023-05-19", "2024"),
        ("singer", "public-city", "id", 5000, "4079", "5000"),
        ("dlt", "shop.orders", "updated_at", "2025-01-01", "2024-01-02T00:00:00+00:00", "2025-01-01"),
    ],
)
def test_values_are_set_in_every_tools_documents(
    name: str, stream: str, column: str, value: Any, before: str, after: str
) -> None:
    text = DOCUMENTS[name]
    assert with_cursors(parse(text), stream, {column: value}).text == text.replace(before, after)


def test_a_table_of_a_legacy_state_of_databases_is_set_and_taken_out() -> None:
    table = '{"stream_name":"%s","stream_namespace":"p","cursor_field":["id"],"cursor":"3"}'
    text = '{"cdc":false,"streams":[' + table % "a" + ", " + table % "b" + "]}"
    document = parse(text)
    assert with_cursors(document, "p.b", {"id": 4}).text == text.replace(table % "b", (table % "b").replace("3", "4"))
    assert without_streams(document, ["p.a"]).text == text.replace(table % "a" + ", ", "")


@pytest.mark.parametrize("mark", ["\uf026", "\uf027", "\uf029", "\uf02d"])
def test_the_mark_of_a_type_stays(mark: str) -> None:
    cursors = {"at": {"initial_value": None, "last_value": f"{mark}08", "unique_hashes": []}}
    sources = {"s": {"resources": {"r": {"incremental": cursors}}}}
    document = parse(json.dumps({"_state_version": 1, "_state_engine_version": 4, "sources": sources}))
    for value in ("09", f"{mark}09"):
        (set_to,) = with_cursors(document, "s.r", {"at": value}).content["sources"]["s"]["resources"]["r"].values()
        assert set_to["at"]["last_value"] == f"{mark}09"


@pytest.mark.parametrize("name", list(DOCUMENTS))
def test_a_stream_that_is_reset_has_no_position(name: str) -> None:
    document = parse(DOCUMENTS[name])
    stream = document.streams[0]
    changed = without_streams(document, [stream.id]).stream(stream.id)
    assert changed is None or (not changed.cursors and changed.snapshot.status is SnapshotStatus.ABSENT)


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(CursorDocumentError, match=r"no stream public\.q"):
        without_streams(parse_olake(TEXT), ["public.q"])
    with pytest.raises(CursorDocumentError, match="no cursor `q`"):
        with_cursors(parse(DOCUMENTS["singer"]), "public-city", {"q": 1})


def test_olakes_document_is_written_as_olake_writes_it() -> None:
    document = parse_olake(DOCUMENTS["olake mysql"])
    assert json.loads(olake_text(document.streams, document.shared)) == json.loads(document.text)
    position = SharedPosition(PostgresLsn(0x1A), frozenset({"public.a"}))
    assert olake_text((), position).startswith(
        '{"type":"STREAM","version":7,"global":{"state":{"lsn":"0/1A"},"streams":'
    )
    with pytest.raises(ValueError, match="server_id"):
        olake_text((), SharedPosition(BinlogPosition("b", 1, 4, "b.000001"), frozenset()))


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_is_not_written_over_with_an_earlier_position(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    old, new = parse_olake(TEXT), with_cursors(parse_olake(TEXT), "public.i", {"id": 2})
    save(new, file)
    with pytest.raises(CursorDocumentError, match=r"public\.i: back, id 2 → 1\.50"):
        save(old, file)
    assert file.read_text() == new.text
    (*_, moved) = (move for move in save(old, file, force=True) if move.move is not Move.SAME)
    assert moved.move is Move.BACK
    assert sorted(path.name for path in tmp_path.iterdir()) == [".state.json.lock", "state.json"]


def test_a_file_that_cannot_be_read_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text("{")
    with pytest.raises(CursorDocumentError, match="whether it is further is not known"):
        save(parse_olake(TEXT), file)
    save(parse_olake(TEXT), file, force=True)
    assert file.read_text() == TEXT


def test_a_link_stays_a_link_and_a_mode_the_mode(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text(TEXT)
    (tmp_path / "real.json").chmod(0o640)
    (tmp_path / "state.json").symlink_to("real.json")
    save(parse_olake(TEXT), tmp_path / "state.json")
    assert (tmp_path / "state.json").is_symlink()
    assert (tmp_path / "real.json").stat().st_mode & 0o777 == 0o640


# -- text --------------------------------------------------------------------------------------------------------------

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=10,
)


@on_a_busy_machine
@given(values, st.sampled_from([None, 1, 4]))
def test_a_scan_finds_the_value_and_the_place_of_each_part(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    found = scan(text)
    assert (found.value, found.flaws, found.complete) == (value, [], True)
    for path, start in found.starts.items():
        member, at, end = locate(text, path)
        assert (at, json.loads(text[at:end])) == (start, _at(value, path))
        assert member == found.keys.get(path, start)


@pytest.mark.slow
@on_a_busy_machine
@given(st.dictionaries(st.text(max_size=3), values, min_size=1, max_size=4), st.sampled_from([None, 2]), st.data())
def test_a_member_is_taken_out_and_put_back(value: dict[str, Any], indent: int | None, data: st.DataObject) -> None:
    text, key = json.dumps(value, indent=indent), data.draw(st.sampled_from(sorted(value)))
    without = splice(text, [without_member(text, (key,))])
    assert json.loads(without) == {name: one for name, one in value.items() if name != key}
    member = f"{json.dumps(key)}:{json.dumps(value[key])}"
    assert json.loads(splice(without, [with_member(without, (), member)])) == value


def _at(value: Any, path: Any) -> Any:
    for step in path:
        value = value[step]
    return value


# -- conversions -------------------------------------------------------------------------------------------------------


def test_what_carries_over_comes_back_the_same() -> None:
    document = parse_olake(
        '{"type":"STREAM","streams":[{"stream":"o","namespace":"p","state":{"chunks":[],"at":"2024-01-01T00:00:00+00:00"}}]}'
    )
    for tool in ("Airbyte", "Singer", "dlt"):
        there = convert(document, tool)
        assert all(outcome.carried for outcome in there.outcomes)
        back = convert(there.document, "OLake", namespace="p")
        assert back.document.streams == document.streams


def test_what_does_not_carry_over_is_said_stream_by_stream() -> None:
    found = {outcome.stream: outcome for outcome in convert(parse_olake(TEXT), "Singer").outcomes}
    assert found["public.a"].carried
    assert "replication slot" in found["public.a"].notes[0]
    assert found["public.i"].carried
    assert "2 chunks left" in found["public.b"].what
    assert not found["public.z"].carried
    assert "no place for 0/1A" in convert(parse_olake(TEXT), "dlt").outcomes[0].what


STATES: dict[str, str] = {
    "number": '"chunks":[],"id":1040',
    "fraction": '"chunks":[],"id":1.50',
    "text": '"chunks":[],"at":"2024-01-01T00:00:00Z"',
    "day": '"chunks":[],"at":"2024-01-01"',
    "empty": '"chunks":[],"at":""',
    "log": '"chunks":[]',
}
LOGS = {
    "PostgreSQL": '{"state":{"lsn":"0/1A"},"streams":["NAME"]}',
    "MySQL": '{"state":{"server_id":7,"state":{"position":{"Name":"b.000001","Pos":4}}},"streams":["NAME"]}',
}


@pytest.mark.parametrize("tool", ["Airbyte", "Singer", "dlt"])
@pytest.mark.parametrize(
    ("namespace", "name"), [("p", "o"), ("", "o"), ("p", "a-b"), ("p-q", "o"), ("", "a-b"), ("a", "b.c")]
)
def test_what_does_not_come_back_the_same_is_said_on_the_way_out(tool: str, namespace: str, name: str) -> None:
    stream_id = f"{namespace}.{name}" if namespace else name
    for (kind, state), (log, shared) in itertools.product(STATES.items(), LOGS.items()):
        reads_log = f'"global":{shared.replace("NAME", stream_id)},' if kind == "log" else ""
        entry = f'{{"stream":"{name}","namespace":"{namespace}","sync_mode":"","state":{{{state}}}}}'
        document = parse_olake(f'{{"type":"STREAM","version":7,{reads_log}"streams":[{entry}]}}')
        there = convert(document, tool)
        (outcome,) = there.outcomes
        back = convert(there.document, "OLake").document
        moves = compare(document, back)
        same = all(move.move is Move.SAME for move in moves)
        said = any("the way back" in note for note in outcome.notes)
        assert same != (said or not outcome.carried), (kind, log, outcome, moves)
        assert not outcome.carried or (kind, log) != ("log", "MySQL") or "(server_id is 7 here)" in outcome.notes[-1]


def test_streams_that_would_have_one_name_are_not_written_over_one_another() -> None:
    entries = [
        {"stream": name, "namespace": space, "sync_mode": "", "state": {"chunks": [], "id": number}}
        for number, (space, name) in enumerate([("a", "b-c"), ("a-b", "c"), ("x", "b-c")])
    ]
    document = parse_olake(json.dumps({"type": "STREAM", "version": 7, "streams": entries}))
    for tool, namespace, left_out in (("Singer", None, ["a.b-c"]), ("Airbyte", "n", ["x.b-c"]), ("dlt", None, [])):
        there = convert(document, tool, namespace=namespace)
        assert [one.stream for one in there.outcomes if not one.carried] == left_out
        assert len(there.document.streams) == 3 - len(left_out)


def test_olake_has_one_log_position_for_all_streams() -> None:
    marks = {
        "public-a": {"lsn": 20},
        "public-b": {"lsn": 10},
        "public-c": {"replication_key": "id", "replication_key_value": 1},
    }
    found = convert(parse(json.dumps({"bookmarks": marks})), "OLake")
    assert {outcome.stream: outcome.carried for outcome in found.outcomes} == {
        "public-a": False,
        "public-b": True,
        "public-c": True,
    }
    assert found.document.shared is not None
    assert found.document.shared.position == PostgresLsn(10)
