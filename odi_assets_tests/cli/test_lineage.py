"""``odi lineage``: what columns are made of, and what is made of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import PROJECT

MORE = """\
      - name: best
        inputs: [spending]
        transform: {sql: "SELECT customer AS name, CASE WHEN amount > 9 THEN amount END AS big FROM spending"}
        write: {connection: lake, path: best}
      - name: unread
        inputs: [best]
        transform: {sql: "SELECT * FROM (SELECT name, big FROM best) PIVOT (sum(big) FOR name IN ('ann'))"}
        write: {connection: lake, path: unread}
"""
RECURSIVE = (
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n AS ann FROM r JOIN best"
)
FUNCTION = """\
      - name: doubled
        inputs: [spending]
        transform: {function: "shop_functions:doubled"}
        write: {connection: lake, path: doubled}
"""


@pytest.fixture
def longer(shop: Path) -> Path:
    (shop / "odibi.yaml").write_text(PROJECT + MORE, encoding="utf-8")
    return shop


@pytest.mark.usefixtures("longer")
def test_json_lists_all_that_a_column_is_made_of_up_to_the_source(odi: Odi) -> None:
    answer = odi("lineage", "best.big", "--json")
    assert (answer.code, answer.err) == (0, "")
    source = "landing:*.csv"
    assert json.loads(answer.out) == [
        {"node": "shop.spending", "column": "amount", "how": "value"},
        {"node": "shop.spending", "column": "amount", "how": "condition"},
        {"node": "shop.orders", "column": "amount", "how": "value"},
        {"node": "shop.orders", "column": "customer", "how": "condition"},
        {"node": "shop.orders", "column": "amount", "how": "condition"},
        {"source": source, "column": "amount", "how": "value"},
        {"source": source, "column": "customer", "how": "condition"},
        {"source": source, "column": "amount", "how": "condition"},
    ]
    assert odi("lineage", "shop.best.BIG", "--up", "--json").out == answer.out


@pytest.mark.usefixtures("longer")
def test_of_a_node_alone_each_column_has_its_list(odi: Odi) -> None:
    found = json.loads(odi("lineage", "spending", "--json").out)
    assert [one["column"] for one in found] == ["customer", "amount"]
    assert found[0]["made_of"] == json.loads(odi("lineage", "spending.customer", "--json").out)
    lines = odi("lineage", "spending").out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["column", "customer", "amount"]
    assert "shop.orders.amount" in lines[2]
    assert "landing:*.csv amount" in lines[2]


@pytest.mark.usefixtures("shop")
def test_down_lists_what_is_made_of_a_column(odi: Odi) -> None:
    found = json.loads(odi("lineage", "orders.customer", "--down", "--json").out)
    assert found == [
        {"node": "shop.spending", "column": "customer", "how": "value"},
        {"node": "shop.spending", "column": "customer", "how": "condition"},
        {"node": "shop.spending", "column": "amount", "how": "condition"},
    ]
    last = odi("lineage", "spending.customer", "--down")
    assert (last.code, last.err) == (0, "Nothing is made of shop.spending.customer.\n")


@pytest.mark.usefixtures("longer")
def test_mermaid_draws_columns_in_boxes(odi: Odi) -> None:
    answer = odi("lineage", "best.big", "--mermaid")
    lines = answer.out.splitlines()
    assert lines[0] == "flowchart LR"
    assert '  subgraph o0["shop.best"]' in lines
    assert sum("-->" in line for line in lines) == 4
    assert sum("-.->" in line for line in lines) == 2
    assert lines.count("  end") == 4


def test_mermaid_takes_no_column_for_markup(odi: Odi, shop: Path) -> None:
    named = MORE.replace("AS big", "AS `<b>#1`").replace("big", "`<b>#1`")
    (shop / "odibi.yaml").write_text(PROJECT + named[: named.index("      - name: unread")], encoding="utf-8")
    lines = odi("lineage", "best.<b>#1", "--mermaid").out.splitlines()
    assert '    c0["#lt;b#gt;#35;1"]' in lines


@pytest.mark.usefixtures("jvm")
def test_what_is_not_known_is_said_and_the_exit_code_is_1(odi: Odi, longer: Path) -> None:
    text = (longer / "odibi.yaml").read_text(encoding="utf-8")
    pivot = text[
        text.index("SELECT * FROM (SELECT name") : text.index('"}\n', text.index("SELECT * FROM (SELECT name"))
    ]
    (longer / "odibi.yaml").write_text(text.replace(pivot, RECURSIVE), encoding="utf-8")
    answer = odi("lineage", "unread.ann", "--json")
    assert answer.code == 1
    (entry,) = json.loads(answer.out)
    assert (entry["node"], entry["column"], entry["how"]) == ("shop.unread", "ann", "unknown")
    assert entry["why"] in answer.err
    down = odi("lineage", "best.big", "--down", "--json")
    assert down.code == 1
    assert json.loads(down.out) == [{"node": "shop.unread", "column": None, "how": "unknown", "why": entry["why"]}]


@pytest.mark.parametrize(("direction", "word"), [("--up", "made_of"), ("--down", "makes")])
def test_json_of_a_node_of_which_no_column_is_known_says_why(odi: Odi, shop: Path, direction: str, word: str) -> None:
    text = PROJECT.replace("          schema: id INT, customer STRING, amount INT\n", "")
    (shop / "odibi.yaml").write_text(text, encoding="utf-8")
    answer = odi("lineage", "orders", "--json", direction)
    why = "the columns of its source are known once it has run"
    assert answer.code == 1
    assert json.loads(answer.out) == [
        {"column": None, word: [{"node": "shop.orders", "column": None, "how": "unknown", "why": why}]}
    ]
    assert answer.err.endswith(f"is not known: {why}\n  → run it: odi run shop --node orders\n")


def test_json_has_a_column_once_that_a_node_gives_twice(odi: Odi, shop: Path) -> None:
    twice = MORE.replace("SELECT customer AS name, CASE WHEN amount > 9 THEN amount END AS big FROM spending",
                         "SELECT a.customer, b.customer, b.amount FROM spending a, spending b")  # fmt: skip
    (shop / "odibi.yaml").write_text(PROJECT + twice[: twice.index("      - name: unread")], encoding="utf-8")
    answer = odi("lineage", "best", "--json")
    found = json.loads(answer.out)
    assert answer.code == 1
    assert [one["column"] for one in found] == ["customer", "amount"]
    assert all([entry["how"] for entry in one["made_of"]] == ["unknown"] for one in found)
    down = odi("lineage", "orders.amount", "--down", "--json")
    assert [one["how"] for one in json.loads(down.out)] == ["value", "unknown"]


@pytest.mark.usefixtures("jvm")
def test_of_sql_that_is_not_right_the_remedy_is_to_correct_it(odi: Odi, longer: Path) -> None:
    text = (longer / "odibi.yaml").read_text(encoding="utf-8")
    (longer / "odibi.yaml").write_text(text.replace("WHEN amount > 9", "WHEN amout > 9"), "utf-8")
    answer = odi("lineage", "best", "--json")
    assert answer.code == 1
    assert "the SQL of shop.best is not right" in json.loads(answer.out)[0]["made_of"][0]["why"]
    assert answer.err.endswith("\n  → correct the SQL\n")


@pytest.mark.usefixtures("jvm")
def test_functions_and_sql_that_only_spark_understands_are_planned_over_empty_rows(odi: Odi, longer: Path) -> None:
    text = (longer / "odibi.yaml").read_text(encoding="utf-8")
    (longer / "odibi.yaml").write_text(text + FUNCTION, encoding="utf-8")
    (longer / "shop_functions.py").write_text(
        "def doubled(spending):\n    print('called')\n    return spending.selectExpr('amount * 2 AS twice')\n", "utf-8"
    )
    answer = odi("lineage", "doubled.twice", "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)[0] == {"node": "shop.spending", "column": "amount", "how": "value"}
    assert "called" in answer.err
    pivoted = json.loads(odi("lineage", "unread.ann", "--json").out)
    assert {"node": "shop.best", "column": "big", "how": "value"} in pivoted


@pytest.mark.usefixtures("jvm")
def test_a_function_before_the_first_run_finds_the_fields_of_a_declared_struct(odi: Odi, shop: Path) -> None:
    text = PROJECT.replace(
        "customer STRING, amount", "customer STRING, addr STRUCT<city STRING, `zip code` INT>, amount"
    )
    node = FUNCTION.replace("inputs: [spending]", "inputs: [orders]").replace("shop_functions", "shop_fields")
    (shop / "odibi.yaml").write_text(text + node, encoding="utf-8")
    (shop / "shop_fields.py").write_text("def doubled(orders):\n    return orders.select('addr.*')\n", "utf-8")
    answer = odi("lineage", "doubled", "--json")
    assert (answer.code, [one["column"] for one in json.loads(answer.out)]) == (0, ["city", "zip code"])


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["spendin.amount"], "`spendin.amount` is no node, nor a column of one\n  → did you mean `spending.amount`?"),
        (["spending.amuont"], "shop.spending has no column `amuont`\n  → did you mean `shop.spending.amount`?"),
        (["spending", "--up", "--down"], "--up and --down are two questions\n  → give one of them"),
        (["spending", "--json", "--mermaid"], "--json and --mermaid are two formats\n  → give one of them"),
    ],
)
def test_a_wrong_argument_is_named_with_what_to_do(odi: Odi, arguments: list[str], message: str) -> None:
    answer = odi("lineage", *arguments)
    assert (answer.code, answer.out, answer.err) == (2, "", f"odi: {message}\n")
