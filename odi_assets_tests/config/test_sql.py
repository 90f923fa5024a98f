"""SQL: what is refused is wrong for Spark too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from odi_assets.config.checks.sql import find_mistake

RIGHT = [
    "SELECT * FROM df",
    "select a, b from df where a > 1 group by all order by 1 limit 5;",
    "(SELECT 1) UNION ALL (SELECT 2)",
    "FROM df SELECT a",
    "FROM df |> WHERE a > 1 |> AGGREGATE count(*) GROUP BY b",
    "VALUES (1, 2), (3, 4)",
    "TABLE df",
    "WITH a AS (SELECT 1 AS x), b AS (SELECT * FROM a) SELECT /*+ BROADCAST(a) */ * FROM a JOIN b USING (x)",
    "SELECT * EXCEPT (a) FROM df",
    "SELECT v:a.b[0]::int FROM df",
    "SELECT transform(a, x -> x + 1), filter(a, x -> x > 1) FROM df",
    "SELECT TRANSFORM (a) USING 'cat' AS (b) FROM df",
    "SELECT * FROM df LATERAL VIEW OUTER explode(a) t AS x",
    "SELECT * FROM df PIVOT (sum(a) FOR b IN ('x', 'y'))",
    "SELECT * FROM df TABLESAMPLE (10 PERCENT)",
    "SELECT * FROM df TIMESTAMP AS OF '2013-01-01'",
    "SELECT a /* x ; ( ' */, 'it''s; (', \"q\\\"(\", `c (`, r'\\' -- ; ( '\nFROM df",
    "SELECT a /* outer /* inner */ still */ FROM df",
    "SELECT INTERVAL 3 DAYS, INTERVAL '1-2' YEAR TO MONTH, DATE '2013-01-01', X'1F', 1L, 1e3, 1.5BD",
    "SELECT count(*) FILTER (WHERE a > 1), percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM df",
    "SELECT *, row_number() OVER (PARTITION BY a ORDER BY struct(df.*)) AS rank FROM df QUALIFY rank = 1",
    "SELECT bitmap_count(X '1010'), bitmap_count(x \"FF\") FROM df",
    "SELECT a FROM df -- a comment goes on \\\n (here\nWHERE a > 1",
    "SELECT a[0], map('k', 1)['k'], named_struct('x', 1).x FROM df",
    "SELECT CASE WHEN a IS NOT DISTINCT FROM b THEN 1 ELSE 2 END FROM df",
    "SELECT a FROM df WHERE a IN (SELECT b FROM x) AND EXISTS (SELECT 1 FROM y) AND s LIKE ANY ('a%', 'b%')",
    "SELECT * FROM a LEFT ANTI JOIN b ON a.x = b.x CROSS JOIN c",
    "SELECT a, sum(b) FROM df GROUP BY GROUPING SETS ((a), ()) HAVING sum(b) > 0",
    "SELECT replace(name, '\\\\', '') FROM df",
    "MAP a USING 'cat' FROM df",
    "SHOW TABLES",
]  # `QUALIFY` is no clause of Spark 4.2's: there it is read as a name, and parses

WRONG = [
    "",
    "-- nothing\n",
    "SELEC * FROM df",
    "SELECT a FROM (SELECT b FROM df",
    "SELECT a) FROM df",
    "SELECT a[0 FROM df",
    "SELECT 'a FROM df",
    "SELECT `a FROM df",
    "SELECT a /* FROM df",
    "SELECT a,, b FROM df",
    "SELECT a FROM df WHERE a = = 1",
    "SELECT a FROM df GROUP a",
    "SELECT a FROM df ORDER a",
    "SELECT a b c FROM df",
    "SELECT a FORM df",
    "WITH x AS SELECT 1 SELECT * FROM x",
    "SELECT a FROM df; SELECT b FROM df",
]


def mistake(sql: str) -> str | None:
    found = find_mistake(sql)
    return found.message if found else None


def parses(spark: SparkSession, sql: str) -> bool:
    parser: Any = spark._jsparkSession.sessionState().sqlParser()  # type: ignore[attr-defined]
    try:
        parser.parsePlan(sql)
    except Exception:  # noqa: BLE001 - whatever the JVM says of it, it is a refusal
        return False
    return True


def test_what_spark_parses_is_not_refused(spark: SparkSession) -> None:
    assert [sql for sql in RIGHT if not parses(spark, sql)] == []
    assert {sql: mistake(sql) for sql in RIGHT if mistake(sql)} == {}


def test_what_is_refused_spark_does_not_parse(spark: SparkSession) -> None:
    assert [sql for sql in WRONG if not mistake(sql)] == []
    assert [sql for sql in WRONG if parses(spark, sql)] == []


def test_a_clause_without_a_condition_is_refused_though_spark_would_take_its_keyword_for_a_name() -> None:
    assert mistake("SELECT a FROM df WHERE") == "Spark cannot parse the query, near `WHERE` on line 1 of it"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC 1", "no query starts with `SELEC`"),
        ("SELECT 1\nFROM (a", "`(` opens on line 2 of the query and never closes"),
        ("SELECT 1\n\nFROM a)", "`)` on line 3 of the query closes nothing"),
        ("SELECT 'a", "a quote ' opens on line 1 of the query and never closes"),
        ("SELECT 1;\nSELECT 2", "`;` on line 1 of the query starts a second statement: Spark takes one"),
        ("INSERT INTO t SELECT 1", "`INSERT` is no query: a node's SQL gives rows, and the node writes them"),
        ("SELECT a\nFORM df x", "Spark cannot parse the query, near `df` on line 2 of it"),
        ("-- TODO later", "holds no query"),
    ],
)
def test_the_message_says_where_in_the_query(sql: str, message: str) -> None:
    assert mistake(sql) == message


@given(st.text())
def test_no_text_crashes_the_checks(sql: str) -> None:
    mistake(sql)


@given(st.text("'\"`;()[]/*- \n\\aS$", max_size=40))
def test_no_heap_of_signs_crashes_the_checks(signs: str) -> None:
    mistake(f"SELECT {signs}")
