"""Schema strings: what we accept is what Spark accepts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pyspark.sql import SparkSession

from odi_assets.config.models.ddl import column_types, read_schema
from odi_assets.config.models.fields import SchemaDdl

RIGHT = [
    "id BIGINT",
    "id BIGINT NOT NULL, name STRING COMMENT 'the name', d DATE",
    "a byte, b short, c long, d real, e dec(3,1), f numeric, g integer, h float, i binary, j boolean",
    "a smallint, b tinyint, c double, d variant, e void",
    "a struct<b int, c: string>",
    "a struct<b: int not null comment 'q', c: array<map<string,decimal(10,2)>>>",
    "a map<struct<x:int>,array<struct<y:string>>>",
    "a struct<>, b struct<`c d`: int>",
    "a DECIMAL, b DECIMAL(10), c DECIMAL(38,38), d decimal(0,0)",
    "a TIMESTAMP_NTZ, b TIMESTAMP_LTZ, c timestamp without time zone",
    "a interval, b interval day to second, c interval year to month, d interval year",
    "a char(3), b character(4), c varchar(10)",
    "a string collate UTF8_BINARY, b string collate UNICODE_CI",
    "a time, b time(6)",
    "a geometry(4326), b geography(4326), c geometry(any)",
    "`a b` int, `a``b` int, 1a int, _ int, select int, date date",
    "a int comment \"x\", b int comment 'it''s', c int comment 'x' 'y', d int comment r'x'",
    "a int -- one\n, b int /* two */",
    "a array < int >, b\tint\nnot null",
]

WRONG = [
    "",
    "  ",
    "id",
    "id BIGNT",
    "id BIGINT,",
    "id BIGINT,, name STRING",
    "id BIGINT name STRING",
    "id BIGINT; name STRING",
    "a-b int",
    "a.b int",
    "é int",
    "1 int",
    "'a' int",
    '"a" int',
    "int",
    "struct<a:int>",
    "array<int>",
    "a DECIMAL(39,1)",
    "a DECIMAL(10,12)",
    "a DECIMAL(5,-1)",
    "a array<>",
    "a array<int",
    "a array<int not null>",
    "a map<string>",
    "a struct<a:int>>",
    "a struct<b int, >",
    "a int not",
    "a int NULL",
    "a int NOT NULL NOT NULL",
    "a int default 5",
    "a int comment x",
    "a int comment 'x' not null",
    "a int(3)",
    "a string(3)",
    "a float(3)",
    "a timestamp(3)",
    "a char",
    "a varchar",
    "a time(9)",
    "a geometry",
    "a interval second to day",
    "a bigint unsigned",
    "a double precision",
    "a datetime",
    "a text",
    "a bool",
    "a null",
    "a object",
]


def parses(spark: SparkSession, text: str) -> bool:
    struct_type: Any = spark._jvm.org.apache.spark.sql.types.StructType  # type: ignore[union-attr]
    try:
        struct_type.fromDDL(text)
    except Exception:  # noqa: BLE001 - whatever the JVM says of it, it is a refusal
        return False
    return True


def test_spark_takes_every_schema_that_we_take(spark: SparkSession) -> None:
    assert [text for text in RIGHT if read_schema(text)[1]] == []
    assert [text for text in RIGHT if not parses(spark, text)] == []


def test_spark_refuses_every_schema_that_we_refuse(spark: SparkSession) -> None:
    assert [text for text in WRONG if not read_schema(text)[1]] == []
    assert [text for text in WRONG if parses(spark, text)] == []


@pytest.mark.parametrize("text", [*RIGHT, *WRONG[2:], "id BIGINT, ID INT", " a\tint ,b\n string ", "a int,, b int"])
def test_a_schema_that_is_recognised_at_a_glance_is_one_that_the_reader_takes(text: str) -> None:
    for_spark, wrong = read_schema(text)
    try:
        taken = TypeAdapter[str](SchemaDdl).validate_python(text)
    except ValidationError:
        assert wrong
    else:
        assert (taken, wrong) == (for_spark, [])


def test_the_type_of_a_column_has_the_names_of_its_fields_as_they_are_written() -> None:
    text = (
        "id int, addr struct<city string, zip: String, `zip  code`\tint comment 'A b'>, t timestamp without time zone"
    )
    assert column_types(text) == {
        "id": "INT",
        "addr": "STRUCT<city STRING, zip: STRING, `zip  code` INT COMMENT 'A b'>",
        "t": "TIMESTAMP WITHOUT TIME ZONE",
    }


def test_colons_at_the_top_are_taken_out_for_spark(spark: SparkSession) -> None:
    text = "id: BIGINT, `a:b`: STRING COMMENT 'x: y', s STRUCT<c: INT>"
    assert read_schema(text)[1] == []
    assert read_schema(text)[0] == "id  BIGINT, `a:b`  STRING COMMENT 'x: y', s STRUCT<c: INT>"
    assert not parses(spark, text)
    assert parses(spark, read_schema(text)[0])


@pytest.mark.parametrize(
    ("text", "message", "suggestion"),
    [
        ("id BIGNT, name STRING", "column `id`: unknown type `BIGNT`", "BIGINT"),
        ("id BIGINT, name TEXT", "column `name`: unknown type `TEXT`", "STRING"),
        ("s STRUCT<a: INT, b: DATETIME>", "column `s`: unknown type `DATETIME`", "TIMESTAMP"),
        ("id", "column `id`: the type is missing (found the end)", None),
        ("id BIGINT,", "ends with a comma: take it away, or add the column that should follow", None),
        ("id BIGINT name STRING", "column `id`: expected a comma or the end, found `name`", None),
        ("my-id BIGINT", "column `my`: put a name with `-` in it in backticks", None),
        ("a VARCHAR", "column `a`: `VARCHAR` needs a length, as in `VARCHAR(10)`", None),
        ("a INT, A STRING", "column `A` is there twice", None),
    ],
)
def test_the_bad_column_or_type_is_named(text: str, message: str, suggestion: str | None) -> None:
    assert [(one.message, one.suggestion) for one in read_schema(text)[1]] == [(message, suggestion)]


def test_every_bad_column_is_found() -> None:
    found = read_schema("a INTT, b STRING, c MAP<STRING, INTT>, d DECIMAL(50, 2), e, f STRING")[1]
    assert [one.message.split(":")[0] for one in found] == ["column `a`", "column `c`", "column `d`", "column `e`"]
