"""Odd values of partition columns: each comes back as it was, or its row is refused by name."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.commit import Stamp
from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError
from odi_assets.tables.engine import WriteSpec
from odi_assets_tests.tables.support import APP, ENGINE, Write, frame, rows_of

NULLS = "__HIVE_DEFAULT_PARTITION__"
REFUSED: dict[Any, str] = {
    "": "is empty",
    NULLS: "the name of the folder of NULL",
    "x" * 254: "is too long for the name of a folder",
    ":" * 85: "is too long for the name of a folder",
    b"": "is empty",
    NULLS.encode(): "the name of the folder of NULL",
    b"\xff": "is no UTF-8",
    b"a\xed\xa0\x80": "is no UTF-8",
}
ODD = [
    *(
        "a/b",
        "a=b",
        "a%2Fb",
        "a%",
        "%41",
        "+",
        "a b",
        " a",
        "a ",
        ".",
        "..",
        "~",
        "null",
        "NULL",
        "None",
        "#",
        "?",
        "*",
    ),
    *("a\nb", "a\tb", "\\", "'", '"', "{}", "[x]", "^", "|", ":", "a:b", "\x01", "\x7f", "\x85", "é", "e\u0301", "😀"),
    *("\u2028", "\ufeff", "\uffff", "\U0010ffff", "A", "a", "x" * 253, f"{NULLS}_", NULLS.lower(), "day=1", "0", "00"),
    *("_x", "-1", "1e3", "NaN", "2024-01-01", "true", "$1", "`k`", "日本", "\\N", "%00", "a%zz", "//", "k=", "=", "&;"),
]
WRITERS = ("spark", "arrow")


def texts(seed: int, count: int) -> list[str]:
    """Texts drawn from characters that names of folders escape, or that somebody takes for something else."""
    draw, alphabet = random.Random(seed), "aA0 .%/\\=:+?#*[]{}'\"\n\t\x01\x7fé€😀_-~&"
    return ["".join(draw.choices(alphabet, k=draw.randint(1, 6))) for _ in range(count)]


def written_by(
    writer: str, spark: SparkSession, table: Location, rows: list[tuple[Any, ...]], kind: str, mode: WriteMode
) -> None:
    spec, handle = WriteSpec(mode, partition_by=("k",)), ENGINE.open(table)
    stamp = Stamp(APP, handle.transaction_number(APP) + 1, {"run_id": "run"})
    if writer == "spark":
        # One task has all partitions: two that go by one name meet in it.
        ENGINE.write(frame(spark, rows, f"id BIGINT, k {kind}").coalesce(1), handle, spec, stamp)
        return
    ids, keys = (list(column) for column in zip(*rows, strict=True))
    of = pa.string() if kind == "STRING" else pa.binary()
    ENGINE.write_arrow(
        pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array(keys, of)}), handle, spec, stamp, lambda: spark
    )


def test_bytes_that_names_of_folders_escape_are_read_as_they_were(
    spark: SparkSession, table: Location, write: Write
) -> None:
    rows = [(1, b"a/b"), (2, b"a%2Fb"), (3, b"50%")]
    write(rows, "id BIGINT, k BINARY", partition_by=("k",))
    assert rows_of(spark, table) == rows
    write([(2, b"=")], "id BIGINT, k BINARY", mode=WriteMode.UPSERT, keys=("id",), partition_by=("k",))
    assert rows_of(spark, table) == [(1, b"a/b"), (2, b"="), (3, b"50%")]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", ["STRING", "BINARY"])
def test_odd_values_of_a_partition_column_come_back_and_are_replaced_alone(
    spark: SparkSession, table: Location, writer: str, kind: str
) -> None:
    keys: list[Any] = list(dict.fromkeys([*ODD, *texts(1, 60)]))
    keys = [*(keys if kind == "STRING" else map(str.encode, keys)), None]
    written_by(writer, spark, table, list(enumerate(keys)), kind, WriteMode.APPEND)
    found = rows_of(spark, table)
    assert sorted(found) == list(enumerate(keys))
    half = keys[::2]
    written_by(writer, spark, table, list(enumerate(half, 1_000)), kind, WriteMode.PARTITION_OVERWRITE)
    wanted = {**{key: number for number, key in enumerate(keys)}, **{key: n for n, key in enumerate(half, 1_000)}}
    assert {row[1]: row[0] for row in rows_of(spark, table)} == wanted
    assert len(rows_of(spark, table)) == len(keys)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("key", REFUSED, ids=[f"{type(key).__name__}-{number}" for number, key in enumerate(REFUSED)])
@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.PARTITION_OVERWRITE])
def test_a_value_that_has_no_folder_of_its_own_is_refused_with_its_row_and_nothing_is_written(
    spark: SparkSession, table: Location, writer: str, key: Any, mode: WriteMode
) -> None:
    kind = "STRING" if isinstance(key, str) else "BINARY"
    plain: Any = "x" if kind == "STRING" else b"x"
    with pytest.raises(TableError, match=rf"(?s)partition column `k` .*{REFUSED[key]}.*: \{{.*4711") as caught:
        written_by(writer, spark, table, [(1, plain), (4711, key), (3, None)], kind, mode)
    assert "in the transform" in str(caught.value.fix)
    assert not TableHandle.open(table).exists


def test_an_upsert_and_a_table_that_is_there_refuse_such_rows_too(
    spark: SparkSession, table: Location, write: Write
) -> None:
    spec = {"mode": WriteMode.UPSERT, "keys": ("id",), "partition_by": ("k",)}
    write([(1, "x")], "id BIGINT, k STRING", **spec)
    with pytest.raises(TableError, match="partition column `k` is empty"):
        write([(2, "")], "id BIGINT, k STRING", **spec)
    write([(1, "y"), (2, None)], "id BIGINT, k STRING", **spec)
    assert rows_of(spark, table) == [(1, "y"), (2, None)]
