"""Each type has the same text from a chunk and from the log, and nearly always the text that the server writes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from odi_assets.errors import ConfigError
from odi_assets.sources.cdc.binlog.inet import inet6_text
from odi_assets.sources.cdc.binlog.tables import why_not_exact
from odi_assets_tests.sources.cdc.binlog.conftest import Database, Steps
from odi_assets_tests.sources.sql.kinds import MARIADB, NOT_OF_MYSQL

Made = Callable[..., Steps]
_REFUSED = ("year(2)",)
_OTHERS: Mapping[str, Sequence[str]] = {
    "varchar(20) character set cp1251": ["'привет'", "''"],
    "varchar(20) character set utf16": ["'a😀'"],
    "varchar(20) character set utf16le": ["'a😀'"],
    "varchar(20) character set utf32": ["'a😀'"],
    "varchar(20) collate latin1_swedish_ci": ["'€ß'"],
    "varchar(20) collate utf8mb4_bin": ["'€ß'", "' a '"],
    "char(3) character set swe7": ["'ab'"],
    "text character set koi8r": ["'да'"],
    "enum('ä', 'b') character set latin1": ["'ä'", "'nothing'"],
    "set('ä', '€') character set ucs2": ["'ä,€'"],
    "varchar(300)": ["REPEAT('x', 300)", "'y'"],
    "char(200)": ["REPEAT('ö', 200)", "''"],
    "binary(255)": ["X'01'", "X''"],
    "time(1)": ["'-00:00:00.1'", "'-12:59:59.9'", "'1:2:3'"],
    "time(2)": ["'-00:00:00.01'"],
    "time(3)": ["'-838:59:58.999'", "'00:00:00.001'"],
    "time(4)": ["'-1:00:00.0001'"],
    "time(5)": ["'-1:00:00.00001'"],
    "datetime(1)": ["'2024-01-01 00:00:00.9'"],
    "datetime(3)": ["'2024-01-01 00:00:00.987'"],
    "datetime(5)": ["'2024-01-01 00:00:00.98765'"],
    "timestamp(1)": ["'1970-01-01 00:00:01.5'", "'0000-00-00'"],
    "timestamp(3)": ["'2024-01-01 00:00:00.987'"],
    "decimal(10,10)": ["0.5", "-0.0000000001"],
    "decimal(9,9)": ["-0.1"],
    "decimal(18,9)": ["-123456789.000000001"],
    "decimal(5,0)": ["-3", "0"],
    "decimal(30,15)": ["0.000000000000001", "-100000000000000"],
    "decimal(8,2) zerofill": ["1.5"],
    "double(22,10) zerofill": ["1.5"],
    "float(10,2)": ["-1.25"],
}
_CHANCE = random.Random(7)
_DOUBLES = [repr(_CHANCE.uniform(-1, 1) * 10 ** _CHANCE.randint(-300, 300)) for _ in range(200)]
_DOUBLES += [repr(_CHANCE.randint(-(10**17), 10**17) / 10 ** _CHANCE.randint(0, 17)) for _ in range(200)]
KINDS = {**MARIADB, **_OTHERS, "double": [*MARIADB["double"], *_DOUBLES]}
KINDS["float"] = [*MARIADB["float"], *(one for one in _DOUBLES if 1e-44 < abs(float(one)) < 3e38)]
_OTHER_TEXT = ("float", "double", "bit", "blob", "binary", "point", "geometry", "linestring", "polygon", "collection")


def test_each_type_is_the_same_from_a_chunk_and_from_the_log(
    steps: Made, database: Database, *, is_mysql: bool
) -> None:
    unknown = (*_REFUSED, *NOT_OF_MYSQL) if is_mysql else _REFUSED
    kinds = {f"k{place}": kind for place, kind in enumerate(KINDS) if kind not in unknown}
    for table, kind in kinds.items():
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, c {kind})")
        values = ", ".join(f"({number}, {value})" for number, value in enumerate([*KINDS[kind], "NULL"]))
        database.execute(f"INSERT INTO {table} VALUES {values}")
    found = steps(patterns='"odi.k*"')
    found.run()
    for table in kinds:
        database.execute(f"INSERT INTO {table} SELECT id + 10000, c FROM {table}")
        # Keys go through both images of a change.
        database.execute(f"UPDATE {table} SET id = id + 10000 WHERE id >= 10000")
    found.run()
    for table, kind in kinds.items():
        rows = [row for row in found.log if row["table"] == f"odi.{table}"]
        assert [row["op"] for row in rows].count("s") == len({row["shape"] for row in rows}) + 1, kind
        held = {int(key): values[1] for (key,), values in found.held(table).items()}
        from_chunk = {key: text for key, text in held.items() if key < 10000}
        from_log = {key - 20000: text for key, text in held.items() if key >= 20000}
        assert len(from_chunk) == len(KINDS[kind]) + 1
        assert from_log == from_chunk, kind
        if not any(one in kind for one in (*_OTHER_TEXT, "zerofill")):
            written = database.execute(f"SELECT id, CAST(c AS CHAR) FROM {table} WHERE id < 10000")
            assert from_chunk == dict(written), kind


def test_numbers_and_bytes_are_written_so_that_nothing_of_them_is_lost(steps: Made, database: Database) -> None:
    columns = "f float, d double, b bit(12), z int(5) zerofill, v varbinary(9), n binary(3), e enum('a')"
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    row = "(1, 16777217, 0.1, b'101', 7, X'00ff', X'00ff', 'none')"
    found = steps("t")
    database.execute(f"INSERT INTO t VALUES {row}")
    found.run()
    database.execute("DELETE FROM t")
    database.execute(f"INSERT INTO t VALUES {row}")
    found.run()
    assert [one["after"] for one in found.log if one["op"] in ("r", "c")] == [
        ["1", "16777216", "0.1", "5", "7", "\\x00ff", "\\x00ff00", ""]
    ] * 2


def test_generated_and_invisible_columns_are_captured(steps: Made, database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, v int AS (a + 1) VIRTUAL, s int AS (a + 2) STORED, "
        "i int INVISIBLE DEFAULT 5)"
    )
    database.execute("INSERT INTO t (id, a) VALUES (1, 10)")
    found = steps("t")
    found.run()
    database.execute("UPDATE t SET a = 20")
    database.execute("INSERT INTO t (id, a) VALUES (2, 30)")
    found.run()
    assert [one["after"] for one in found.log if one["op"] != "s"] == [
        ["1", "10", "11", "12", "5"],
        ["1", "20", "21", "22", "5"],
        ["2", "30", "31", "32", "5"],
    ]


@pytest.mark.parametrize(
    "key", ["varchar(9) character set latin1", "varbinary(9)", "decimal(9,2)", "datetime(3)", "uuid"]
)
def test_keys_of_any_type_are_the_same_in_deletions_and_in_chunks(
    steps: Made, database: Database, key: str, *, is_mysql: bool
) -> None:
    if is_mysql and key == "uuid":
        pytest.skip("MySQL has no such type")
    values = {"varchar": "'Ä'", "varbinary": "X'ff00'", "decimal": "-1.5", "datetime": "'2024-01-01'", "uuid": "UUID()"}
    database.execute(f"CREATE TABLE t (k {key}, part int, n int, PRIMARY KEY (k, part))")
    value = values[key.partition("(")[0]]
    database.execute(f"INSERT INTO t VALUES ({value}, 1, 1), ({value}, 2, 1)")
    found = steps("t")
    found.run()
    database.execute("UPDATE t SET n = 2 WHERE part = 1")
    database.execute("UPDATE t SET part = 3 WHERE part = 1")
    database.execute("DELETE FROM t WHERE part = 2")
    found.run()
    assert [one["op"] for one in found.log if one["op"] != "s"] == ["r", "r", "u", "d", "c", "d"]
    assert len(found.held("t")) == 1
    assert {one["key"][0] for one in found.log if one["op"] == "d"} <= {
        one["key"][0] for one in found.log if one["op"] == "r"
    }


def _document(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(10 if depth < 3 else 7)
    if kind < 2:
        return chance.choice([chance.randint(-(2**63), 2**64 - 1), chance.randint(-40000, 70000), 2**31, -(2**15) - 1])
    if kind < 4:
        return chance.choice(
            [*map(float, _DOUBLES[:: max(1, len(_DOUBLES) // 40)]), 0.0, -0.0, 1.0, 1e15, 1e16, 1e17, 0.1]
        )
    if kind < 6:
        return "".join(chance.choice('aé😀"\\/\b\f\n\r\t\x01\x1f\x7f€ ') for _ in range(chance.choice([0, 1, 9, 140])))
    if kind == 6:
        return chance.choice([None, True, False])
    if kind == 7:
        return [_document(chance, depth + 1) for _ in range(chance.choice([0, 1, 5]))]
    keys = ["", "a", "B", "key", "ä", "k" * 60]
    return {chance.choice(keys): _document(chance, depth + 1) for _ in range(chance.choice([0, 1, 5]))}


def test_json_is_the_same_from_a_chunk_and_from_the_log(steps: Made, database: Database, *, is_mysql: bool) -> None:
    chance = random.Random(21)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, j json)")
    documents = [json.dumps(_document(chance), ensure_ascii=False) for _ in range(400)]
    # Documents above 64 KB have other sizes inside.
    documents += [json.dumps({"long": ["x" * 70_000, list(range(30_000)), 1.5, 70_000, -40_000]})]
    for number, document in enumerate(documents):
        database.execute("INSERT INTO t VALUES (%s, %s)", number, document)
    if is_mysql:
        decimals = ["1.50", "-0.001", "123456789012345678.000000001", "0", "-99999999999999999999", "0.10"]
        others = [f"CAST({text} AS DECIMAL(40,{len(text.partition('.')[2])}))" for text in decimals]
        others += [
            "CAST('2024-02-29' AS DATE)",
            "CAST('0000-00-00' AS DATETIME)",
            "TIMESTAMP '2024-01-02 03:04:05.678901'",
        ]
        others += [
            "CAST('-838:59:59.000001' AS TIME(6))",
            "CAST('1:2:3' AS TIME)",
            "b'101'",
            "X'00ff'",
            "ST_PointFromText('POINT(1 2)')",
        ]
        others += ["CAST(2024 AS YEAR)", "CAST(0.1 AS FLOAT)", "18446744073709551615"]
        for number, value in enumerate(others):
            database.execute(
                f"INSERT INTO t VALUES ({number + 10_000}, JSON_OBJECT('v', JSON_ARRAY({value}, {value})))"
            )
    found = steps("t")
    found.run()
    database.execute("INSERT INTO t SELECT id + 100000, j FROM t")
    found.run()
    held = {int(key): values[1] for (key,), values in found.held("t").items()}
    from_chunk = {key: text for key, text in held.items() if key < 100_000}
    assert len(from_chunk) >= len(documents)
    assert {key - 100_000: text for key, text in held.items() if key >= 100_000} == from_chunk


def test_a_wide_table_and_events_of_many_sizes_are_read(steps: Made, database: Database) -> None:
    names = [f"c{number}" for number in range(150)]
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, {', '.join(f'{name} text' for name in names)})")
    found = steps("t")
    found.run()
    chance = random.Random(3)
    for number in range(60):
        values = [chance.choice([None, "", "x" * chance.randint(0, 300)]) for _ in names]
        marks = ", ".join(["%s"] * (len(names) + 1))
        database.execute(f"INSERT INTO t VALUES ({marks})", number, *values)
    database.execute("INSERT INTO t SELECT id + 100, " + ", ".join(names) + " FROM t")
    database.execute("UPDATE t SET c149 = CONCAT(COALESCE(c149, ''), 'é'), c0 = NULL WHERE id % 3 = 0")
    found.run()
    held = {int(key): values[1:] for (key,), values in found.held("t").items()}
    assert held == {key: list(row.values())[1:] for key, row in database.rows_of("t").items()}


def test_addresses_are_written_as_the_server_does(database: Database, of_mariadb: None) -> None:
    del of_mariadb
    chance = random.Random(11)
    parts = [b"\0\0", b"\0\0", b"\0\1", b"\xff\xff", b"\x0a\x01"]
    values = [b"".join(chance.choice(parts) for _ in range(8)) for _ in range(2000)]
    for first in range(0, len(values), 100):
        some = values[first : first + 100]
        asked = ", ".join(f"CAST(CAST(X'{value.hex()}' AS INET6) AS CHAR)" for value in some)
        assert list(database.execute(f"SELECT {asked}")[0]) == [inet6_text(value).decode() for value in some]


@pytest.mark.parametrize("shown", ["year(2)", "vector(3)", "text /*!100301 COMPRESSED*/", "time /* mariadb-5.3 */"])
def test_types_that_the_log_does_not_tell_exactly_are_known(shown: str) -> None:
    assert why_not_exact(shown)


def test_a_column_whose_characters_cannot_be_read_is_refused_before_its_table_is_captured(
    steps: Made, database: Database
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, c varchar(9) CHARACTER SET sjis)")
    with pytest.raises(ConfigError, match="`c`, which is of the character set sjis") as stopped:
        steps("t").run()
    assert "MODIFY `c`" in str(stopped.value)
