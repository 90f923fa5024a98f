"""How streams moved between two documents."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odi_assets.documents import CursorDocument, Move, compare
from odi_assets_tests.documents.documents import (
    document,
    incremental,
    mongo,
    mysql,
    on_a_busy_machine,
    postgres,
    stream,
    the_move,
)

OPPOSITE = {Move.FORWARD: Move.BACK, Move.BACK: Move.FORWARD}


def check(old: CursorDocument, new: CursorDocument, expected: Move) -> None:
    """The move there, and the opposite one back."""
    assert the_move(old, new).move is expected
    assert the_move(new, old).move is OPPOSITE.get(expected, expected)
    assert the_move(old, old).move is Move.SAME


def test_binary_logs_are_ordered_by_number_and_not_by_name() -> None:
    check(mysql("binlog.999999", 4), mysql("binlog.1000000", 4), Move.FORWARD)
    check(mysql("binlog.000009", 900), mysql("binlog.000010", 4), Move.FORWARD)
    check(mysql("binlog.000009", 900), mysql("binlog.000009", 1000), Move.FORWARD)


def test_binary_logs_of_other_names_or_readers_have_no_order() -> None:
    check(mysql("binlog.000001", 4), mysql("mysql-bin.000002", 4), Move.INCOMPARABLE)
    check(mysql("binlog.000001", 4, server_id=1), mysql("binlog.000002", 4, server_id=2), Move.INCOMPARABLE)


def test_lsns_are_ordered_as_64_bit_numbers() -> None:
    check(postgres("0/FFFFFFFF"), postgres("1/0"), Move.FORWARD)
    check(postgres("9/0"), postgres("10/0"), Move.FORWARD)
    check(postgres("0/198C935"), postgres("0/0198c935"), Move.SAME)


def test_resume_tokens_are_ordered_whatever_their_case() -> None:
    check(mongo("8267B34D61000000022B0429296E1404"), mongo("8267B34D62000000012B0429296E1404"), Move.FORWARD)
    check(mongo("8267b34d61"), mongo("8267B34D61"), Move.SAME)
    check(mongo("8267B3"), mongo("8267B300"), Move.FORWARD)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (9, 10, Move.FORWARD),
        (2**53, 2**53 + 1, Move.FORWARD),
        (1, 1.5, Move.FORWARD),
        (None, 1, Move.FORWARD),
        ("2024-01-01T00:00:00.9Z", "2024-01-01T00:00:00.10Z", Move.BACK),
        ("2024-01-01T00:00:00.000000001Z", "2024-01-01T00:00:00.000000002Z", Move.FORWARD),
        ("2024-01-01T23:30:00+00:00", "2024-01-02T00:00:00+02:00", Move.BACK),
        ("2024-01-01T10:00:00Z", "2024-01-01 11:00:00+01:00", Move.SAME),
        ("2024-01-31", "2024-02-01", Move.FORWARD),
        ("2024-01-01 00:00:00", "2024-01-01 00:00:00.000001", Move.FORWARD),
        ("2024-01-01T10:00:00", "2024-01-01T11:00:00Z", Move.INCOMPARABLE),
        ("65a000000000000000000001", "65a000000000000000000002", Move.FORWARD),
        ("a", "b", Move.FORWARD),
        ("8", "9", Move.FORWARD),
        ("9", "10", Move.INCOMPARABLE),
        (1, "1", Move.INCOMPARABLE),
        (True, 1, Move.INCOMPARABLE),
        (False, True, Move.INCOMPARABLE),
    ],
)
def test_cursor_values_are_ordered_by_what_they_are(old: Any, new: Any, expected: Move) -> None:
    check(incremental(c=old), incremental(c=new), expected)


def test_two_cursor_columns_move_together_or_not_at_all() -> None:
    check(incremental(a=1, b=1), incremental(a=2, b=1), Move.FORWARD)
    check(incremental(a=1, b=1), incremental(a=2, b=2), Move.FORWARD)
    check(incremental(a=1, b=2), incremental(a=2, b=1), Move.INCOMPARABLE)
    check(incremental(a=1), incremental(b=1), Move.INCOMPARABLE)
    check(incremental(), incremental(a=1), Move.FORWARD)


ONE, TWO, THREE = ({"min": n, "max": n + 1} for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"chunks": [ONE, TWO]}, Move.FORWARD),
        ({"chunks": [ONE, TWO]}, {"chunks": [TWO]}, Move.FORWARD),
        ({"chunks": [ONE, TWO]}, {"chunks": [TWO, ONE]}, Move.SAME),
        ({"chunks": [ONE]}, {"chunks": []}, Move.FORWARD),
        ({"chunks": [ONE]}, {"chunks": [TWO]}, Move.INCOMPARABLE),
        ({}, {"chunks": []}, Move.FORWARD),
        ({"chunks": []}, {"chunks": [ONE, TWO, THREE]}, Move.BACK),
    ],
)
def test_a_snapshot_moves_as_its_chunks_are_read(old: dict[str, Any], new: dict[str, Any], expected: Move) -> None:
    check(document(stream(old)), document(stream(new)), expected)


def test_a_snapshot_begun_anew_while_the_log_went_on_is_incomparable() -> None:
    old = document(stream({"chunks": [], "_data": "8201"}))
    new = document(stream({"chunks": [ONE], "_data": "8202"}))
    move = the_move(old, new)
    assert move.move is Move.INCOMPARABLE
    assert "snapshot finished → pending" in move.reason
    assert "8201 → 8202" in move.reason


def test_streams_come_and_go() -> None:
    old = document(stream({"id": 1}, "a"), stream({"id": 1}, "b"))
    new = document(stream({"id": 2}, "b"), stream({"id": 1}, "c"))
    assert [(m.stream, m.move) for m in compare(old, new)] == [
        ("shop.a", Move.GONE),
        ("shop.b", Move.FORWARD),
        ("shop.c", Move.NEW),
    ]


def test_a_shared_position_moves_only_the_streams_it_counts_for() -> None:
    def at(lsn: str) -> CursorDocument:
        shared = {"state": {"lsn": lsn}, "streams": ["shop.a"]}
        return document(stream({"chunks": []}, "a"), stream({"chunks": [ONE]}, "b"), **{"global": shared})

    assert [m.move for m in compare(at("0/1"), at("0/2"))] == [Move.FORWARD, Move.SAME]


def test_the_reason_names_both_positions() -> None:
    assert str(the_move(postgres("0/1"), postgres("1/2"))) == "shop.orders: forward, log position 0/1 → 1/2"


lsns = st.integers(0, 2**64 - 1)
binlogs = st.tuples(st.integers(1, 10**8), st.integers(0, 2**32))
tokens = st.binary(min_size=1, max_size=20)


def as_lsn(value: int) -> CursorDocument:
    return postgres(f"{value >> 32:X}/{value & 0xFFFFFFFF:X}")


def as_binlog(value: tuple[int, int]) -> CursorDocument:
    return mysql(f"binlog.{value[0]:06}", value[1])


def as_token(value: bytes) -> CursorDocument:
    return mongo(value.hex())


@on_a_busy_machine
@given(
    st.one_of(
        st.tuples(lsns, lsns, st.just(as_lsn)),
        st.tuples(binlogs, binlogs, st.just(as_binlog)),
        st.tuples(tokens, tokens, st.just(as_token)),
        st.tuples(st.integers(), st.integers(), st.just(lambda n: incremental(c=n))),
        st.tuples(st.datetimes(), st.datetimes(), st.just(lambda d: incremental(c=d.isoformat()))),
    )
)
def test_positions_are_ordered_as_their_source_orders_them(
    case: tuple[Any, Any, Callable[[Any], CursorDocument]],
) -> None:
    old, new, made = case
    expected = Move.SAME if old == new else Move.FORWARD if new > old else Move.BACK
    check(made(old), made(new), expected)


positions = st.fixed_dictionaries(
    {},
    optional={
        "chunks": st.lists(st.sampled_from([ONE, TWO, THREE])),
        "_data": st.sampled_from(["8201", "8202"]),
        "id": st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["9", "10", "2024-01-01"])),
    },
)


@on_a_busy_machine
@given(positions, positions)
def test_to_and_fro_are_opposites_for_every_pair_of_states(old: dict[str, Any], new: dict[str, Any]) -> None:
    there = the_move(document(stream(old)), document(stream(new))).move
    check(document(stream(old)), document(stream(new)), there)


kinds = st.sampled_from(
    [
        (lsns, as_lsn),
        (binlogs, as_binlog),
        (tokens, as_token),
        (st.integers(), lambda n: incremental(c=n)),
        (st.dates().map(str), lambda d: incremental(c=d)),
        (st.datetimes().map(datetime.isoformat), lambda d: incremental(c=d)),
        (st.text("abcé ", min_size=1, max_size=4), lambda t: incremental(c=t)),
    ]
)


@on_a_busy_machine
@given(st.data())
def test_the_order_of_each_kind_is_total_and_transitive(data: st.DataObject) -> None:
    values, made = data.draw(kinds)
    one, two, three = (made(data.draw(values)) for _ in range(3))
    moves = [the_move(a, b).move for a, b in ((one, two), (two, three), (one, three))]
    assert set(moves) <= {Move.FORWARD, Move.SAME, Move.BACK}
    for way in (Move.FORWARD, Move.BACK):
        if way in moves[:2] and set(moves[:2]) <= {way, Move.SAME}:
            assert moves[2] is way
