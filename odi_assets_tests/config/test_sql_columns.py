"""What columns of a query are made of, read from its text."""

from __future__ import annotations

import pytest

from odi_assets.config.sql_columns import definitions


def text_of(sql: str, *views: tuple[str, str]) -> str:
    return definitions(sql, ("k",), views)["k"].text


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT * FROM df", "df.k"),
        ("SELECT *, upper(id) AS k FROM df", "UPPER(df.id)"),
        ("select x.ID+1 K from df x where id > 3", "df.id + 1"),
        ("WITH a AS (SELECT *, id + 1 AS k FROM df) SELECT * FROM a", "df.id + 1"),
        ("SELECT k FROM (SELECT id AS k, uuid() AS u FROM df)", "df.id"),
        ("SELECT id AS k FROM df UNION ALL SELECT other FROM df", "df.id or df.other"),
        ("SELECT o.id AS k FROM orders o JOIN payments p ON o.id = p.id", "orders.id"),
        ("SELECT * EXCEPT (v) FROM df", "df.k"),
        ("SELECT s.part.id AS k FROM df", "df.s.part.id"),
        ("FROM df SELECT id AS k", "df.id"),
    ],
)
def test_a_column_is_followed_to_its_sources(sql: str, text: str) -> None:
    assert text_of(sql) == text


@pytest.mark.parametrize(
    "other",
    [
        "SELECT id + 1 AS k, v FROM df -- why\n",
        "select  ID + 1 as K, v, upper(v) as w from df where v is not null",
        "SELECT n.k, n.v FROM (SELECT v, `id` + 1 AS k FROM df) n",
    ],
)
def test_layout_comments_other_columns_and_filters_do_not_matter(other: str) -> None:
    assert text_of(other) == text_of("SELECT id + 1 AS k, v FROM df")


def test_another_name_of_a_view_does_not_matter() -> None:
    assert text_of("SELECT a.id AS k FROM a", ("a", "up")) == text_of("SELECT b.id AS k FROM b", ("b", "up"))


@pytest.mark.parametrize(
    "sql", ["SELECT * EXCEPT (k) FROM df", "SELECT v FROM df LATERAL VIEW explode(v) t AS k", "(("]
)
def test_a_query_that_is_not_understood_is_taken_as_a_whole(sql: str) -> None:
    assert "df" in text_of(sql) or text_of(sql) == sql
    assert text_of(sql) != text_of(sql.replace("df", "other").replace("((", "((("))


@pytest.mark.parametrize(
    ("expression", "kind", "name"),
    [
        ("uuid()", "random", "uuid"),
        ("cast(rand() * 10 AS INT)", "random", "rand"),
        ("monotonically_increasing_id()", "random", "monotonically_increasing_id"),
        ("current_date", "clock", "current_date"),
        ("concat(id, now())", "clock", "now"),
        ("row_number() OVER (PARTITION BY v ORDER BY id)", "place", "row_number"),
    ],
)
def test_functions_that_give_the_same_row_another_value_are_found(expression: str, kind: str, name: str) -> None:
    found = definitions(f"SELECT v, {expression} AS k FROM df", ("k", "v"))
    spelled = getattr(found["k"], kind)
    assert spelled in (name, "current_timestamp")
    assert getattr(found["v"], kind) is None


@pytest.mark.parametrize("expression", ["'uuid()'", "date_format(ts, 'y')", "md5(id)", "rand", "input_file_name()"])
def test_other_expressions_give_the_same_row_the_same_value(expression: str) -> None:
    found = definitions(f"SELECT {expression} AS k FROM df", ("k",))["k"]
    assert (found.random, found.clock, found.place) == (None, None, None)
