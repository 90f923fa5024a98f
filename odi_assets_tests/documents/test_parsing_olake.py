"""What is read out of the shapes OLake writes, and that nothing is lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odi_assets.documents import (
    BinlogPosition,
    ConsumerGroup,
    PostgresLsn,
    ResumeToken,
    SnapshotStatus,
    SqlServerLsn,
    StateType,
    UnknownPosition,
    dump,
    load_olake,
    parse_olake,
)
from odi_assets_tests.documents.documents import document, mongo, mysql, postgres, stream

TOKEN = "8267B34D61000000022B0429296E1404"


def test_mongodb_keeps_a_resume_token_with_each_stream() -> None:
    (orders,) = document(stream({"_data": TOKEN})).streams
    assert orders.id == "shop.orders"
    assert orders.position == ResumeToken(TOKEN)
    assert orders.cursors == {}


@pytest.mark.parametrize("state", [{"resume_token": {"_data": TOKEN}}, {"_cdc_resume_token": TOKEN.lower()}])
def test_a_resume_token_is_found_under_its_other_names(state: dict[str, object]) -> None:
    assert document(stream(state)).streams[0].position == ResumeToken(TOKEN)


def test_a_token_without_chunks_is_a_snapshot_that_has_not_finished() -> None:
    assert document(stream({"_data": TOKEN})).streams[0].snapshot.status is SnapshotStatus.ABSENT
    assert mongo(TOKEN).streams[0].snapshot.status is SnapshotStatus.FINISHED


@pytest.mark.parametrize("state_type", ["GLOBAL", "STREAM"])
def test_postgres_shares_one_lsn_under_either_type(state_type: str) -> None:
    read = postgres("0/198C935", type=state_type)
    assert read.type is StateType(state_type)
    assert read.streams[0].position == PostgresLsn(0x198C935)
    assert str(read.streams[0].position) == "0/198C935"


def test_a_stream_that_global_does_not_list_has_not_begun_to_read_the_log() -> None:
    shared = {"state": {"lsn": "0/1"}, "streams": []}
    read = document(stream({"chunks": [{"min": None, "max": 9}]}), **{"global": shared})
    assert read.streams[0].position is None
    assert read.shared is not None
    assert read.shared.position == PostgresLsn(1)


def test_a_stream_that_only_global_names_is_a_stream_of_the_document() -> None:
    read = parse_olake('{"type":"GLOBAL","global":{"state":{"lsn":"0/1A2B3C4D"},"streams":["public.users"]}}')
    users = read.stream("public.users")
    assert users is not None
    assert (users.namespace, users.name) == ("public", "users")
    assert users.position == PostgresLsn(0x1A2B3C4D)
    assert users.snapshot.status is SnapshotStatus.FINISHED


def test_mysql_keeps_its_position_with_the_stream_as_documented() -> None:
    state = {"binlog_file": "mysql-bin.000003", "binlog_position": 1027, "chunks": [], "server_id": 1000}
    (orders,) = document(stream(state)).streams
    assert orders.position == BinlogPosition("mysql-bin", 3, 1027, "mysql-bin.000003", 1000)
    assert orders.cursors == {}


@pytest.mark.parametrize(
    "shared",
    [
        {"state": {"server_id": 1000, "state": {"position": {"Name": "mysql-bin.000003", "Pos": 1027}}}},
        {"server_id": 1000, "state": {"position": {"Name": "mysql-bin.000003", "Pos": 1027}}},
        {"state": {"server_id": 1000, "state": {"name": "mysql-bin.000003", "pos": 1027}}},
        {"state": {"server_id": 1000, "state": {"position": "mysql-bin.000003:1027"}}},
    ],
)
def test_mysql_positions_are_found_in_every_nesting(shared: dict[str, object]) -> None:
    read = document(stream({"chunks": []}), **{"global": {**shared, "streams": ["shop.orders"]}})
    assert read.streams[0].position == BinlogPosition("mysql-bin", 3, 1027, "mysql-bin.000003", 1000)


def test_without_a_list_the_shared_position_counts_for_every_stream_that_reads_a_log() -> None:
    shared = {"state": {"lsn": "0/1"}}
    streams = stream({"chunks": []}), stream({"chunks": [], "id": 7}, name="items")
    read = document(*streams, **{"global": shared})
    assert {s.name: s.position for s in read.streams} == {"orders": PostgresLsn(1), "items": None}


def test_sql_server_kafka_and_s3_documents_are_read_too() -> None:
    assert document(stream({"lsn": "0000002D000003F00003"})).streams[0].position == SqlServerLsn("0000002d000003f00003")
    group = {"state": {"consumer_group_id": "olake-1"}, "streams": ["topics.t"]}
    assert document(**{"global": group}).streams[0].position == ConsumerGroup("olake-1")
    files = document(
        stream({"_last_modified_time": "2026-01-01T00:00:00Z", "chunks": [{"min": ["a", "b"], "max": None}]})
    )
    assert files.streams[0].cursors == {"_last_modified_time": "2026-01-01T00:00:00Z"}
    assert [chunk.min for chunk in files.streams[0].snapshot.chunks] == ['["a","b"]']


def test_a_position_of_an_unknown_shape_is_kept_and_not_guessed_at() -> None:
    read = document(**{"global": {"state": {"scn": 12}, "streams": ["a.b"]}})
    assert read.streams[0].position == UnknownPosition('{"state":{"scn":12}}')


def test_incremental_streams_keep_a_value_for_each_cursor_column() -> None:
    (orders,) = document(stream({"id": 100, "created_at": "2024-01-15T10:30:00Z", "note": None})).streams
    assert orders.cursors == {"id": 100, "created_at": "2024-01-15T10:30:00Z", "note": None}


def test_notes_of_a_commit_in_flight_are_not_cursor_columns() -> None:
    (orders,) = document(stream({"id": 100, "olake_next_cursor_id": 150, "next_data": TOKEN})).streams
    assert orders.cursors == {"id": 100}


def test_integers_above_2_to_the_53_stay_exact() -> None:
    read = document(stream({"id": 2**64 + 1}))
    assert read.streams[0].cursors == {"id": 2**64 + 1}
    assert f'"id": {2**64 + 1}' in dump(read)


def test_decimals_keep_every_digit() -> None:
    text = '{"type":"STREAM","streams":[{"stream":"t","state":{"price":0.1000000000000000000000001}}]}'
    assert "0.1000000000000000000000001" in dump(parse_olake(text))


def test_fields_nobody_knows_are_kept_in_their_order() -> None:
    text = '{"zone":"eu","type":"STREAM","streams":[{"stream":"t","state":{"deep":{"er":[1]}},"owner":"ops"}],"a":null}'
    assert json.loads(dump(parse_olake(text))) == json.loads(text)
    assert list(json.loads(dump(parse_olake(text)))) == ["zone", "type", "streams", "a"]


@pytest.mark.parametrize("version", [0, 1, 7])
def test_any_version_up_to_the_latest_is_read(version: int) -> None:
    assert document(version=version).version == version


def test_nulls_where_olake_means_nothing_are_accepted() -> None:
    assert parse_olake('{"type":"STREAM","global":null,"streams":null}').streams == ()


def test_a_file_is_read_and_remembered(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(dump(mysql("mysql-bin.000003", 4)))
    assert load_olake(file) == mysql("mysql-bin.000003", 4)
    assert load_olake(file).path == str(file)
