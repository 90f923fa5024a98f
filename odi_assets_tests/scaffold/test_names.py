"""Names of nodes for tables with any names, and values in YAML."""

from __future__ import annotations

import pytest
import yaml

from odi_assets.config.yaml.variables import substitute
from odi_assets.scaffold.names import job_name, node_names
from odi_assets.util.yaml_text import flow, in_comment

TABLES = [
    *[("public", name) for name in ("orders", "Orders", "Order Items", "order.items", "日本", "Größe", "_x", "system")],
    *[("sales", name) for name in ("orders", "lines", "日本")],
]


def test_a_node_has_the_name_of_its_table_wherever_that_will_do() -> None:
    names = node_names([("public", "orders"), ("public", "Order_2")], ("system",))
    assert list(names.values()) == ["orders", "Order_2"]


def test_no_two_tables_have_one_name_not_even_one_with_other_capitals() -> None:
    names = node_names(TABLES, ("system",))
    assert list(names) == TABLES
    assert len({name.lower() for name in (*names.values(), "system")}) == len(TABLES) + 1
    assert all(name.isascii() and name.replace("_", "").isalnum() for name in names.values())
    assert (names["sales", "lines"], names["sales", "orders"]) == ("lines", "sales_orders")


def test_a_pipeline_gets_no_name_that_dagster_keeps() -> None:
    assert (job_name("import"), job_name("My Shop"), job_name("日本")) == ("import_db", "my_shop", "db")


@pytest.mark.parametrize(
    "text",
    ["plain", "a b", 'say "hi"', "it's", "a: b # c", "null", "no", "12", "1e3", "\n\x85\u2028", "日本🎉", "${X}", ""],
)
def test_any_text_comes_back_from_yaml(text: str) -> None:
    value = {"a": [text, {"b": text}], "n": 1, "yes": True}
    read = yaml.safe_load(f"x: {flow(value)}")["x"]
    assert substitute(read["a"][0], {}).text == substitute(read["a"][1]["b"], {}).text == text
    assert (read["n"], read["yes"]) == (1, True)


def test_a_comment_stays_in_its_line() -> None:
    assert in_comment("a\nb\u2028c\x85d ü") == "a\\nb\\u2028c\\x85d ü"
