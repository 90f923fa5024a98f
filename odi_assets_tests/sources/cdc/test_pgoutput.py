"""Messages of ``pgoutput``, made by hand after PostgreSQL's documentation, and what they are decoded to."""

from __future__ import annotations

import struct

import pytest

from odi_assets.sources.cdc.changes import TornLogError
from odi_assets.sources.cdc.definition import Definition
from odi_assets.sources.cdc.mark import CaptureMark, TableMark, lsn_of, lsn_text
from odi_assets.sources.cdc.postgres.pgoutput import decode, row_values
from odi_assets.sources.cdc.postgres.visible import Visible
from odi_assets.sources.sql.marks import Chunks, TableChunk

_2000_US = 946_684_800_000_000


def begin(lsn: int, xid: int, at: int = 0) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, at, xid)


def commit(lsn: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, lsn + 8, 0)


def relation(oid: int, name: str, identity: str, *columns: tuple[str, bool]) -> bytes:
    listed = b"".join(
        struct.pack(">B", key) + column.encode() + b"\0" + struct.pack(">Ii", 25, -1) for column, key in columns
    )
    return (
        b"R"
        + struct.pack(">I", oid)
        + b"public\0"
        + name.encode()
        + b"\0"
        + identity.encode()
        + struct.pack(">H", len(columns))
        + listed
    )


def values(*texts: str | None) -> bytes:
    """A row; `…` stands for a value that did not change."""
    parts = [
        b"n" if text is None else b"u" if text == "…" else b"t" + struct.pack(">I", len(text.encode())) + text.encode()
        for text in texts
    ]
    return struct.pack(">H", len(texts)) + b"".join(parts)


def change(kind: str, oid: int, *rows: tuple[str, bytes]) -> bytes:
    return kind.encode() + struct.pack(">I", oid) + b"".join(marker.encode() + row for marker, row in rows)


T = relation(1, "t", "d", ("id", True), ("v", False))


def test_rows_are_decoded_column_by_column_in_the_order_of_their_messages() -> None:
    window = decode(
        [
            begin(100, 7, 5),
            T,
            change("I", 1, ("N", values("1", "é"))),
            change("U", 1, ("N", values("1", "…"))),
            commit(100),
            begin(200, 8),
            change("U", 1, ("K", values("1", None)), ("N", values("2", None))),
            change("D", 1, ("K", values("2", None))),
            commit(200),
        ]
    )
    found = window.transactions
    assert (found.lsn.tolist(), found.end.tolist(), found.xid.tolist()) == ([100, 200], [108, 208], [7, 8])
    assert found.committed_us.tolist() == [_2000_US + 5, _2000_US]
    (changes,) = window.changes
    assert bytes(changes.op).decode() == "IUUD"
    assert changes.transaction.tolist() == [0, 0, 1, 1]
    assert changes.after.texts(window.data).to_pylist() == [["1", "é"], ["1", None], ["2", None], [None, None]]
    assert changes.after.unchanged.tolist() == [[False, False], [False, True], [False, False], [False, False]]
    assert changes.before.texts(window.data, ~changes.has_before).to_pylist() == [None, None, ["1", None], ["2", None]]


def test_columns_that_change_in_the_middle_make_two_groups() -> None:
    wider = relation(1, "t", "d", ("id", True), ("v", False), ("more", False))
    window = decode(
        [
            begin(1, 1),
            T,
            change("I", 1, ("N", values("1", "a"))),
            wider,
            change("I", 1, ("N", values("2", "b", "c"))),
            commit(1),
        ]
    )
    assert [len(one.relation.columns) for one in window.changes] == [2, 3]
    assert window.relations[1].columns[2].name == "more"


def test_truncations_origins_types_and_messages_are_no_rows() -> None:
    truncated = b"T" + struct.pack(">IBII", 2, 0, 1, 9)
    window = decode([begin(1, 1), b"O" + b"\0" * 9, b"Y" + b"\0" * 8, T, truncated, b"M" + b"\0" * 20, commit(1)])
    assert window.changes == ()
    assert [(one.at, one.tables) for one in window.truncations] == [(4, (1, 9))]


def test_nothing_is_decoded_to_nothing() -> None:
    window = decode([])
    assert (len(window.transactions), window.changes, window.truncations) == (0, (), ())


TORN = [
    [begin(1, 1), change("I", 1, ("N", values("1"))), commit(1)],
    [begin(1, 1), T, change("I", 1, ("N", values("1"))), commit(1)],
    [begin(1, 1), T, change("I", 1, ("N", struct.pack(">H", 2) + b"xx")), commit(1)],
    [begin(1, 1), T, change("U", 1, ("K", values("1", None)), ("Q", values("1", None))), commit(1)],
    [begin(1, 1), T],
]


@pytest.mark.parametrize("messages", TORN, ids=["no relation", "too few columns", "no kind", "no new row", "no end"])
def test_torn_messages_are_an_error(messages: list[bytes]) -> None:
    with pytest.raises(TornLogError):
        decode([*messages, b"\0" * 16])


def test_rows_of_copy_have_the_same_form() -> None:
    header = b"PGCOPY\n\xff\r\n\0" + b"\0" * 8
    rows = [struct.pack(">HI", 2, 1) + b"a" + struct.pack(">I", 0xFFFFFFFF), struct.pack(">HII", 2, 0, 0)]
    data, found = row_values([header + rows[0], rows[1], b"\xff\xff"], 2)
    assert found.texts(data).to_pylist() == [["a", None], ["", ""]]
    data, found = row_values([header, b"\xff\xff"], 2)
    assert found.texts(data).to_pylist() == []


def test_positions_compare_as_64_bit() -> None:
    assert lsn_of("0/FFFFFFFF") < lsn_of("1/0") < lsn_of("16/B374D848")
    assert lsn_text(lsn_of("16/B374D848")) == "16/B374D848"


def test_a_mark_is_the_same_once_it_was_stored() -> None:
    chunks = Chunks(("id",), (TableChunk(None, ("5",)), TableChunk(("5",), None)), 4)
    definition = Definition("16384", "c1", "k1", {"16390": "2.d1"})
    tables = {
        "public.a": TableMark(("id",), "s1", chunks, again=(("1",),), layout="1,2"),
        "public.b": TableMark(("id",), is_cut=False, rejoined=True),
        "public.c": TableMark(("id", "x"), "s2", published="1/2/3/4/5", definition=definition),
    }
    mark = CaptureMark(lsn_of("1/2"), lsn_of("1/3"), 9, "7/5", tables, (12,), ("public.d",), xid=742)
    assert CaptureMark.of(mark.value, "db:log") == mark
    assert mark.snapshots_left == ["public.a", "public.b"]
    assert mark.value["shown"] == "1/2, snapshots of 2 tables left"


def test_a_snapshot_sees_what_ended_before_it_also_where_numbers_of_transactions_wrap() -> None:
    high = 5 << 32
    seen = Visible.of(f"{high - 2}:{high + 3}:{high - 2},{high + 1}")
    whole = seen.whole([0xFFFFFFFD, 0xFFFFFFFE, 0, 1, 2, 3])
    assert whole.tolist() == [high - 3, high - 2, high, high + 1, high + 2, high + 3]
    assert seen.sees(whole).tolist() == [True, False, True, False, True, False]
