"""SQL that is sent to databases; for SQL Server, of which there is no server here, as far as a grammar tells."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
import sqlglot

from odi_assets.config.models import ServerConnection
from odi_assets.sources.cursor.window import Window
from odi_assets.sources.sql.dialects import Dialect, constant, dialect_of, parsed
from odi_assets.sources.sql.statements import Relation, even_cuts, predicates

DIALECTS = {
    "tsql": dialect_of(ServerConnection(type="mssql", host="::1", database="a}b")),
    "postgres": dialect_of(ServerConnection(type="postgres", database="a/b")),
    "mysql": dialect_of(ServerConnection(type="mysql", database="d")),
}
MOMENT = datetime(2024, 1, 1, 0, 0, 0, 1)
VALUES: dict[str, Any] = {
    "long": 2**63,
    "decimal(38,10)": Decimal("-1E-10"),
    "double": 1e300,
    "string": "a'\\é",
    "binary": b"\x00'",
    "date": date(1, 1, 1),
    "timestamp_ntz": MOMENT,
    "timestamp": MOMENT.replace(tzinfo=UTC),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("grammar", DIALECTS)
def test_statements_are_sql_of_their_database(grammar: str, kind: str) -> None:
    dialect, value = DIALECTS[grammar], VALUES[kind]
    relation = Relation(dialect, dialect.table("sales.or]ders"), "db:orders")
    types = {"a": kind, "b": kind}
    window = Window("a", "b", lower=value, upper=value, nulls=True)
    asked: list[str] = [relation.bound(window, types)]

    def ask(query: str) -> list[tuple[Any, ...]]:
        asked.append(query)
        return []

    key, family = relation.cursor(window, types)
    if family not in ("int", "date", "datetime with a zone", "datetime without a zone"):
        assert predicates(relation, key, family, relation.condition(window, types), 4, ask) == []
    asked.append(f"SELECT {dialect.text(key, family)} FROM t WHERE {relation.condition(window, types)}")
    for query in asked:
        assert sqlglot.parse_one(query, dialect=grammar) is not None, query


def test_addresses_hold_names_of_any_kind_and_no_secret() -> None:
    assert DIALECTS["tsql"].url == "jdbc:sqlserver://[::1]:1433;databaseName={a}}b}"
    assert DIALECTS["postgres"].url == "jdbc:postgresql://localhost:5432/a%2Fb"
    assert DIALECTS["tsql"].uri == "sqlserver://[::1]:1433/a}b"


@pytest.mark.parametrize(
    ("low", "high", "count", "cuts"),
    [
        (1, 1, 4, []),
        (1, 2, 4, [2]),
        (0, 99, 4, [25, 50, 75]),
        (-(2**63), 2**63 - 1, 2, [0]),
        (date(2024, 1, 1), date(2024, 1, 4), 2, [date(2024, 1, 3)]),
        (MOMENT, MOMENT.replace(microsecond=4), 2, [MOMENT.replace(microsecond=3)]),
    ],
)
def test_cuts_are_even_and_above_the_least(low: Any, high: Any, count: int, cuts: list[Any]) -> None:
    assert even_cuts(low, high, count) == cuts


@pytest.mark.parametrize(
    ("text", "kind"), [("NaN", "decimal"), ("infinity", "date"), ("0044-03-15 BC", "date"), ("0000-00-00", "date")]
)
def test_what_no_mark_holds_is_no_value(text: str, kind: str) -> None:
    with pytest.raises((ValueError, ArithmeticError)):
        parsed(text, kind)


def test_a_day_lies_in_a_range_by_its_midnight() -> None:
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    assert constant(noon, "date") == date(2024, 1, 1)
    assert constant(noon, "date", is_upper=True) == date(2024, 1, 2)
    assert constant(noon.replace(hour=0), "date", is_upper=True) == date(2024, 1, 1)
    assert constant(noon, "datetime without a zone") == datetime(2024, 1, 1, 12)


def test_every_dialect_orders_all_kinds_but_the_standard() -> None:
    assert all(dialect.kinds == Dialect.kinds for dialect in DIALECTS.values())
