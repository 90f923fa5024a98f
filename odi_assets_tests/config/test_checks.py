"""Checks of rows in the project file: what is taken, what is refused and where, and what Odibi's blocks become."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from odi_assets.config.models import NodeConfig
from odi_assets_tests.config.support import node, problem, problems, project

RAW = """\
- name: raw
  read: {connection: lake, format: csv, path: in/*.csv, schema: "id BIGINT, amount DOUBLE, state STRING, at TIMESTAMP"}
  write: {connection: lake, path: raw, mode: append}
"""
OTHER = """\
- name: other
  read: {connection: lake, format: csv, path: other/*.csv, schema: "key BIGINT"}
  write: {connection: lake, path: other}
"""


VALUES = "accepted_values: {column: c, values: [%s]}"


def checked(checks: str, more: str = "") -> str:
    return f"{RAW}  checks:\n{indent(checks, '  ')}\n{more}"


def names(made: NodeConfig) -> list[str]:
    return [check.name for check in made.all_checks]


def test_each_kind_has_a_name_made_of_its_columns(tmp_path: Path) -> None:
    checks = """\
- not_null: [id, amount]
- unique: id
- unique: [id, state]
- accepted_values: {column: state, values: [new, paid]}
- range: {column: amount, min: 0}
- row_count: {min: 1}
- {expression: "amount >= id", severity: warn}
- {sql: "SELECT * FROM df WHERE amount < 0", name: no_debts}
- references: {column: id, node: other, key: key}
- freshness: {column: at, within: 26h}"""
    made = node(tmp_path, OTHER, checked(checks, "  quarantine: raw_bad"))
    assert names(made) == [
        "not_null_id",
        "not_null_amount",
        "unique_id",
        "unique_id_state",
        "accepted_values_state",
        "range_amount",
        "row_count",
        "expression_amount_ge_id",
        "no_debts",
        "references_id",
        "freshness_at",
    ]
    assert [check.name for check in made.all_checks if not check.blocks] == ["expression_amount_ge_id"]
    assert made.references[("checks", 8, "references", "node")] == "other"


@pytest.mark.parametrize(
    ("checks", "line", "key", "message"),
    [
        ("- not_null: [id, amuont]", 12, "not_null", "`amuont` is no column of the node's rows"),
        ("- uniqe: id", 12, "uniqe", "unknown key `uniqe`"),
        ("- {row_count: {min: 1}, unique: id}", 12, "row_count", "has `unique` and `row_count`: make a check of each"),
        ("- {severity: warn}", 12, "checks[0]", "checks nothing: give one of `not_null`"),
        ("- range: {column: amount}", 12, "range", "has no end: give `min`, `max` or both"),
        ("- row_count: {min: 3, max: 2}", 12, "max", "`2` is less than `min`, which is 3"),
        ("- {unique: id, severity: block}", 12, "severity", "must be `error` or `warn`"),
        ('- expression: "amount >= ("', 12, "expression", "is no condition in Spark SQL"),
        ('- expression: "amount >= fee"', 12, "expression", "`fee` is no column of the node's rows"),
        ('- {sql: "SELEC id FROM df", name: a}', 12, "sql", "no query starts with `SELEC`"),
        (
            "- freshness: {column: id, within: 1d}",
            12,
            "column",
            "`id` is long, and freshness is measured by a date or a time",
        ),
        ("- freshness: {column: at, within: soon}", 12, "within", "is not a time span"),
        ("- references: {column: id, node: othr}", 12, "node", "unknown node `othr`"),
        ("- references: {column: id, node: other}", 12, "column", "`id` is no column of `p.other`: say with `key`"),
        ("- references: {column: id, node: raw}", 12, "node", "cycle: raw → raw"),
        ("- {unique: id}\n- {unique: [id]}", 13, "checks[1]", "is the second check named `unique_id`"),
        ("- {unique: id, name: up_to_date}", 12, "name", "`up_to_date` is a name of the node's own"),
        ("- {not_null: [id, at], name: a}", 12, "name", "is one name for a check of each column"),
        ("- range: {column: amount, min: 5, max: 1}", 12, "max", "`1` is less than `min`, which is 5"),
        ('- range: {column: amount, min: "5", max: 1}', 12, "max", "`1` is less than `min`, which is 5"),
        ('- range: {column: at, min: 2024-02-01, max: "2024-01-31T23:00"}', 12, "max", "is less than `min`, which is"),
        (
            "- range: {column: id, min: abc}",
            12,
            "min",
            "`abc` cannot be compared with `id`, which is BIGINT",
        ),
        ("- range: {column: id, min: true}", 12, "min", "cannot be compared with `id`, which is BIGINT"),
        (
            '- range: {column: at, max: "01/01/2024"}',
            12,
            "max",
            "cannot be compared with `at`, which is TIMESTAMP",
        ),
        ("- range: {column: at, max: 20240101}", 12, "max", "`20240101` cannot be compared with `at`"),
        ('- range: {column: at, max: "20240101"}', 12, "max", "`20240101` cannot be compared with `at`"),
        ("- range: {column: at, max: 2024-02-30}", 12, "max", "there is no such day"),
        ("- range: {column: state, min: 1}", 12, "min", "the column holds text: put the value in quotes"),
        ("- accepted_values: {column: state, values: [a, true]}", 12, "values[1]", "put the value in quotes"),
        ("- accepted_values: {column: id, values: [1, x]}", 12, "values[1]", "`x` cannot be compared with `id`"),
        ("- accepted_values: {column: state, values: [a, null]}", 12, "values[1]", "is NULL, which is accepted anyway"),
        ("- accepted_values: {column: state, values: [[a]]}", 12, "values[0]", "must be text, a number, a date"),
        ('- expression: "id > 0, amount"', 12, "expression", "is no condition: it is several expressions"),
        ('- expression: "(id > 0, amount)"', 12, "expression", "is no condition: it is several expressions"),
        ('- expression: "id > 0) OR (id < 0"', 12, "expression", "closes nothing"),
        ('- expression: "id > 0 FROM df"', 12, "expression", "is no condition"),
        ('- expression: "id > 0 AS fine"', 12, "expression", "is no condition"),
        ('- expression: "count(id) > 1"', 12, "expression", "it looks at more rows than one; write a query as `sql`"),
        ('- expression: "id + 1"', 12, "expression", "it is neither true nor false: compare it with a value"),
        ('- expression: "amount"', 12, "expression", "the column is DOUBLE; compare it with a value"),
    ],
)
def test_a_check_that_no_run_could_make_is_refused_where_it_stands(
    checks: str, line: int, key: str, message: str, tmp_path: Path
) -> None:
    found = problem(tmp_path, project(checked(checks), OTHER))
    assert found.line == line
    assert found.key.endswith(key)
    assert message in found.message


@pytest.mark.parametrize(
    ("kind", "bound", "why"),
    [
        ("DATE", "20240101", "write a date as"),
        ("DATE", "'01/01/2024'", "write a date as"),
        ("BOOLEAN", "1", "write `true` or `false`"),
        ("DECIMAL(10,2)", "abc", "give a number"),
        ("DECIMAL(38,2)", "12345678901234567.89", "put it in quotes"),
        ("TIMESTAMP_NTZ", "2024-01-01T00:00:00Z", "leave the offset out"),
        ("ARRAY<INT>", "1", "write an `expression`"),
    ],
)
@pytest.mark.parametrize(("check", "key"), [("range: {column: c, min: %s}", "min"), (VALUES, "values[0]")])
def test_a_bound_that_is_none_of_its_columns_type_is_refused_where_it_stands(
    kind: str, bound: str, why: str, check: str, key: str, tmp_path: Path
) -> None:
    text = checked(f"- {check % bound}").replace("at TIMESTAMP", f"at TIMESTAMP, c {kind}")
    found = problem(tmp_path, project(text))
    assert (found.line, found.key.endswith(key)) == (12, True)
    assert "cannot be compared with `c`, which is " in found.message
    assert why in found.message
    assert found.column > len("        - ")


@pytest.mark.parametrize(
    "expression",
    [
        "id > 0 -- positive",
        "id > 0 /* positive */",
        "state IN ('a', 'b') AND (id, amount) IN ((1, 2.0))",
        "exists(array(id), x -> x > 0)",
        "id IN (SELECT max(key) FROM other)",
        "amount IS NOT NULL AND NOT isnan(amount)",
        "if(id > 0, true, false)",
        "id BETWEEN -1 AND 1e9",
    ],
)
def test_conditions_of_many_forms_are_taken(expression: str, tmp_path: Path) -> None:
    made = node(tmp_path, OTHER, checked(f'- {{expression: "{expression}", name: a}}'))
    assert made.all_checks[0].config.expression == expression


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  checks: [{row_count: {min: 1}}]\n  quarantine: bad", "never gets a row"),
        ("  checks: [{unique: id, severity: warn}]\n  quarantine: bad", "never gets a row"),
        ("  quarantine: bad", "never gets a row"),
        ("  checks: [{unique: id}]\n  quarantine: raw", "writes the same table"),
        ("  checks: [{unique: id}]\n  quarantine: ../bad", "leads out of the connection"),
        (
            "  transform: {sql: 'SELECT id, state AS Failed_Checks FROM df'}\n"
            "  checks: [{unique: id}]\n  quarantine: bad",
            "needs a column `failed_checks` of odi's own, and the node's rows have one",
        ),
    ],
)
def test_a_quarantine_that_cannot_be_is_refused(text: str, message: str, tmp_path: Path) -> None:
    assert message in problem(tmp_path, project(RAW + text)).message


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        ("a stream", "  stream: {}\n  inputs: [other]\n  write: {connection: lake, path: s, mode: append}"),
        (
            "an apply node",
            "  apply: {changes: log, table: public.orders}\n  write: {connection: lake, path: s}",
        ),
    ],
)
def test_nodes_that_cannot_be_checked_say_so(what: str, lines: str, tmp_path: Path) -> None:
    text = project(OTHER, f"- name: checked\n{lines}\n  checks: [{{not_null: key}}]\n")
    found = [one for one in problems(tmp_path, text) if one.key.endswith("checks")]
    assert [one.message for one in found] == [f"is not for {what}: check its rows in a node that reads its table"]


def test_odibis_validation_and_contracts_are_checks(tmp_path: Path) -> None:
    text = """\
  validation:
    mode: fail
    tests:
    - {type: not_null, columns: [id], on_fail: quarantine}
    - {type: regex_match, column: state, pattern: "^[a-z]+$", name: lower}
    - {type: custom_sql, condition: "amount > 0", name: positive, on_fail: warn}
    - {type: freshness, column: at, max_age: 24h}
    quarantine: {connection: lake, path: raw_bad, retention_days: 90}
  contracts:
  - {type: row_count, min: 1}
"""
    made = node(tmp_path, RAW + text)
    assert names(made) == ["row_count", "not_null_id", "lower", "positive", "freshness_at"]
    assert [check.blocks for check in made.all_checks] == [True, True, True, False, True]
    assert made.quarantine == "raw_bad"
    assert made.all_checks[2].config.expression == "`state` RLIKE '^[a-z]+$'"


def test_a_validation_that_warns_makes_checks_that_warn(tmp_path: Path) -> None:
    text = "  validation: {mode: warn, tests: [{type: unique, columns: [id]}]}\n"
    assert [check.blocks for check in node(tmp_path, RAW + text).all_checks] == [False]


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("validation: {gate: {require_pass_rate: 0.9}}", "validation.gate", "has no counterpart"),
        ("validation: {tests: [{type: schema}]}", "tests[0].type", "`schema` has no counterpart"),
        ("validation: {tests: [{type: not_nul, columns: [id]}]}", "tests[0].type", "`not_nul` is no type of a test"),
        ("validation: {tests: [{type: custom_sql, condition: a, threshold: 0.1}]}", "threshold", "has no counterpart"),
        ("validation: {tests: [{type: unique, columns: [id], on_fail: quarantine}]}", "on_fail", "needs `quarantine:"),
        ("validation: {quarantine: {connection: far, path: bad}}", "connection", "is another connection"),
        ("validation: {mode: strict}", "mode", "`strict` is no mode"),
        ("contracts: [{type: volume_drop}]", "contracts[0].type", "`volume_drop` has no counterpart"),
    ],
)
def test_what_of_odibis_blocks_has_no_counterpart_is_refused_by_its_name(
    text: str, key: str, message: str, tmp_path: Path
) -> None:
    found = problem(tmp_path, project(f"{RAW}  {text}\n"))
    assert found.key.endswith(key)
    assert message in found.message


def test_contracts_of_a_node_with_a_transform_are_refused(tmp_path: Path) -> None:
    text = f"{RAW}  transform: {{sql: SELECT * FROM df}}\n  contracts: [{{type: row_count, min: 1}}]\n"
    assert "check what is read, before the transform" in problem(tmp_path, project(text)).message
