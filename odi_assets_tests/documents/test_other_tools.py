"""What is read out of the documents of Airbyte, Singer, Meltano and dlt."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from benchmarks.cursors.documents import DOCUMENTS, OFFSET
from odi_assets.documents import (
    BinlogPosition,
    CursorStream,
    Move,
    PostgresLsn,
    ResumeToken,
    SnapshotStatus,
    SqlServerLsn,
    StateType,
    Tool,
    UnknownPosition,
    compare,
    fingerprint,
    parse,
    with_cursors,
    without_streams,
)
from odi_assets.documents.tools import recognise


def airbyte(state: Any) -> CursorStream:
    """The stream of a message with this state."""
    item = {"stream_descriptor": {"name": "orders", "namespace": "public"}, "stream_state": state}
    (stream,) = parse(json.dumps({"type": "STREAM", "stream": item})).streams
    return stream


def shared(state: Any) -> Any:
    """The position that a global state shares."""
    item = {"stream_descriptor": {"name": "orders"}, "stream_state": {}}
    document = parse(json.dumps({"type": "GLOBAL", "global": {"shared_state": state, "stream_states": [item]}}))
    assert document.shared is not None
    assert document.streams[0].position == document.shared.position
    return document.shared.position


def singer(mark: Any) -> CursorStream:
    """The stream of this bookmark."""
    (stream,) = parse(json.dumps({"bookmarks": {"public-orders": mark}})).streams
    return stream


def dlt(value: Any, **more: Any) -> CursorStream:
    """The resource whose cursor is there."""
    resource = {"incremental": {"at": {"initial_value": None, "last_value": value, "unique_hashes": []}}, **more}
    sources = {"shop": {"resources": {"orders": resource}}}
    (stream,) = parse(json.dumps({"_state_version": 1, "_state_engine_version": 4, "sources": sources})).streams
    return stream


# -- Airbyte -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "cursors"),
    [
        ({"state_type": "cursor_based", "cursor_field": ["id"], "cursor": "5", "version": 2}, {"id": "5"}),
        ({"cursor_field": ["meta", "at"], "cursor": "2024-01-01"}, {"meta.at": "2024-01-01"}),
        ({"state_type": "cursor_based", "cursors": {"id": 5}, "version": 3}, {"id": 5}),
        ({"state_type": "xmin", "xmin_raw_value": 99, "xmin_xid_value": 99, "num_wraparound": 0}, {"xmin": 99}),
        ({"updated_at": "2024-01-01"}, {"updated_at": "2024-01-01"}),
        ({"org/repo": {"main": {"created_at": "2024-01-01"}}}, {"org/repo.main.created_at": "2024-01-01"}),
        (
            {"states": [{"partition": {"b": 1, "a": 2}, "cursor": {"at": "2024-01-01"}}], "lookback_window": 3},
            {'states[{"a":2,"b":1}].cursor.at': "2024-01-01"},
        ),
        (
            {"use_global_cursor": False, "state": {"at": "2024"}, "parent_state": {"repos": {"at": "2023"}}},
            {"state.at": "2024", "parent_state.repos.at": "2023"},
        ),
        ({"__ab_full_refresh_sync_complete": True}, {}),
        ({"stream_name": "orders", "stream_namespace": "public", "cursor_field": [], "cursor": None}, {}),
        ({"id": "65a", "status": "COMPLETE", "id_type": "objectId"}, {}),
    ],
)
def test_airbyte_cursors_are_found_in_every_state(state: Any, cursors: Any) -> None:
    stream = airbyte(state)
    assert stream.id == "public.orders"
    assert stream.cursors == cursors
    assert stream.snapshot.status is SnapshotStatus.FINISHED


@pytest.mark.parametrize(
    ("state", "cursors"),
    [
        (
            {"state_type": "ctid", "ctid": "(12,3)", "incremental_state": {"cursor_field": ["id"], "cursor": "9"}},
            {"id": "9"},
        ),
        ({"state_type": "primary_key", "pk_name": "id", "pk_val": "55"}, {}),
        ({"state_type": "ordered_column", "ordered_col": "id", "ordered_col_val": "55"}, {}),
        ({"primary_key": {"id": 55}, "cursors": {}, "version": 3}, {}),
    ],
)
def test_an_airbyte_snapshot_under_way_is_not_finished(state: Any, cursors: Any) -> None:
    stream = airbyte(state)
    assert stream.snapshot.status is SnapshotStatus.PENDING
    assert stream.cursors == cursors


def test_an_airbyte_snapshot_moves_with_the_place_it_has_reached() -> None:
    def at(ctid: str) -> Any:
        state = {"state_type": "ctid", "ctid": ctid}
        return parse(
            json.dumps({"type": "STREAM", "stream": {"stream_descriptor": {"name": "a"}, "stream_state": state}})
        )

    assert compare(at("(9,120)"), at("(10,1)"))[0].move is Move.FORWARD
    assert compare(at("(10,1)"), at("(9,120)"))[0].move is Move.BACK


@pytest.mark.parametrize(
    ("state", "position"),
    [
        ({"state": {'["postgres",{"server":"postgres"}]': OFFSET}}, PostgresLsn(87943976)),
        (
            {"state": {"mysql_cdc_offset": {"[]": '{"file":"binlog.000007","pos":42}'}, "mysql_db_history": "x"}},
            BinlogPosition("binlog", 7, 42, "binlog.000007"),
        ),
        (
            {"state": {"mssql_cdc_offset": {"[]": '{"commit_lsn":"00000027:00000AC0:0002"}'}}},
            SqlServerLsn("0000002700000ac00002"),
        ),
        ({"state": {"[]": '{"sec":1,"ord":2,"resume_token":"8264beb9"}'}}, ResumeToken("8264BEB9")),
        ({"what": "ever"}, UnknownPosition('{"what":"ever"}')),
        ("text", UnknownPosition('"text"')),
    ],
)
def test_the_offset_that_debezium_keeps_is_found(state: Any, position: Any) -> None:
    assert shared(state) == position


def test_a_stream_of_airbyte_that_says_nothing_was_not_read() -> None:
    assert airbyte({}).snapshot.status is SnapshotStatus.ABSENT
    assert airbyte({}).cursors == {}


def test_a_snapshot_of_mongodb_that_is_under_way_is_not_finished() -> None:
    stream = airbyte({"id": "65a", "status": "IN_PROGRESS", "id_type": "objectId"})
    assert (stream.snapshot.status, stream.snapshot.reached) == (SnapshotStatus.PENDING, '"65a"')


def test_the_log_of_a_legacy_state_is_that_of_all_its_tables() -> None:
    tables = [{"stream_name": name, "stream_namespace": "p", "cursor_field": []} for name in ("a", "b")]
    data = {"cdc": True, "cdc_state": {"state": {"{}": OFFSET}}, "streams": tables}
    document = parse(json.dumps({"type": "LEGACY", "data": data}))
    assert [(one.id, one.position) for one in document.streams] == [
        ("p.a", PostgresLsn(87943976)),
        ("p.b", PostgresLsn(87943976)),
    ]


def test_states_may_stand_one_after_another_and_the_later_one_of_a_stream_counts() -> None:
    def state(name: str, at: int) -> Any:
        item = {"stream_descriptor": {"name": name}, "stream_state": {"id": at}}
        return {"type": "STREAM", "stream": item}

    lines = "".join(f"{json.dumps(one)}\n" for one in (state("a", 1), state("b", 2), state("a", 3)))
    document = parse(lines)
    assert {one.name: one.cursors["id"] for one in document.streams} == {"a": 3, "b": 2}
    assert with_cursors(document, "b", {"id": 5}).text == lines.replace('"id": 2', '"id": 5')
    gone = without_streams(document, ["a"])
    assert {one.name: dict(one.cursors) for one in gone.streams} == {"a": {}, "b": {"id": 2}}


def test_a_state_for_all_streams_takes_the_place_of_those_before_it() -> None:
    def message(state: Any) -> str:
        return json.dumps({"type": "STATE", "state": state})

    item = {"stream_descriptor": {"name": "a"}, "stream_state": {"id": 1}}
    both = {"type": "GLOBAL", "global": {"shared_state": {"x": 1}, "stream_states": []}}
    document = parse(message({"type": "STREAM", "stream": item}) + "\n" + message(both))
    assert (document.type, document.streams) == (StateType.GLOBAL, ())


def test_of_several_messages_the_last_of_each_stream_counts() -> None:
    lines = [
        {
            "type": "STATE",
            "state": {"type": "STREAM", "stream": {"stream_descriptor": {"name": name}, "stream_state": {"id": n}}},
        }
        for name, n in (("a", 1), ("b", 2), ("a", 3))
    ]
    lines.insert(1, {"type": "RECORD", "record": {}})
    document = parse("".join(f"{json.dumps(line)}\n" for line in lines))
    assert {one.name: one.cursors for one in document.streams} == {"a": {"id": 3}, "b": {"id": 2}}


@pytest.mark.parametrize(
    ("name", "form", "kind"),
    [
        ("airbyte message", "message", StateType.STREAM),
        ("airbyte states", "states", StateType.STREAM),
        ("airbyte global", "state", StateType.GLOBAL),
        ("airbyte export", "export", StateType.STREAM),
        ("airbyte legacy", "state", StateType.LEGACY),
        ("airbyte messages", "messages", StateType.STREAM),
    ],
)
def test_the_forms_of_airbyte_are_told_apart(name: str, form: str, kind: StateType) -> None:
    document = parse(DOCUMENTS[name])
    assert (document.form, document.type) == (form, kind)


def test_an_export_of_the_platform_may_be_global_legacy_or_not_set() -> None:
    item = {"streamDescriptor": {"name": "a"}, "streamState": {"id": 1}}
    whole = {"stateType": "global", "globalState": {"sharedState": {"x": 1}, "streamStates": [item]}}
    assert parse(json.dumps(whole)).streams[0].cursors == {"id": 1}
    assert parse(json.dumps({"connectionState": whole})).streams == parse(json.dumps(whole)).streams
    assert parse('{"stateType":"legacy","state":{"a":{"id":1}}}').streams[0].cursors == {"id": 1}
    assert parse('{"stateType":"not_set","connectionId":"x"}').streams == ()
    legacy = {
        "cdc": False,
        "streams": [{"stream_name": "a", "stream_namespace": "n", "cursor_field": ["id"], "cursor": "1"}],
    }
    assert parse(json.dumps(legacy)).streams[0].id == "n.a"


def test_the_order_of_airbytes_streams_does_not_change_the_fingerprint() -> None:
    def export(*names: str) -> Any:
        items = [{"streamDescriptor": {"name": name}, "streamState": {}} for name in names]
        return parse(json.dumps({"stateType": "stream", "streamState": items}))

    assert fingerprint(export("a", "b")) == fingerprint(export("b", "a"))
    assert fingerprint(export("a", "b")) != fingerprint(export("a", "c"))


# -- Singer and Meltano ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "position", "cursors"),
    [
        ({"replication_key": "id", "replication_key_value": 4079, "version": 1}, None, {"id": 4079}),
        ({"last_replication_method": "LOG_BASED", "lsn": 108240872, "xmin": None}, PostgresLsn(108240872), {}),
        ({"lsn": "0000002D000003F00003"}, SqlServerLsn("0000002d000003f00003"), {}),
        ({"log_file": "b.000004", "log_pos": 3244}, BinlogPosition("b", 4, 3244, "b.000004"), {}),
        ({"last_replication_method": "FULL_TABLE", "version": 1570922730456}, None, {"version": 1570922730456}),
        ({"current_log_version": 5, "initial_full_table_complete": True}, None, {"current_log_version": 5}),
        ({"updated_at": "2024-01-01"}, None, {"updated_at": "2024-01-01"}),
        ("2024-01-01", None, {"bookmark": "2024-01-01"}),
        (
            {"partitions": [{"context": {"r": "a"}, "replication_key": "at", "replication_key_value": 1}]},
            None,
            {'partitions[{"r":"a"}].at': 1},
        ),
        (
            {
                "replication_key": "id",
                "replication_key_value": 1,
                "progress_markers": {"Note": "…", "replication_key": "id"},
            },
            None,
            {"id": 1},
        ),
    ],
)
def test_singer_bookmarks_are_read(mark: Any, position: Any, cursors: Any) -> None:
    stream = singer(mark)
    assert (stream.position, stream.cursors) == (position, cursors)
    assert stream.snapshot.status is SnapshotStatus.FINISHED


@pytest.mark.parametrize(
    ("mark", "cursors"),
    [
        ({}, {}),
        ({"starting_replication_value": None}, {}),
        (
            {"progress_markers": {"Note": "…", "replication_key": "at", "replication_key_value": "2024"}},
            {"at": None},
        ),
        (
            {"partitions": [{"context": {"r": 1}, "progress_markers": {"replication_key": "at"}}]},
            {'partitions[{"r":1}].at': None},
        ),
    ],
)
def test_a_stream_of_singer_without_a_value_was_not_read(mark: Any, cursors: Any) -> None:
    stream = singer(mark)
    assert (stream.snapshot.status, stream.cursors) == (SnapshotStatus.ABSENT, cursors)


def test_a_tap_without_bookmarks_has_a_member_for_each_stream() -> None:
    value = {"users": 2, "orders": {"updated": "2024"}, "currently_syncing": None}
    for document in (parse(json.dumps({"type": "STATE", "value": value})), parse(json.dumps(value), tool=Tool.SINGER)):
        found = {one.name: one.cursors for one in document.streams}
        assert found == {"users": {"bookmark": 2}, "orders": {"updated": "2024"}}
        assert [(one.key.rpartition(".")[2], one.severity) for one in document.warnings] == [("bookmarks", "warning")]


def test_of_the_states_that_a_target_printed_the_last_one_counts() -> None:
    text = '{"bookmarks":{"a":{"id":1}}}\n{"bookmarks":{"a":{"id":2}}}\n'
    document = parse(text)
    assert (document.tool, document.streams[0].cursors) == (Tool.SINGER, {"id": 2})
    assert with_cursors(document, "a", {"id": 9}).text == text.replace('"id":2', '"id":9')


def test_transactions_of_mariadb_have_no_order_as_text() -> None:
    marks = [{"log_file": "b.000004", "log_pos": 3244, "gtid": gtid} for gtid in ("0-1-9", "0-1-10")]
    documents = [parse(json.dumps({"bookmarks": {"t": mark}})) for mark in marks]
    assert compare(*documents)[0].move is Move.INCOMPARABLE


def test_a_full_table_of_singer_that_is_under_way_is_not_finished() -> None:
    stream = singer({"max_pk_values": {"id": 900}, "last_pk_fetched": {"id": 55}})
    assert stream.snapshot.status is SnapshotStatus.PENDING
    assert stream.snapshot.reached == '{"id":55}'
    assert singer({"initial_full_table_complete": False}).snapshot.status is SnapshotStatus.PENDING


def test_of_meltanos_parts_the_partial_one_counts() -> None:
    def part(**marks: int) -> Any:
        marked = {name: {"replication_key": "id", "replication_key_value": n} for name, n in marks.items()}
        return {"singer_state": {"bookmarks": marked}}

    document = parse(json.dumps({"completed": part(a=1, b=1), "partial": part(a=2)}))
    assert document.form == "meltano"
    assert {one.name: one.cursors["id"] for one in document.streams} == {"a": 2, "b": 1}


def test_of_a_taps_messages_the_last_state_counts() -> None:
    lines = [{"type": "STATE", "value": {"bookmarks": {name: {"id": 1}}}} for name in ("a", "b")]
    document = parse("\n".join(map(json.dumps, [{"type": "SCHEMA"}, *lines, {"type": "RECORD"}])))
    assert (document.tool, [one.name for one in document.streams]) == (Tool.SINGER, ["b"])


# -- dlt ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        ("\uf0272024-01-02T00:00:00+00:00", "2024-01-02T00:00:00+00:00"),
        ("\uf0282024-01-02", "2024-01-02"),
        ("\uf0261.50", Decimal("1.50")),
        ("\uf02912345678-1234-5678-1234-567812345678", "12345678-1234-5678-1234-567812345678"),
        (1152921504606846976, 1152921504606846976),
        ("2024-01-02", "2024-01-02"),
        (None, None),
    ],
)
def test_dlt_cursors_are_read_without_the_marks_of_their_types(stored: Any, value: Any) -> None:
    stream = dlt(stored)
    assert (stream.id, stream.namespace, stream.cursors) == ("shop.orders", "shop", {"at": value})


def test_what_else_a_dlt_resource_keeps_is_compared_as_a_whole() -> None:
    before, after = dlt(1, token={"a": 1}), dlt(1, token={"a": 2})
    assert before.other == {"token": '{"a":1}'}
    documents = [
        parse(
            json.dumps({"_state_version": 1, "_state_engine_version": 4, "sources": {"s": {"resources": {"r": state}}}})
        )
        for state in ({"token": 1}, {"token": 2})
    ]
    assert compare(*documents)[0].move is Move.INCOMPARABLE
    assert before.cursors == after.cursors


# -- which tool --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        {"type": "STREAM"},
        {"type": "STATE", "state": {"type": "STREAM", "stream": {}}, "value": {"bookmarks": {}}},
        {"bookmarks": {}, "sources": {}, "pipeline_name": "p"},
        {"type": "RECORD", "record": {}},
        {"data": {"a": {}}},
        {"state": {}},
        {"a": 1},
        [],
        [{}],
        7,
        None,
    ],
)
def test_what_may_be_more_than_one_tools_or_is_none_is_not_guessed_at(content: Any) -> None:
    found = recognise(content)
    assert found is None or content == {"bookmarks": {}, "sources": {}, "pipeline_name": "p"}
