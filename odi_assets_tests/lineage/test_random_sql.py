"""What changes in a result is in its lineage: SQLite says what changes, for random queries."""

from __future__ import annotations

import re

import pytest

from odi_assets.lineage.made import NotFollowed, Rows
from odi_assets.lineage.query_rows import query_rows
from odi_assets_tests.lineage.random_sql import TABLES, RandomQuery, changes, random_tables

pytestmark = pytest.mark.slow

QUERIES_OF_A_TEST = 60


def unlisted(sql: str, rows: Rows, seed: int) -> list[str]:
    """The columns of tables whose values change a column of the result that does not list them."""
    listed = [{(one.view, one.column) for one in made.all | rows.decided} for _, made in rows.columns]
    return [
        f"{table}.{column} changes column {place + 1} ({rows.columns[place][0]}) of {sql}"
        for (table, column), places in changes(sql, random_tables(seed)).items()
        for place in places
        if (table, column) not in listed[place]
    ]


@pytest.mark.parametrize("first", range(0, 8 * QUERIES_OF_A_TEST, QUERIES_OF_A_TEST))
def test_a_column_lists_every_column_that_changes_it(first: int) -> None:
    for seed in range(first, first + QUERIES_OF_A_TEST):
        sql = RandomQuery(seed).text()
        rows = query_rows(sql, tuple(TABLES.items()))
        assert unlisted(sql, rows, seed) == []


def test_order_by_all_lists_what_order_by_all_numbers_lists() -> None:
    asked = 0
    for seed in range(8 * QUERIES_OF_A_TEST):
        sql = RandomQuery(seed).text()
        by_all = re.sub(r"ORDER BY \d+(, \d+)* LIMIT", "ORDER BY ALL LIMIT", sql)
        asked += by_all != sql
        assert query_rows(by_all, tuple(TABLES.items())) == query_rows(sql, tuple(TABLES.items()))
    assert asked > QUERIES_OF_A_TEST // 2


@pytest.mark.parametrize("undeclared", [("t",), ("u",), ("v",), tuple(TABLES)])
def test_a_table_whose_columns_nobody_declares_is_followed_rightly_or_not_at_all(undeclared: tuple[str, ...]) -> None:
    views = tuple((name, None if name in undeclared else columns) for name, columns in TABLES.items())
    followed = 0
    for seed in range(3 * QUERIES_OF_A_TEST):
        sql = RandomQuery(seed).text()
        try:
            rows = query_rows(sql, views)
        except NotFollowed:
            continue
        if rows.unlisted is not None:
            continue
        followed += 1
        assert unlisted(sql, rows, seed) == []
        found = rows.decided.union(*(made.all for _, made in rows.columns))
        assert [(sql, one) for one in found if one.column not in TABLES[one.view]] == []
    assert followed > QUERIES_OF_A_TEST // 2


def test_changes_are_seen_in_most_columns_of_the_queries() -> None:
    """Otherwise the test above would say nothing."""
    seen = changed = 0
    for seed in range(QUERIES_OF_A_TEST):
        found = changes(RandomQuery(seed).text(), random_tables(seed))
        seen += 1
        changed += any(found.values())
    assert changed > 0.7 * seen
