"""Tables that others made demand something of their rows: it is kept, or the write is refused before it begins."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.commit import Stamp
from odi_assets.delta.errors import UnsupportedFeatureError
from odi_assets.delta.maintenance.compaction import compact
from odi_assets.delta.maintenance.restore import restore
from odi_assets.errors import TableError
from odi_assets_tests.tables.support import APP, ENGINE, Write, rows_of

UPSERT: dict[str, Any] = {"mode": WriteMode.UPSERT, "keys": ("id",)}
OVERWRITE: dict[str, Any] = {"mode": WriteMode.OVERWRITE}
ID = "id INT"


def column(name: str, kind: Any = "integer", *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def made_by_others(table: Location, *columns: dict[str, Any], by: str | None = None, **properties: str) -> None:
    """A table without rows, as another tool writes its first commit; ``properties`` with ``__`` for dots."""
    log = table.local_path / "_delta_log"
    log.mkdir(parents=True)
    features = properties.pop("features", None)
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": int(properties.pop("writer", "3"))}
    if features is not None:
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features.split()}
    metadata = {
        "id": "made-by-others",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": [by] if by else [],
        "configuration": {name.replace("__", "."): value for name, value in properties.items()},
        "createdTime": 0,
    }
    lines = [{"protocol": protocol}, {"metaData": metadata}]
    (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")


def refused(table: Location, write: Write, rows: list[tuple[Any, ...]], schema: str, **spec: Any) -> TableError:
    """The error of a write that must leave neither a version nor a file."""
    before = files(table)
    with pytest.raises(TableError) as told:
        write(rows, schema, **spec)
    assert files(table) == before
    return told.value


def files(table: Location) -> list[str]:
    return sorted(str(path) for path in table.local_path.rglob("*") if path.is_file())


def schema_of(table: Location) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DeltaTable(table.uri).schema().to_json())["fields"]
    return found


NESTED = {"type": "struct", "fields": [column("a", nullable=False), column("b")]}
LIST = {"type": "array", "elementType": "integer", "containsNull": False}
LISTED = {"type": "array", "elementType": NESTED, "containsNull": True}
MAP = {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": False}
INVARIANT = json.dumps({"expression": {"expression": "v > 3"}})

# Each: the table's column `v`, its properties, its type in Spark, values that pass, one that does not, what is told.
RULES: dict[str, tuple[dict[str, Any], dict[str, str], str, list[Any], Any, str]] = {
    "not null": (column("v", nullable=False), {}, "INT", [1, 2], None, "`v` NOT NULL"),
    "nested": (column("v", NESTED), {}, "STRUCT<a: INT, b: INT>", [(1, None), None], (None, 1), "`v.a` NOT NULL"),
    "elements": (column("v", LIST), {}, "ARRAY<INT>", [[1], [], None], [1, None], "`v.element` NOT NULL"),
    "in elements": (
        column("v", LISTED),
        {},
        "ARRAY<STRUCT<a: INT, b: INT>>",
        [[(1, None), None], None],
        [(None, 2)],
        "`v.element.a` NOT NULL",
    ),
    "map": (column("v", MAP), {}, "MAP<STRING, INT>", [{"k": 1}, {}, None], {"k": None}, "`v.value` NOT NULL"),
    "check": (column("v"), {"delta__constraints__positive": "v > 0"}, "INT", [1, 5], -1, "CHECK positive (v > 0)"),
    "check of null": (column("v"), {"delta__constraints__c": "v > 0"}, "INT", [1], None, "CHECK c (v > 0)"),
    "listed check": (
        column("v"),
        {"delta__constraints__c": "v > 0", "features": "checkConstraints"},
        "INT",
        [1],
        -1,
        "CHECK c (v > 0)",
    ),
    "invariant": (column("v", **{"delta.invariants": INVARIANT}), {}, "INT", [4], 3, "the invariant v > 3 of `v`"),
    "varchar": (
        column("v", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(3)"),
        {},
        "STRING",
        ["abc", "äöü", None],
        "abcd",
        "`v` VARCHAR(3)",
    ),
    "char": (column("v", "string", __CHAR_VARCHAR_TYPE_STRING="char(2)"), {}, "STRING", ["ab"], "abc", "`v` CHAR(2)"),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_row_that_breaks_a_rule_is_refused_and_others_are_written(
    spark: SparkSession, table: Location, write: Write, rule: str
) -> None:
    made, properties, kind, good, bad, label = RULES[rule]
    made_by_others(table, column("id"), made, **properties)
    demanded = schema_of(table)
    rows = [(number, value) for number, value in enumerate(good)]
    write(rows, f"id INT, v {kind}")
    told = refused(table, write, [(70, good[0]), (71, bad), (72, bad)], f"id INT, v {kind}")
    assert f"2 rows of it break {label}, such as {{" in told.message
    assert '"id":71' in told.message or '"id":72' in told.message
    assert len(rows_of(spark, table)) == len(good)
    assert schema_of(table) == demanded


@pytest.mark.contract
@pytest.mark.parametrize("mode", ["append", "append_once", "upsert", "overwrite"])
def test_every_way_of_writing_keeps_every_kind_of_rule(
    spark: SparkSession, table: Location, write: Write, mode: str
) -> None:
    made_by_others(
        table,
        column("id"),
        column("n", nullable=False),
        column("e", LISTED),
        column("m", MAP),
        column("v", **{"delta.invariants": INVARIANT}),
        column("c"),
        column("s", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(3)"),
        delta__constraints__positive="c > 0",
    )
    kind = "id INT, n INT, e ARRAY<STRUCT<a: INT, b: INT>>, m MAP<STRING, INT>, v INT, c INT, s STRING"
    demanded = schema_of(table)
    spec = {"mode": WriteMode(mode), "keys": ("id",) if mode in ("append_once", "upsert") else ()}
    good = (1, [(1, None), None], {"k": 1}, 4, 1, "äöü")
    write([(0, *good), (1, 2, None, None, 9, 5, None)], kind, **spec)
    bad = (None, [(None, 2)], {"k": None}, 3, -1, "abcd")
    told = refused(table, write, [(70, *good), (71, *bad), (72, *bad)], kind, **spec)
    assert dict(zip(told.fields["rules"], told.fields["rows"], strict=True)) == {
        "`n` NOT NULL": 2,
        "`e.element.a` NOT NULL": 2,
        "`m.value` NOT NULL": 2,
        "the invariant v > 3 of `v`": 2,
        "CHECK positive (c > 0)": 2,
        "`s` VARCHAR(3)": 2,
    }
    assert len(rows_of(spark, table)) == 2
    assert schema_of(table) == demanded


def test_several_broken_rules_are_all_named(table: Location, write: Write) -> None:
    made_by_others(table, column("id", nullable=False), column("v"), delta__constraints__c="v < 5")
    told = refused(table, write, [(None, 9), (1, 9), (2, 1)], "id INT, v INT")
    assert told.fields["rules"] == ("`id` NOT NULL", "CHECK c (v < 5)")
    assert told.fields["rows"] == (1, 2)


def test_a_partition_column_that_may_not_be_null_is_kept(table: Location, write: Write) -> None:
    made_by_others(table, column("id"), column("day", "string", nullable=False), by="day")
    write([(1, "a")], "id INT, day STRING", partition_by=("day",))
    told = refused(table, write, [(1, "b"), (2, None)], "id INT, day STRING", partition_by=("day",))
    assert "1 row of it breaks `day` NOT NULL" in told.message


def test_a_row_that_only_deletes_need_not_keep_a_rule(spark: SparkSession, table: Location, write: Write) -> None:
    made_by_others(table, column("id"), column("v", nullable=False))
    write([(1, 1, False), (2, 2, False)], "id INT, v INT, gone BOOLEAN", delete_when="gone", **UPSERT)
    write([(1, None, True)], "id INT, v INT, gone BOOLEAN", delete_when="gone", **UPSERT)
    assert rows_of(spark, table) == [(2, 2)]


def test_a_constraint_that_spark_cannot_evaluate_is_named_before_anything_is_written(
    table: Location, write: Write
) -> None:
    made_by_others(table, column("id"), delta__constraints__odd="no_such_function(id) = 1")
    told = refused(table, write, [(1,)], ID)
    assert "CHECK odd (no_such_function(id) = 1)" in told.message


def test_a_rule_of_a_column_that_an_overwrite_leaves_out_is_named(table: Location, write: Write) -> None:
    made_by_others(table, column("id"), column("v"), delta__constraints__c="v > 0")
    assert "CHECK c (v > 0)" in refused(table, write, [(1,)], ID, **OVERWRITE).message


@pytest.mark.parametrize("spec", [OVERWRITE, {"schema_policy": "evolve"}])
def test_a_column_that_may_not_be_null_may_not_be_missing(table: Location, write: Write, spec: dict[str, Any]) -> None:
    made_by_others(table, column("id"), column("v", nullable=False))
    assert "have no column `v`, which may not be NULL" in refused(table, write, [(1,)], ID, **spec).message


def test_what_a_table_demands_stays_through_everything_that_changes_it(table: Location, write: Write) -> None:
    made_by_others(
        table,
        column("id", nullable=False, comment="the key"),
        column("s", NESTED),
        column("l", LIST),
        delta__constraints__c="id > 0",
    )
    kind = "id INT, s STRUCT<a: INT, b: INT>, l ARRAY<INT>"

    def demanded() -> list[Any]:
        first, struct, listed = schema_of(table)[:3]
        inner = [(field["name"], field["nullable"]) for field in struct["type"]["fields"]]
        constraint = DeltaTable(table.uri).metadata().configuration["delta.constraints.c"]
        return [first["nullable"], first["metadata"], inner, listed["type"]["containsNull"], constraint]

    expected = demanded()
    assert expected == [False, {"comment": "the key"}, [("a", False), ("b", True)], False, "id > 0"]
    write([(1, (1, None), [1])], kind)
    write([(2, (2, None), [2], "new")], f"{kind}, e STRING", schema_policy="evolve")
    assert demanded() == expected, "a column joined"
    write([(2, (3, None), [3], "b")], f"{kind}, e STRING", **UPSERT)
    assert demanded() == expected, "a row was replaced"
    assert compact(table, 2**30, 2**30, {}).files_removed
    assert demanded() == expected, "files were compacted"
    write([(3, (3, None), [3])], kind, **OVERWRITE)
    assert demanded() == expected, "rows and columns were replaced"
    handle = ENGINE.open(table)
    restore(handle, 1, Stamp(APP, handle.transaction_number(APP) + 1))
    assert demanded() == expected, "the table went back"
    write([(4, (1, None), [1])], "id BIGINT, s STRUCT<a: INT, b: INT>, l ARRAY<INT>", **OVERWRITE)
    assert demanded() == expected, "a column has another type"
    refused(table, write, [(-1, (1, None), [1])], kind)


@pytest.mark.parametrize(
    ("columns", "properties", "named"),
    [
        ([column("id"), column("g", **{"delta.generationExpression": "id + 1"})], {"writer": "4"}, "generated columns"),
        ([column("id", "long", **{"delta.identity.start": 1})], {"writer": "6"}, "identity columns"),
        ([column("id", "long", **{"delta.identity.start": 1})], {"features": "identityColumns"}, "identity columns"),
        ([column("id"), column("d", CURRENT_DEFAULT="7")], {"features": "allowColumnDefaults"}, "column defaults"),
        ([column("id")], {"features": "rowTracking domainMetadata"}, "domainMetadata and row tracking"),
        ([column("id")], {"features": "feature-of-tomorrow"}, "feature-of-tomorrow"),
    ],
)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_what_cannot_be_kept_is_refused_by_name_at_once(
    table: Location,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    columns: list[dict[str, Any]],
    properties: dict[str, str],
    named: str,
    mode: str,
) -> None:
    made_by_others(table, *columns, **properties)
    # Its `time` alone: the threads of Spark's gateway sleep as they please.
    clock = SimpleNamespace(sleep=lambda seconds: pytest.fail(f"it waited {seconds} s"))
    monkeypatch.setattr("odi_assets.delta.retry.time", clock)
    told = refused(table, write, [(1,)], ID, mode=WriteMode(mode))
    assert isinstance(told, UnsupportedFeatureError)
    assert f"uses {named}, and cannot be written" in told.message


def test_features_that_are_listed_and_not_in_use_do_not_matter(
    spark: SparkSession, table: Location, write: Write
) -> None:
    made_by_others(table, column("id"), features="appendOnly invariants checkConstraints generatedColumns")
    write([(1,)], ID)
    write([(2,)], ID, **OVERWRITE)
    assert rows_of(spark, table) == [(2,)]


@pytest.mark.contract
@pytest.mark.parametrize("features", [None, "appendOnly"])
def test_of_an_append_only_table_no_row_is_removed(
    spark: SparkSession, table: Location, write: Write, features: str | None
) -> None:
    listed = {"features": features} if features else {"writer": "2"}
    made_by_others(table, column("id"), column("v", "string"), delta__appendOnly="true", **listed)
    kind = "id INT, v STRING"
    write([(1, "a")], kind, **OVERWRITE)
    write([(2, "b")], kind)
    write([(3, "c")], kind, **UPSERT)
    write([(3, "d"), (4, "e")], kind, mode=WriteMode.APPEND_ONCE, keys=("id",))
    for spec in (UPSERT, OVERWRITE):
        told = refused(table, write, [(2, "B")], kind, **spec)
        assert f"is append-only (delta.appendOnly), and `{spec['mode']}` removes rows from it" in told.message
    handle = ENGINE.open(table)
    with pytest.raises(TableError, match="append-only"):
        restore(handle, 1, Stamp(APP, handle.transaction_number(APP) + 1))
    assert rows_of(spark, table) == [(1, "a"), (2, "b"), (3, "c"), (4, "e")]


def test_a_constraint_that_comes_while_rows_are_staged_counts(
    table: Location, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from odi_assets.tables.modes import base

    made_by_others(table, column("id"))
    real = base.Write.stage

    def stage(self: Any, *args: Any) -> Any:
        monkeypatch.undo()
        staged = real(self, *args)
        DeltaTable(table.uri).alter.add_constraint({"late": "id > 10"})
        return staged

    monkeypatch.setattr(base.Write, "stage", stage)
    with pytest.raises(TableError, match="CHECK late"):
        write([(1,)], ID)
    assert DeltaTable(table.uri).count() == 0
