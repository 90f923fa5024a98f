"""What happens to a MariaDB server between two runs: rows, definitions, its log, and sessions with other settings.

A step draws statements without asking whether they fit. What the server refuses has not happened; what it did before
that has, as its statements about tables end transactions.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql

from benchmarks.capture.changes.kinds import OF_ALL, Kind, end_open
from benchmarks.capture.changes.mariadb.server import MariadbInHand, rows_of
from benchmarks.capture.changes.server import NAMES
from benchmarks.capture.changes.world import World

_APART = 1.1
"""Seconds between two logs: files of a log know the second in which they were made."""


def _server(world: World) -> MariadbInHand:
    if not isinstance(world.server, MariadbInHand):
        raise AssertionError("the sweep has a MariaDB")
    return world.server


def _sql(world: World, *statements: str) -> str:
    """Run statements until one is refused."""
    done: list[str] = []
    with closing(world.server.connect()) as opened:
        for statement in statements:
            try:
                rows_of(opened, statement)
            except pymysql.Error:
                if not done:
                    raise
                return f"{'; '.join(done)}; refused: {statement}"
            done.append(statement)
    return "; ".join(done)


# -- rows -------------------------------------------------------------------------------------------------------------


def value(kind: str, draw: random.Random) -> str:
    """A value of a type in SQL."""
    number = draw.randint(1, 40)
    if kind.startswith(("int", "bigint")):
        return str(number)
    if draw.random() < 0.1:
        return "NULL"
    return {
        "decimal(10,2)": f"{number / 4}",
        "datetime": f"'2024-01-{1 + number % 28:02} {number % 24:02}:00:00'",
        "enum('low','high')": draw.choice(["'low'", "'high'"]),
    }.get(kind, f"'v{number}'" if draw.random() < 0.8 or kind != "longtext" else f"REPEAT(MD5({number}), 90)")


def row_statements(server: MariadbInHand, draw: random.Random, count: int) -> Iterator[str]:
    """Statements that change rows of some tables."""
    names = server.existing()
    for _ in range(count if names else 0):
        name = draw.choice(names)
        kinds = server.columns(name)
        some, other = draw.choice(list(kinds)), draw.choice(list(kinds))
        where = f"WHERE `{some}` = {value(kinds[some], draw)} ORDER BY 1 LIMIT {draw.randint(1, 4)}"
        listed = ", ".join(value(kind, draw) for kind in kinds.values())
        insert = f"INSERT IGNORE INTO {name} ({', '.join(f'`{one}`' for one in kinds)}) VALUES ({listed})"
        update = f"UPDATE {name} SET `{other}` = {value(kinds[other], draw)} {where}"
        options = [insert, insert, f"REPLACE{insert.removeprefix('INSERT IGNORE')}", update, update, update]
        yield draw.choice([*options, f"DELETE FROM {name} {where}"])


def _changes(server: MariadbInHand, opened: Any, draw: random.Random, count: int, *, undoes: bool = True) -> str:
    done = []
    for statement in list(row_statements(server, draw, count)):
        try:
            if undoes:
                rows_of(opened, "SAVEPOINT s")
            rows_of(opened, statement)
            if undoes and draw.random() < 0.1:
                rows_of(opened, "ROLLBACK TO s")
            done.append(statement if len(statement) < 150 else f"{statement[:150]} …")
        except pymysql.Error:
            continue
    return "; ".join(done) or "nothing"


def _transaction(world: World, draw: random.Random) -> str:
    """A transaction with savepoints, some of it rolled back; or a table that is emptied."""
    server = _server(world)
    if draw.random() < 0.05:
        return _sql(world, f"TRUNCATE {draw.choice(server.existing() or ['a'])}")
    with closing(server.connect(autocommit=False)) as opened:
        done = _changes(server, opened, draw, draw.randint(1, 12))
        if draw.random() < 0.15:
            opened.rollback()
            return f"{done}; rolled back"
        opened.commit()
    return done


def _begin(world: World, draw: random.Random) -> str:
    if world.open is not None:
        return end_open(world, draw)
    world.open = world.server.connect(autocommit=False)
    return f"a transaction that stays open: {_changes(_server(world), world.open, draw, draw.randint(1, 4))}"


def _prepare(world: World, draw: random.Random) -> str:
    name = f"'x{draw.getrandbits(32)}'"
    with closing(world.server.connect(autocommit=False)) as opened:
        rows_of(opened, f"XA START {name}")
        done = _changes(_server(world), opened, draw, draw.randint(1, 4), undoes=False)
        rows_of(opened, f"XA END {name}")
        rows_of(opened, f"XA PREPARE {name}")
    return f"prepared: {done}"


# -- definitions ------------------------------------------------------------------------------------------------------


def _table(world: World, draw: random.Random) -> tuple[str, list[str]]:
    names = [one for one in world.server.existing() if one in NAMES or draw.random() < 0.5]
    name = draw.choice(names or ["a"])
    return name, list(_server(world).columns(name)) or ["id"]


def _altered(world: World, draw: random.Random) -> str:
    """A statement that changes a column."""
    name, columns = _table(world, draw)
    column, new = draw.choice(columns), draw.choice("xyz")
    alter, default = f"ALTER TABLE {name}", draw.choice(["", " DEFAULT 7", " NOT NULL DEFAULT 3"])
    where = draw.choice(["", "", " FIRST", f" AFTER `{draw.choice(columns)}`"])
    choices = [
        f"{alter} ADD {new} int{default}{where}",
        f"{alter} ADD {new} text DEFAULT 'new'{where}",
        f"{alter} ADD {new} int AS (1 + id) {draw.choice(['STORED', 'VIRTUAL'])}",
        f"{alter} DROP `{column}`",
        f"{alter} DROP `{column}`, ADD `{column}` int DEFAULT 5",
        f"{alter} RENAME COLUMN `{column}` TO {new}",
        f"{alter} CHANGE `{column}` {new} varchar(40)",
        f"{alter} MODIFY `{column}` bigint{where}",
        f"{alter} MODIFY `{column}` varchar({draw.choice([2, 60])})",
        f"{alter} MODIFY `{column}` enum('low', 'high', 'l{draw.randint(1, 9)}')",
        f"{alter} MODIFY `{column}` enum('high', 'low')",
        f"{alter} ALTER `{column}` SET DEFAULT {draw.randint(1, 9)}",
        f"{alter} CONVERT TO CHARACTER SET {draw.choice(['latin1', 'utf8mb4'])}",
        f"{alter} ORDER BY `{column}` DESC",
    ]
    return _sql(world, draw.choice(choices))


def _identified(world: World, draw: random.Random) -> str:
    """A statement about keys and indexes."""
    name, columns = _table(world, draw)
    key = ", ".join(f"`{one}`" for one in draw.sample(columns, min(len(columns), draw.choice([1, 1, 2]))))
    alter = f"ALTER TABLE {name}"
    choices = [
        f"{alter} DROP PRIMARY KEY",
        f"{alter} DROP PRIMARY KEY, ADD PRIMARY KEY ({key})",
        f"{alter} ADD PRIMARY KEY ({key})",
        f"ALTER IGNORE TABLE {name} DROP PRIMARY KEY, ADD PRIMARY KEY ({key})",
        f"ALTER IGNORE TABLE {name} ADD UNIQUE KEY of_some ({key})",
        f"{alter} ADD UNIQUE INDEX of_some ({key})",
        f"{alter} DROP INDEX of_some",
        f"CREATE INDEX of_others ON {name} ({key})",
    ]
    return _sql(world, draw.choice(choices))


def _moved(world: World, draw: random.Random) -> str:
    """Tables that go, come, and change their names."""
    (name, _), (other, _) = _table(world, draw), _table(world, draw)
    free = draw.choice(["d", "e", *NAMES])
    choices = [
        [f"RENAME TABLE {name} TO {free}"],
        [f"ALTER TABLE {name} RENAME TO {free}"],
        ["CREATE DATABASE IF NOT EXISTS other", f"RENAME TABLE {name} TO other.{name}"],
        [f"RENAME TABLE other.{free} TO {free}"],
        [f"DROP TABLE {name}"],
        [f"CREATE TABLE {free} (id int PRIMARY KEY, n int, t text)", f"INSERT INTO {free} VALUES (1, 2, 'new')"],
        [f"CREATE OR REPLACE TABLE {free} (id int PRIMARY KEY, n int)", f"INSERT INTO {free} VALUES (1, 2)"],
        [f"CREATE TABLE {free} LIKE {name}", f"INSERT INTO {free} SELECT * FROM {name} LIMIT 3"],
        [f"CREATE TABLE {free} (PRIMARY KEY (id)) AS SELECT * FROM {name}"],
        [f"RENAME TABLE {name} TO gone", f"CREATE TABLE {name} LIKE gone", "DROP TABLE gone"],
        [f"RENAME TABLE {name} TO tmp, {other} TO {name}, tmp TO {other}"],
        [f"CREATE TEMPORARY TABLE {name} (id int)", f"INSERT INTO {name} VALUES (1)", f"TRUNCATE {name}"],
    ]
    return _sql(world, *draw.choice(choices))


def _arranged(world: World, draw: random.Random) -> str:
    """Partitions, engines, foreign keys, and tables that keep their history."""
    name, columns = _table(world, draw)
    alter = f"ALTER TABLE {name}"
    parts = f"PARTITION BY RANGE ({draw.choice(columns)}) (PARTITION p0 VALUES LESS THAN (15), PARTITION p1 VALUES "
    choices = [
        [f"{alter} {parts}LESS THAN MAXVALUE)"],
        [f"{alter} PARTITION BY HASH ({draw.choice(columns)}) PARTITIONS 3"],
        [f"{alter} TRUNCATE PARTITION p0"],
        [f"{alter} DROP PARTITION p0"],
        ["CREATE TABLE part LIKE a", "ALTER TABLE part REMOVE PARTITIONING"],
        [f"{alter} EXCHANGE PARTITION p0 WITH TABLE part"],
        [f"{alter} REMOVE PARTITIONING"],
        [f"{alter} ENGINE = MyISAM"],
        [f"{alter} ENGINE = InnoDB"],
        [f"{alter} ADD SYSTEM VERSIONING"],
        [f"{alter} DROP SYSTEM VERSIONING"],
        [f"{alter} ADD FOREIGN KEY of_a (n) REFERENCES a (id) ON DELETE CASCADE"],
        [f"OPTIMIZE TABLE {name}"],
        [f"CREATE TRIGGER on_{name} AFTER INSERT ON {name} FOR EACH ROW DELETE FROM a WHERE id = NEW.id"],
        [f"DROP TRIGGER on_{name}"],
    ]
    return _sql(world, *draw.choice(choices))


# -- the log ----------------------------------------------------------------------------------------------------------


def _logged(world: World, draw: random.Random) -> str:
    """The log ends a file, loses files, or begins again."""
    flush, (status,) = "FLUSH BINARY LOGS", _server(world).rows("SHOW MASTER STATUS")
    if draw.random() < 0.6:
        return _sql(world, flush)
    if draw.random() < 0.5:
        return _sql(world, flush, f"PURGE BINARY LOGS TO '{status[0]}'")
    time.sleep(_APART)
    return _sql(world, "RESET MASTER")


def _otherwise(world: World, draw: random.Random) -> str:
    """A session that writes statements, or parts of rows, to the log."""
    change = list(row_statements(_server(world), draw, 2))
    setting = draw.choice(["binlog_format = STATEMENT", "binlog_format = MIXED", "binlog_row_image = MINIMAL"])
    return _sql(world, f"SET SESSION {setting}", *change)


KINDS = {
    **OF_ALL,
    "transaction": Kind(_transaction, 30, may_stop=False),
    "open transaction": Kind(_begin, 3, may_stop=False),
    "prepared transaction": Kind(_prepare, 1, may_stop=False),
    "column": Kind(_altered, 10),
    "key": Kind(_identified, 6),
    "name": Kind(_moved, 6),
    "arrangement": Kind(_arranged, 6),
    "log": Kind(_logged, 2),
    "session": Kind(_otherwise, 2),
}
