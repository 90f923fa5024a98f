"""Checks of a node's increment before its commit: what blocks, what warns, and what they say."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from pyspark.sql import SparkSession

from odi_assets.errors import ChecksFailedError, ConfigError, SourceError
from odi_assets.nodes.project import Project
from odi_assets.state.records import RunStatus
from odi_assets_tests.nodes.support import Sandbox

SCHEMA = "id BIGINT, amount DOUBLE, fee DOUBLE, state STRING, at TIMESTAMP"
GOOD = [
    '{"id": 1, "amount": 5.0, "fee": 1.0, "state": "new", "at": "2024-01-01T00:00:00Z"}',
    '{"id": 2, "amount": 7.0, "fee": 1.0, "state": "paid", "at": "2024-01-02T00:00:00Z"}',
]
PIPELINE = """
- pipeline: p
  nodes:
  - name: states
    read: {connection: landing, format: json, path: states, schema: "state STRING", incremental: files}
    write: {connection: lake, path: states, mode: append}
  - name: orders
    read: {connection: landing, format: json, path: orders, schema: "%s", incremental: files}
    write: %s
    checks:
%s
"""
APPEND = "{connection: lake, path: orders, mode: append}"


def box_with(root: Path, spark: SparkSession, checks: str, write: str = APPEND) -> Sandbox:
    box = Sandbox(root, spark, PIPELINE % (SCHEMA, write, indent(checks, "    ")))
    box.land("states/1.json", ['{"state": "new"}', '{"state": "paid"}'])
    box.run("states")
    return box


def order(ident: object = 3, **other: object) -> str:
    import json

    row = {"id": ident, "amount": 5.0, "fee": 1.0, "state": "new", "at": "2024-01-03T00:00:00Z", **other}
    return json.dumps(row)


BAD = {
    "not_null": ("- not_null: [id, amount]", order(amount=None), "not_null_amount", "1 of 3 rows has NULL in `amount`"),
    "unique": ("- unique: id", order(2), "unique_id", "2 of 3 rows share their `id` with another row"),
    "unique, several": ("- unique: [id, fee]", order(2), "unique_id_fee", "2 of 3 rows share their `id`, `fee`"),
    "accepted_values": (
        "- accepted_values: {column: state, values: [new, paid]}",
        order(state="lost"),
        "accepted_values_state",
        "1 of 3 rows has a value of `state` other than new, paid",
    ),
    "range": ("- range: {column: amount, min: 0, max: 10}", order(amount=-1), "range_amount", "below 0 or above 10"),
    "row_count": (
        "- row_count: {min: 1, max: 2}",
        order(),
        "row_count",
        "3 rows, and it wants at least 1 and at most 2",
    ),
    "expression": (
        '- {expression: "amount >= fee"}',
        order(amount=0.5),
        "expression_amount_ge_fee",
        "1 of 3 rows makes `amount >= fee` false",
    ),
    "sql": (
        '- {sql: "SELECT state, sum(amount) AS total FROM df GROUP BY state HAVING sum(amount) > 100", name: total}',
        order(amount=99.0),
        "total",
        "its query gives 1 row",
    ),
    "references": (
        "- references: {column: state, node: states}",
        order(state="lost"),
        "references_state",
        "1 of 3 rows has a value of `state` that `states` does not have in `state`",
    ),
    "freshness": ("- freshness: {column: at, within: 90d}", order(), "freshness_at", "the newest `at` is 2024-01-03"),
}
"""By kind: the check, a row that fails it beside the two good ones, its name, and what it says."""


@pytest.mark.parametrize("kind", BAD)
def test_an_increment_that_fails_a_check_commits_nothing_and_says_what_is_wrong(
    kind: str, tmp_path: Path, spark: SparkSession
) -> None:
    check, row, name, text = BAD[kind]
    box = box_with(tmp_path, spark, check)
    box.land("orders/1.json", [*GOOD, row])
    with pytest.raises(ChecksFailedError) as caught:
        box.run("orders")
    assert f"`{name}`: " in caught.value.message
    assert text in caught.value.message
    assert "severity: warn" in str(caught.value)
    assert not box.table("orders").exists
    assert box.hwm("orders") is None
    last = next(iter(box.state.list_runs(node="orders", limit=1)))
    assert last.status is RunStatus.FAILURE
    assert [one["passed"] for one in last.metrics["checks"] if one["check"] == name] == [False]


@pytest.mark.parametrize("kind", BAD)
def test_a_check_that_warns_lets_the_increment_through_and_is_in_the_result(
    kind: str, tmp_path: Path, spark: SparkSession
) -> None:
    check, row, name, text = BAD[kind]
    box = box_with(tmp_path, spark, check.replace("- {", "- {severity: warn, ", 1))
    if "severity" not in (tmp_path / "odibi.yaml").read_text():
        box = box_with(tmp_path, spark, f"{check}\n  severity: warn")
    box.land("orders/1.json", [*GOOD, row])
    result = box.run("orders")
    assert result.status is RunStatus.SUCCESS
    assert len(box.rows("orders")) == 3
    (found,) = [one for one in result.metrics["checks"] if one["check"] == name]
    assert not found["passed"]
    assert text in found["text"]


@pytest.mark.parametrize("kind", [kind for kind in BAD if kind not in ("freshness", "row_count")])
def test_an_increment_that_passes_its_checks_is_committed(kind: str, tmp_path: Path, spark: SparkSession) -> None:
    box = box_with(tmp_path, spark, BAD[kind][0])
    box.land("orders/1.json", GOOD)
    result = box.run("orders")
    assert len(box.rows("orders")) == 2
    assert all(one["passed"] for one in result.metrics["checks"])


COLUMN = {"accepted_values": "state", "range": "amount", "expression": "amount", "references": "state"} | {
    "not_null": "amount",
    "unique": "id",
    "unique, several": "fee",
    "sql": "state",
    "freshness": "at",
}
"""By kind: a column that the check looks at."""


@pytest.mark.parametrize("kind", COLUMN)
def test_a_check_looks_at_a_column_of_partitions_which_is_not_in_the_files(
    kind: str, tmp_path: Path, spark: SparkSession
) -> None:
    check, row, _, text = BAD[kind]
    write = f"{{connection: lake, path: orders, mode: append, partition_by: [{COLUMN[kind]}]}}"
    box = box_with(tmp_path, spark, check, write)
    box.land("orders/1.json", [*GOOD, row])
    with pytest.raises(ChecksFailedError) as caught:
        box.run("orders")
    assert text in caught.value.message
    if kind != "freshness":
        box.land("orders/1.json", GOOD)
        assert all(one["passed"] for one in box.run("orders").metrics["checks"])


def test_what_failed_is_read_again_once_it_is_corrected(tmp_path: Path, spark: SparkSession) -> None:
    box = box_with(tmp_path, spark, "- not_null: id")
    box.land("orders/1.json", [*GOOD, order(None)])
    with pytest.raises(ChecksFailedError):
        box.run("orders")
    box.land("orders/1.json", [*GOOD, order(3)])
    assert box.run("orders").rows_written == 3
    box.land("orders/2.json", [order(None)])
    with pytest.raises(ChecksFailedError):
        box.run("orders")
    assert (len(box.rows("orders")), box.table("orders").version) == (3, 0)


def test_an_error_names_up_to_three_rows(tmp_path: Path, spark: SparkSession) -> None:
    box = box_with(tmp_path, spark, "- range: {column: amount, min: 0}")
    box.land("orders/1.json", [order(number, amount=-1) for number in range(5)])
    with pytest.raises(ChecksFailedError) as caught:
        box.run("orders")
    assert len(caught.value.checks[0]["samples"]) == 3
    assert "amount=-1.0, id=0" in caught.value.message


def test_null_is_accepted_by_all_checks_but_not_null(tmp_path: Path, spark: SparkSession) -> None:
    checks = "\n".join(BAD[kind][0] for kind in ("unique", "accepted_values", "range", "expression", "references"))
    box = box_with(tmp_path, spark, checks)
    empty = order(None, amount=None, fee=None, state=None)
    box.land("orders/1.json", [*GOOD, empty, empty])
    assert box.run("orders").rows_written == 4


UNTYPED = """
- pipeline: p
  nodes:
  - name: orders
    read: {connection: landing, format: json, path: orders, incremental: files}
    write: {connection: lake, path: orders, mode: append}
    checks:
%s
"""


@pytest.mark.parametrize(
    ("check", "text"),
    [
        ("- {expression: 'first(amount) > 1'}", "its check `expression_first_amount_gt_1` cannot be evaluated: "),
        ("- {expression: 'amount'}", "its check `expression_amount` cannot be evaluated: "),
        (
            "- {expression: '1 / (amount - 5) > 0'}\n- {expression: '1 / amount > 0'}",
            "`expression_1_amount_5_gt_0` cannot be evaluated: Spark cannot compute it for a row: division by zero",
        ),
        (
            "- {range: {column: fee, max: 5}}\n- {expression: 'cast(state AS INT) > 0', name: numbers}",
            "`numbers` cannot be evaluated: Spark cannot compute it for a row: the value 'new' of the type",
        ),
        ("- {sql: 'SELECT * FROM elsewhere', name: other}", "its check `other` cannot be evaluated: "),
        ("- {sql: 'SELECT cast(state AS INT) AS n FROM df', name: other}", "its check `other` cannot be evaluated: "),
        (
            "- {range: {column: amount, min: abc}}",
            "`range_amount` cannot compare `abc` with `amount`, which is DOUBLE: ",
        ),
        ("- {range: {column: state, min: 1}}", "`range_state` cannot compare `1` with `state`, which is STRING"),
        (
            "- {freshness: {column: id, within: 1d}}",
            "`freshness_id` looks at `id`, which is BIGINT: no date and no time",
        ),
        ("- {range: {column: amount, min: '5', max: '1'}}", "no value passes its check `range_amount`: `max` is 1"),
    ],
)
def test_a_check_that_cannot_be_evaluated_stops_the_run_by_its_name_without_words_of_sparks_own(
    check: str, text: str, tmp_path: Path, spark: SparkSession
) -> None:
    box = Sandbox(tmp_path, spark, UNTYPED % indent(check, "    "))
    box.land("orders/1.json", GOOD)
    with pytest.raises(ConfigError) as caught:
        box.run("orders")
    assert text in caught.value.message
    assert not [word for word in NOT_OURS if word in str(caught.value)]
    assert "\n" not in caught.value.message
    assert not box.table("orders").exists


NOT_OURS = (
    "spark.sql.",
    "== DataFrame ==",
    "site-packages",
    "SQLSTATE",
    "Project [",
    "pos ",
    "[DIVIDE",
    "[CAST",
    ".py",
)


def test_a_condition_may_end_in_a_comment(tmp_path: Path, spark: SparkSession) -> None:
    box = box_with(tmp_path, spark, '- {expression: "amount > 0 -- positive", name: positive}')
    box.land("orders/1.json", [*GOOD, order(amount=-1)])
    with pytest.raises(ChecksFailedError, match="`positive`: 1 of 3 rows"):
        box.run("orders")


def test_a_freshness_says_its_time_span_as_the_file_has_it(tmp_path: Path, spark: SparkSession) -> None:
    box = box_with(tmp_path, spark, "- freshness: {column: at, within: 26h}")
    box.land("orders/1.json", GOOD)
    with pytest.raises(ChecksFailedError, match="UTC; it may be 26h old"):
        box.run("orders")


def test_a_column_that_has_the_name_of_the_quarantines_own_stops_the_run(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, UNTYPED % "    - not_null: id\n    quarantine: orders_bad")
    box.land("orders/1.json", ['{"id": 1, "Failed_Checks": "mine"}'])
    with pytest.raises(ConfigError, match="its rows have a column `failed_checks`") as caught:
        box.run("orders")
    assert "rename the column" in str(caught.value.fix)
    assert not box.table("orders").exists


def test_a_column_that_only_the_run_knows_is_named_with_the_columns_that_are_there(
    tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = """
    - pipeline: p
      nodes:
      - name: orders
        read: {connection: landing, format: json, path: orders, incremental: files}
        write: {connection: lake, path: orders, mode: append}
        checks: [{not_null: [idd]}]
    """
    box = Sandbox(tmp_path, spark, pipeline)
    box.land("orders/1.json", GOOD)
    with pytest.raises(ConfigError, match="looks at `idd`, and its rows have amount, at, fee, id, state") as caught:
        box.run("orders")
    assert caught.value.fix == "did you mean `id`?"


def test_a_foreign_key_into_a_node_without_a_table_says_which_node_to_run(tmp_path: Path, spark: SparkSession) -> None:
    box = Sandbox(tmp_path, spark, PIPELINE % (SCHEMA, APPEND, indent(BAD["references"][0], "    ")))
    box.land("orders/1.json", GOOD)
    with pytest.raises(SourceError, match=r"p\.states, which has no table yet"):
        box.run("orders")


@pytest.mark.parametrize(
    "write",
    [
        "{connection: lake, path: orders, mode: upsert, keys: [id]}",
        "{connection: lake, path: orders, mode: upsert, keys: [id], only_if_newer: at}",
        "{connection: lake, path: orders, mode: append_once, keys: [id]}",
        "{connection: lake, path: orders, mode: overwrite}",
        "{connection: lake, path: orders, mode: partition_overwrite, partition_by: [state]}",
        "{connection: lake, path: orders, mode: append, partition_by: [state]}",
    ],
)
def test_checks_hold_in_every_write_mode(write: str, tmp_path: Path, spark: SparkSession) -> None:
    box = box_with(tmp_path, spark, "- range: {column: amount, min: 0}", write)
    box.land("orders/1.json", GOOD)
    box.run("orders")
    before = box.rows("orders")
    box.land("orders/2.json", [order(amount=-1)])
    with pytest.raises(ChecksFailedError):
        box.run("orders")
    assert box.rows("orders") == before
    box.land("orders/2.json", [order(1, amount=9), order(3)])
    box.run("orders")
    assert (3, 5.0) in [row[:2] for row in box.rows("orders")]


def test_rows_that_delete_others_are_not_checked(tmp_path: Path, spark: SparkSession) -> None:
    write = "{connection: lake, path: orders, mode: upsert, keys: [id], delete_when: gone}"
    sql = "SELECT *, coalesce(state, 'gone') = 'gone' AS gone FROM df"
    pipeline = PIPELINE.replace("    write: %s", f'    transform: {{sql: "{sql}"}}\n    write: %s')
    box = Sandbox(tmp_path, spark, pipeline % (SCHEMA, write, "    - not_null: state"))
    box.land("orders/1.json", GOOD)
    box.run("orders")
    box.land("orders/2.json", [order(1, state=None), order(3)])
    box.run("orders")
    assert [row[0] for row in box.rows("orders")] == [2, 3]


def test_the_rows_of_an_increment_are_computed_once(tmp_path: Path, spark: SparkSession) -> None:
    checks = "\n".join(BAD[kind][0] for kind in ("not_null", "unique", "range", "references", "sql"))
    calls = tmp_path / "calls"
    (tmp_path / "counting_for_checks.py").write_text(
        "from pyspark.sql import functions as F\n"
        "def rows(df):\n"
        "    @F.udf('bigint')\n"
        "    def seen(number):\n"
        f"        open({str(calls)!r}, 'a').write('x')\n"
        "        return number\n"
        "    return df.withColumn('id', seen('id'))\n"
    )
    transform = "    transform: {function: 'counting_for_checks:rows'}\n    write: %s"
    pipeline = PIPELINE.replace("    write: %s", transform, 1)
    box = Sandbox(tmp_path, spark, pipeline % (SCHEMA, APPEND, indent(checks, "    ")))
    box.land("states/1.json", ['{"state": "new"}', '{"state": "paid"}'])
    box.run("states")
    box.land("orders/1.json", GOOD)
    box.run("orders")
    assert calls.read_text() == "xx"


def test_what_the_statistics_of_files_do_not_tell_is_looked_at(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = """
    - pipeline: p
      nodes:
      - name: orders
        read: {connection: landing, format: csv, path: orders, schema: "id BIGINT, amount DOUBLE", incremental: files}
        write: {connection: lake, path: orders, mode: append}
        checks: [{range: {column: amount, min: 0, max: 10}}, {unique: [id, amount]}]
    """
    box = Sandbox(tmp_path, spark, pipeline)
    box.land("orders/1.csv", ["1,5.0", "2,NaN"])
    with pytest.raises(ChecksFailedError, match="1 of 2 rows has `amount` below 0 or above 10"):
        box.run("orders")
    box.land("orders/1.csv", ["1,5.0", "1,", "1,", "1,6.0"])
    assert box.run("orders").rows_written == 4
    box.land("orders/2.csv", ["7,1.0"])
    box.land("orders/3.csv", ["7,1.0"])
    with pytest.raises(ChecksFailedError, match="2 of 2 rows share their `id`, `amount` with another row"):
        box.run("orders")


def test_a_node_in_python_has_checks_and_a_quarantine(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "checked_nodes.py").write_text(
        "import odi_assets\n"
        "@odi_assets.node(pipeline='p', inputs=['states'], write={'connection': 'lake', 'path': 'known'},\n"
        "                 checks=[{'accepted_values': {'column': 'state', 'values': ['new']}}],\n"
        "                 quarantine='known_bad')\n"
        "def known(states):\n"
        "    return states\n"
    )
    pipeline = """
    - pipeline: p
      nodes:
      - name: states
        read: {connection: landing, format: json, path: states, schema: "state STRING", incremental: files}
        write: {connection: lake, path: states, mode: append}
    """
    box = Sandbox(tmp_path, spark, pipeline)
    file = tmp_path / "odibi.yaml"
    file.write_text(f"python: [checked_nodes]\n{file.read_text()}")
    box.project = Project.load(file)
    box.land("states/1.json", ['{"state": "new"}', '{"state": "lost"}'])
    box.run("states")
    result = box.run("known")
    assert (box.rows("known"), result.metrics["rows_quarantined"]) == ([("new",)], 1)


def test_a_sample_has_the_users_columns_alone(tmp_path: Path, spark: SparkSession) -> None:
    box = box_with(tmp_path, spark, BAD["range"][0], "{connection: lake, path: orders, mode: upsert, keys: [id]}")
    box.land("orders/1.json", [order(amount=-1)])
    box.land("orders/2.json", [order(4)])
    with pytest.raises(ChecksFailedError) as caught:
        box.run("orders")
    assert caught.value.checks[0]["samples"] == ["id=3, amount=-1.0, fee=1.0, state=new, at=2024-01-03 00:00:00"]


def test_a_table_engine_that_makes_no_checks_is_refused(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = box_with(tmp_path, spark, BAD["range"][0])
    box.land("orders/1.json", GOOD)
    monkeypatch.setattr("odi_assets.tables.embedded.engine.EmbeddedEngine.admits", False)
    with pytest.raises(ConfigError, match="the table engine `embedded` makes none"):
        box.run("orders")
    assert not box.table("orders").exists
