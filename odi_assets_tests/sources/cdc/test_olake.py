"""OLake's documents start a capture where OLake stopped in the log, and those of a capture let OLake go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.documents import parse
from odi_assets.documents.handover.olake_log import LogTakeover, given_out_log, take_over_log
from odi_assets.errors import CursorDocumentError, SourceError, StateError
from odi_assets.sources.cdc.mark import lsn_of
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.conftest import SLOT, Capture, held, rows_of, run_all

Database = psycopg.Connection[Any]
KEY = NodeKey("p", "changes")

# As OLake writes them: of its repository, of its documentation, and of 0.9.4 in the middle of a snapshot.
REPOSITORY = (
    '{"type":"GLOBAL","global":{"state":{"lsn":"LSN"},"streams":["public.orders"]},"streams":[{"stream":"orders",'
    '"namespace":"public","sync_mode":"","state":{"chunks":[]}}]}'
)
STREAM = (
    '{"type":"STREAM","version":7,"global":{"state":{"lsn":"LSN"},"streams":["public.orders"]},"streams":['
    '{"stream":"orders","namespace":"public","sync_mode":"","state":{"chunks":[]}},'
    '{"stream":"items","namespace":"public","sync_mode":"","state":{"chunks":[],"id":1002}}]}'
)
UNFINISHED = (
    '{"type":"STREAM","version":7,"global":{"state":{"lsn":"LSN"},"streams":[]},"streams":[{"stream":"orders",'
    '"namespace":"public","sync_mode":"","state":{"chunks":[{"min":"1","max":"5"},{"min":"5","max":null}]}}]}'
)
STRICT = '{"type":"STREAM","version":7,"global":{"state":{"lsn":"LSN"},"streams":["public.orders"]},"streams":[]}'
DOCUMENTS = {"GLOBAL": REPOSITORY, "STREAM": STREAM, "a snapshot under way": UNFINISHED, "strict_cdc": STRICT}


def olake(database: Database) -> str:
    """Make the slot and the publication as OLake has them; return the LSN up to which it has read."""
    database.execute(f"CREATE PUBLICATION {SLOT} FOR TABLE orders")
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])
    return slot_lsn(database)


def slot_lsn(database: Database) -> str:
    ((lsn,),) = database.execute("SELECT confirmed_flush_lsn::text FROM pg_replication_slots").fetchall()
    return str(lsn)


def taken(box: Sandbox, text: str, lsn: str) -> LogTakeover:
    return take_over_log(box.project, box.state, KEY, parse(text.replace("LSN", lsn)))


@pytest.mark.parametrize("text", DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_capture_goes_on_at_olakes_position_and_its_tables_are_those_of_the_database(
    capture: Capture, orders: Database, text: str
) -> None:
    lsn = olake(orders)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    orders.execute("DELETE FROM orders WHERE id = 2")
    box = capture("orders", log=f"slot: {SLOT}")
    found = taken(box, text, lsn)
    assert (found.mark.end, found.mark.lsn) == (lsn_of(lsn), lsn_of(lsn) - 1)
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")
    log = box.table("changes").table.to_pyarrow_table().sort_by("n").to_pylist()
    # What OLake has not read is there, the rows that it had read too, and a table that holds them begins empty.
    ops = [row["op"] for row in log if row["op"] != "s"]
    assert (ops.count("u"), ops.count("d"), ops.count("t"), ops.count("r")) == (1, 1, 1, 9)
    orders.execute("UPDATE orders SET state = 'sent' WHERE id = 3")
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


def test_the_slot_may_stand_below_olakes_position_and_the_changes_between_are_olakes(
    capture: Capture, orders: Database
) -> None:
    olake(orders)
    orders.execute("UPDATE orders SET state = 'seen by OLake' WHERE id = 1")
    ((lsn,),) = orders.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
    orders.execute("UPDATE orders SET state = 'not seen' WHERE id = 2")
    box = capture("orders", log=f"slot: {SLOT}")
    taken(box, STREAM, str(lsn))
    run_all(box)
    log = box.table("changes").table.to_pyarrow_table().to_pylist()
    assert [row["key"] for row in log if row["op"] == "u"] == [["2"]]
    assert held(box, "orders") == rows_of(orders, "orders")


def test_what_the_slot_or_the_publication_does_not_have_is_said_before_anything_is_written(
    capture: Capture, orders: Database
) -> None:
    box = capture("orders", log=f"slot: {SLOT}")
    ((lsn,),) = orders.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
    with pytest.raises(SourceError, match="no such slot") as stopped:
        taken(box, STREAM, str(lsn))
    assert "pg_copy_logical_replication_slot" in str(stopped.value)
    lsn = olake(orders)
    orders.execute(f"DROP PUBLICATION {SLOT}")
    with pytest.raises(SourceError, match="no such publication"):
        taken(box, STREAM, lsn)
    orders.execute("UPDATE orders SET state = 'before it was published' WHERE id = 1")
    orders.execute(f"CREATE PUBLICATION {SLOT} FOR TABLE orders")
    with pytest.raises(SourceError, match=f'publication "{SLOT}" does not exist'):
        taken(box, STREAM, lsn)
    with pytest.raises(SourceError, match="it is another server"):
        taken(box, STREAM, "FFFF/0")
    orders.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [SLOT])
    with pytest.raises(SourceError, match=f"above {lsn}, up to which OLake has read") as stopped:
        taken(box, STREAM, lsn)
    assert "odi run p --node changes begins at the slot" in str(stopped.value)
    with pytest.raises(CursorDocumentError, match=r"no `global\.state\.lsn`"):
        take_over_log(box.project, box.state, KEY, parse('{"version": 7}'))
    assert box.hwm("changes") is None
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")
    with pytest.raises(StateError, match="a position of its own"):
        taken(box, STREAM, slot_lsn(orders))


def test_olakes_own_slot_of_another_plugin_is_taken_over_by_a_copy(capture: Capture, orders: Database) -> None:
    orders.execute(f"CREATE PUBLICATION {SLOT} FOR TABLE orders")
    orders.execute("SELECT pg_create_logical_replication_slot('of_olake', 'test_decoding')")
    lsn = slot_lsn(orders)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    with pytest.raises(SourceError, match="one of the plugin test_decoding") as stopped:
        taken(capture("orders", log=f"slot: of_olake, publication: {SLOT}"), STREAM, lsn)
    statement = str(stopped.value).partition("a copy of it: ")[2].strip()
    orders.execute(statement.replace("OLAKE_SLOT", "of_olake").replace("'of_olake', false", f"'{SLOT}', false"))
    box = capture("orders", log=f"slot: {SLOT}")
    taken(box, STREAM, lsn)
    run_all(box)
    assert held(box, "orders") == rows_of(orders, "orders")


def test_a_document_goes_in_and_out_at_the_door_and_olake_finds_its_slot_at_its_position(
    capture: Capture, orders: Database, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lsn = olake(orders)
    box = capture("orders", log=f"slot: {SLOT}")
    monkeypatch.chdir(box.root)
    file = Path("state.json")
    file.write_text(STREAM.replace("LSN", lsn), encoding="utf-8")
    assert main(["cursors", "import", "state.json", "--node", "changes"]) == 0
    said = capfd.readouterr().err
    assert f"p.changes: not set → {lsn}" in said
    assert "public.orders: a new snapshot; OLake's rows are not in the change log" in said
    assert main(["cursors", "export", "state.json", "--node", "changes"]) == 1
    assert "run it first: odi run p --node changes" in capfd.readouterr().err
    run_all(box)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    with monkeypatch.context() as patch:
        # The run dies before the slot moves: the export moves it, for OLake stops unless both are equal.
        patch.setattr("odi_assets.sources.cdc.source.LogSource.acknowledge", lambda *_: None)
        box.run("changes")
    assert main(["cursors", "export", "state.json", "--node", "changes"]) == 0
    assert f"its `replication_slot` is {SLOT}" in capfd.readouterr().err
    written = json.loads(file.read_text(encoding="utf-8"))
    assert lsn_of(written["global"]["state"]["lsn"]) == lsn_of(box.hwm("changes")["end"])
    assert written["global"]["state"]["lsn"] == slot_lsn(orders)
    before = json.loads(STREAM.replace("LSN", lsn))
    assert {**written, "global": None} == {**before, "global": None}
    assert main(["cursors", "check", "state.json"]) == 0
    assert main(["cursors", "export", "new.json", "--node", "changes"]) == 0
    assert json.loads(Path("new.json").read_text(encoding="utf-8")) == {
        "type": "STREAM",
        "version": 7,
        "global": {"state": {"lsn": slot_lsn(orders)}, "streams": ["public.orders"]},
        "streams": [{"stream": "orders", "namespace": "public", "sync_mode": "", "state": {"chunks": []}}],
    }


def test_a_document_whose_other_streams_would_lose_changes_is_not_written_over(
    capture: Capture, orders: Database
) -> None:
    del orders
    box = capture("orders")
    run_all(box)
    text = STREAM.replace('["public.orders"]', '["public.lines","public.orders"]').replace("LSN", "0/1")
    with pytest.raises(CursorDocumentError, match=r"does not capture: public\.lines"):
        given_out_log(box.project, box.state, KEY, parse(text))
