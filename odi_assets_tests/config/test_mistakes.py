"""What is wrong with a project file, where, and what was meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odi_assets.config.diagnostics.mistakes import ConfigErrors
from odi_assets.errors import ConfigError
from odi_assets_tests.config.support import SOURCE, load, place, problem, problems, project

RAW = "read: {connection: lake, format: csv, path: in}"

NODE = """\
- name: one
  read:
    connection: lake
    format: csv
    path: in
    incremental: {mode: stateful, column: ts}
  write:
    connection: lake
    path: one
    mode: upsert
    keys: [id]
"""
"""A node that is right; the tests below break it in one place each."""


def broken(old: str, new: str) -> str:
    assert old in NODE
    return project(NODE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "at", "message"),
    [
        ("incremental:", "incrementl:", "incrementl", "unknown key `incrementl`, did you mean `incremental`?"),
        ("format: csv", "format: cvs", "cvs", "unknown value `cvs`: must be `csv`, `json`, `parquet`, `delta`, "
         "`sql`, `cdc` or `debezium`, did you mean `csv`?"),
        ("mode: upsert", "mode: upsrt", "upsrt", "did you mean `upsert`?"),
        ("mode: stateful", "mode: statefull", "statefull", "unknown value `statefull`: must be `stateful`, "
         "`cursors`, `rolling_window`, `files` or `version`, did you mean `stateful`?"),
        ("mode: stateful, ", "", "incremental", "missing key `mode`: one of `stateful`, `cursors`, `rolling_window`, "
         "`files` or `version`"),
        ("column: ts", "colum: ts", "colum", "unknown key `colum`, did you mean `column`?"),
        (", column: ts", "", "incremental", "missing key `column`: cursor column"),
        ("    path: one\n", "", "write", "missing key `path`: folder of the table"),
        ("path: one", "path: 5", "5", "must be text, not a number; put it in quotes"),
        ("path: one", "path: [a]", "[a]", "must be text, not a list"),
        ("path: one", "path: ", "path: \n", "must be text; it is empty"),
        ("path: one", "path: ''", "''", "must not be empty"),
        ("keys: [id]", "keys: id", "id\n", "must be a list of columns: put `[ ]` around it"),
        ("keys: [id]", "keys: {id: 1}", "{id: 1}", "must be a list, not a mapping"),
        ("column: ts", "column: ts, watermark_lag: 2x", "2x", "`2x` is not a lag: write a number of weeks `w`, days "
         "`d`, hours `h`, minutes `m` or seconds `s`"),
        ("column: ts", "column: ts, watermark_lag: -1", "-1", "must be zero or more"),
        ("path: in", "path: in\n    schema: id BIGNT, name STRING", "id BIGNT", "column `id`: unknown type `BIGNT`, "
         "did you mean `BIGINT`?"),
        ("connection: lake\n    format", "connection: lak\n    format", "lak\n", "unknown connection `lak`, did you "
         "mean `lake`?"),
        ("- name: one", "- name: one\n  owner: joe", "joe", "`joe` is not an owner: write an e-mail address or "
         "`team:name`, did you mean `team:joe`?"),
        ("- name: one", "- name: one-two", "one-two", "`one-two` is not a name"),
        ("- name: one", "- name: one\n  tags: [a b]", "a b", "`a b` is not a tag"),
        ("- name: one", "- name: one\n  retries: 3", "retries", "unknown key `retries`; known here: name, description"),
        ("- name: one", "- name: one\n  sql: SELECT 1", "sql", "unknown key `sql`: it belongs in `transform`"),
        ("keys: [id]", "keys: [id]\n    depends_on: [id]", "depends_on", "unknown key `depends_on`: it belongs in "
         "the node"),
        ("- name: one", "- name: one\n  enabled: false", "enabled", "`enabled` does not exist here"),
        ("  read:\n", "  read: in/*.csv\n  reads:\n", "in/*.csv", "must be a mapping of keys and values, not "
         "`in/*.csv`"),
        ("path: one", "path: ../one", "../one", "leads out of the connection `lake`"),
        ("path: in", "path: s3://b/in", "s3://b/in", "is a URI"),
        ("keys: [id]", "keys: [id, ID]", "ID", "`ID` is there twice"),
        ("    keys: [id]\n", "", "write", "`upsert` needs `keys`: the columns that identify a row"),
        ("upsert\n    keys: [id]", "append_once", "write", "`append_once` needs `keys`"),
        ("keys: [id]", "keys: [id]\n    merge_keys: [id]", "merge_keys", "gives the keys a second time"),
        ("keys: [id]", "options: {keys: [id], mergeSchema: true}", "mergeSchema", "only `keys` is taken here"),
        ("upsert\n    keys: [id]", "append\n", None, None),
        ("mode: upsert", "mode: partition_overwrite", "partition_overwrite", "`partition_overwrite` needs "
         "`partition_by`, or `partition` on the node"),
        ("mode: stateful, column: ts", "mode: version", "version", "`version` counts the commits of a Delta table, and "
         "`csv` has none: use `files`"),
        ("ts}\n  write:\n    connection: lake\n    path: one\n    mode: upsert\n    keys: [id]",
         "ts, watermark_lag: 2h}\n  write: {connection: lake, path: one, mode: append}", "2h",
         "a lag reads rows again, and `append` would repeat them: name `write.keys`, or use `upsert`"),
        ("ts}\n  write:\n    connection: lake\n    path: one\n    mode: upsert\n    keys: [id]",
         "ts, on_null: include}\n  write: {connection: lake, path: one, mode: append}", "include",
         "rows without a cursor are read at every run, and `append` would repeat them: name `write.keys`"),
        ("mode: stateful, column: ts", "mode: stateful, column: ts, initial_value: true", "true", "must be a number, a "
         "date, a time or a text"),
        ("- name: one", "- name: one\n  transform: {}", "{}", "has nothing to do: give one of `sql`"),
        ("- name: one", "- name: one\n  transform: {sql: SELECT 1, function: a:b}", "a:b", "has `sql` and `function`: "
         "give one of them"),
        ("- name: one", "- name: one\n  transform: {sql_file: q/typed.sql}", "q/typed.sql", "`q/typed.sql` does not "
         "exist; files are looked for from the project file's folder"),
        ("- name: one", "- name: one\n  transform: {function: my.module.name}", "my.module.name", "is not a function: "
         "write `module:name`"),
        ("- name: one", "- name: one\n  transform: {sql: 'SELEC * FROM df'}", "'SELEC", "no query starts with `SELEC`, "
         "did you mean `SELECT`?"),
        ("- name: one", "- name: one\n  partition: {column: d, start: 2013-02-01, end: 2013-02-01}", "2013-02-01}",
         "must be after `start`"),
        ("- name: one", "- name: one\n  partition: {column: d, start: 2013-02-30}", "2013-02-30", "must be a date, as "
         "in 2013-01-31, not `2013-02-30`"),
        ("- name: one", "- name: one\n  partition: {column: d, start: 2013-02-01, every: dya}", "dya", "did you mean "
         "`day`?"),
        ("- name: one", "- name: one\n  partition: {column: d, start: 2013-02-01, timezone: Europe/Berln}",
         "Europe/Berln", "did you mean `Europe/Berlin`?"),
        ("- name: one", "- name: one\n  partition: {column: d, start: 2013-02-01, every: hour, hour_offset: 6}", "6}",
         "is the hour at which days begin, and these are hours: leave it out"),
        ("- name: one", "- name: one\n  partition: {column: d, start: 2013-02-01, every: hour, timezone: "
         "Australia/Lord_Howe}", "Australia", "changes its clock by a part of an hour"),
        ("- name: one", "- name: one\n  partition: {column: d, start: 2013-02-01, in_dagster: false, "
         "max_partitions_per_run: 1}", "1}", "is for backfills in Dagster"),
        ("- name: one", "- name: one\n  automation: eager\n  partition: {column: d, start: 2013-02-01, in_dagster: "
         "true}", "true}", "is not for a node with `automation`"),
        ("- name: one", "- name: one\n  partition: {column: d}", "{column: d}", "says no partitions: give `start`, of "
         "partitions of times, or `values`"),
        ("- name: one", "- name: one\n  partition: {column: d, values: eu}", "eu}", "is no list: write `[eu]`, or "
         "`dynamic`"),
        ("- name: one", "- name: one\n  partition: {column: d, values: []}", "[]}", "names no partition: list the "
         "values"),
        ("- name: one", "- name: one\n  partition: {column: d, values: [a, b, a]}", "a]}", "`a` is there twice"),
        ("- name: one", "- name: one\n  partition: {column: d, values: [a, 'b|c']}", "'b|c'", "has `|`, which Dagster "
         "allows in no name of a partition"),
        ("- name: one", "- name: one\n  partition: {column: d, values: [a], every: day}", "day}", "is for partitions "
         "of times, and `values` names others"),
        ("- name: one", "- name: one\n  partition: {column: d, start: 2013-01-01, and: {column: D, values: [a]}}",
         "D, values", "is the column of the times: name another one"),
        ("- name: one", "- name: one\n  partition: {column: d, start: 2013-01-01, and: {column: e}}", "and",
         "missing key `values`"),
        ("keys: [id]", "keys: [id]\n    partition_by: [d]\n  partition: {column: d, start: 2013-01-01, and: {column: "
         "e, values: dynamic}}", "e, values", "`e` is not in `write.partition_by`"),
        ("keys: [id]", "keys: [id]\n    partition_by: [e]\n  partition: {column: d, start: 2013-01-01}", "d, start",
         "`d` is not in `write.partition_by`"),
        ("- name: one", "- name: one\n  inputs: [two]", "two", "unknown node `two`"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_place_and_says_what_was_meant(
    tmp_path: Path, old: str, new: str, at: str | None, message: str | None
) -> None:
    text = broken(old, new)
    if at is None or message is None:
        assert load(tmp_path, text)
        return
    found = [one for one in problems(tmp_path, text) if (one.line, one.column) == _place_after_head(text, at)]
    assert any(message in str(one) for one in found), "\n".join(map(str, problems(tmp_path, text)))


def _place_after_head(text: str, word: str) -> tuple[int, int]:
    start = text.index("- name:")
    before = text[: text.index(word, start)]
    if word == "path: \n":
        before += "path:"
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def test_a_problem_is_written_as_compilers_do(tmp_path: Path) -> None:
    found = problem(tmp_path, broken("incremental:", "incrementl:"))
    assert str(found) == (
        f"{tmp_path / 'odibi.yaml'}:13:11: pipelines[0].nodes[0].read.incrementl: "
        "unknown key `incrementl`, did you mean `incremental`?"
    )
    assert (found.line, found.column) == (13, 11)
    assert found.key == "pipelines[0].nodes[0].read.incrementl"
    assert found.suggestion == "incremental"


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ("0 25 * * *", "the hour cannot be `25`"),
        ("* * * *", "it has 4 fields"),
        ("0 0 * * * *", "it has 6 fields"),
        ("every day", "it has 2 fields"),
        ("0 6 * * MONDAY-FRI", "the day of the week cannot be `MONDAY-FRI`"),
        ("0 0 30 2 *", "never comes"),
    ],
)
def test_a_schedule_says_which_field_is_wrong(tmp_path: Path, schedule: str, reason: str) -> None:
    found = problem(tmp_path, project().replace("- pipeline: p", f'- pipeline: p\n    schedule: "{schedule}"'))
    assert (found.line, found.column, found.key) == (7, 15, "pipelines[0].schedule")
    assert reason in found.message


def test_duplicate_nodes_and_pipelines_are_found_at_the_second(tmp_path: Path) -> None:
    text = project(SOURCE, SOURCE.replace("path: raw", "path: raw2")) + project(SOURCE).partition("pipelines:\n")[2]
    text = text.replace("path: raw}}", "path: raw3}}", 2).replace("path: raw3}}", "path: raw}}", 1)
    found = problems(tmp_path, text)
    assert [(one.line, one.key, one.message) for one in found] == [
        (9, "pipelines[0].nodes[1].name", "duplicate node `raw`"),
        (10, "pipelines[1].pipeline", "duplicate pipeline `p`"),
    ]


def test_names_that_differ_by_capitals_only_are_refused(tmp_path: Path) -> None:
    other = SOURCE.replace("name: raw", "name: RAW").replace("path: raw", "path: r2")
    assert "differs from `raw` by capitals only" in problem(tmp_path, project(SOURCE, other)).message
    assert "differs from `RAW` by capitals only" in problem(tmp_path, project(other, SOURCE)).message


def test_duplicate_keys_are_found_at_the_second(tmp_path: Path) -> None:
    text = project().replace(
        "  lake: {type: local, base_path: data}", "  lake: {type: local, base_path: data}\n  lake: {type: local}"
    )
    found = problem(tmp_path, text)
    assert (found.line, found.column, found.key) == (4, 3, "connections.lake")
    assert found.message == "duplicate key: it is on line 3 already"


def test_a_cycle_is_printed_with_its_path(tmp_path: Path) -> None:
    text = project(
        "- {name: a, inputs: [c], write: {connection: lake, path: a}}\n",
        "- {name: b, inputs: [a], write: {connection: lake, path: b}}\n",
        "- {name: c, depends_on: [b], " + RAW + ", write: {connection: lake, path: c}}",
    )
    found = problem(tmp_path, text)
    assert found.message == "cycle: a → b → c → a"
    assert (found.line, found.column) == place(text, "c], write")


def test_a_node_that_needs_itself_is_a_cycle(tmp_path: Path) -> None:
    text = project("- {name: a, inputs: [a], write: {connection: lake, path: a}}")
    assert problem(tmp_path, text).message == "cycle: a → a"


def test_a_cycle_across_pipelines_names_them(tmp_path: Path) -> None:
    text = (
        project("- {name: a, inputs: [q.b], write: {connection: lake, path: a}}\n")
        + "  - pipeline: q\n    nodes:\n      - {name: b, inputs: [p.a], write: {connection: lake, path: b}}\n"
    )
    assert problem(tmp_path, text).message == "cycle: p.a → q.b → p.a"


def test_an_unknown_node_is_looked_for_in_other_pipelines_too(tmp_path: Path) -> None:
    text = (
        project(SOURCE)
        + "  - pipeline: q\n    nodes:\n"
        + "      - {name: b, inputs: [raw], write: {connection: lake, path: b}}\n"
        + "      - {name: c, depends_on: [p.rwa], inputs: [b], write: {connection: lake, path: c}}\n"
    )
    assert [(one.message, one.suggestion) for one in problems(tmp_path, text)] == [
        ("unknown node `raw`", "p.raw"),
        ("unknown node `p.rwa`", "p.raw"),
    ]


@pytest.mark.parametrize("path", ["raw", "./raw/", "x/../raw", "raw//"])
def test_two_nodes_cannot_write_one_table(tmp_path: Path, path: str) -> None:
    text = project(SOURCE, f"- {{name: two, inputs: [raw], write: {{connection: lake, path: {path}}}}}")
    found = problem(tmp_path, text)
    assert found.message == "node `p.raw` writes the same table"
    assert found.key == "pipelines[0].nodes[1].write.path"


def test_one_table_under_two_connections_is_still_one_table(tmp_path: Path) -> None:
    text = project(SOURCE, "- {name: two, inputs: [raw], write: {connection: other, path: lake/raw}}").replace(
        "  lake: {type: local, base_path: data}",
        "  lake: {type: local, base_path: data/lake}\n  other: {type: local, base_path: data}",
    )
    assert problem(tmp_path, text).message == "node `p.raw` writes the same table"


def test_a_table_inside_another_table_would_be_deleted_by_its_vacuum(tmp_path: Path) -> None:
    text = project(SOURCE, "- {name: two, inputs: [raw], write: {connection: lake, path: raw/two}}")
    assert "inside the table of node `p.raw`, whose vacuum would delete it" in problem(tmp_path, text).message


def test_a_table_in_the_system_folder_is_refused(tmp_path: Path) -> None:
    text = project("- {name: two, " + RAW + ", write: {connection: lake, path: _odibi_system/two}}")
    assert "inside the table of `system`" in problem(tmp_path, text).message


def test_two_nodes_cannot_move_one_high_water_mark(tmp_path: Path) -> None:
    nodes = [
        f"- {{name: {name}, read: {{connection: lake, format: csv, path: in, incremental: {{mode: files{key}}}}}, "
        f"write: {{connection: lake, path: {name}, mode: append}}}}\n"
        for name, key in (("a", ""), ("b", ", state_key: p.a"), ("c", ", state_key: k"), ("d", ", state_key: k"))
    ]
    found = problems(tmp_path, project(*nodes))
    assert [(one.key, one.message) for one in found] == [
        (
            "pipelines[0].nodes[1].read.incremental.state_key",
            "node `p.a` has this state key too: two nodes would move one high-water mark",
        ),
        (
            "pipelines[0].nodes[3].read.incremental.state_key",
            "node `p.c` has this state key too: two nodes would move one high-water mark",
        ),
    ]


def test_a_table_that_is_computed_from_loaded_files_cannot_keep_what_was_loaded_of_them(tmp_path: Path) -> None:
    read = "{connection: lake, format: csv, path: in, incremental: {mode: files, on_change: ignore}}"
    text = f"- {{name: a, read: {read}, write: {{connection: lake, path: a, MODE}}}}"
    for mode in ("overwrite", "partition_overwrite"):
        by = project(text.replace("MODE", f"mode: {mode}, partition_by: [k]"))
        found = problem(tmp_path, by)
        assert found.key == "pipelines[0].nodes[0].read.incremental.on_change"
        assert found.message.startswith(
            f"`ignore` keeps what was loaded of a rewritten file, and `{mode}` reads loaded"
        )
        assert "leave it out" in found.message
        assert "write with `append`, `append_once` or `upsert`" in found.message
        assert (found.line, found.column) == place(by, "ignore")
    for mode in ("append", "upsert", "append_once"):
        assert load(tmp_path, project(text.replace("MODE", f"mode: {mode}, keys: [id]")))


TWO_INPUTS = """\
- name: joined
  inputs: {{a: {{node: raw, incremental: version}}, b: {{node: raw2, incremental: version}}}}
  transform: {{sql: SELECT * FROM a JOIN b USING (id)}}
  write: {{connection: lake, path: joined, {write}}}
"""


def test_rows_made_by_two_increments_together_cannot_be_appended(tmp_path: Path) -> None:
    other = SOURCE.replace("name: raw", "name: raw2").replace("path: raw", "path: raw2")
    for write in ("mode: append", "mode: upsert, keys: [id]"):
        found = problem(tmp_path, project(SOURCE, other, TWO_INPUTS.format(write=write)))
        assert found.key == "pipelines[0].nodes[2].inputs.b.incremental"
        assert "would miss new rows that meet old ones" in found.message
    for write in ("mode: overwrite", "mode: partition_overwrite, partition_by: [day]"):
        assert load(tmp_path, project(SOURCE, other, TWO_INPUTS.format(write=write)))


def test_files_of_a_delta_table_are_read_by_version(tmp_path: Path) -> None:
    text = project(
        """\
        - name: a
          read: {connection: lake, format: delta, path: in, incremental: {mode: files}}
          write: {connection: lake, path: a, mode: append}
        """
    )
    found = problem(tmp_path, text)
    assert "use `version`" in found.message
    assert (found.line, found.column) == place(text, "files}")


def test_inputs_follow_no_files(tmp_path: Path) -> None:
    text = project(SOURCE, "- {name: b, inputs: [{node: raw, incremental: files}], write: {connection: lake, path: b}}")
    found = problem(tmp_path, text)
    assert found.message == "unknown value `files`: must be `stateful`, `rolling_window` or `version`"
    assert found.key == "pipelines[0].nodes[1].inputs[0].incremental"


def test_a_node_needs_something_to_read(tmp_path: Path) -> None:
    for inputs in ("", "inputs: [], ", "inputs: {}, ", "depends_on: [raw], "):
        text = project(SOURCE, f"- {{name: b, {inputs}write: {{connection: lake, path: b}}}}")
        found = problem(tmp_path, text)
        assert found.message == "has nothing to read: give `read` or `inputs`"
        assert (found.line, found.key) == (9, "pipelines[0].nodes[1]")


def test_two_sources_need_a_transform(tmp_path: Path) -> None:
    text = project(SOURCE, "- {name: b, inputs: [raw], " + RAW + ", write: {connection: lake, path: b}}")
    assert "say with `transform` what becomes of them" in problem(tmp_path, text).message


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("{df: raw}", "`df` is what `read` gives: call the input something else"),
        ("{a: raw, A: raw}", "`A` is there twice; Spark's views know no capitals"),
        ("{a-b: raw}", "`a-b` is not a view name"),
        ("[raw, p.raw]", "`raw` gives two inputs one name"),
        ("[raw, 5]", "must be a mapping of keys and values, not a number"),
        ("raw", "must be a mapping of keys and values, not `raw`"),
    ],
)
def test_views_need_names_that_spark_tells_apart(tmp_path: Path, inputs: str, message: str) -> None:
    text = project(
        SOURCE, f"- {{name: b, inputs: {inputs}, transform: {{sql: SELECT 1}}, write: {{connection: lake, path: b}}}}"
    )
    assert message in problem(tmp_path, text).message


def test_the_connection_of_system_must_exist(tmp_path: Path) -> None:
    found = problem(tmp_path, project().replace("system: {connection: lake}", "system: {connection: laek}"))
    assert (found.key, found.suggestion) == ("system.connection", "lake")


def test_a_pipeline_cannot_have_a_name_that_dagster_keeps(tmp_path: Path) -> None:
    assert "Dagster keeps for itself" in problem(tmp_path, project().replace("pipeline: p", "pipeline: config")).message


def test_a_missing_sql_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "flights.sql").write_text("SELECT * FROM df")
    node = "- {name: a, " + RAW + ", transform: {sql_file: sql/FILE}, write: {connection: lake, path: a}}"
    found = problem(tmp_path, project(node.replace("FILE", "flight.sql")))
    assert found.suggestion == "sql/flights.sql"
    assert load(tmp_path, project(node.replace("FILE", "flights.sql")))


def test_a_sql_file_that_does_not_parse_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("SELECT *\nFROM (df\n")
    node = "- {name: a, " + RAW + ", transform: {sql_file: a.sql}, write: {connection: lake, path: a}}"
    found = problem(tmp_path, project(node))
    assert found.message == "`(` opens on line 2 of the query and never closes"
    (tmp_path / "a.sql").write_bytes(b"SELECT '\xff'")
    assert problem(tmp_path, project(node)).message == "the file is not UTF-8 text"


def test_a_rolling_window_is_not_appended(tmp_path: Path) -> None:
    text = project(
        """\
        - name: a
          read:
            {connection: lake, format: csv, path: i, incremental: {mode: rolling_window, column: c, lookback: 3}}
          write: {connection: lake, path: a, mode: append}
        """
    )
    found = problem(tmp_path, text)
    assert "repeats the rows of a rolling window" in found.message
    assert (found.line, found.column) == place(text, "rolling_window")


def test_all_mistakes_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
    project: demo
    engne: spark
    connections:
      lake: {type: local, base_path: data}
      az:
        type: azure_blob
        account_name: acc
        container: c
        auth: {mode: account_key, account_key: ${AZURE_STORAGE_KEY}}
    pipelines:
      - pipeline: p
        schedule: 0 25 * * *
        nodes:
          - name: raw
            read:
              connection: lak
              format: cvs
              path: in
              schema: id BIGNT
              incrementl: {mode: files}
            write: {connection: lake, path: raw}
          - name: typed
            inputs: [raw, joind]
            transform: {sql: SELEC 1}
            write: {connection: lake, path: typed, mode: upsert}
          - name: typed
            inputs: {a: {node: raw, incremental: {mode: stateful, column: c, watermark_lag: 2x}}}
            write: {connection: lake, path: ./raw}
          - name: joined
            inputs: [late]
            write: {connection: lake, path: [j]}
          - name: late
            inputs: [joined]
            write: {connection: lake, path: late, mode: overwrit}
    """
    found = problems(tmp_path, text.replace("\n    ", "\n").removeprefix("    "))
    assert [(one.line, one.suggestion or one.message.partition(":")[0]) for one in found] == [
        (2, "engine"),
        (9, "environment variable `AZURE_STORAGE_KEY` is not set"),
        (12, "`0 25 * * *` is not a schedule"),
        (16, "lake"),
        (17, "csv"),
        (19, "BIGINT"),
        (20, "incremental"),
        (23, "joined"),
        (24, "SELECT"),
        (25, "`upsert` needs `keys`"),
        (26, "duplicate node `typed`"),
        (27, "`2x` is not a lag"),
        (28, "node `p.raw` writes the same table"),
        (30, "cycle"),
        (31, "must be text, not a list"),
        (34, "overwrite"),
    ]


def test_the_error_is_a_config_error_that_lists_everything(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, broken("format: csv", "format: cvs").replace("demo", "[demo]"))
    assert isinstance(caught.value, ConfigErrors)
    assert len(caught.value.problems) == 2
    assert "has 2 mistakes" in str(caught.value)
    assert all(str(one) in str(caught.value) for one in caught.value.problems)


def test_a_mistake_hides_what_only_follows_from_it(tmp_path: Path) -> None:
    for connections in ("connections: []", "conections: {lake: {type: local}}"):
        text = project().replace("connections:\n  lake: {type: local, base_path: data}", connections)
        assert problem(tmp_path, text).line == 2
    text = project("- {name: a, raed: {connection: lake, format: csv, path: x}, write: {connection: lake, path: a}}")
    assert problem(tmp_path, text).suggestion == "read"
    text = project("- {name: a, " + RAW + ", write: {connection: lake, path: a, mode: upsert, key: [id]}}")
    assert [one.suggestion for one in problems(tmp_path, text)][-1] == "keys"


def test_a_mistake_makes_no_others_at_nodes_that_are_written_out(tmp_path: Path) -> None:
    log = "- {name: log, read: {connection: lake, format: debezium, path: in}, write: {connection: lake, path: log}}\n"
    applied = "- {name: a, apply: {changes: log, table: public.a}, write: {connection: lake, path: a}}\n"
    load(tmp_path, project(log, applied, SOURCE))
    text = project(log, applied, SOURCE.replace("path: raw}", "path: raw, mode: appnd}"))
    assert problem(tmp_path, text).suggestion == "append"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("vars: {a: 1}", "unknown key `vars`"),
        ("engine: pandas", "unknown value `pandas`: must be `spark`"),
        ("colour: red", "unknown key `colour`; known here: project, engine"),
        ("a b: 1", "unknown key"),
        ("colour:red: 1", "unknown key; a `key: value` needs a space after the colon"),
    ],
)
def test_keys_from_elsewhere_are_explained(tmp_path: Path, line: str, message: str) -> None:
    assert problem(tmp_path, f"{line}\n{project()}").message.startswith(message)


def test_two_retry_policies_are_one_too_many(tmp_path: Path) -> None:
    text = project().replace("{connection: lake}\n", "{connection: lake, retry: {retries: 2}}\n", 1)
    found = problem(tmp_path, f"retry: {{retries: 3}}\n{text}")
    assert "is given at the top of the file too: keep that one" in found.message
    assert found.line == next(n for n, line in enumerate(f"x\n{text}".split("\n"), 1) if "retries: 2" in line)


def test_attempts_are_counted_in_one_way(tmp_path: Path) -> None:
    found = problem(tmp_path, f"retry: {{retries: 3, max_attempts: 4}}\n{project()}")
    assert "counts the attempts a second time: keep `retries`" in found.message
    assert found.line == 1


TABLE = "- {name: one, read: {connection: lake, format: csv, path: in}, write: {connection: lake, path: t/one}}\n"


@pytest.mark.parametrize(
    ("read", "message"),
    [
        *((f"format: {kind}, path: {path}", "files of the table that node `p.one` writes") for kind, path in (
            ("parquet", "t/one"), ("parquet", "t/one/k=1/*.parquet"), ("csv", "t/one"), ("json", "t"),
            ("parquet", "t/*/*/*.parquet"), ("parquet", "'**/*.parquet'"), ("parquet", "t/one/*.parquet"),
        )),
        ("format: parquet, path: two", "files of the table that node `p.two` writes"),
        ("format: parquet, path: t/bad", "files of the table that node `p.two` writes"),
        ("format: delta, path: two, incremental: {mode: version}", "the node writes this table"),
    ],
)  # fmt: skip
def test_the_table_of_a_node_is_no_source_of_files_nor_of_its_own_node(tmp_path: Path, read: str, message: str) -> None:
    """Rows that were removed came back, rewritten ones twice; a node that follows its own table never ends."""
    text = f"- {{name: two, read: {{connection: lake, {read}}}, write: {{connection: lake, path: two}}, {BAD}}}\n"
    found = problem(tmp_path, project(TABLE, text))
    assert message in found.message
    assert found.key == "pipelines[0].nodes[1].read.path"


BAD = "checks: [{not_null: id}], quarantine: t/bad"


@pytest.mark.parametrize(
    "read",
    [
        "format: parquet, path: t/one2/*.parquet",
        "format: csv, path: t/one/in/*.csv",
        "format: csv, path: '**/*.csv'",
        "format: delta, path: t/one, incremental: {mode: version}",
        "format: delta, path: two",
        "format: parquet, path: 't/o?/*.parquet'",
    ],
)
def test_files_beside_tables_and_whole_tables_are_sources(tmp_path: Path, read: str) -> None:
    load(
        tmp_path,
        project(
            TABLE, f"- {{name: two, read: {{connection: lake, {read}}}, write: {{connection: lake, path: two}}}}\n"
        ),
    )


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("spark.sql.session.timeZone", "America/New_York", "is UTC in every run.*`timeZone` in `read.options`"),
        ("spark.sql.parquet.outputTimestampType", "INT96", "is TIMESTAMP_MICROS in every run"),
        ("spark.sql.session.timeZone", "Etc/UTC", None),
    ],
)
def test_a_setting_of_spark_that_no_run_would_take_is_refused(
    tmp_path: Path, key: str, value: str, why: str | None
) -> None:
    text = f'{project()}spark: {{conf: {{{key}: "{value}"}}}}\n'
    if why is None:
        assert load(tmp_path, text).config.spark.conf[key] == value
    else:
        found = problem(tmp_path, text)
        assert found.key == f'spark.conf["{key}"]'
        assert re.search(why, found.message)
