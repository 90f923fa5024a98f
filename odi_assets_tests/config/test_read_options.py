"""Reader options that lose data are refused by name; `rescued` keeps what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from odi_assets_tests.config.support import node, place, problem, project

NODE = "- {{name: raw, read: {{connection: lake, path: in, {}}}, write: {{connection: lake, path: raw}}}}\n"


@pytest.mark.parametrize(
    ("read", "key", "message"),
    [
        ("format: csv, options: {pathGlobFilter: '*.csv'}", "pathGlobFilter", "write the glob in `path`"),
        ("format: parquet, options: {PATHGLOBFILTER: '*.csv'}", "PATHGLOBFILTER", "files that count as loaded"),
        ("format: parquet, options: {modifiedAfter: '2024-01-01T00:00'}", "modifiedAfter", "{mode: files}"),
        ("format: json, options: {modifiedBefore: '2024-01-01T00:00'}", "modifiedBefore", "`settle`"),
        ("format: csv, options: {ignoreCorruptFiles: true}", "ignoreCorruptFiles", "repair the file"),
        ("format: csv, options: {ignoreMissingFiles: 'True'}", "ignoreMissingFiles", "run the node again"),
        ("format: csv, options: {recursiveFileLookup: true}", "recursiveFileLookup", "is not needed"),
        ("format: csv, options: {basePath: in}", "basePath", "are columns already"),
        ("format: csv, options: {comment: '#'}", "comment", "`rescued`"),
        ("format: json, options: {samplingRatio: 0.1}", "samplingRatio", "name the columns in `schema`"),
        ("format: json, options: {dropFieldIfAllNull: true}", "dropFieldIfAllNull", "name the columns in `schema`"),
        ("format: csv, options: {unescapedQuoteHandling: skip_value}", "unescapedQuoteHandling", "`rescued`"),
        ("format: csv, options: {mode: DROPMALFORMED}", "mode", "`rescued: COLUMN`"),
        ("format: json, options: {Mode: permissive}", "Mode", "`rescued: COLUMN`"),
        ("format: csv, rescued: rest, options: {mode: DROPMALFORMED}", "mode", "`rescued: COLUMN`"),
        ("format: csv, options: {encoding: UTF-16LE}", "encoding", "multiLine"),
        ("format: csv, rescued: rest, options: {charset: utf_32, multiLine: false}", "charset", "multiLine"),
    ],
)
def test_an_option_that_loses_data_is_refused_and_says_what_to_use(
    tmp_path: Path, read: str, key: str, message: str
) -> None:
    found = problem(tmp_path, project(NODE.format(read)))
    assert found.key == f"pipelines[0].nodes[0].read.options.{key}"
    assert message in found.message


@pytest.mark.parametrize(
    "read",
    [
        "format: csv, options: {header: true, sep: ';', nullValue: '-', inferSchema: true, multiLine: true}",
        "format: csv, options: {ignoreCorruptFiles: false, recursiveFileLookup: 'false', mode: FAILFAST}",
        "format: json, options: {samplingRatio: 1.0, unescapedQuoteHandling: STOP_AT_DELIMITER}",
        "format: json, schema: id INT, options: {samplingRatio: 0.5, dropFieldIfAllNull: true}",
        "format: csv, rescued: rest, options: {mode: PERMISSIVE}",
        "format: csv, schema: 'id INT, _corrupt_record STRING', options: {mode: PERMISSIVE}",
        "format: json, schema: 'id INT, `bad` STRING', options: {mode: PERMISSIVE, columnNameOfCorruptRecord: bad}",
        "format: parquet, options: {mergeSchema: true, mode: any}",
        "format: json, rescued: rest",
        "format: csv, options: {encoding: UTF-16, multiLine: true}",
        "format: csv, options: {encoding: ISO-8859-1}",
        "format: json, options: {encoding: UTF-16LE}",
        "format: parquet, rescued: rest, schema: 'id INT'",
    ],
)
def test_other_options_are_taken(tmp_path: Path, read: str) -> None:
    assert node(tmp_path, NODE.format(read)).read


@pytest.mark.parametrize(
    ("read", "message"),
    [
        ("format: parquet, rescued: rest", "keeps what does not fit `schema`, and there is none"),
        ("format: delta, rescued: rest", "is for files"),
        ("format: csv, rescued: id, schema: 'id INT'", "is a column of `schema` too"),
    ],
)
def test_a_column_for_what_does_not_fit_needs_something_that_does(tmp_path: Path, read: str, message: str) -> None:
    found = problem(tmp_path, project(NODE.format(read)))
    assert found.key == "pipelines[0].nodes[0].read.rescued"
    assert message in found.message


PATH = "- {{name: raw, read: {{connection: lake, path: '{}', format: {}}}, write: {{connection: lake, path: raw}}}}\n"


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("hid/_x.csv", "_x.csv"),
        ("_in/", "_in"),
        ("g/_*.csv", "_*.csv"),
        ("in/.hidden/*.csv", ".hidden"),
        ("./in/[_.]*", "[_.]*"),
        ("in/x._COPYING_", "x._COPYING_"),
        (".k=1/a.csv", ".k=1"),
    ],
)
def test_a_path_whose_names_are_never_looked_at_is_refused_with_its_place(tmp_path: Path, path: str, part: str) -> None:
    text = project(PATH.format(path, "csv"))
    found = problem(tmp_path, text)
    assert found.key == "pipelines[0].nodes[0].read.path"
    assert found.message.startswith(f"`{part}` is never looked at")
    assert (found.line, found.column) == place(text, f"'{path}'")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("_k=3/*.csv", "csv"),
        ("in/_a=1.csv", "json"),
        ("./in/**", "parquet"),
        ("in/a_*.csv", "csv"),
        ("in/[_a]*.csv", "csv"),
        ("in/_*=*/x.csv", "csv"),
        ("_table", "delta"),
    ],
)
def test_a_path_that_may_name_something_is_taken(tmp_path: Path, path: str, kind: str) -> None:
    assert node(tmp_path, PATH.format(path, kind)).read
