"""What columns of a query are made of, read from its text."""

from __future__ import annotations

import pytest

from odi_assets.lineage.made import NotFollowed, Origin, Rows, Unlisted
from odi_assets.lineage.query_rows import query_rows

VIEWS = (
    ("orders", ("id", "customer", "amount", "day")),
    ("customers", ("id", "name", "city")),
    ("events", None),
    ("more", None),
)


def read(sql: str) -> Rows:
    return query_rows(sql, VIEWS)


def made(sql: str) -> dict[str, tuple[str, str]]:
    """By column of a query, the columns whose values go in, and those that decide."""
    rows = read(sql)
    return {
        name: (text(one.values), text(one.conditions | rows.decided)) for name, one in rows.columns
    }  # fmt: skip


def text(origins: frozenset[Origin]) -> str:
    return " ".join(sorted(".".join(one) for one in origins))


def test_values_go_in_and_filters_joins_groups_and_orders_decide() -> None:
    sql = """
        SELECT c.name, sum(o.amount) AS total FROM orders o JOIN customers c ON c.id = o.customer
        WHERE o.day > '2024' GROUP BY c.name HAVING count(o.id) > 1 ORDER BY c.city LIMIT 3"""
    decided = "customers.city customers.id customers.name orders.customer orders.day orders.id"
    assert made(sql) == {"name": ("customers.name", decided), "total": ("orders.amount", decided)}


@pytest.mark.parametrize(
    ("expression", "values", "conditions"),
    [
        ("CASE WHEN day > 'x' THEN id ELSE amount END", "orders.amount orders.id", "orders.day"),
        ("CASE day WHEN customer THEN id END", "orders.id", "orders.customer orders.day"),
        ("if(day > 'x', id, amount)", "orders.amount orders.id", "orders.day"),
        ("coalesce(id, amount)", "orders.amount orders.id", ""),
        ("row_number() OVER (PARTITION BY day ORDER BY id)", "", "orders.day orders.id"),
        ("sum(amount) OVER w", "orders.amount", "orders.customer"),
        ("max_by(id, day)", "orders.id", "orders.day"),
        ("sum(amount) FILTER (WHERE day = 'x')", "orders.amount", "orders.day"),
        ("count(*)", "", ""),
        ("struct(o.*)", "orders.amount orders.customer orders.day orders.id", ""),
        ("transform(array(1), e -> e + amount)", "orders.amount", ""),
        ("(SELECT max(name) FROM customers c WHERE c.id = o.customer)", "customers.name",
         "customers.id orders.customer"),
        ("EXISTS (SELECT 1 FROM customers c WHERE c.id = o.customer)", "", "customers.id orders.customer"),
        ("date_trunc('day', amount)", "orders.amount", ""),
        ("date_trunc(day, amount)", "orders.amount orders.day", ""),
        ("1", "", ""),
    ],
)  # fmt: skip
def test_an_expression_tells_values_from_conditions(expression: str, values: str, conditions: str) -> None:
    sql = f"SELECT {expression} AS x FROM orders o WINDOW w AS (PARTITION BY customer)"
    assert made(sql)["x"] == (values, conditions)


def test_an_alias_does_not_hide_the_column_of_its_name() -> None:
    found = made("SELECT id AS amount, amount AS id, amount + 1 AS more FROM orders ORDER BY amount LIMIT 1")
    assert found["id"][0] == "orders.amount"
    assert found["more"][0] == "orders.amount"
    assert found["more"][1] == "orders.id", "ORDER BY sees the list first"


def test_an_expression_may_use_one_that_the_list_has_named() -> None:
    assert made("SELECT amount * 2 AS twice, twice + id AS sum FROM orders")["sum"][0] == "orders.amount orders.id"


def test_a_name_of_with_hides_a_view_and_is_seen_by_what_comes_after_it() -> None:
    sql = """
        WITH orders AS (SELECT id, amount * 2 AS amount FROM orders), big AS (SELECT * FROM orders WHERE amount > 3)
        SELECT big.id, big.amount FROM big"""
    assert made(sql)["amount"] == ("orders.amount", "orders.amount")
    assert made(sql)["id"] == ("orders.id", "orders.amount")


def test_stars_stand_for_columns_without_those_left_out() -> None:
    assert list(made("SELECT o.* EXCEPT (day), c.name FROM orders o JOIN customers c ON true")) == [
        "id", "customer", "amount", "name",
    ]  # fmt: skip
    assert made("SELECT * FROM orders JOIN customers USING (id)")["id"] == ("orders.id", "customers.id orders.id")


def test_a_union_has_the_columns_of_both_sides_by_place() -> None:
    found = made("SELECT id, amount FROM orders WHERE day = 'x' UNION ALL SELECT name, city FROM customers")
    assert found == {
        "id": ("customers.name orders.id", "orders.day"),
        "amount": ("customers.city orders.amount", "orders.day"),
    }
    assert made("SELECT id FROM orders UNION SELECT name FROM customers")["id"][1] == "customers.name orders.id"


def test_qualify_lateral_view_and_lateral_subqueries_are_followed() -> None:
    assert made("SELECT id FROM orders QUALIFY rank() OVER (PARTITION BY day ORDER BY amount) = 1")["id"][1] == (
        "orders.amount orders.day"
    )
    assert made("SELECT id, x FROM orders LATERAL VIEW explode(split(day, '-')) t AS x") == {
        "id": ("orders.id", "orders.day"),
        "x": ("orders.day", "orders.day"),
    }
    sql = "SELECT o.id, l.n FROM orders o, LATERAL (SELECT max(c.name) AS n FROM customers c WHERE c.id = o.id) l"
    assert made(sql)["n"] == ("customers.name", "customers.id orders.id")


def test_columns_that_are_named_need_no_list_of_the_columns_of_their_view() -> None:
    assert made("SELECT upper(kind) AS kind, e.data.user AS user FROM events e WHERE at > 1") == {
        "kind": ("events.kind", "events.at"),
        "user": ("events.data", "events.at"),
    }


def test_a_star_of_a_view_with_unknown_columns_stands_for_each_name_that_is_asked_for() -> None:
    rows = read("SELECT *, 1 AS one FROM (SELECT * EXCEPT (secret) FROM events)")
    assert rows.unlisted == Unlisted("events", frozenset({"secret"}))
    found = rows.column("anything")
    assert found is not None
    assert found.values == {Origin("events", "anything")}
    assert rows.column("secret") is None


@pytest.mark.parametrize(
    ("sql", "decided"),
    [
        ("SELECT id, day FROM orders ORDER BY ALL LIMIT 2", "orders.day orders.id"),
        ("SELECT id FROM (SELECT id, day FROM orders ORDER BY ALL DESC NULLS LAST LIMIT 1)", "orders.day orders.id"),
        ("SELECT * FROM customers ORDER BY ALL LIMIT 1", "customers.city customers.id customers.name"),
        ("SELECT id FROM orders UNION ALL SELECT name FROM customers ORDER BY ALL LIMIT 1", "customers.name orders.id"),
        ("SELECT id FROM (SELECT id, day AS all FROM orders) ORDER BY ALL LIMIT 1", "orders.day"),
        ("SELECT id, day FROM orders ORDER BY (2) LIMIT 1", "orders.day"),
    ],
)
def test_order_by_all_is_by_all_columns_of_the_list(sql: str, decided: str) -> None:
    assert text(read(sql).decided) == decided


@pytest.mark.parametrize(
    "group",
    ["GROUPING SETS ((1), (2))", "GROUPING SETS ((1, 2), ROLLUP (2))", "ROLLUP (2, 1)", "1, CUBE (2)", "CUBE ((1, 2))",
     "GROUPING SETS ((d), 2)", "d, 2 WITH ROLLUP"],
)  # fmt: skip
def test_a_number_in_rollup_cube_and_grouping_sets_is_the_column_at_that_place(group: str) -> None:
    sql = f"SELECT day AS d, customer, count(*) AS n FROM orders GROUP BY {group}"
    assert text(read(sql).decided) == "orders.customer orders.day"


@pytest.mark.parametrize(
    ("sql", "decided"),
    [
        ("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM events WHERE kind = o.day)", "events.kind orders.day"),
        ("SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.kind = o.day)",
         "events.kind orders.day"),
        ("SELECT id FROM orders o WHERE day IN (SELECT kind FROM events WHERE at > o.amount)",
         "events.at events.kind orders.amount orders.day"),
        ("SELECT id FROM orders o WHERE day > (SELECT max(kind) FROM events WHERE events.at = o.amount)",
         "events.at events.kind orders.amount orders.day"),
        ("SELECT id FROM orders o, LATERAL (SELECT kind FROM events WHERE at > o.amount) l", "events.at orders.amount"),
        ("SELECT a.kind FROM events a WHERE EXISTS (SELECT 1 FROM events b WHERE b.at = a.start)",
         "events.at events.start"),
        ("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM events WHERE data.o = o.day)", "events.data orders.day"),
        ("SELECT kind FROM events WHERE at > (SELECT max(at) FROM events)", "events.at"),
    ],
)  # fmt: skip
def test_a_table_around_a_subquery_is_no_field_of_what_the_subquery_reads(sql: str, decided: str) -> None:
    assert text(read(sql).decided) == decided


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT FROM WHERE", "its SQL is not understood without Spark"),
        ("SELECT nothing FROM orders", "`nothing` is no column of what it reads"),
        ("SELECT id FROM orders JOIN customers ON true", "`id` may be of several tables"),
        ("SELECT a FROM elsewhere", "it reads `elsewhere`, which is none of its inputs"),
        ("SELECT a FROM other.orders", "it reads `other.orders`, which is none of its inputs"),
        ("SELECT DISTINCT * FROM events", "its DISTINCT is of all columns of `events`, which are not known"),
        ("SELECT * FROM events ORDER BY ALL", "its ORDER BY ALL is of all columns of `events`, which are not known"),
        ("SELECT *, 1 AS x FROM events ORDER BY 1", "column 1 may be one of `events`, whose columns are not known"),
        ("SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM events WHERE kind = day)", "`day` may be a column of what"),
        ("SELECT id FROM more WHERE id IN (SELECT kind FROM events)", "`kind` may be a column of what a subquery"),
        ("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM events WHERE kind = o.none)", "`o.none` is no column"),
        ("SELECT sum(id) OVER (ORDER BY all) AS s FROM orders", "`all` is no column of what it reads"),
        ("SELECT struct(e.*) AS s FROM events e", "`*` stands for the columns of `events`, which are not known"),
        ("SELECT a FROM events e JOIN events f ON true", "`a` may be of several tables, whose columns are not known"),
        ("SELECT * FROM orders PIVOT (sum(amount) FOR day IN ('a', 'b'))", "it has PIVOTS"),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT n FROM r", "recursive WITH"),
        ("SELECT explode(split(day, '-')) FROM orders", "have no names: name them with AS"),
        ("SELECT id FROM orders WHERE IDENTIFIER('day') = 'a'", "it names columns by IDENTIFIER"),
    ],
)
def test_what_is_not_followed_is_said_and_never_left_out(sql: str, why: str) -> None:
    with pytest.raises(NotFollowed) as raised:
        read(sql)
    assert why in str(raised.value)
