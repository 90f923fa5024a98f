"""OLake's documents start a capture where OLake stopped in a binary log, and those of a capture let OLake go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.documents import parse
from odi_assets.documents.handover.olake_log import take_over_log
from odi_assets.errors import CursorDocumentError, SourceError
from odi_assets_tests.nodes.support import Sandbox
from odi_assets_tests.sources.cdc.binlog.conftest import Capture, Database
from odi_assets_tests.sources.cdc.conftest import held, run_all

KEY = NodeKey("p", "changes")


def document(file: str, offset: int, streams: tuple[str, ...] = ("odi.orders",)) -> str:
    """What OLake 0.9.4 writes of MySQL."""
    position = {"server_id": 4711, "state": {"position": {"Name": file, "Pos": offset}}}
    entries = [
        {"stream": name.partition(".")[2], "namespace": "odi", "sync_mode": "", "state": {"chunks": []}}
        for name in streams
    ]
    shared = {"state": position, "streams": [*streams]}
    return json.dumps({"type": "STREAM", "version": 7, "global": shared, "streams": entries})


def position(admin: Database) -> tuple[str, int]:
    file, offset, *_ = admin.execute("SHOW MASTER STATUS")[0]
    return file, offset


def taken(box: Sandbox, text: str) -> Any:
    return take_over_log(box.project, box.state, KEY, parse(text))


def test_a_capture_goes_on_at_olakes_position_and_its_tables_are_those_of_the_database(
    capture: Capture, orders: Database, admin: Database
) -> None:
    text = document(*position(admin))
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    orders.execute("DELETE FROM orders WHERE id = 2")
    box = capture("orders")
    found = taken(box, text)
    assert found.notes == ("odi.orders: a new snapshot; OLake's rows are not in the change log",)
    run_all(box)
    assert held(box, "orders") == orders.rows_of("orders")
    ops = [row["op"] for row in box.table("changes").table.to_pyarrow_table().sort_by("n").to_pylist()]
    # What OLake has not read is there, the rows that it had read too, and a table that holds them begins empty.
    assert (ops.count("u"), ops.count("d"), ops.count("t"), ops.count("r")) == (1, 1, 1, 9)
    orders.execute("UPDATE orders SET state = 'sent' WHERE id = 3")
    run_all(box)
    assert held(box, "orders") == orders.rows_of("orders")


def test_of_positions_of_the_streams_the_lowest_counts(capture: Capture, orders: Database, admin: Database) -> None:
    """As OLake's documentation shows documents of MySQL."""
    file, offset = position(admin)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    _, later = position(admin)
    states = [
        {"binlog_file": file, "binlog_position": place, "chunks": [], "server_id": 1000} for place in (later, offset)
    ]
    streams = [
        {"stream": name, "namespace": "odi", "sync_mode": "cdc", "state": state}
        for name, state in zip(("others", "orders"), states, strict=True)
    ]
    box = capture("orders")
    found = taken(box, json.dumps({"type": "STREAM", "streams": streams}))
    assert found.mark.text(found.mark.end) == f"{file}:{offset}"
    assert "odi.others: not captured, for `tables` of the node does not name it" in found.notes
    run_all(box)
    assert held(box, "orders") == orders.rows_of("orders")


def test_what_the_server_does_not_have_is_said_before_anything_is_written(
    capture: Capture, orders: Database, admin: Database
) -> None:
    file, offset = position(admin)
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    _, later = position(admin)
    # The rows of the update lie behind its table, and that behind what begins the transaction.
    events = admin.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {offset}")
    inside = next(int(event[4]) for event in events if event[2] == "Table_map")
    box = capture("orders")
    for text, why in (
        (document(file, later + 100_000), "not the one that was read"),
        (document("another-bin.000001", 4), "not the one that was read"),
        (document(file, inside), "does not describe"),
        ('{"version": 7}', "no file and position of a binary log"),
    ):
        with pytest.raises((SourceError, CursorDocumentError), match=why) as stopped:
            taken(box, text)
        assert "state.json" in str(stopped.value.fix)
    assert box.hwm("changes") is None
    run_all(box)
    assert held(box, "orders") == orders.rows_of("orders")


def test_a_document_goes_in_and_out_at_the_door(
    capture: Capture,
    orders: Database,
    admin: Database,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = capture("orders")
    monkeypatch.chdir(box.root)
    state = Path("state.json")
    file, offset = position(admin)
    state.write_text(document(file, offset), encoding="utf-8")
    assert main(["cursors", "import", "state.json", "--node", "changes"]) == 0
    assert f"p.changes: not set → {file}:{offset}" in capfd.readouterr().err
    assert main(["cursors", "export", "state.json", "--node", "changes"]) == 1
    assert "run it first: odi run p --node changes" in capfd.readouterr().err
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    run_all(box)
    assert main(["cursors", "export", "state.json", "--node", "changes"]) == 0
    assert "OLake goes on at" in capfd.readouterr().err
    written = json.loads(state.read_text(encoding="utf-8"))
    place = written["global"]["state"]["state"]["position"]
    assert f"{place['Name']}:{place['Pos']}" == box.hwm("changes")["end"]
    # The number of the replica stays OLake's.
    assert written["global"]["state"]["server_id"] == 4711
    assert main(["cursors", "check", "state.json"]) == 0
    assert main(["cursors", "export", "new.json", "--node", "changes"]) == 0
    new = json.loads(Path("new.json").read_text(encoding="utf-8"))
    assert (new["global"]["streams"], new["global"]["state"]["state"]) == (["odi.orders"], {"position": place})
