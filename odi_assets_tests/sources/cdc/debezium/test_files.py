"""Debezium's envelopes in files: a change log of them, and the tables that it makes."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from odi_assets.config.graph import NodeKey
from odi_assets.errors import ConfigError, IncrementError, SourceError, TableError, TransformError
from odi_assets.explain.batch import trace
from odi_assets.explain.verdicts import KeyVerdict
from odi_assets.nodes.audit.audit import audit
from odi_assets.nodes.execution.apply import HISTORY
from odi_assets.nodes.recovery.doctor import examine
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.debezium.support import (
    INT,
    ORDERS,
    TEXT,
    UNAVAILABLE,
    described,
    envelope,
    held,
    keyed,
    lines,
    project,
    run_all,
)

CAPITALS = {name.upper() if name == "state" else name: kind for name, kind in ORDERS.items()}


def order(id_: int, state: str = "new", note: str | None = "n") -> dict[str, Any]:
    return {"id": id_, "state": state, "note": note}


def whole(op: str, before: Any, after: Any, *, lsn: int | None, **source: Any) -> dict[str, Any]:
    """A change of orders with its schema and its key."""
    key = (after or before)["id"]
    return keyed(described(envelope(op, before, after, lsn=lsn, **source)), id=key)


@pytest.fixture
def box(tmp_path: Path, spark: SparkSession) -> Sandbox:
    return project(tmp_path, spark, "orders")


def test_a_table_has_the_rows_of_its_last_changes_and_each_file_counts_once(box: Sandbox) -> None:
    box.land("topics/1.json", lines(whole("r", None, order(1), lsn=10), whole("c", None, order(2), lsn=20)))
    run_all(box)
    assert held(box, "orders") == {1: order(1), 2: order(2)}
    box.land(
        "topics/2.json",
        lines(
            whole("u", None, order(1, "paid"), lsn=30),
            whole("d", order(2, note=None), None, lsn=40),
            keyed(None, id=2),
            whole("c", None, order(3), lsn=50),
        ),
    )
    run_all(box)
    assert held(box, "orders") == {1: order(1, "paid"), 3: order(3)}
    assert box.run("changes").status is RunStatus.NO_DATA
    assert [row["n"] for row in _log(box)] == [*range(1, len(_log(box)) + 1)]


def _log(box: Sandbox) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = box.table("changes").table.to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["n"])


@pytest.mark.parametrize("reversed_times", [False, True])
def test_the_order_is_the_databases_whatever_the_times_of_files_are(
    tmp_path: Path, spark: SparkSession, reversed_times: bool
) -> None:
    box = project(tmp_path, spark, "orders")
    first = lines(whole("c", None, order(1), lsn=10), whole("u", None, order(1, "paid"), lsn=30))
    second = lines(whole("u", None, order(1, "sent"), lsn=40), whole("d", order(1), None, lsn=50))
    files = [("topics/b.json", first), ("topics/a.json", second)]
    for path, text in reversed(files) if reversed_times else files:
        box.land(path, text)
    run_all(box)
    assert held(box, "orders") == {}
    assert [row["lsn"] for row in _log(box) if row["op"] != "s"] == [10, 30, 40, 50]


def test_large_values_that_did_not_change_stay_and_go_with_the_row_to_another_key(box: Sandbox) -> None:
    box.land("topics/1.json", lines(*(whole("r", None, order(n, note=f"note {n}"), lsn=1) for n in (1, 2, 3))))
    run_all(box)
    header = {"__debezium.oldkey": json.dumps({"schema": None, "payload": {"id": 3}})}
    box.land(
        "topics/2.json",
        lines(
            whole("u", None, order(1, "paid", UNAVAILABLE), lsn=10),
            # An update of a key is two messages of one place of the log.
            whole("d", order(2, note=None), None, lsn=20, txId=9),
            keyed(None, id=2),
            whole("c", None, order(20, "moved", UNAVAILABLE), lsn=20, txId=9),
            whole("d", order(3, note=None), None, lsn=30, txId=10),
        ),
    )
    # As the key's partition is another one; the message says which row it was.
    box.land("topics/3.json", lines({**whole("c", None, order(30, "far", UNAVAILABLE), lsn=30), "headers": header}))
    run_all(box)
    assert held(box, "orders") == {
        1: order(1, "paid", "note 1"),
        20: order(20, "moved", "note 2"),
        30: order(30, "far", "note 3"),
    }
    # Its other half comes later.
    header = {"__debezium.oldkey": json.dumps({"id": 1})}
    box.land("topics/5.json", lines({**whole("c", None, order(10, "far", UNAVAILABLE), lsn=60), "headers": header}))
    with pytest.raises(SourceError, match=r"topics/5.json, line 1, gives a row of public.orders another key, and the"):
        box.run("changes")
    box.land(
        "topics/6.json", lines(whole("u", None, order(1, "x", "other"), lsn=55), whole("d", order(1), None, lsn=60))
    )
    run_all(box)
    assert held(box, "orders")[10] == order(10, "far", "other")
    box.land("topics/7.json", lines(whole("c", None, order(40, "new", UNAVAILABLE), lsn=70)))
    with pytest.raises(SourceError, match=r"topics/7.json, line 1, makes a row of public.orders without the value of"):
        box.run("changes")


@pytest.mark.parametrize("is_first", [True, False])
def test_a_row_without_a_large_value_that_nobody_has_stops_the_table(box: Sandbox, is_first: bool) -> None:
    if not is_first:
        box.land("topics/0.json", lines(whole("c", None, order(2), lsn=1)))
        run_all(box)
    box.land("topics/1.json", lines(whole("u", None, order(1, "paid", UNAVAILABLE), lsn=10)))
    box.run("changes")
    with pytest.raises(TransformError, match="the row 1 without large values that did not change") as raised:
        box.run("orders")
    assert "execute-snapshot" in str(raised.value.fix)
    box.land("topics/2.json", lines(whole("r", None, order(1, "paid", "large"), lsn=20)))
    run_all(box)
    assert held(box, "orders")[1] == order(1, "paid", "large")


@pytest.mark.parametrize("former", ["[public.items]", '["public.*", "!public.orders"]'])
def test_a_table_that_joins_when_messages_were_read_without_it_stops_at_its_first_message(
    tmp_path: Path, spark: SparkSession, former: str
) -> None:
    read = 'connection: landing, format: debezium, path: "topics/*", tables: '
    box = project(tmp_path, spark, read=read + former)
    item = keyed(described(envelope("c", None, order(1), lsn=2, table="items")), id=1)
    box.land("topics/1.json", lines(whole("c", None, order(1), lsn=1), item))
    box.run("changes")
    box = project(tmp_path, spark, "orders", read=read + "[public.items, public.orders]")
    # What no message is of does not stop, and does not make it forgotten.
    box.land("topics/2.json", lines(keyed(described(envelope("c", None, order(2), lsn=3, table="items")), id=2)))
    box.run("changes")
    box.land("topics/3.json", lines(whole("u", None, order(1, "paid"), lsn=4)))
    with pytest.raises(
        SourceError, match=r"topics/3.json, line 1, is a change of public.orders, which `tables` did no"
    ):
        box.run("changes")
    box.run("changes", full_refresh=True)
    box.run("orders")
    assert held(box, "orders") == {1: order(1, "paid")}


def test_changes_without_a_place_in_the_log_are_of_one_file_a_run(box: Sandbox) -> None:
    box.land("topics/1.json", lines(whole("c", None, order(1), lsn=None)))
    run_all(box)
    box.land("topics/2.json", lines(whole("u", None, order(1, "paid"), lsn=None)))
    run_all(box)
    assert held(box, "orders") == {1: order(1, "paid")}
    box.land("topics/3.json", lines(whole("u", None, order(1, "sent"), lsn=None)))
    box.land("topics/4.json", lines(whole("u", None, order(1, "back"), lsn=None)))
    with pytest.raises(SourceError, match=r"topics/3.json and topics/4.json have some: which come first is not known"):
        box.run("changes")


def test_changes_that_lie_before_what_the_log_has_are_said(box: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    box.land("topics/2.json", lines(whole("u", None, order(1, "paid"), lsn=30)))
    box.run("changes")
    assert "lie before" not in caplog.text
    box.land("topics/1.json", lines(whole("c", None, order(1), lsn=10), whole("c", None, order(2), lsn=40)))
    box.run("changes")
    assert "p.changes: 1 change of public.orders lie before what the log has of it" in caplog.text
    assert "--full-refresh" in caplog.text


@pytest.mark.parametrize(
    "headers",
    [
        ["trace", "abc", "__debezium.oldkey", '{"id": 1}'],
        [["trace", "abc"], ["__debezium.oldkey", '{"id": 1}']],
        [{"key": "trace", "value": None}, {"key": "__debezium.oldkey", "value": '{"id": 1}'}],
        [{"trace": "abc"}, {"__debezium.oldkey": {"id": 1}}],
        {"__debezium.oldkey": '{"id": 1}'},
    ],
)
def test_headers_are_read_in_each_of_their_forms(box: Sandbox, headers: Any) -> None:
    box.land("topics/1.json", lines(whole("c", None, order(1, note="large"), lsn=1)))
    run_all(box)
    moved = {**whole("c", None, order(2, "moved", UNAVAILABLE), lsn=10), "headers": headers}
    box.land("topics/2.json", lines(whole("d", order(1), None, lsn=10, txId=8)))
    box.land("topics/3.json", lines(moved))
    run_all(box)
    assert held(box, "orders") == {2: order(2, "moved", "large")}


@pytest.mark.parametrize("headers", [5, [None], ["odd"], [["one"]], "text"])
def test_headers_that_are_none_do_no_harm(box: Sandbox, headers: Any) -> None:
    box.land("topics/1.json", lines({**whole("c", None, order(1), lsn=1), "headers": headers}))
    run_all(box)
    assert held(box, "orders") == {1: order(1)}


FORMS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "bytes": ({"type": "bytes"}, base64.b64encode(b"1").decode(), base64.b64encode(UNAVAILABLE.encode()).decode()),
    "texts": ({"type": "array"}, ["a"], [UNAVAILABLE]),
    "numbers": ({"type": "array"}, [1], [*UNAVAILABLE.encode()]),
    "uuids": ({"type": "array"}, ["x"], ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
    "pairs": ({"type": "map"}, {"a": "b"}, {UNAVAILABLE: UNAVAILABLE}),
}


def test_values_that_did_not_change_are_known_in_each_of_their_forms(box: Sandbox) -> None:
    columns = {"id": INT, **{name: kind for name, (kind, _, _) in FORMS.items()}}
    full = {"id": 1, **{name: value for name, (_, value, _) in FORMS.items()}}
    lacking = {"id": 1, **{name: value for name, (_, _, value) in FORMS.items()}}
    for number, (op, row) in enumerate([("c", full), ("u", lacking)]):
        message = described(envelope(op, None, row, lsn=number), columns)
        box.land(f"topics/{number}.json", lines(keyed(message, id=1)))
    box.run("changes")
    (update,) = (row for row in _log(box) if row["op"] == "u")
    assert update["unchanged"] == [1, 2, 3, 4, 5]


def test_a_table_that_was_emptied_is_empty_in_its_place(box: Sandbox) -> None:
    box.land("topics/1.json", lines(whole("c", None, order(1), lsn=10), whole("c", None, order(2), lsn=11)))
    run_all(box)
    box.land("topics/2.json", lines(envelope("t", lsn=20), whole("c", None, order(3), lsn=30)))
    run_all(box)
    assert held(box, "orders") == {3: order(3)}


COLUMNS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "id": (INT, 1, 1),
    "small": ({"type": "int16"}, 7, 7),
    "big": ({"type": "int64"}, 2**53 + 1, 2**53 + 1),
    "real": ({"type": "float"}, 1.5, 1.5),
    "double": ({"type": "double"}, 0.1, 0.1),
    "is": ({"type": "boolean"}, True, True),
    "bytes": ({"type": "bytes"}, base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
    "precise": (
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "12"},
        },
        base64.b64encode((-12345).to_bytes(2, "big", signed=True)).decode(),
        Decimal("-123.45"),
    ),
    "as_text": (
        {
            "type": "string",
            "parameters": {
                "__debezium.source.column.type": "NUMERIC",
                "__debezium.source.column.length": "20",
                "__debezium.source.column.scale": "4",
            },
        },
        "1234567890123456.0001",
        Decimal("1234567890123456.0001"),
    ),
    "variable": (
        {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
        {"scale": 3, "value": base64.b64encode((1).to_bytes(1, "big")).decode()},
        Decimal("0.001000000000000000"),
    ),
    "day": ({"type": "int32", "name": "io.debezium.time.Date"}, -1, dt.date(1969, 12, 31)),
    "ms": (
        {"type": "int64", "name": "io.debezium.time.Timestamp"},
        1_700_000_000_123,
        dt.datetime(2023, 11, 14, 22, 13, 20, 123_000),
    ),
    "us": (
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        -1,
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    ),
    "ns": (
        {"type": "int64", "name": "io.debezium.time.NanoTimestamp"},
        1_700_000_000_000_001_000,
        dt.datetime(2023, 11, 14, 22, 13, 20, 1),
    ),
    "zoned": (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        "2024-01-31T05:00:00.5Z",
        dt.datetime(2024, 1, 31, 5, 0, 0, 500_000, dt.UTC),
    ),
    "clock": ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 3_661_000_001, "01:01:01.000001"),
    "flags": (
        {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "10"}},
        base64.b64encode(b"\x01\x02").decode(),
        "1000000001",
    ),
    "doc": ({"type": "string", "name": "io.debezium.data.Json"}, '{"a": 1}', '{"a": 1}'),
    "tags": ({"type": "array", "items": {"type": "string"}}, ["ä", None], '["ä", null]'),
    "none": ({"type": "string", "optional": True}, None, None),
}


def test_values_are_the_databases(box: Sandbox) -> None:
    row = {name: value for name, (_, value, _) in COLUMNS.items()}
    message = described(envelope("c", None, row, lsn=1), {name: kind for name, (kind, _, _) in COLUMNS.items()})
    box.land("topics/1.json", lines(keyed(message, id=1)))
    run_all(box)
    assert held(box, "orders") == {1: {name: value for name, (_, _, value) in COLUMNS.items()}}


def test_messages_without_schema_or_key_have_the_types_and_keys_that_the_node_names(
    tmp_path: Path, spark: SparkSession
) -> None:
    read = 'connection: landing, format: debezium, path: "topics/*", tables: ["public.*", "!public.audit"]'
    read += ", keys: {public.orders: [id]}, types: {public.orders: {id: integer, amount: 'numeric(10,2)', "
    read += "paid: 'Decimal(10,2)', at: MicroTimestamp}}"
    box = project(tmp_path, spark, "orders", read=read)
    row = {"id": 1, "amount": 2.50, "paid": base64.b64encode(b"\x01\x00").decode(), "at": 0, "note": 1.10, "is": True}
    text = json.dumps(envelope("c", None, row, lsn=1)).replace("1.1,", "1.10,")
    beside = [
        envelope("c", None, {"x": 1}, table="audit"),
        {"ts_ms": 1},
        {"status": "BEGIN", "id": "7:1"},
        {"source": {}, "ddl": "CREATE TABLE x", "tableChanges": []},
        {"op": "m", "source": {}},
        None,
    ]
    # As kcat writes it, with texts for key and payload, and compressed.
    kcat = json.dumps({"topic": "t", "partition": 0, "offset": 1, "key": None, "payload": json.dumps(beside[0])})
    file = box.land("topics/1.json.gz", [])
    file.write_bytes(gzip.compress("\n".join([text, kcat, "", *lines(*beside)]).encode()))
    run_all(box)
    at = dt.datetime(1970, 1, 1)
    expected = {"id": 1, "amount": Decimal("2.50"), "paid": Decimal("2.56"), "at": at, "note": "1.10", "is": "true"}
    assert held(box, "orders") == {1: expected}


def test_a_key_that_changes_in_one_message_and_a_delete_with_its_key_alone_are_understood(
    tmp_path: Path, spark: SparkSession
) -> None:
    read = 'connection: landing, format: debezium, path: "topics/*", keys: {public.orders: [id]}'
    box = project(tmp_path, spark, "orders", read=read)
    messages = [envelope("c", None, order(n), lsn=n) for n in (1, 2)]
    # As it is with REPLICA IDENTITY FULL, of a table without a key.
    messages.append(envelope("u", order(1), order(3, "moved"), lsn=3))
    gone = keyed(described(envelope("d", None, None, lsn=4)), id=2)
    box.land("topics/1.json", lines(*map(described, messages), gone))
    run_all(box)
    assert held(box, "orders") == {3: order(3, "moved")}


def test_a_value_that_its_type_does_not_hold_is_mended_at_the_types_of_the_log(
    tmp_path: Path, spark: SparkSession
) -> None:
    read = 'connection: landing, format: debezium, path: "topics/*", types: {public.orders: {id: integer, state: KIND}}'
    box = project(tmp_path, spark, "orders", read=read.replace("KIND", "integer"))
    box.land("topics/1.json", lines(keyed(envelope("c", None, {"id": 1, "state": 2**40}, lsn=1), id=1)))
    box.run("changes")
    with pytest.raises(SourceError, match="key 1: column state is 1099511627776") as raised:
        box.run("orders")
    assert "`types`" in str(raised.value.fix)
    assert "odi run p --node changes --full-refresh --yes" in str(raised.value.fix)
    box = project(tmp_path, spark, "orders", read=read.replace("KIND", "bigint"))
    box.run("changes", full_refresh=True)
    box.run("orders")
    assert held(box, "orders") == {1: {"id": 1, "state": 2**40}}


def test_types_of_columns_that_never_come_and_keys_of_other_converters_are_said(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    read = (
        'connection: landing, format: debezium, path: "topics/*", types: {public.orders: {id: integer, idd: integer}}'
    )
    box = project(tmp_path, spark, "orders", read=read)
    box.land("topics/1.json", lines({"key": "Struct{id=1}", "value": envelope("c", None, order(1), lsn=1)}))
    box.run("changes")
    assert "`types` names idd of public.orders" in caplog.text
    with pytest.raises(ConfigError, match=r"public\.orders has no key") as raised:
        box.run("orders")
    assert "read.keys" in str(raised.value.fix)


def test_a_changed_schema_changes_the_table(box: Sandbox) -> None:
    more = {**ORDERS, "size": {"type": "int32"}}
    box.land("topics/1.json", lines(whole("c", None, order(1), lsn=10)))
    run_all(box)
    wide = described(envelope("c", None, {**order(2), "size": 3}, lsn=20), more)
    box.land("topics/2.json", lines(keyed(wide, id=2)))
    run_all(box)
    assert held(box, "orders") == {1: {**order(1), "size": None}, 2: {**order(2), "size": 3}}


@pytest.mark.parametrize(
    ("column", "history", "said"),
    [
        ("STATE", False, "two columns `state` and `STATE`; names know no capitals"),
        ("_deleted", False, "a column `_deleted`, and `_deleted` is a column that p.orders adds"),
        ("_OP", True, "a column `_OP`, and `_op` is a column that p.orders adds"),
    ],
)
def test_two_columns_of_one_name_are_mended_in_the_database(
    tmp_path: Path, spark: SparkSession, column: str, history: bool, said: str
) -> None:
    box = project(tmp_path, spark, "orders", history=history)
    first = described(envelope("c", None, {**order(1), column: "x"}, lsn=10), {**ORDERS, column: TEXT})
    box.land("topics/1.json", lines(keyed(first, id=1)))
    with pytest.raises(TableError) as raised:
        run_all(box)
    assert said in raised.value.message
    assert raised.value.fix is not None
    assert raised.value.fix.endswith("odi run p --node changes --full-refresh --yes")
    (tmp_path / "landing/topics/1.json").unlink()
    renamed = described(envelope("c", None, {**order(1), "other": "x"}, lsn=20), {**ORDERS, "other": TEXT})
    box.land("topics/2.json", lines(keyed(renamed, id=1)))
    box.run("changes", full_refresh=True, accept_loss=True)
    box.run("orders")
    assert held(box, "orders")[1].items() >= {**order(1), "other": "x"}.items()


def test_a_column_whose_name_got_capitals_is_the_same_column(box: Sandbox) -> None:
    box.land("topics/1.json", lines(whole("c", None, order(1), lsn=10)))
    named = described(envelope("c", None, {"id": 2, "STATE": "paid", "note": "m"}, lsn=20), CAPITALS)
    box.land("topics/2.json", lines(keyed(named, id=2)))
    run_all(box)
    values = {key: tuple(row.values()) for key, row in held(box, "orders").items()}
    assert values == {1: (1, "new", "n"), 2: (2, "paid", "m")}


def test_a_mark_that_is_none_is_mended_at_the_capture(box: Sandbox) -> None:
    box.land("topics/1.json", lines(whole("c", None, order(1), lsn=10)))
    run_all(box)
    box.state.set_hwm("p.changes", {"mtime_ns": 1, "path": "a", "parts": {}})
    with pytest.raises(IncrementError) as raised:
        box.run("changes")
    assert raised.value.fix == (
        "go back to an earlier one with odi state rewind p.changes --list; "
        "or make the change log again with odi run p --node changes --full-refresh --yes"
    )


def test_a_history_has_each_change(tmp_path: Path, spark: SparkSession) -> None:
    box = project(tmp_path, spark, "orders", history=True)
    box.land("topics/1.json", lines(whole("c", None, order(1), lsn=10), whole("d", order(1), None, lsn=20)))
    run_all(box)
    rows = sorted(box.table("orders").table.to_pyarrow_table().to_pylist(), key=lambda row: row["_n"])
    assert [(row["_op"], row["_lsn"], row["_xid"], row["_key"]) for row in rows] == [
        ("c", 10, 700, ["1"]),
        ("d", 20, 700, ["1"]),
    ]
    assert rows[0].keys() - ORDERS.keys() == {*HISTORY}
    assert rows[0]["_committed_at"] == dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)


def _bad(message: Any) -> str:
    return message if isinstance(message, str) else json.dumps(message)


@pytest.mark.parametrize(
    ("message", "said", "fix"),
    [
        ("{", r"line 2, is no JSON", "settle"),
        ([1], r"line 2, is no object of JSON", "one envelope a line"),
        ({"id": 1, "__deleted": "false"}, r"is no envelope of Debezium: it has no `op`, but id", "ExtractNewRecord"),
        ({"op": "x", "source": {"table": "t"}}, r"has `op: x`", "connector"),
        (
            keyed(described(envelope("c", None, {**order(1), "id": "one"})), id=1),
            r"column `id` that is 'one', which is no whole",
            "",
        ),
        (keyed(described(envelope("c", None, order(1)), {"id": {"type": "odd"}}), id=1), r"column `id` is no type", ""),
        (
            described(envelope("c", None, order(2))),
            r"a change of public.orders by no key, and the log has .* by id",
            "",
        ),
        (
            whole("c", None, order(1), lsn=1, name="other"),
            r"of other/shopdb, and the log has public.orders of shop",
            "",
        ),
        (keyed({**envelope("c"), "after": '{"_id": 1}'}, id=1), r"its `after` is no row", "MongoDB"),
        (keyed(described(envelope("c", None, order(1))), no=1), r"and not no", "keys"),
    ],
)
def test_what_is_wrong_with_a_line_is_named_with_its_place(box: Sandbox, message: Any, said: str, fix: str) -> None:
    box.land("topics/1.json", [json.dumps(whole("c", None, order(1), lsn=1)), _bad(message)])
    with pytest.raises(SourceError, match=said) as raised:
        box.run("changes")
    assert "topics/1.json, line 2," in raised.value.message
    assert fix in str(raised.value.fix)
    assert not box.table("changes").exists


@pytest.mark.parametrize(
    ("read", "said"),
    [
        ("connection: landing, format: debezium", "needs one of `path`"),
        ("connection: landing, format: debezium, topics: [t]", "has no topics"),
        ("connection: landing, format: debezium, path: x, types: {a.b: {c: integr}}", "`integr` is no type"),
        ("connection: landing, format: debezium, path: x, incremental: {mode: files, on_change: reload}", "repeat"),
        ("connection: landing, format: debezium, path: x, schema: id INT", "has no meaning"),
        ("connection: queue, format: json, path: x", "`queue` has topics"),
        ("connection: queue, format: debezium, path: x", "holds no files"),
    ],
)
def test_what_does_not_fit_is_said_of_the_project_file(
    tmp_path: Path, spark: SparkSession, read: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        project(tmp_path, spark, read=read, connections="  queue: {type: kafka, bootstrap_servers: 'localhost:9'}\n")


def test_a_file_that_was_rewritten_stops_the_run_and_a_full_refresh_makes_the_log_again(box: Sandbox) -> None:
    box.land("topics/1.json", lines(whole("c", None, order(1), lsn=10)))
    run_all(box)
    box.land("topics/1.json", lines(whole("c", None, order(1), lsn=10), whole("c", None, order(2), lsn=20)))
    with pytest.raises(IncrementError, match=r"topics/1.json"):
        box.run("changes")
    box.run("changes", full_refresh=True, accept_loss=True)
    box.run("orders")
    assert held(box, "orders") == {1: order(1), 2: order(2)}


def test_a_key_is_followed_through_the_log_of_a_mysql_and_doctor_finds_nothing(box: Sandbox) -> None:
    place = {"connector": "mysql", "db": "public", "schema": None, "txId": None, "file": "mysql-bin.000042"}
    gone, came = order(1), order(21)
    box.land(
        "topics/1.json",
        lines(
            whole("c", None, order(1), lsn=None, pos=4, **place),
            whole("u", order(1), order(1, "paid"), lsn=None, pos=1200, **place),
            whole("d", gone, None, lsn=None, pos=1300, **place),
            whole("c", None, came, lsn=None, pos=1300, **place),
        ),
    )
    run_all(box)
    (found,) = trace(box.project, box.spark, box.state, NodeKey("p", "orders"), ["id"], ["21"])
    assert found.verdict is KeyVerdict.PRESENT
    assert [(one.op, one.former, one.lsn) for one in found.changes] == [
        ("insert", None, "mysql-bin.000042:4"),
        ("update", None, "mysql-bin.000042:1200"),
        ("key change", ("1",), "mysql-bin.000042:1300"),
    ]
    assert found.changes[1].changed == {"state": ("new", "paid")}
    assert examine(box.project, box.state, list(box.project.graph.order("p"))) == []


def test_an_audit_says_that_the_database_is_not_known(box: Sandbox) -> None:
    box.land("topics/1.json", lines(whole("c", None, order(1), lsn=10)))
    run_all(box)
    with pytest.raises(ConfigError, match="the database that it comes from is not known"):
        audit(box.project, box.spark, box.state, NodeKey("p", "orders"))
