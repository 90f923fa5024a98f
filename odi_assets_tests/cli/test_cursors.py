"""``odi cursors``."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odi_assets_tests.cli.conftest import Odi

PROJECT = """
project: test
connections: {lake: {type: local, base_path: lake}}
system: {connection: lake, path: system}
pipelines:
- pipeline: p
  nodes:
  - {name: raw, read: {connection: lake, format: delta, path: source}, write: {connection: lake, path: raw}}
"""


def document(lsn: str = "0/1A", **cursors: Any) -> str:
    streams = [
        {"stream": "a", "namespace": "public", "sync_mode": "", "state": {"chunks": []}},
        {"stream": "i", "namespace": "public", "sync_mode": "", "state": {"chunks": [], **(cursors or {"id": 5})}},
    ]
    shared = {"state": {"lsn": lsn}, "streams": ["public.a"]}
    return json.dumps({"type": "STREAM", "version": 7, "global": shared, "streams": streams})


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> SimpleNamespace:
    """Two documents of OLake in the current folder, one after the other, and the text of the first."""
    Path("old.json").write_text(document())
    Path("new.json").write_text(document("0/2B", id=7))
    return SimpleNamespace(text=document(), folder=tmp_path)


def test_check_says_what_is_wrong_and_ends_with_1(odi: Odi) -> None:
    answer = odi("cursors", "check", "old.json")
    assert (answer.code, answer.out, answer.err) == (0, "", "old.json: OLake, 2 streams: 0 errors, 0 warnings\n")
    Path("bad.json").write_text('{"type":"STREAM",\n "streams":[null, {"stream":"a","state":{"id":NaN}}]}')
    answer = odi("cursors", "check", "old.json", "bad.json")
    assert answer.code == 1
    assert answer.out == (
        "bad.json:2:13: error: streams[0]: must be an object, but is null, on which OLake fails\n"
        "  → remove it, or write the stream's state\n"
        "bad.json:2:47: error: streams[1].state.id: NaN is not a number that JSON has\n"
        "  → write one that it has\n"
    )
    assert "bad.json: OLake: 2 errors, 0 warnings" in answer.err


def test_a_warning_fails_where_that_is_asked_for(odi: Odi) -> None:
    Path("state.json").write_text('{"type":"STREAM","version":7,"streams":null}')
    assert odi("cursors", "check", "state.json").code == 0
    assert odi("cursors", "check", "state.json", "--strict").code == 1


def test_check_gives_json(odi: Odi) -> None:
    Path("bad.json").write_text("{")
    answer = odi("cursors", "check", "old.json", "bad.json", "--json")
    old, bad = json.loads(answer.out)
    assert answer.code == 1
    assert (old["tool"], old["valid"], old["streams"], old["findings"]) == ("OLake", True, 2, [])
    assert (bad["valid"], bad["positions_lost"]) == (False, True)
    assert {"path", "line", "column", "key", "severity", "message", "remedy"} == bad["findings"][0].keys()


@pytest.mark.parametrize(
    "command", [["check"], ["show"], ["fingerprint"], ["diff", "old.json"], ["convert", "--to", "dlt"]]
)
def test_a_file_that_is_not_there_is_bad_input(odi: Odi, command: list[str]) -> None:
    answer = odi("cursors", *command, "none.json")
    assert answer.code == 2
    assert "none.json" in answer.err


def test_documents_come_from_standard_input_too(
    files: SimpleNamespace, odi: Odi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def piped(text: str) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode()), isatty=lambda: False))

    piped(files.text)
    assert odi("cursors", "diff", "-", "new.json").code == 0
    piped("{")
    answer = odi("cursors", "show", "-")
    assert answer.code == 2
    assert "<stdin>:1:2" in answer.err
    piped(files.text)
    answer = odi("cursors", "set", "-", "public.i", "id=9")
    assert json.loads(answer.out) == json.loads(document(id=9))


def test_show_lists_the_streams(odi: Odi) -> None:
    answer = odi("cursors", "show", "old.json")
    assert answer.out.split("\n")[0].split() == ["stream", "snapshot", "log", "position", "cursors"]
    assert "public.a  finished  0/1A" in answer.out
    shown = json.loads(odi("cursors", "show", "old.json", "--json").out)
    assert [one["stream"] for one in shown["streams"]] == ["public.a", "public.i"]
    assert shown["streams"][0]["position"] == {"kind": "PostgresLsn", "text": "0/1A"}


def test_diff_ends_with_1_where_a_stream_went_back(odi: Odi) -> None:
    forward = odi("cursors", "diff", "old.json", "new.json")
    assert forward.code == 0
    assert "log position: 17 bytes" in forward.out
    back = odi("cursors", "diff", "new.json", "old.json", "--json")
    assert back.code == 1
    assert {one["stream"]: one["move"] for one in json.loads(back.out)} == {"public.a": "back", "public.i": "back"}
    same = odi("cursors", "diff", "old.json", "old.json")
    assert (same.code, same.out) == (0, "")


def test_the_fingerprint_is_that_of_the_meaning(files: SimpleNamespace, odi: Odi) -> None:
    Path("spaced.json").write_text(json.dumps(json.loads(files.text), indent=4))
    first, second, other = odi("cursors", "fingerprint", "old.json", "spaced.json", "new.json").out.splitlines()
    assert first.split()[0] == second.split()[0] != other.split()[0]


def test_convert_says_what_does_not_carry_over(odi: Odi) -> None:
    answer = odi("cursors", "convert", "old.json", "--to", "airbyte")
    assert answer.code == 1
    assert [one["stream"]["stream_descriptor"]["name"] for one in json.loads(answer.out)] == ["i"]
    assert "public.a: left out: Airbyte's documents have no place for 0/1A" in answer.err
    answer = odi("cursors", "convert", "old.json", "--to", "singer", "-o", "singer.json")
    assert (answer.code, answer.out) == (0, "")
    assert odi("cursors", "check", "singer.json").code == 0
    assert odi("cursors", "convert", "old.json", "--to", "olake").code == 1


def test_one_stream_is_set_in_place_and_not_back(files: SimpleNamespace, odi: Odi) -> None:
    assert odi("cursors", "set", "old.json", "public.i", "id=9").code == 0
    assert Path("old.json").read_text() == files.text.replace('"id": 5', '"id": 9')
    answer = odi("cursors", "set", "old.json", "public.i", "id=3")
    assert answer.code == 1
    assert "public.i: back, id 9 → 3" in answer.err
    assert odi("cursors", "set", "old.json", "public.i", "id=3", "--force").code == 0
    assert odi("cursors", "set", "old.json", "public.i", "id=x").code == 2
    assert odi("cursors", "set", "old.json", "public.i", "id").code == 2
    assert odi("cursors", "set", "old.json", "public.q", "id=3").code == 1


WRITER = """
import contextlib, sys
from odi_assets.cli.cursors.change import set_
for number in range(1, 16):
    with contextlib.redirect_stderr(None):
        set_("many.json", sys.argv[1], [f"id={number}"])
"""


@pytest.mark.slow
def test_no_process_takes_back_what_another_one_has_set() -> None:
    names = [f"s{number}" for number in range(4)]
    streams = [{"stream": name, "namespace": "", "sync_mode": "", "state": {"chunks": [], "id": 0}} for name in names]
    Path("many.json").write_text(json.dumps({"type": "STREAM", "version": 7, "streams": streams}))
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name]) for name in names]
    assert [writer.wait() for writer in writers] == [0] * len(writers)
    assert [one["state"]["id"] for one in json.loads(Path("many.json").read_text())["streams"]] == [15] * len(names)


def test_what_another_tool_writes_meanwhile_is_not_written_over(odi: Odi, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(_: bool) -> None:
        Path("old.json").write_text(document("0/3C", id=8))

    with monkeypatch.context() as patched:
        patched.setattr("odi_assets.cli.cursors.change.require_consent", asked)
        answer = odi("cursors", "reset", "old.json", "public.i")
    assert answer.code == 1
    assert "old.json was changed by somebody else since it was read, and stays as it is" in answer.err
    assert Path("old.json").read_text() == document("0/3C", id=8)
    assert odi("cursors", "reset", "old.json", "public.i", "--yes").code == 0


def test_a_document_is_converted_in_place_if_that_is_said(odi: Odi) -> None:
    assert odi("cursors", "convert", "old.json", "--to", "singer", "-o", "old.json").code == 1
    assert odi("cursors", "convert", "old.json", "--to", "singer", "-o", "old.json", "--force").code == 0
    assert "public-i" in json.loads(Path("old.json").read_text())["bookmarks"]


def test_a_shared_position_is_set_for_all_streams_only_if_that_is_said(files: SimpleNamespace, odi: Odi) -> None:
    assert "--shared" in odi("cursors", "set", "old.json", "public.a", "lsn=0/2A").err
    assert odi("cursors", "set", "old.json", "public.a", "lsn=0/2A", "--shared").code == 0
    assert Path("old.json").read_text() == files.text.replace("0/1A", "0/2A")


def test_a_token_of_digits_stays_a_text_and_chunks_are_json(odi: Odi) -> None:
    state = {"_data": "8264", "chunks": [{"min": None, "max": None}]}
    text = json.dumps({"type": "STREAM", "streams": [{"stream": "o", "namespace": "s", "state": state}]})
    Path("mongo.json").write_text(text)
    assert odi("cursors", "set", "mongo.json", "s.o", "_data=8265", "chunks=[]").code == 0
    assert Path("mongo.json").read_text() == text.replace("8264", "8265").replace('[{"min": null, "max": null}]', "[]")


def test_reset_asks_first(files: SimpleNamespace, odi: Odi) -> None:
    assert odi("cursors", "reset", "old.json", "public.i").code == 2
    assert Path("old.json").read_text() == files.text
    assert odi("cursors", "reset", "old.json", "public.i", "--yes").code == 0
    assert [one["stream"] for one in json.loads(Path("old.json").read_text())["streams"]] == ["a"]


def test_positions_go_into_state_and_out_again(odi: Odi) -> None:
    Path("odibi.yaml").write_text(PROJECT)
    assert odi("cursors", "import", "old.json", "--name", "olake").code == 0
    assert odi("cursors", "import", "new.json", "--name", "olake").code == 0
    listed = {one["key"]: one for one in json.loads(odi("state", "list", "--json").out)}
    assert listed["cursors/olake/public.i"]["revision"] == 2
    assert listed["cursors/olake/public.i"]["value"]["columns"] == {"id": 7}
    assert "id 7" in odi("state", "list").out
    answer = odi("cursors", "import", "old.json", "--name", "olake")
    assert answer.code == 1
    assert "public.i: back, id 7 → 5" in answer.err
    assert odi("cursors", "export", "-", "--name", "olake").out.strip() == Path("new.json").read_text()
    assert odi("cursors", "export", "out.json", "--name", "olake").code == 0
    assert Path("out.json").read_text() == Path("new.json").read_text()
    assert odi("cursors", "export", "out.json").code == 2
    assert "it has olake" in odi("cursors", "export", "out.json").err


def test_a_torn_file_is_restored_from_state(files: SimpleNamespace, odi: Odi) -> None:
    Path("odibi.yaml").write_text(PROJECT)
    Path("state.json").write_text(files.text)
    assert odi("cursors", "import", "state.json").code == 0
    Path("state.json").write_text(files.text[:50])
    answer = odi("cursors", "check", "state.json")
    assert answer.code == 1
    assert "odi cursors export state.json --force" in answer.err
    assert odi("cursors", "export", "state.json").code == 1
    assert odi("cursors", "export", "state.json", "--force").code == 0
    assert Path("state.json").read_text() == files.text


def test_the_tool_can_be_named(odi: Odi) -> None:
    Path("state.json").write_text("{}")
    assert "may be any tool's" in odi("cursors", "check", "state.json").out
    assert odi("cursors", "check", "state.json", "--tool", "singer").code == 0


@pytest.mark.parametrize("tool", [[], ["--tool", "olake"]])
def test_an_export_of_state_is_no_cursor_document(odi: Odi, tool: list[str]) -> None:
    Path("state.json").write_text('{"format": "odi-state", "version": 1, "project": "p", "environments": []}')
    shown = odi("cursors", "show", "state.json", *tool)
    assert (shown.code, shown.out) == (2, "")
    assert "this is state that `odi state export` wrote" in shown.err
    assert "odi state import" in shown.err


def test_an_empty_object_is_a_document_of_the_tool_that_it_is_compared_with(odi: Odi) -> None:
    Path("empty.json").write_text("{}")
    answer = odi("cursors", "diff", "empty.json", "old.json")
    assert answer.code == 0
    assert "2 new" in answer.err
    assert odi("cursors", "diff", "old.json", "empty.json").code == 1
    assert odi("cursors", "diff", "empty.json", "empty.json").code == 2


DOCUMENTS_WITH_NUMBERS = {
    "olake": '{{"type":"STREAM","streams":[{{"stream":"i","namespace":"public","state":{{"id":{},"chunks":[]}}}}]}}',
    "singer": '{{"bookmarks":{{"public-i":{{"id":{},"version":1}}}}}}',
    "dlt": '{{"_state_version":1,"_state_engine_version":4,"sources":{{"public":{{"resources":{{"i":{{"incremental":'
    '{{"id":{{"initial_value":null,"last_value":{},"unique_hashes":[]}}}}}}}}}}}}}}',
}


@pytest.mark.parametrize("tool", DOCUMENTS_WITH_NUMBERS)
def test_a_number_is_written_as_its_column_writes_it_or_refused_by_name(odi: Odi, tool: str) -> None:
    text = DOCUMENTS_WITH_NUMBERS[tool]
    stream = "public-i" if tool == "singer" else "public.i"
    for given, written in (("1e3", "1000"), ("1.0e3", "1000"), (" 1000", "1000"), ("1e-2", "0.01")):
        Path("one.json").write_text(text.format(5))
        answer = odi("cursors", "set", "one.json", stream, f"id={given}", "--force")
        assert (answer.code, Path("one.json").read_text()) == (0, text.format(written)), answer.err
    for given in ("+5", "05", "1_000", "NaN", "0x1F", "x", "true", "[1]", '"5"'):
        answer = odi("cursors", "set", "one.json", stream, f"id={given}")
        assert (answer.code, f"`id`: {given!r} is no number, as 0.01 is" in answer.err) == (2, True)
    assert Path("one.json").read_text() == text.format("0.01")
    # The column has texts now: a quoted one takes the place of the number.
    assert odi("cursors", "set", "one.json", stream, 'id="x"', "--force").code == 0
    assert Path("one.json").read_text() == text.format('"x"')


def test_a_text_keeps_the_form_of_its_column(odi: Odi) -> None:
    Path("one.json").write_text('{"bookmarks":{"public-i":{"id":"1","at":"2024-01-15","name":"a"}}}')

    def given(pair: str, *more: str) -> int:
        return odi("cursors", "set", "one.json", "public-i", pair, *more).code

    assert [given(pair) for pair in ("id=NaN", "at=x", "id=1_000")] == [2, 2, 2]
    assert [given(pair) for pair in ("id=1e3", "at=2024-01-16", "name=b")] == [0, 0, 0]
    assert given("at=x", "--force") == 0
    bookmarks = json.loads(Path("one.json").read_text())["bookmarks"]["public-i"]
    assert bookmarks == {"id": "1000", "at": "x", "name": "b"}


def test_check_looks_at_every_file_even_if_one_cannot_be_read(odi: Odi) -> None:
    answer = odi("cursors", "check", "none.json", "old.json")
    assert answer.code == 2
    assert "none.json" in answer.err
    assert "old.json: OLake, 2 streams: 0 errors" in answer.err


def test_a_position_in_the_log_keeps_its_type(odi: Odi) -> None:
    text = '{"bookmarks":{"public-a":{"lsn":26,"version":1}}}'
    Path("singer.json").write_text(text)
    assert odi("cursors", "set", "singer.json", "public-a", "lsn=27").code == 0
    assert Path("singer.json").read_text() == text.replace("26", "27")
    assert odi("cursors", "set", "singer.json", "public-a", "lsn=0/1C").code == 2
    assert odi("cursors", "set", "singer.json", "public-a", "gone=1").code == 1
