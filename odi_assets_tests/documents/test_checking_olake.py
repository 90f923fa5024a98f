"""Every fault of a document is found, with its place and what to do; OLake finds none of them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from odi_assets.documents import load_olake, parse_olake
from odi_assets.errors import CursorDocumentError

ONE_STREAM = '{"type":"STREAM","streams":[{"stream":"t","namespace":"n","state":%s}]}'


def the_error(text: str) -> CursorDocumentError:
    with pytest.raises(CursorDocumentError) as caught:
        parse_olake(text, path="state.json")
    return caught.value


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"type":"STREAM","streams":[null]}', "streams[0]"),
        ('{"type":"STREAM","streams":{}}', "streams"),
        ('{"type":"stream"}', "type"),
        ('{"type":7}', "type"),
        ('{"streams":[]}', "type"),
        ("[]", ""),
        ("null", ""),
        ('{"type":"STREAM","version":"1"}', "version"),
        ('{"type":"STREAM","version":true}', "version"),
        ('{"type":"GLOBAL","global":[]}', "global"),
        ('{"type":"GLOBAL","global":{"state":7}}', "global.state"),
        ('{"type":"GLOBAL","global":{"state":{"lsn":"0-1"}}}', "global.state.lsn"),
        ('{"type":"GLOBAL","global":{"state":{"lsn":"0/123456789"}}}', "global.state.lsn"),
        ('{"type":"GLOBAL","global":{"streams":"a.b"}}', "global.streams"),
        ('{"type":"GLOBAL","global":{"streams":["a.b",null]}}', "global.streams[1]"),
        (
            '{"type":"GLOBAL","global":{"state":{"server_id":1,"state":{"position":{"Name":"x","Pos":1}}}}}',
            "global.state.state.position",
        ),
        ('{"type":"STREAM","streams":[{"namespace":"n","state":{}}]}', "streams[0].stream"),
        ('{"type":"STREAM","streams":[{"stream":7,"state":{}}]}', "streams[0].stream"),
        ('{"type":"STREAM","streams":[{"stream":"t"}]}', "streams[0].state"),
        ('{"type":"STREAM","streams":[{"stream":"t","state":{}},{"stream":"t","state":{}}]}', "streams[1]"),
        (ONE_STREAM % "[]", "streams[0].state"),
        (ONE_STREAM % '{"chunks":{}}', "streams[0].state.chunks"),
        (ONE_STREAM % '{"chunks":null}', "streams[0].state.chunks"),
        (ONE_STREAM % '{"chunks":[7]}', "streams[0].state.chunks[0]"),
        (ONE_STREAM % '{"chunks":[{"min":1,"max":2},{"min":1}]}', "streams[0].state.chunks[1]"),
        (ONE_STREAM % '{"_data":"826"}', "streams[0].state._data"),
        (ONE_STREAM % '{"_data":12}', "streams[0].state._data"),
        (ONE_STREAM % '{"resume_token":{"_data":"xyz"}}', "streams[0].state.resume_token._data"),
        (ONE_STREAM % '{"binlog_file":"mysql-bin","binlog_position":4}', "streams[0].state"),
        (ONE_STREAM % '{"binlog_file":"mysql-bin.000001","binlog_position":-4}', "streams[0].state"),
        (ONE_STREAM % '{"id":NaN}', "streams[0].state.id"),
        (ONE_STREAM % '{"id":1e99999999999999999999}', "streams[0].state.id"),
        (ONE_STREAM % ('{"id":%s}' % ("9" * 5000)), "streams[0].state.id"),
        (ONE_STREAM % '{"id":1,"id":2}', "streams[0].state.id"),
        (ONE_STREAM % '{"a.b":NaN}', 'streams[0].state["a.b"]'),
    ],
)
def test_a_fault_is_named_by_its_key_and_comes_with_a_remedy(text: str, key: str) -> None:
    error = the_error(text)
    assert error.key == key
    assert error.path == "state.json"
    assert [problem.remedy for problem in error.problems]
    assert all(problem.remedy and problem.message for problem in error.problems)


def test_all_faults_are_listed_at_once_in_the_order_of_the_text() -> None:
    text = """{
      "type": "BOTH",
      "streams": [
        null,
        {"stream": "t", "state": {"chunks": "none",
                                  "_data": "zz"}}
      ]
    }"""
    error = the_error(text)
    assert [(p.line, p.column, p.key) for p in error.problems] == [
        (2, 15, "type"),
        (4, 9, "streams[0]"),
        (5, 45, "streams[1].state.chunks"),
        (6, 44, "streams[1].state._data"),
    ]
    assert "4 problems" in str(error)
    assert "state.json:4:9: streams[0]: must be an object, but is null" in str(error)


def test_a_missing_key_is_placed_at_the_object_it_is_missing_from() -> None:
    error = the_error('{"type": "STREAM",\n "streams": [\n  {"stream": "t"}]}')
    assert (error.line, error.column) == (3, 3)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("", 1, 1), ('{"type":"STREAM",', 1, 18), ('{"type":\n  STREAM}', 2, 3), ('{"a":"\n"}', 1, 7), ("{} {}", 1, 4)],
)
def test_what_is_not_json_is_placed_too(text: str, line: int, column: int) -> None:
    error = the_error(text)
    assert (error.line, error.column) == (line, column)
    assert "not JSON" in str(error)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [65, 3000])
def test_a_document_nested_without_end_is_refused(opening: str, depth: int) -> None:
    assert "levels deep" in str(the_error(opening * depth + "1" + ("]" if opening == "[" else "}") * depth))


def test_a_half_written_file_tells_that_it_may_be_read_again(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text('{"type":"STREAM","streams":[{"stre')
    with pytest.raises(CursorDocumentError, match="read again when no sync runs") as caught:
        load_olake(file)
    assert caught.value.path == str(file)


def test_bytes_that_are_not_utf8_are_placed(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_bytes(b'{"type":\n "\xff"}')
    with pytest.raises(CursorDocumentError, match="0xff is not UTF-8") as caught:
        load_olake(file)
    assert (caught.value.line, caught.value.column) == (2, 3)


def test_a_missing_file_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(CursorDocumentError, match="cannot be read"):
        load_olake(tmp_path / "none.json")


def test_an_error_survives_pickling() -> None:
    error = the_error('{"type":"x"}')
    assert pickle.loads(pickle.dumps(error)).problems == error.problems


def test_a_thousand_faults_make_a_message_that_can_be_read() -> None:
    streams: list[Any] = [None] * 1000
    error = the_error(json.dumps({"type": "STREAM", "streams": streams}))
    assert len(error.problems) == 1000
    assert str(error).count("\n") < 120
    assert "950 more" in str(error)
