"""The binary log of real servers of MariaDB and MySQL, step by step: the change log makes what the database holds."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from odi_assets.errors import ConfigError, IdentityMismatchError, OdiError, SourceError
from odi_assets.sources.cdc.binlog.mariadb import MariadbSession
from odi_assets.sources.cdc.binlog.mysql import MysqlSession
from odi_assets.sources.cdc.compare import table_now
from odi_assets.sources.cdc.lookup import keys_there
from odi_assets.sources.cdc.mark import CaptureMark
from odi_assets_tests.sources.cdc.binlog.conftest import Database, Steps, texts_of
from odi_assets_tests.sources.sql.servers import ADMIN, PASSWORD, MariadbServer, MysqlServer

Made = Callable[..., Steps]


def test_a_snapshot_in_chunks_comes_first_and_each_change_follows_once(steps: Made, orders: Database) -> None:
    found = steps("orders", rows=4)
    assert found.run() == 3
    assert found.ops() == ["r"] * 10
    assert found.held() == texts_of(orders)
    orders.execute("INSERT INTO orders VALUES (11, 'new', NULL)")
    orders.execute("UPDATE orders SET state = 'paid' WHERE id IN (1, 2)")
    orders.execute("UPDATE orders SET id = 20, note = NULL WHERE id = 3")
    orders.execute("DELETE FROM orders WHERE id = 2")
    found.run()
    assert found.ops()[10:] == ["c", "u", "u", "d", "c", "d"]
    assert found.held() == texts_of(orders)


@pytest.mark.parametrize("bulk", ["UPDATE orders SET id = id + 1 ORDER BY id DESC", "UPDATE orders SET id = id + 1000"])
def test_a_statement_that_changes_many_keys_keeps_the_order_of_its_rows(
    steps: Made, orders: Database, bulk: str
) -> None:
    orders.execute("INSERT INTO orders SELECT seq, 'new', 'short' FROM seq_11_to_900")
    found = steps("orders")
    found.run()
    orders.execute(bulk)
    found.run()
    assert found.held() == texts_of(orders)


def test_what_was_rolled_back_is_not_in_the_change_log(steps: Made, orders: Database, of_mariadb: None) -> None:
    """Only with a table that has no transactions does the server write it to its log at all."""
    del of_mariadb
    orders.execute("CREATE TABLE plain (id int) ENGINE = MyISAM")
    found = steps("orders")
    found.run()
    orders.opened.autocommit(False)
    orders.execute("INSERT INTO orders VALUES (20, 'kept', NULL)")
    orders.execute("SAVEPOINT `of it`")
    orders.execute("INSERT INTO orders VALUES (21, 'gone', NULL)")
    orders.execute("INSERT INTO plain VALUES (1)")
    orders.execute("ROLLBACK TO `of it`")
    orders.execute("INSERT INTO orders VALUES (22, 'kept', NULL)")
    orders.execute("COMMIT")
    orders.execute("INSERT INTO orders VALUES (23, 'gone', NULL)")
    orders.execute("INSERT INTO plain VALUES (2)")
    orders.execute("ROLLBACK")
    orders.opened.autocommit(True)
    found.run()
    assert found.ops()[10:] == ["c", "c"]
    assert found.held() == texts_of(orders)


def prepared(database: Database, name: str, *statements: str) -> None:
    database.execute(f"XA START '{name}'")
    for statement in statements:
        database.execute(statement)
    database.execute(f"XA END '{name}'")
    database.execute(f"XA PREPARE '{name}'")


def test_transactions_of_xa_count_where_they_commit(
    steps: Made, binlog_server: MariadbServer, orders: Database
) -> None:
    found = steps("orders")
    found.run()
    prepared(
        orders, "a", "INSERT INTO orders VALUES (30, 'committed', NULL)", "UPDATE orders SET state = 'xa' WHERE id = 1"
    )
    other = Database(binlog_server.connect())
    other.execute("UPDATE orders SET state = 'in between' WHERE id = 2")
    found.run()
    assert found.held() == texts_of(other)
    held_back = found.mark.end if found.mark else 0
    other.execute("UPDATE orders SET state = 'and again' WHERE id = 2")
    found.run()
    # The log is read again from where the transaction was prepared; nothing of it is taken twice.
    assert found.mark is not None
    assert (found.mark.end, found.mark.lsn > held_back) == (held_back, True)
    orders.execute("XA COMMIT 'a'")
    prepared(orders, "b", "INSERT INTO orders VALUES (31, 'rolled back', NULL)")
    orders.execute("XA ROLLBACK 'b'")
    orders.execute("XA START 'c'")
    orders.execute("INSERT INTO orders VALUES (32, 'at once', NULL)")
    orders.execute("XA END 'c'")
    orders.execute("XA COMMIT 'c' ONE PHASE")
    found.run()
    assert found.held() == texts_of(orders)
    assert found.ops()[10:] == ["u", "u", "c", "u", "c"]
    assert found.mark.end > held_back
    other.opened.close()


def test_a_transaction_of_xa_that_commits_behind_the_bound_of_a_run_is_taken_by_the_next(
    steps: Made, orders: Database
) -> None:
    found = steps("orders")
    found.run()
    prepared(orders, "a", "UPDATE orders SET state = 'xa' WHERE id = 1")
    with found.source.opened() as log:
        until = log.log_end()
    orders.execute("XA COMMIT 'a'")
    assert found.mark is not None
    step, _ = found.source.bounded(until).step(found.mark)
    assert (step.rows.num_rows, step.after.end < until) == (0, True)
    found.mark = step.after
    found.run()
    assert found.ops()[10:] == ["u"]
    assert found.held() == texts_of(orders)


def test_a_table_does_not_join_while_a_transaction_of_xa_is_prepared(
    steps: Made, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odi_assets.sources.cdc.binlog.mariadb.PATIENCE", 0.3)
    prepared(orders, "open", "DELETE FROM orders WHERE id = 1")
    with pytest.raises(SourceError, match="1 transaction prepared by XA") as stopped:
        steps("orders").run()
    assert "XA RECOVER" in str(stopped.value)
    orders.execute("XA COMMIT 'open'")
    found = steps("orders")
    found.run()
    assert found.held() == texts_of(orders)


HAPPENS: dict[str, tuple[list[str], list[str]]] = {
    "truncated": (
        [
            "UPDATE orders SET state = 'x' WHERE id = 1",
            "TRUNCATE orders",
            "INSERT INTO orders VALUES (7, 'after', NULL)",
        ],
        ["u", "t", "c"],
    ),
    "made again": (
        [
            "DROP TABLE orders",
            "CREATE TABLE orders (id int PRIMARY KEY, state varchar(20), note text)",
            "INSERT INTO orders VALUES (2, 'again', NULL)",
        ],
        ["t", "c", "r"],
    ),
    "replaced": (
        [
            "CREATE OR REPLACE TABLE orders (id bigint PRIMARY KEY, state varchar(20), note text)",
            "INSERT INTO orders VALUES (2, 'again', NULL)",
        ],
        ["t", "c", "r"],
    ),
    "renamed": (
        [
            "CREATE TABLE other LIKE orders",
            "INSERT INTO other VALUES (77, 'other', NULL), (78, 'other', NULL)",
            "RENAME TABLE orders TO old, other TO orders",
            "DELETE FROM orders WHERE id = 77",
        ],
        ["t", "d", "r"],
    ),
    "altered": (
        [
            "UPDATE orders SET state = 'before' WHERE id = 1",
            "ALTER TABLE orders ADD amount decimal(10,2) DEFAULT 1.5",
            "UPDATE orders SET amount = 2 WHERE id = 2",
            "ALTER TABLE orders DROP amount, ADD amount int DEFAULT 3",
            "UPDATE orders SET amount = 4 WHERE id = 4",
        ],
        ["u", "u", "u", *["r"] * 10],
    ),
    "with another key": (
        [
            "ALTER TABLE orders DROP PRIMARY KEY",
            "UPDATE orders SET id = id + 1",
            "ALTER TABLE orders ADD PRIMARY KEY (id)",
            "DELETE FROM orders WHERE id = 5",
        ],
        ["t", "t", "d", *["r"] * 9],
    ),
    "altered with a remark": (
        ["ALTER /* ticket 7 */ TABLE orders DROP note, ADD note varchar(9) DEFAULT 'x'"],
        ["r"] * 10,
    ),
    "with other values of its key": (["ALTER TABLE orders MODIFY id decimal(4,1)"], ["t", *["r"] * 10]),
    "with a foreign key for a while": (
        [
            "CREATE TABLE parents (id int PRIMARY KEY)",
            "INSERT INTO parents SELECT id FROM orders",
            "ALTER TABLE orders ADD CONSTRAINT of_parent FOREIGN KEY (id) REFERENCES parents (id) ON DELETE CASCADE",
            "DELETE FROM parents WHERE id = 3",
            "ALTER TABLE orders DROP CONSTRAINT of_parent",
        ],
        ["t", "t", *["r"] * 9],
    ),
    "without duplicates": (["ALTER IGNORE TABLE orders ADD UNIQUE INDEX of_state (state)"], ["t", "r"]),
    "with another index": (
        ["ALTER TABLE orders ADD INDEX of_state (state)", "CREATE INDEX of_note ON orders (note(5))"],
        [],
    ),
    "with other engines' words": (["ANALYZE TABLE orders", "OPTIMIZE TABLE orders"], []),
}


OF_MARIADB = (
    "CREATE OR REPLACE TABLE",
    "ALTER IGNORE",
    "CREATE SEQUENCE",
    "SYSTEM VERSIONING",
    " COMPRESSED",
    "year(2)",
)
"""Statements that MySQL does not know."""


def require_known(statements: Sequence[str], server: MariadbServer) -> None:
    if isinstance(server, MysqlServer) and any(words in text for text in statements for words in OF_MARIADB):
        pytest.skip("MySQL has no such statement")


@pytest.mark.parametrize("happens", HAPPENS)
def test_statements_that_leave_no_rows_in_the_log_empty_a_table_or_bring_a_new_snapshot(
    steps: Made, orders: Database, binlog_server: MariadbServer, happens: str
) -> None:
    statements, ops = HAPPENS[happens]
    require_known(statements, binlog_server)
    found = steps("orders")
    found.run()
    for statement in statements:
        orders.execute(statement)
    found.run()
    assert found.held() == texts_of(orders)
    assert found.ops()[10:] == ops
    # Once is enough.
    before = len(found.log)
    found.run()
    assert len(found.log) == before


def test_columns_that_change_while_chunks_are_left_bring_a_snapshot_from_the_beginning(
    steps: Made, orders: Database
) -> None:
    found = steps("orders", rows=3)
    step, _ = found.source.step(None)
    assert step.more
    found.log += step.rows.to_pylist()
    found.mark = step.after
    orders.execute("ALTER TABLE orders ADD amount int DEFAULT 5")
    found.run()
    assert found.held() == texts_of(orders)


def test_a_statement_in_the_place_of_rows_brings_a_new_snapshot_and_a_warning(
    steps: Made, orders: Database, admin: Database, caplog: pytest.LogCaptureFixture
) -> None:
    found = steps("orders")
    found.run()
    admin.execute("SET SESSION binlog_format = STATEMENT")
    admin.execute("DELETE FROM orders WHERE id < 4")
    admin.execute("UPDATE orders SET state = 'secret' WHERE id = 5")
    found.run()
    assert found.held() == texts_of(orders)
    assert "wrote a statement to the log (DELETE …)" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("binlog_row_image = MINIMAL", "without all columns of their rows"),
        ("binlog_row_image = NOBLOB", "without all columns of their rows"),
    ],
)
def test_a_session_that_writes_less_than_whole_rows_stops_the_run(
    steps: Made, orders: Database, admin: Database, setting: str, why: str
) -> None:
    found = steps("orders")
    found.run()
    admin.execute(f"SET SESSION {setting}")
    admin.execute("UPDATE orders SET state = 'short' WHERE id = 1")
    assert orders.rows_of("orders")[1]["state"] == "short"
    for _ in range(2):
        with pytest.raises(SourceError, match=why) as stopped:
            found.run()
    assert "odi run p --node changes --full-refresh --yes" in str(stopped.value)


def test_a_compressed_log_is_read(steps: Made, orders: Database, admin: Database, *, is_mysql: bool) -> None:
    found = steps("orders")
    found.run()
    if is_mysql:
        admin.execute("SET SESSION binlog_transaction_compression = ON")
        orders = admin
    else:
        admin.execute("SET GLOBAL log_bin_compress = ON, GLOBAL log_bin_compress_min_len = 10")
    try:
        orders.execute("INSERT INTO orders VALUES (50, 'long', REPEAT('z', 5000))")
        orders.execute("UPDATE orders SET note = REPEAT('y', 6000)")
        orders.execute(f"ALTER TABLE orders ADD more varchar(200) DEFAULT '{'m' * 150}'")
        orders.execute("DELETE FROM orders WHERE id = 3")
    finally:
        if not is_mysql:
            admin.execute("SET GLOBAL log_bin_compress = OFF, GLOBAL log_bin_compress_min_len = DEFAULT")
    found.run()
    assert found.held() == texts_of(orders)


def test_a_backlog_is_taken_in_windows_of_whole_transactions(
    steps: Made, orders: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = steps("orders")
    found.run()
    monkeypatch.setattr("odi_assets.sources.cdc.source.MOST_CHANGES", 5)
    for state in range(6):
        orders.execute("UPDATE orders SET state = %s WHERE id < 4", str(state))
    before = len(found.log)
    assert found.run() == 3
    assert found.ops(before) == ["u"] * 18
    assert found.held() == texts_of(orders)


def test_a_value_longer_than_a_packet_of_the_protocol_is_read(steps: Made, orders: Database, admin: Database) -> None:
    orders.execute("ALTER TABLE orders MODIFY note longtext")
    (allowed,) = admin.execute("SELECT @@global.max_allowed_packet")[0]
    admin.execute("SET GLOBAL max_allowed_packet = 67108864")
    try:
        # Sessions have the size that was set when they began.
        found = steps("orders")
        found.run()
        other = Database(admin.opened)
        other.opened.ping()
        other.execute("SET SESSION sql_log_bin = 1")
        orders.opened.close()
        orders.opened.connect()
        orders.execute("INSERT INTO orders VALUES (60, 'long', REPEAT('ab', 9000000))")
        orders.execute("INSERT INTO orders VALUES (61, 'short', 'x')")
        found.run()
        assert found.held()["60",][2] == "ab" * 9_000_000
        assert found.held()["61",][2] == "x"
        again = steps("orders")
        again.run()
        assert again.held() == found.held()
    finally:
        admin.execute("SET GLOBAL max_allowed_packet = %s", allowed)


def test_the_log_goes_on_over_its_files_and_a_quiet_mark_goes_with_it(
    steps: Made, orders: Database, admin: Database
) -> None:
    found = steps("orders")
    found.run()
    admin.execute("FLUSH BINARY LOGS")
    orders.execute("DELETE FROM orders WHERE id = 1")
    admin.execute("FLUSH BINARY LOGS")
    orders.execute("DELETE FROM orders WHERE id = 2")
    found.run()
    assert found.held() == texts_of(orders)
    admin.execute("FLUSH BINARY LOGS")
    assert found.mark is not None
    before = found.mark.end
    assert "its mark goes on to odi-bin." in found.source.plan(found.mark).summary
    found.run()
    assert found.mark.end >> 32 == (before >> 32) + 1
    assert "no change above" in found.source.plan(found.mark).summary


def wait_until_purged(admin: Database, name: str) -> None:
    """A file goes once the tables are on the disk that its transactions changed."""
    deadline = time.monotonic() + 30
    while any(row[0] < name for row in admin.execute("SHOW BINARY LOGS")):
        assert time.monotonic() < deadline
        admin.execute(f"PURGE BINARY LOGS TO '{name}'")
        time.sleep(0.1)


def test_a_log_that_is_about_to_be_deleted_is_told_and_one_that_was_stops_the_run(
    steps: Made, orders: Database, admin: Database
) -> None:
    admin.execute("FLUSH BINARY LOGS")
    wait_until_purged(admin, admin.execute("SHOW MASTER STATUS")[0][0])
    found = steps("orders")
    found.run()
    assert found.mark is not None
    assert found.source.why_soon_unreachable(found.mark) is None
    orders.execute("DELETE FROM orders WHERE id = 1")
    admin.execute("FLUSH BINARY LOGS")
    admin.execute("SET GLOBAL binlog_expire_logs_seconds = 1000000")
    try:
        told = found.source.why_soon_unreachable(found.mark) or ""
        assert "deletes its log after 1,000,000 seconds" in told
        assert told in found.source.plan(found.mark).summary
    finally:
        admin.execute("SET GLOBAL binlog_expire_logs_seconds = 0")
    wait_until_purged(admin, admin.execute("SHOW MASTER STATUS")[0][0])
    with pytest.raises(IdentityMismatchError, match="the server has deleted its log up to") as stopped:
        found.run()
    assert "odi run p --node changes --full-refresh" in str(stopped.value)
    assert "deleted its log" in (found.source.why_unreachable(found.mark) or "")


def reset(mark: CaptureMark, orders: Database, admin: Database) -> CaptureMark:
    # Files know the second in which they were made.
    time.sleep(1.1)
    admin.execute("RESET MASTER")
    for state in range(300):
        orders.execute("UPDATE orders SET state = %s", str(state))
    return mark


def lost_its_end(mark: CaptureMark, orders: Database, admin: Database) -> CaptureMark:
    del orders, admin
    return CaptureMark.of({**mark.value, "end": mark.text(mark.end + 1_000_000)}, "capture")


def another_server(mark: CaptureMark, orders: Database, admin: Database) -> CaptureMark:
    del orders, admin
    return CaptureMark.of({**mark.value, "system": "another"}, "capture")


@pytest.mark.parametrize(
    ("happens", "why"),
    [(reset, "is not the one that was read"), (lost_its_end, "lost its end"), (another_server, "another server")],
)
def test_a_log_that_does_not_go_on_where_the_mark_is_stops_the_run(
    steps: Made, orders: Database, admin: Database, happens: Any, why: str
) -> None:
    found = steps("orders")
    found.run()
    assert found.mark is not None
    found.mark = happens(found.mark, orders, admin)
    with pytest.raises(IdentityMismatchError, match=why) as stopped:
        found.run()
    assert "odi run p --node changes --full-refresh" in str(stopped.value)


REFUSED = [
    ("ALTER TABLE orders DROP PRIMARY KEY", "orders", "has no primary key"),
    ("ALTER TABLE orders ENGINE = MyISAM", "orders", "is a table of MyISAM"),
    ("CREATE VIEW seen AS SELECT * FROM orders", "seen", "odi.seen is a view"),
    ("CREATE SEQUENCE numbers", "numbers", "odi.numbers is a sequence"),
    ("CREATE TABLE kept (id int PRIMARY KEY) WITH SYSTEM VERSIONING", "kept", "keeps its own history"),
    ("CREATE TABLE `a.b` (id int PRIMARY KEY)", "a.b", "has a point in its name"),
    (
        "CREATE TABLE parts (id int PRIMARY KEY, o int, FOREIGN KEY (o) REFERENCES orders (id) ON DELETE CASCADE)",
        "parts",
        "with ON DELETE CASCADE: what InnoDB changes by it is not in the log",
    ),
    (
        "CREATE TABLE parts (id int PRIMARY KEY, o int, FOREIGN KEY (o) REFERENCES orders (id) ON UPDATE SET NULL)",
        "parts",
        "with ON UPDATE SET NULL",
    ),
    ("ALTER TABLE orders ADD c text COMPRESSED", "orders", "`c`, which is compressed"),
    ("ALTER TABLE orders ADD c varchar(9) CHARACTER SET gbk", "orders", "`c`, which is of the character set gbk"),
    ("ALTER TABLE orders ADD c year(2)", "orders", "`c`, which is a year of two digits"),
    ("SELECT 1", "order", "no table that its user may read is named `odi.order`"),
]


@pytest.mark.parametrize(("statement", "table", "why"), REFUSED, ids=[f"{table} {why}" for _, table, why in REFUSED])
def test_tables_whose_changes_the_log_does_not_have_are_refused(
    steps: Made, orders: Database, binlog_server: MariadbServer, statement: str, table: str, why: str
) -> None:
    require_known([statement], binlog_server)
    orders.execute(statement)
    with pytest.raises(ConfigError, match=why):
        steps(patterns=f"odi.{table}").run()


LEAVING = [
    (["ALTER TABLE orders ADD SYSTEM VERSIONING"], "odi.orders is a table that keeps its own history"),
    (["RENAME TABLE orders TO others", "CREATE VIEW orders AS SELECT * FROM others"], "odi.orders is a view"),
]


@pytest.mark.parametrize(("statements", "why"), LEAVING, ids=[why for _, why in LEAVING])
def test_a_captured_table_of_a_pattern_does_not_leave_in_silence(
    steps: Made, orders: Database, binlog_server: MariadbServer, statements: list[str], why: str
) -> None:
    require_known(statements, binlog_server)
    orders.execute("CREATE TABLE parts (id int PRIMARY KEY)")
    found = steps(patterns="odi.*")
    found.run()
    for statement in statements:
        orders.execute(statement)
    with pytest.raises(ConfigError, match=why):
        found.run()


def test_times_as_older_versions_stored_them_are_refused(
    steps: Made, orders: Database, admin: Database, of_mariadb: None
) -> None:
    del of_mariadb
    admin.execute("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        orders.execute("CREATE TABLE old (id int PRIMARY KEY, at datetime(3))")
    finally:
        admin.execute("SET GLOBAL mysql56_temporal_format = ON")
    with pytest.raises(ConfigError, match="`at`, which has a time as MariaDB 5"):
        steps("old").run()


@pytest.mark.parametrize(
    ("setting", "value"),
    [("binlog_format", "MIXED"), ("binlog_row_image", "MINIMAL"), ("binlog_row_metadata", "MINIMAL")],
)
def test_a_server_whose_log_has_no_whole_rows_is_refused_with_the_line_that_changes_it(
    steps: Made, orders: Database, admin: Database, setting: str, value: str
) -> None:
    del orders
    (before,) = admin.execute(f"SELECT @@global.{setting}")[0]
    admin.execute(f"SET GLOBAL {setting} = {value}")
    try:
        with pytest.raises(SourceError, match=f"`{setting}` is {value}") as stopped:
            steps("orders").run()
    finally:
        admin.execute(f"SET GLOBAL {setting} = {before}")
    assert f"SET GLOBAL {setting} = {before}" in str(stopped.value)


@pytest.mark.parametrize("place", range(3))
def test_a_right_that_is_missing_is_named_with_the_line_that_gives_it(
    steps: Made, orders: Database, admin: Database, place: int, *, is_mysql: bool
) -> None:
    del orders
    rights = (MysqlSession if is_mysql else MariadbSession).RIGHTS
    if place >= len(rights.split(", ")):
        pytest.skip("this server has one right less")
    quoted = PASSWORD.replace("'", "''").replace("\\", "\\\\")
    admin.execute(f"CREATE USER narrow@127.0.0.1 IDENTIFIED BY '{quoted}'")
    try:
        admin.execute("GRANT SELECT ON odi.* TO narrow@127.0.0.1")
        for other in [right for number, right in enumerate(rights.split(", ")) if number != place]:
            admin.execute(f"GRANT {other} ON *.* TO narrow@127.0.0.1")
        with pytest.raises(SourceError, match="may not read the server's log") as stopped:
            steps("orders", user="narrow").run()
        assert f"GRANT {rights} ON *.* TO 'narrow'@'127.0.0.1'" in str(stopped.value)
        admin.execute(f"GRANT {rights} ON *.* TO narrow@127.0.0.1")
        steps("orders", user="narrow").run()
    finally:
        admin.execute("DROP USER narrow@127.0.0.1")


def test_a_number_that_a_replica_may_have_is_asked_for_and_a_free_one_is_used(
    steps: Made, orders: Database, *, is_mysql: bool
) -> None:
    if not is_mysql:
        # Whoever may read the log of MySQL may ask.
        with pytest.raises(OdiError, match="whether a replica reads the log as server 4711 too is not known"):
            steps("orders", log="server_id: 4711").run()
    with pytest.raises(SourceError, match="server 7 is there already"):
        steps("orders", log="server_id: 7", user=ADMIN).run()
    found = steps("orders", log="server_id: 4711", user=ADMIN)
    found.run()
    orders.execute("DELETE FROM orders WHERE id = 1")
    found.run()
    assert found.held() == texts_of(orders)


def test_snapshots_and_the_log_are_put_together_under_writers(
    steps: Made, binlog_server: MariadbServer, orders: Database
) -> None:
    orders.execute("INSERT INTO orders SELECT seq, 'new', 'short' FROM seq_11_to_400")
    stop = threading.Event()

    def write(seed: int) -> None:
        chance, writer = random.Random(seed), Database(binlog_server.connect())
        writer.opened.autocommit(False)
        while not stop.is_set():
            for _ in range(chance.randint(1, 5)):
                key, other = chance.randint(1, 450), chance.randint(1, 600)
                statement = chance.choice(
                    [
                        f"UPDATE IGNORE orders SET state = CONCAT(LEFT(state, 15), 'x') WHERE id = {key}",
                        f"UPDATE IGNORE orders SET id = {other} WHERE id = {key}",
                        f"DELETE FROM orders WHERE id = {key}",
                        f"INSERT IGNORE INTO orders VALUES ({key}, 'came', NULL)",
                        "SAVEPOINT here",
                    ]
                )
                try:
                    writer.execute(statement)
                except pymysql.Error:
                    # Two writers wait for one another.
                    writer.opened.rollback()
            (writer.opened.rollback if chance.random() < 0.2 else writer.opened.commit)()
            time.sleep(0.002)
        writer.opened.close()

    writers = [threading.Thread(target=write, args=(seed,), daemon=True) for seed in range(3)]
    for one in writers:
        one.start()
    found = steps("orders", rows=40)
    try:
        found.run()
    finally:
        stop.set()
        for one in writers:
            one.join()
    found.run()
    assert found.held() == texts_of(orders)


@pytest.mark.parametrize(
    ("kind", "value", "text", "other"),
    [
        ("int", "7", "7", "8"),
        ("varbinary(9)", "X'00ff'", "\\x00ff", "\\x00"),
        ("bit(4)", "b'101'", "5", "6"),
        ("varchar(9) character set latin1", "'Ä'", "Ä", "B"),
        ("decimal(9,2)", "-1.5", "-1.50", "1.50"),
        ("float", "0.1", "0.1", "0.2"),
        ("datetime(3)", "'2024-01-01'", "2024-01-01 00:00:00.000", "2024-01-01 00:00:00.001"),
    ],
)
def test_keys_of_the_change_log_are_looked_up_at_the_server(
    steps: Made, database: Database, kind: str, value: str, text: str, other: str
) -> None:
    database.execute(f"CREATE TABLE t (n int, k {kind}, part int, PRIMARY KEY (part, k))")
    database.execute(f"INSERT INTO t VALUES (1, {value}, 5)")
    found = steps("t")
    found.run()
    (key,) = found.held("t")
    assert key == (text, "5")
    assert keys_there(found.source, "odi.t", [key, (other, "5"), (text, "6")]) == {key}


def test_a_table_is_compared_at_one_position_with_what_the_log_has_not_given_yet(steps: Made, orders: Database) -> None:
    found = steps("orders")
    found.run()
    orders.execute("UPDATE orders SET state = 'waiting' WHERE id = 3")
    assert found.mark is not None
    with table_now(found.source, found.mark, "odi.orders") as now:
        orders.execute("DELETE FROM orders")
        rows = [row for chunk in now.chunks() for row in chunk.to_pylist()]
        assert (len(rows), rows[2]["after"][1]) == (10, "waiting")
        assert [row["key"] for row in now.waiting.to_pylist() if row["op"] == "u"] == [["3"]]
        assert now.log_end.startswith("odi-bin.")


def test_how_far_a_capture_is_behind_is_measured_over_the_files_of_the_log(
    steps: Made, orders: Database, admin: Database
) -> None:
    found = steps("orders")
    found.run()
    assert found.mark is not None
    before = found.source.lag(found.mark)
    orders.execute("UPDATE orders SET note = REPEAT('z', 9000)")
    admin.execute("FLUSH BINARY LOGS")
    orders.execute("UPDATE orders SET note = REPEAT('y', 9000)")
    after = found.source.lag(found.mark)
    assert before is not None
    assert after is not None
    assert (before.seconds, before.bytes < 1000) == (0, True)
    assert after.seconds is not None
    assert 0 <= after.seconds < 60
    assert 180_000 < after.bytes < 400_000
    assert "bytes" in found.source.plan(found.mark).summary


KEY_ORDERS = {
    "a collation": ("varchar(9) COLLATE utf8mb4_general_ci", "varchar(9) COLLATE utf8mb4_bin"),
    "members": ("enum('z0','a1','m2','B3','q4','c5','Z6')", "enum('Z6','a1','m2','B3','c5','q4','z0')"),
}


@pytest.mark.parametrize("what", KEY_ORDERS)
def test_a_snapshot_whose_key_gets_another_order_in_its_middle_holds_each_row(
    steps: Made, orders: Database, what: str
) -> None:
    before, after = KEY_ORDERS[what]
    orders.execute(f"CREATE TABLE named (id {before} NOT NULL PRIMARY KEY, n int)")
    orders.execute("INSERT INTO named VALUES ('z0', 0), ('a1', 1), ('m2', 2), ('B3', 3), ('q4', 4), ('c5', 5)")
    found = steps("named", rows=2)
    first, _ = found.source.step(None)
    found.log, found.mark = first.rows.to_pylist(), CaptureMark.of(first.after.value, "")
    assert first.more
    orders.execute(f"ALTER TABLE named MODIFY id {after} NOT NULL")
    found.run()
    assert sorted(found.held("named")) == sorted(texts_of(orders, "named"))


def test_a_server_that_does_not_know_the_last_captured_transaction_was_put_back(steps: Made, orders: Database) -> None:
    found = steps("orders")
    found.run()
    orders.execute("UPDATE orders SET state = 'paid' WHERE id = 1")
    found.run()
    mark = found.mark
    assert mark is not None
    assert mark.binlog is not None
    found.mark = replace(mark, binlog=replace(mark.binlog, gtid=f"{mark.binlog.gtid}000"))
    with pytest.raises(IdentityMismatchError, match="put back from an older copy") as stopped:
        found.run()
    assert "odi run p --node changes --full-refresh --yes" in str(stopped.value)
    found.mark = mark
    assert found.run() == 1
