"""What MySQL alone has: a snapshot's place in the log is found by a look at rows; GTIDs; changed parts of JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odi_assets.errors import SourceError
from odi_assets.sources.cdc.binlog.mysql import MysqlLog, MysqlSession
from odi_assets_tests.sources.cdc.binlog.conftest import Database, Steps, texts_of

Made = Callable[..., Steps]


@pytest.fixture(autouse=True)
def _of_mysql(*, is_mysql: bool) -> None:
    if not is_mysql:
        pytest.skip("for MySQL alone")


BEFORE = [
    "UPDATE orders SET state = 'a' WHERE id = 1",
    "INSERT INTO orders VALUES (50, 'came', NULL)",
    "DELETE FROM orders WHERE id = 2",
]
AFTER = [
    "UPDATE orders SET state = 'b' WHERE id = 1",
    "UPDATE orders SET id = 60 WHERE id = 4",
    "DELETE FROM orders WHERE id = 3",
    "INSERT INTO orders VALUES (51, 'later', NULL)",
]


@pytest.mark.parametrize("seen", range(len(BEFORE) + 1))
@pytest.mark.parametrize("unseen", range(len(AFTER) + 1))
def test_a_snapshot_is_put_behind_the_transactions_that_it_sees(
    steps: Made, orders: Database, monkeypatch: pytest.MonkeyPatch, seen: int, unseen: int
) -> None:
    """Transactions are committed before the snapshot begins, and behind it, while its bounds are looked at."""
    awaited, end = MysqlLog._await_seen, MysqlLog.log_end
    left = {"before": BEFORE[:seen], "after": AFTER[:unseen]}
    asked: list[int] = []

    def awaiting(log: MysqlLog) -> None:
        awaited(log)
        if asked:
            while left["before"]:
                orders.execute(left["before"].pop(0))
            asked.append(0)

    def ending(log: MysqlLog) -> int:
        if len(asked) > 1:
            while left["after"]:
                orders.execute(left["after"].pop(0))
        return end(log)

    reading = MysqlLog.reading
    found = steps("orders")
    monkeypatch.setattr(MysqlLog, "_await_seen", awaiting)
    monkeypatch.setattr(MysqlLog, "log_end", ending)

    def noted(log: MysqlLog, mark: object) -> object:
        asked.append(1)
        return reading(log, mark)  # type: ignore[arg-type]

    monkeypatch.setattr(MysqlLog, "reading", noted)
    found.run()
    assert left == {"before": [], "after": []}
    found.run()
    assert found.held() == texts_of(orders)
    read = 10 + [0, 0, 1, 0][seen]
    # A changed key is a deletion and a row that comes.
    changes = unseen + (unseen > 1)
    assert found.ops() == [*["u", "c", "d"][:seen], *["r"] * read, *["u", "d", "c", "d", "c"][:changes]]


def test_each_transaction_that_is_being_committed_is_waited_for_by_itself() -> None:
    class Asked(MysqlSession):
        def rows(self, query: str) -> list[tuple[str, ...]]:
            del query
            return [("3e11fa47:5#12:6#13:tag:7#14,\n4e11fa47:8#15",)]

    session = Asked(None, None, "")  # type: ignore[arg-type]
    assert session.owned() == {"3e11fa47:5#12", "3e11fa47:6#13", "3e11fa47:tag:7#14", "4e11fa47:8#15"}


def test_what_a_server_does_not_give_of_its_log_yet_is_read_by_a_later_run(
    steps: Made, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that waits for its disk says that its log is longer than what it gives of it."""
    found = steps("orders")
    found.run()
    end = MysqlLog.log_end
    monkeypatch.setattr(MysqlLog, "log_end", lambda log: end(log) + 10_000)
    found.run()
    monkeypatch.undo()
    for number in range(300):
        orders.execute(f"UPDATE orders SET state = '{number}' WHERE id = 1")
    found.run()
    assert found.ops()[10:] == ["u"] * 300
    assert found.held() == texts_of(orders)


def test_a_server_without_gtids_is_refused_with_the_statements_that_give_them(
    steps: Made, orders: Database, admin: Database
) -> None:
    del orders
    admin.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE")
    try:
        with pytest.raises(SourceError, match="gives its transactions no GTIDs") as stopped:
            steps("orders").run()
    finally:
        admin.execute("SET GLOBAL gtid_mode = ON")
    assert "SET GLOBAL gtid_mode = ON_PERMISSIVE; SET GLOBAL gtid_mode = ON" in str(stopped.value)


def test_changed_parts_of_json_values_stop_the_run(steps: Made, orders: Database, admin: Database) -> None:
    admin.execute("CREATE TABLE odi.papers (id int PRIMARY KEY, j json)")
    admin.execute("INSERT INTO odi.papers VALUES (1, JSON_OBJECT('a', 1, 'b', REPEAT('x', 500)))")
    found = steps("papers")
    found.run()
    del orders
    admin.execute("CREATE TABLE odi.others LIKE odi.papers")
    admin.execute("INSERT INTO odi.others SELECT * FROM odi.papers")
    admin.execute("SET SESSION binlog_row_value_options = PARTIAL_JSON")
    # Of a table that is not captured, nobody reads them.
    admin.execute("UPDATE odi.others SET j = JSON_SET(j, '$.a', 2)")
    found.run()
    admin.execute("UPDATE odi.papers SET j = JSON_SET(j, '$.a', 2)")
    with pytest.raises(SourceError, match=r"changed JSON of odi\.papers without the whole values") as stopped:
        found.run()
    assert "odi run p --node changes --full-refresh --yes" in str(stopped.value)


def test_transactions_whose_gtids_have_tags_are_read(steps: Made, orders: Database, admin: Database) -> None:
    if tuple(map(int, admin.execute("SELECT VERSION()")[0][0].partition("-")[0].split(".")[:2])) < (8, 3):
        pytest.skip("before MySQL 8.3, GTIDs have no tags")
    found = steps("orders")
    found.run()
    admin.execute("SET gtid_next = 'AUTOMATIC:nightly'")
    admin.execute("UPDATE orders SET state = 'tagged'")
    admin.execute("DELETE FROM orders WHERE id = 4")
    found.run()
    assert found.ops()[10:] == [*["u"] * 10, "d"]
    assert found.held() == texts_of(orders)
    assert found.mark is not None
    assert found.mark.binlog is not None
    assert ":nightly:" in found.mark.binlog.gtid


def test_a_key_that_the_server_made_is_there_although_the_server_hides_it(
    steps: Made, orders: Database, admin: Database
) -> None:
    del orders
    admin.execute("SET SESSION sql_generate_invisible_primary_key = ON")
    admin.execute("CREATE TABLE odi.keyless (a int)")
    admin.execute("INSERT INTO odi.keyless VALUES (7), (8)")
    admin.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF")
    try:
        found = steps("keyless")
        found.run()
    finally:
        admin.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = ON")
    assert found.held("keyless") == {("1",): ["1", "7"], ("2",): ["2", "8"]}


KEYS = {
    **{"float": ("0.1", "16777217"), "double": ("0.1", "-1e-300"), "decimal(9,2)": ("-1.5", "7")},
    **{"bit(12)": ("b'101'", "b'0'"), "year": ("2024", "0"), "bigint unsigned": ("18446744073709551615", "1")},
    **{"enum('x', '10')": ("'10'", "'x'"), "set('a', 'b')": ("'a,b'", "''"), "time(2)": ("'-12:00:00.5'", "'1:2:3'")},
    **{"datetime(3)": ("'2024-02-29 01:02:03.5'", "'0000-00-00'"), "timestamp": ("'2024-02-29'", "'1970-01-02'")},
    **{"varbinary(9)": ("X'00ff'", "X''"), "binary(3)": ("X'01'", "X'ff'"), "date": ("'2024-02-29'", "'1000-01-01'")},
    **{"varchar(9) character set latin1": ("'Ä '", "'ß'"), "varchar(9) collate utf8mb4_bin": ("'a'", "'A'")},
}
"""By type of a key, two values of it."""


@pytest.mark.parametrize("kind", KEYS)
def test_rows_with_keys_of_any_type_are_found_in_the_snapshot(
    steps: Made, orders: Database, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A deletion that the snapshot does not see, and one that it sees: both have to be told from a row not found."""
    first, second = KEYS[kind]
    orders.execute(f"CREATE TABLE keyed (k {kind} PRIMARY KEY, n int)")
    orders.execute(f"INSERT INTO keyed VALUES ({first}, 1), ({second}, 2)")
    seen_by = MysqlLog._seen_by
    left = [f"DELETE FROM keyed WHERE n = {number}" for number in (1, 2)]

    def seen(log: MysqlLog, *given: Any) -> int | None:
        while left:
            orders.execute(left.pop(0))
        return seen_by(log, *given)

    found = steps("keyed")
    monkeypatch.setattr(MysqlLog, "_seen_by", seen)
    found.run()
    assert left == []
    found.run()
    # The snapshot had both rows, so both deletions come behind them.
    assert found.ops() == ["r", "r", "d", "d"]
    assert found.held("keyed") == {}
