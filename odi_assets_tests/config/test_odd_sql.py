"""SQL that no parser of this process reads, and that ends no command for that."""

from __future__ import annotations

import pytest

from odi_assets.config.checks.sql import find_mistake
from odi_assets.config.sql_columns import definitions
from odi_assets.spark.plans.sql_text import readable_sql
from odi_assets.util.spark_sql import parsed


@pytest.mark.parametrize("sql", ["SELECT date_trunc() FROM df", "SELECT dateadd() FROM df", "SELECT a FROM df WHERE"])
def test_a_query_that_the_parser_fails_at_is_taken_as_it_is(sql: str) -> None:
    assert parsed(sql) is None
    assert definitions(sql, ("a",))["a"].text == sql
    assert readable_sql(sql) == sql


def test_a_call_without_the_arguments_that_it_needs_is_left_to_spark() -> None:
    assert find_mistake("SELECT date_trunc() FROM df") is None
