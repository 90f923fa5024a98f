"""Mistakes about columns, views and functions that the project file alone shows; what is left open is no mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from odi_assets_tests.config.support import load, problem, project

NODE = """\
- name: one
  read: {connection: lake, format: csv, path: in,
         schema: "id BIGINT, day DATE, at TIMESTAMP, gone BOOLEAN, s STRING, ok BOOLEAN",
         incremental: {mode: stateful, column: at}}
  write: {connection: lake, path: one, mode: upsert, keys: [id]}
"""
SUMS = """\
- name: one
  read: {connection: lake, format: json, path: in, schema: "id BIGINT, day DATE, at TIMESTAMP", incremental: files}
  transform: {sql: "SELECT day, count(*) AS n FROM df GROUP BY day"}
  partition: {column: day, start: 2024-01-01}
  write: {connection: lake, path: one, mode: partition_overwrite}
"""
CODE = """\
- name: one
  read: {connection: lake, format: csv, path: in}
  transform: {function: "mine:tidy", params: {limit: 5}}
  write: {connection: lake, path: one}
"""
MODULE = """\
import math
from pathlib import Path as P

def tidy(df, limit=3):
    return df

def other(df, threshold):
    return df

def greedy(df, **more):
    return df
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "column: at",
            "column: att",
            "`att` is no column of `read.schema`: id, day, at, gone, s, ok, did you mean `at`?",
        ),
        ("column: at", "column: ok", "`ok` is boolean, and no cursor"),
        ("column: at", "column: at, fallback_column: nope", "`nope` is no column of `read.schema`"),
        ("column: at", "column: at, fallback_column: s", "`s` is string, and `at` is timestamp"),
        (
            "column: at",
            "column: s, date_format: eu, fallback_column: id",
            "`id` is long, and `date_format` is for dates written as text: choose a column of text",
        ),
        ("column: at", "column: at, initial_value: 31-12-2026", "`31-12-2026` is no value of `at`, which is timestamp"),
        ("column: at", "column: id, initial_value: one", "`one` is no value of `id`, which is long"),
        ("column: at", "column: at, date_format: oracle", "is for dates written as text, and `at` is timestamp"),
        ("column: at", "column: at, watermark_lag: 5", "does not subtract from `at`, which is timestamp"),
        ("column: at", "column: id, watermark_lag: 5h", "does not subtract from `id`, which is long: write a number"),
        ("mode: stateful, column: at", "mode: rolling_window, column: id, lookback: 3", "a rolling window is one of"),
        ("keys: [id]", "keys: [idd]", "`idd` is no column of `read.schema`"),
        ("keys: [id]", "keys: [id], only_if_newer: nope", "`nope` is no column of `read.schema`"),
        ("keys: [id]", "keys: [id], delete_when: nope", "`nope` is no column of `read.schema`"),
        ("keys: [id]", "keys: [id], delete_when: day", "`day` is date and not boolean"),
        ("keys: [id]", "keys: [id], partition_by: [nope]", "`nope` is no column of `read.schema`"),
        ("column: at", "column: AT", "`AT` is `at` in `read.schema`, and capitals count here: write `at`"),
        ("column: at", "column: at, fallback_column: AT", "`AT` is `at` in `read.schema`, and capitals count"),
        ("keys: [id]", "keys: [ID]", "`ID` is `id` in `read.schema`, and capitals count here: write `id`"),
        ("keys: [id]", "keys: [id], only_if_newer: AT", "`AT` is `at` in `read.schema`, and capitals count here"),
        ("keys: [id]", "keys: [id], partition_by: [DAY]", "`DAY` is `day` in `read.schema`, and capitals count here"),
    ],
)
def test_a_column_that_the_schema_lacks_or_has_otherwise_is_a_mistake(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in NODE
    assert message in str(problem(tmp_path, project(NODE.replace(old, new, 1))))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("column: day", "column: dayy", "`dayy` is no column of what the transform gives: day, n, did you mean `day`?"),
        ("start: 2024", "every: hour, start: 2024", "`day` is a date, and has no hours"),
        ("day DATE", "day DOUBLE", "`day` is double, which does not say to which partition a row belongs"),
        ("start: 2024-01-01", "values: [2024-01-01, eu]", "`eu` is no value of `day`, which is DATE"),
        (
            "start: 2024-01-01",
            "start: 2024-01-01, and: {column: x, values: [1]}",
            "`x` is no column of what the transform",
        ),
        ("FROM df", "FROM dff", "reads `dff`, which is no view of the node: it has df, did you mean `df`?"),
        ("SELECT day,", "SELECT trunc(at, 'MM') AS month,", "`day` is no column of what the transform gives"),
        (
            "id BIGINT, day DATE, at",
            "id BIGINT, at",
            "`day` is no column of `read.schema`: it is not known which partitions",
        ),
    ],
)
def test_what_a_query_gives_is_known_as_far_as_its_text_tells(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SUMS
    assert message in str(problem(tmp_path, project(SUMS.replace(old, new, 1))))


@pytest.mark.parametrize(
    ("node", "old", "new"),
    [
        (NODE, "keys: [id]", "keys: [id], delete_when: GONE"),
        (NODE, "column: at", "column: at, initial_value: 2024-01-31, watermark_lag: 2h"),
        (NODE, "column: at", "column: s, date_format: eu, fallback_column: s, initial_value: 2024-01-31"),
        (NODE, "id BIGINT,", "id BIGINT COMMENT 'the, key', `odd ``name` STRING,"),
        (NODE, "path: in,\n", "path: in, rescued: rest,\n"),
        (SUMS, "SELECT day,", "WITH a AS (SELECT * FROM df) SELECT day,"),
        (SUMS, "SELECT day, count(*) AS n FROM df GROUP BY day", "SELECT * FROM df"),
        (SUMS, "FROM df GROUP BY day", "FROM df LATERAL VIEW explode(array(1)) t AS d GROUP BY day"),
        (SUMS, "SELECT day, count(*) AS n FROM df GROUP BY day", "FROM df |> WHERE id > 1"),
        (SUMS, "SELECT day, count(*) AS n FROM df GROUP BY day", "SELECT stack(1, id, day) AS (id, day) FROM df"),
        (SUMS, "FROM df", "FROM other.dff JOIN range(3) JOIN df"),
    ],
)  # fmt: skip
def test_what_spark_may_take_is_no_mistake(tmp_path: Path, node: str, old: str, new: str) -> None:
    assert old in node
    assert load(tmp_path, project(node.replace(old, new, 1)))


def test_an_unknown_table_may_be_one_of_the_session_or_of_a_catalog(tmp_path: Path) -> None:
    assert load(tmp_path, project(SUMS.replace("FROM df", "FROM df JOIN known")))
    text = project(SUMS.replace("FROM df", "FROM df JOIN dff"))
    assert "reads `dff`" in str(problem(tmp_path, text))
    for spark in ("{remote: 'sc://x:1'}", "{master: yarn}", "{conf: {spark.sql.catalogImplementation: hive}}"):
        assert load(tmp_path, f"{text}spark: {spark}\n")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mine:tidy", "mein:tidy", "names a module that does not exist: it is looked for beside the project file"),
        ("mine:tidy", "mine:tdy", "names no function of mine.py; it has math, P, tidy, other, greedy"),
        ("limit: 5", "limt: 5", "`limt` is no parameter of mine:tidy, which takes df, limit, did you mean `limit`?"),
        ("mine:tidy", "mine:other", "wants `threshold`; the node offers df, limit, spark, store"),
    ],
)
def test_a_function_that_is_not_there_or_takes_other_arguments_is_a_mistake(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    (tmp_path / "mine.py").write_text(MODULE, encoding="utf-8")
    assert load(tmp_path, project(CODE))
    assert message in str(problem(tmp_path, project(CODE.replace(old, new, 1))))


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (MODULE, "mine:greedy"),
        (MODULE, "math:sqrt"),
        ("from elsewhere import *", "mine:tidy"),
        ("if 1:\n    def tidy(df): ...", "mine:tidy"),
        ("tidy = lambda df, limit: df", "mine:tidy"),
        ("import functools\n@functools.wraps(print)\ndef tidy(x, y, z): ...", "mine:tidy"),
        ("def __getattr__(name): ...", "mine:tidy"),
        ("globals()['tidy'] = print", "mine:tidy"),
        ("def tidy(rows, limit): ...", "mine:tidy"),
        ("def tidy(", "mine:tidy"),
    ],
)
def test_a_function_that_may_be_there_is_no_mistake(tmp_path: Path, module: str, function: str) -> None:
    (tmp_path / "mine.py").write_text(module, encoding="utf-8")
    assert load(tmp_path, project(CODE.replace("mine:tidy", function)))
