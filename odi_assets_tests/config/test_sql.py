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
    "SELECT window.start AS s, count(*) FROM df GROUP BY window(t, '1 minute')",
    "SELECT window(t, '1 minute', '30 seconds').end AS e FROM df",
    "SELECT session_window.start AS s, count(*) FROM df GROUP BY session_window(t, '5 minutes')",
    "SELECT sum(a) OVER w FROM df WINDOW w AS (PARTITION BY b ORDER BY c ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "SELECT * FROM df UNPIVOT (v FOR k IN (a, b AS c))",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r",
    "WITH RECURSIVE r(n) MAX RECURSION LEVEL 7 AS (SELECT 1) SELECT n FROM r",
    "SELECT IDENTIFIER('a' || 'b') FROM IDENTIFIER('df')",
    "SELECT first(a) IGNORE NULLS, any_value(a) FILTER (WHERE a > 1), listagg(DISTINCT a, ',') FROM df",
    "SELECT trim(BOTH 'x' FROM a), substring(a FROM 2 FOR 3), position('a' IN b) FROM df",
    "SELECT overlay(a PLACING 'x' FROM 1) FROM df",
    "SELECT extract(YEAR FROM t), timestampdiff(HOUR, t, u), dateadd(DAY, 1, t), date_trunc() FROM df",
    "SELECT f(a => 1, b => 'x'), mod(a), named_struct('a', 1).a, struct(a, 1 AS b), map('a', 1), array(1)[0] FROM df",
    "SELECT a:b.c, a::int, try_cast(a AS MAP<STRING, ARRAY<INT>>), a <=> b, a RLIKE 'x', a ILIKE 'x' FROM df",
    "SELECT a, b FROM df ORDER BY a NULLS LAST LIMIT 5 OFFSET 1",
    "SELECT * FROM df VERSION AS OF 1",
    "SELECT * FROM df FOR SYSTEM_TIME AS OF '2013-01-01'",
    "SELECT a FROM df CLUSTER BY a",
    "SELECT a FROM df DISTRIBUTE BY a SORT BY b",
    "SELECT a FROM df, LATERAL (SELECT df.a + 1)",
    "SELECT a FROM df MINUS SELECT b FROM d2",
    "SELECT 'a' 'b', r'\\d', R\"x\", `a b`, 1e3BD, .5, 0x1F FROM df",
    "SELECT * FROM range(5) AS t(id), VALUES (1) AS u(id)",
    "SELECT left, right, end, when, like AS in, with.a FROM with",
    "SELECT CASE WHEN when LIKE 'x' THEN then ELSE else END AS case FROM df",
    "SELECT a FROM df |> EXTEND a + 1 AS b |> SET a = 2 |> DROP b |> ORDER BY a |> LIMIT 1",
    "SELECT a COLLATE UNICODE_CI FROM df GROUP BY CUBE(a), ROLLUP(b)",
    "SELECT inline(array(struct(1, 2))) AS (x, y) FROM df",
    "SHOW TABLES",
]  # `QUALIFY` is no clause of Spark 4.2's: there it is read as a name, and parses

PLACES = [
    "SELECT {0}, df.{0}, {0}.a FROM df",
    "SELECT a AS {0}, b {0} FROM {0}",
    "SELECT a FROM df {0}",
    "SELECT {0} + 1 AS x, ({0}), -{0} FROM df",
    "SELECT a FROM df WHERE {0} = 1 AND a > {0}",
    "SELECT CASE WHEN {0} THEN 1 ELSE {0} END FROM df",
    "SELECT a FROM df {0} JOIN d2 ON df.a = d2.a",
    "SELECT CAST(a AS {0}) FROM df",
    "SELECT {0} '1' FROM df",
    "SELECT sum(a) OVER (PARTITION BY {0} ORDER BY {0}) FROM df",
    "WITH {0} AS (SELECT 1 AS a) SELECT a FROM {0}",
    "SELECT a FROM df d {0} BY a",
    "SELECT a {0} b FROM df",
    "SELECT f(a {0}), f({0} a) FROM df",
]
CALLS = [
    "SELECT {0}(), {0}(a), {0}(a, 'x') FROM df",
    "SELECT a, count(*) FROM df GROUP BY {0}(a, '1 minute')",
    "SELECT a FROM {0}(df)",
]
"""Places of a query where a word may stand: a keyword, and a function."""

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


def test_a_word_of_spark_in_any_place_is_refused_only_where_spark_refuses_it(spark: SparkSession) -> None:
    words = [row.keyword for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()]
    functions = [row.function for row in spark.sql("SHOW FUNCTIONS").collect() if row.function.isidentifier()]
    # Nobody is expected to name a column so without backquotes.
    taken = {"SELECT", "FROM", "WHERE", "HAVING", "LIMIT", "JOIN", "ON", "UNION", "AND", "OR", "NOT", "AS", "DISTINCT"}
    queries = [place.format(word) for place in PLACES for word in words if word not in taken]
    queries += [place.format(word) for place in CALLS for word in functions if word.upper() not in taken]
    refused = [sql for sql in queries if mistake(sql)]
    assert len(refused) > 500, "a check that refuses nothing is none"
    assert [sql for sql in refused if parses(spark, sql)] == []


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
