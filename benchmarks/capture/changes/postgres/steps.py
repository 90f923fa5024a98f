"""What happens between two runs: rows, definitions, publications, slots, the project file and the server.

A step draws statements without asking whether they fit. What the database refuses has not happened.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg

from benchmarks.capture.changes.kinds import OF_ALL, Kind, end_open
from benchmarks.capture.changes.postgres.server import SLOT, columns, existing
from benchmarks.capture.changes.server import NAMES
from benchmarks.capture.changes.world import World

Database = psycopg.Connection[tuple[object, ...]]


def _sql(world: World, *statements: str) -> str:
    """Run statements in one transaction."""
    with world.server.connect() as database, database.transaction():
        for statement in statements:
            database.execute(statement)
    return "; ".join(statements)


def _alone(world: World, statement: str) -> str:
    with world.server.connect() as database:
        database.execute(statement)
    return statement


# -- rows -------------------------------------------------------------------------------------------------------------


def value(kind: str, draw: random.Random) -> str:
    """A value of a type in SQL."""
    if draw.random() < 0.1 and kind not in ("integer", "bigint"):
        return "NULL"
    number = draw.randint(1, 40)
    return {
        "integer": str(number),
        "bigint": str(number),
        "small": str(number),
        "boolean": draw.choice(["true", "false"]),
        "numeric(10,2)": f"{number / 4}",
        "timestamp with time zone": f"'2024-01-{1 + number % 28:02} {number % 24:02}:00:00+02'",
        "mood": "(enum_range(NULL::mood))[1]",
        "pair": f"ROW({number}, 'a,b')::pair" if draw.random() < 0.5 else "NULL",
    }.get(kind, f"'v{number}'" if draw.random() < 0.8 else f"repeat(md5('{number}'), 90)")


def row_statements(database: Database, draw: random.Random, count: int) -> Iterator[str]:
    """Statements that change rows of some tables."""
    names = existing(database)
    for _ in range(count if names else 0):
        name = draw.choice(names)
        kinds = columns(database, f'public."{name}"')
        if not kinds:
            continue
        some, other = draw.choice(list(kinds)), draw.choice(list(kinds))
        where = f'WHERE "{some}" = {value(kinds[some], draw)}' if kinds[some] != "pair" else ""
        where = f"WHERE ctid IN (SELECT ctid FROM {name} {where} ORDER BY 1 LIMIT {draw.randint(1, 4)})"
        listed = ", ".join(value(kind, draw) for kind in kinds.values())
        insert = f"INSERT INTO {name} ({', '.join(kinds)}) VALUES ({listed}) ON CONFLICT DO NOTHING"
        update = f'UPDATE {name} SET "{other}" = {value(kinds[other], draw)} {where}'
        options = [insert, insert, insert, update, update, update, f"DELETE FROM {name} {where}"]
        yield draw.choice([*options, f"TRUNCATE {name}" if draw.random() < 0.3 else insert])


def _transaction(world: World, draw: random.Random) -> str:
    """A transaction with savepoints, some of it rolled back."""
    with world.server.connect(autocommit=False) as database:
        done = _changes(database, draw, draw.randint(1, 12))
        if draw.random() < 0.15:
            database.rollback()
            return f"{done}; rolled back"
        database.commit()
    return done


def _changes(database: Database, draw: random.Random, count: int) -> str:
    done = []
    for number, statement in enumerate(list(row_statements(database, draw, count))):
        database.execute(f"SAVEPOINT s{number}")
        try:
            database.execute(statement)
            if draw.random() < 0.1:
                database.execute(f"ROLLBACK TO s{number}")
            done.append(statement if len(statement) < 150 else f"{statement[:150]} …")
        except psycopg.Error:
            database.execute(f"ROLLBACK TO s{number}")
    return "; ".join(done) or "nothing"


def _begin(world: World, draw: random.Random) -> str:
    if world.open is not None:
        return end_open(world, draw)
    world.open = world.server.connect(autocommit=False)
    return f"a transaction that stays open: {_changes(world.open, draw, draw.randint(1, 4))}"


def _prepare(world: World, draw: random.Random) -> str:
    with world.server.connect(autocommit=False) as database:
        done = _changes(database, draw, draw.randint(1, 4))
        database.execute(f"PREPARE TRANSACTION 'p{draw.getrandbits(32)}'")
    return f"prepared: {done}"


# -- definitions ------------------------------------------------------------------------------------------------------


def _altered(world: World, draw: random.Random) -> str:
    """A statement that changes a column."""
    name, kinds = _table(world, draw)
    column = draw.choice(list(kinds) or ["id"])
    new = draw.choice("xyz")
    alter, one = f"ALTER TABLE {name}", f'ALTER COLUMN "{column}"'
    default = draw.choice(["", " DEFAULT 7", " NOT NULL DEFAULT 3"])
    return _sql(
        world,
        draw.choice(
            [
                f"{alter} ADD {new} int{default}",
                f"{alter} ADD {new} text{' DEFAULT md5(random()::text)' if default else ''}",
                f"{alter} ADD {new} int GENERATED ALWAYS AS (1 + {draw.choice(list(kinds) or ['1'])}) STORED",
                f'{alter} DROP COLUMN "{column}"',
                f'{alter} DROP COLUMN "{column}", ADD "{column}" int DEFAULT 5',
                f'{alter} RENAME "{column}" TO {new}',
                f"{alter} {one} TYPE bigint USING 1",
                f"{alter} {one} TYPE bigint",
                f"{alter} {one} TYPE text USING left({column}::text, 3)",
                f"{alter} {one} TYPE int USING {column} + 1",
                f"{alter} {one} SET DEFAULT {value(kinds.get(column, 'text'), draw)}",
                f"{alter} {one} DROP DEFAULT",
                f"{alter} {one} SET NOT NULL",
                f"{alter} {one} DROP NOT NULL",
                f"{alter} {one} SET STORAGE {draw.choice(['EXTERNAL', 'PLAIN'])}",
            ]
        ),
    )


def _typed(world: World, draw: random.Random) -> str:
    """A statement that changes a type of values."""
    label = draw.randint(1, 99)
    return _alone(
        world,
        draw.choice(
            [
                f"ALTER TYPE mood ADD VALUE 'l{label}'",
                f"ALTER TYPE mood RENAME VALUE 'low' TO 'l{label}'",
                f"ALTER TYPE mood RENAME VALUE 'l{label}' TO 'low'",
                f"ALTER TYPE pair ADD ATTRIBUTE z{label} int",
                "ALTER TYPE pair DROP ATTRIBUTE x",
                "ALTER TYPE pair ALTER ATTRIBUTE x TYPE text CASCADE",
                "ALTER DOMAIN small ADD CHECK (value < 100000)",
                "ALTER DOMAIN small SET DEFAULT 4",
            ]
        ),
    )


def _identified(world: World, draw: random.Random) -> str:
    """A statement that changes what identifies rows."""
    name, kinds = _table(world, draw)
    key = ", ".join(draw.sample(list(kinds), min(len(kinds), draw.choice([1, 1, 2]))))
    identity = f"ALTER TABLE {name} REPLICA IDENTITY"
    drop = (
        f"DO $$ BEGIN EXECUTE (SELECT 'ALTER TABLE {name} DROP CONSTRAINT ' || conname FROM pg_constraint "
        f"WHERE conrelid = '{name}'::regclass AND contype = 'p'); END $$"
    )
    choices = [
        [f"{identity} FULL"],
        [f"{identity} DEFAULT"],
        [f"{identity} NOTHING"],
        [f"{identity} USING INDEX b_t_key"],
        [drop],
        [drop, f"{identity} FULL"],
        [drop, f"ALTER TABLE {name} ADD PRIMARY KEY ({key})"],
        [f"ALTER TABLE {name} ADD PRIMARY KEY ({key})"],
    ]
    return _sql(world, *draw.choice(choices))


def _moved(world: World, draw: random.Random) -> str:
    """Tables that go, come, and change their names."""
    name, _ = _table(world, draw)
    other, _ = _table(world, draw)
    free = draw.choice(["d", "e", *NAMES])
    like = f"(LIKE {name} INCLUDING ALL)"
    again = [f"ALTER TABLE {name} RENAME TO gone", f"CREATE TABLE {name} (LIKE gone INCLUDING ALL)"]
    choices = [
        [f"ALTER TABLE {name} RENAME TO {free}"],
        ["CREATE SCHEMA IF NOT EXISTS other", f"ALTER TABLE {name} SET SCHEMA other"],
        [f"ALTER TABLE other.{free} SET SCHEMA public"],
        [f"DROP TABLE {name}"],
        [f"CREATE TABLE {free} (id int PRIMARY KEY, n int, t text)", f"INSERT INTO {free} VALUES (1, 2, 'new')"],
        [*again, "DROP TABLE gone"],
        [*again, f"INSERT INTO {name} OVERRIDING SYSTEM VALUE SELECT * FROM gone LIMIT 3", "DROP TABLE gone"],
        [
            f"ALTER TABLE {name} RENAME TO tmp",
            f"ALTER TABLE {other} RENAME TO {name}",
            f"ALTER TABLE tmp RENAME TO {other}",
        ],
        [f"CREATE TABLE {free} {like}"],
    ]
    return _sql(world, *draw.choice(choices))


def _arranged(world: World, draw: random.Random) -> str:
    """Partitions, heirs, tables without a log."""
    name, kinds = _table(world, draw)
    key = next(iter(kinds), "id")
    parted = [f"ALTER TABLE {name} RENAME TO {name}_1"]
    parted += [f"CREATE TABLE {name} (LIKE {name}_1 INCLUDING ALL) PARTITION BY RANGE ({key})"]
    parted += [f"ALTER TABLE {name} ATTACH PARTITION {name}_1 DEFAULT"]
    whole = [f"ALTER TABLE {name} DETACH PARTITION {name}_1", f"DROP TABLE {name}"]
    part = f"CREATE TABLE whole (LIKE {name} INCLUDING ALL) PARTITION BY RANGE ({key})"
    choices = [
        [f"ALTER TABLE {name} SET UNLOGGED"],
        [f"ALTER TABLE {name} SET UNLOGGED", f"DELETE FROM {name}", f"ALTER TABLE {name} SET LOGGED"],
        [f"ALTER TABLE {name} SET LOGGED"],
        [f"CREATE TABLE {name}_heir () INHERITS ({name})"],
        [f"CREATE TABLE {name}_heir () INHERITS ({name})", f"DROP TABLE {name}_heir"],
        [f"DROP TABLE {name}_heir"],
        parted,
        [*parted, *whole, f"ALTER TABLE {name}_1 RENAME TO {name}"],
        [part, f"ALTER TABLE whole ATTACH PARTITION {name} DEFAULT"],
        [f"ALTER TABLE whole DETACH PARTITION {name}"],
        [f"VACUUM FULL {name}"],
    ]
    chosen = draw.choice(choices)
    return _alone(world, chosen[0]) if chosen[0].startswith("VACUUM") else _sql(world, *chosen)


def _table(world: World, draw: random.Random) -> tuple[str, dict[str, str]]:
    with world.server.connect() as database:
        names = [one for one in existing(database) if one in NAMES or draw.random() < 0.5]
        name = draw.choice(names or ["a"])
        return name, columns(database, f'public."{name}"') if names else {}


# -- publications, slots, servers -------------------------------------------------------------------------------------


def _published(world: World, draw: random.Random) -> str:
    """Statements about the publication, with changes in between."""
    name, kinds = _table(world, draw)
    alter, all_kinds = f"ALTER PUBLICATION {SLOT}", "insert, update, delete, truncate"
    listed = ", ".join(draw.sample(list(kinds), max(1, len(kinds) - 1)) if kinds else ["id"])
    between = _between(world, draw, 4)
    left_out = [f"{alter} DROP TABLE {name}", *between, f"{alter} ADD TABLE {name}"]
    operations = draw.choice(["insert", "insert, update, delete", "delete, truncate"])
    set_all = f"{alter} SET (publish = '{all_kinds}')"
    choices = [
        left_out[:1],
        left_out,
        [f"{alter} SET (publish = '{operations}')", *between, set_all],
        [f"{alter} SET (publish = '{operations}')"],
        [f"{alter} DROP TABLE {name}", f"{alter} ADD TABLE {name} ({listed})"],
        [f"{alter} DROP TABLE {name}", f"{alter} ADD TABLE {name} WHERE ({next(iter(kinds), 'id')} IS NOT NULL)"],
        [f"{alter} SET (publish_via_partition_root = {draw.choice(['true', 'false'])})"],
        [f"DROP PUBLICATION {SLOT}"],
        [f"DROP PUBLICATION IF EXISTS {SLOT}", *between, f"CREATE PUBLICATION {SLOT} FOR ALL TABLES"],
        [f"DROP PUBLICATION IF EXISTS {SLOT}", *between, f"CREATE PUBLICATION {SLOT} FOR TABLES IN SCHEMA public"],
        [f"{alter} RENAME TO away", *between, f"ALTER PUBLICATION away RENAME TO {SLOT}"],
        [f"ALTER PUBLICATION {SLOT} OWNER TO CURRENT_USER"],
    ]
    return "; ".join(_alone(world, statement) for statement in draw.choice(choices))


def _between(world: World, draw: random.Random, count: int) -> list[str]:
    with world.server.connect(autocommit=False) as database:
        found = []
        for statement in list(row_statements(database, draw, count)):
            try:
                with database.transaction():
                    database.execute(statement)
                found.append(statement)
            except psycopg.Error:
                continue
        database.rollback()
    return found


def _slot(world: World, draw: random.Random) -> str:
    """Somebody else drops the slot, makes it again, or moves it."""
    drop = f"SELECT pg_drop_replication_slot('{SLOT}')"
    make = f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')"
    move = f"SELECT pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())"
    return "; ".join(_alone(world, one) for one in draw.choice([[drop], [drop, make], [move]]))


KINDS = {
    **OF_ALL,
    "transaction": Kind(_transaction, 30, may_stop=False),
    "open transaction": Kind(_begin, 3, may_stop=False),
    "prepared transaction": Kind(_prepare, 1, may_stop=False),
    "column": Kind(_altered, 10),
    "type": Kind(_typed, 3),
    "identity": Kind(_identified, 5),
    "name": Kind(_moved, 6),
    "arrangement": Kind(_arranged, 5),
    "publication": Kind(_published, 6),
    "slot": Kind(_slot, 1),
}
