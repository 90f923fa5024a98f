"""No message, and no repr, holds a secret or what a variable holds."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import pytest

from odi_assets.config.diagnostics.mistakes import ConfigErrors
from odi_assets.config.loader import load_project_file
from odi_assets_tests.config.support import SOURCE, load, project, write

SECRET = "hunter2Zq"

AZURE = "  az: {type: azure_blob, account_name: a, container: c, auth: AUTH}\n  lake:"


def told(folder: Path, text: str, env: dict[str, str]) -> str:
    """Everything that an error tells of a project file that is wrong."""
    try:
        load_project_file(write(folder, text), env=env)
    except ConfigErrors as error:
        shown = [str(error), repr(error), repr(error.fields), "".join(traceback.format_exception(error))]
        return "\n".join([*shown, str(pickle.loads(pickle.dumps(error)))])
    raise AssertionError("the file is right")


@pytest.mark.parametrize(
    "auth",
    [
        SECRET,
        f"[{SECRET}]",
        f"{{mode: {SECRET}}}",
        f"{{mode: account_key, account_key: [{SECRET}]}}",
        f"{{mode: account_key, account_kye: {SECRET}}}",
        f"{{mode: account_key, account_key:{SECRET}}}",
        f"{{mode: account_key, account_key: {SECRET}, sas_token: {SECRET}}}",
        f"{{mode: acount_key, account_key: {SECRET}}}",
        f"{{mode: account_key, account_key: *{SECRET}}}",
        f"{{mode: account_key, account_key: !{SECRET} x}}",
        f"{{mode: account_key, account_key: '{SECRET}",
        f"{{mode: account_key, account_key: @{SECRET}}}",
        f"{{mode: account_key, account_key: ${{{SECRET}-}}}}",
        f"{{mode: account_key, account_key: '${{ {SECRET}'}}",
        f'{{mode: account_key, account_key: "\\q{SECRET}"}}',
        f"{{account_key: {SECRET}}}",
        "{mode: account_key, account_key: [${KEY}]}",
        "{mode: ${KEY}, account_key: x}",
        "${KEY}",
    ],
)
def test_a_secret_in_a_wrong_place_is_in_no_message(tmp_path: Path, auth: str) -> None:
    text = project().replace("  lake:", AZURE.replace("AUTH", auth), 1)
    shown = told(tmp_path, text, {"KEY": SECRET})
    if f"mode: {SECRET}" not in auth:  # a word where the mode belongs is shown: it is what is wrong
        assert SECRET not in shown


def test_a_mode_that_is_no_word_is_not_shown(tmp_path: Path) -> None:
    auth = f"\n      mode: account_key\n      account_key:{SECRET}"
    block = f"  az:\n    type: azure_blob\n    account_name: a\n    container: c\n    auth:{auth}\n  lake:"
    assert SECRET not in told(tmp_path, project().replace("  lake:", block, 1), {})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("project: demo", "project: demo\nowner: ${S}"),
        ("pipeline: p", "pipeline: p\n    schedule: ${S}"),
        ("pipeline: p", "pipeline: ${S} x"),
        ("name: raw", "name: '${S}-'"),
        ("name: raw", "name: raw, tags: ['${S} !']"),
        ("name: raw", "name: raw, inputs: ['${S}'], transform: {sql: SELECT 1}"),
        ("name: raw", "name: raw, inputs: {a: '${S}'}, transform: {sql: SELECT 1}"),
        ("name: raw", "name: raw, depends_on: ['${S}']"),
        ("name: raw", "name: raw, transform: {sql: '${S}'}"),
        ("name: raw", "name: raw, transform: {sql: 'SELECT a ${S} b c FROM t'}"),
        ("name: raw", "name: raw, transform: {sql_file: '${S}.sql'}"),
        ("name: raw", "name: raw, transform: {function: '${S}'}"),
        ("name: raw", "name: raw, partition: {column: d, start: '${S}'}"),
        ("name: raw", "name: raw, partition: {column: d, start: 2013-01-01, every: '${S}'}"),
        ("connection: lake, format", "connection: '${S}', format"),
        ("format: csv", "format: '${S}'"),
        ("format: csv", "format: csv, schema: '${S}'"),
        ("format: csv", "format: csv, schema: 'id ${S}'"),
        ("format: csv", "format: csv, incremental: '${S}'"),
        ("format: csv", "format: csv, incremental: {mode: '${S}'}"),
        ("format: csv", "format: csv, incremental: {mode: rolling_window, column: c, lookback: '${S}'}"),
        ("format: csv", "format: csv, incremental: {mode: stateful, column: c, watermark_lag: '${S}'}"),
        ("path: in/*.csv", "path: '../${S}'"),
        ("path: in/*.csv", "path: 's3://${S}'"),
        ("path: raw", "path: raw, mode: '${S}'"),
        ("path: raw", "path: raw, keys: '${S}'"),
        ("path: raw", "path: raw, keys: ['${S}', '${S}']"),
        ("system: {connection: lake}", "system: {connection: '${S}'}"),
        ("system: {connection: lake}", "system: {connection: lake, retry: {retries: '${S}'}}"),
        ("system: {connection: lake}", "system: {connection: lake}\nengine: ${S}"),
    ],
)
def test_what_a_variable_holds_is_in_no_message(tmp_path: Path, old: str, new: str) -> None:
    text = project()
    assert old in text
    assert SECRET not in told(tmp_path, text.replace(old, new, 1), {"S": SECRET})


def test_names_from_variables_are_shown_as_they_are_written(tmp_path: Path) -> None:
    text = project(
        "- {name: '${S}', depends_on: [b], read: {connection: lake, format: csv, path: x}, "
        "write: {connection: lake, path: a}}\n",
        "- {name: b, inputs: ['${S}'], write: {connection: lake, path: a}}\n",
    )
    shown = told(tmp_path, text, {"S": SECRET})
    assert "cycle: ${S} → b → ${S}" in shown
    assert "node `p.${S}` writes the same table" in shown
    assert SECRET not in shown


def test_pipelines_from_variables_are_shown_as_they_are_written(tmp_path: Path) -> None:
    nodes = project(SOURCE, "- {name: b, inputs: [raw], write: {connection: lake, path: raw}}\n")
    shown = told(tmp_path, nodes.replace("pipeline: p", "pipeline: ${S}"), {"S": SECRET})
    assert "node `${S}.raw` writes the same table" in shown
    assert SECRET not in shown


def test_a_list_of_what_there_is_does_not_give_away_what_variables_hold(tmp_path: Path) -> None:
    text = project(SOURCE.replace("name: raw", "name: '${S}'"))
    text += "      - {name: b, inputs: [unlike], write: {connection: lake, path: b}}\n"
    shown = told(tmp_path, text, {"S": SECRET})
    assert "unknown node `unlike`; there are ${S}, p.${S}, p.b" in shown
    assert SECRET not in shown


def test_a_suggestion_does_not_give_away_a_variable_that_is_nearly_right(tmp_path: Path) -> None:
    shown = told(tmp_path, project().replace("connection: lake, format", "connection: '${S}', format"), {"S": "lakee"})
    assert "the variable names no connection of this file" in shown
    assert "did you mean" not in shown


def test_secrets_are_in_no_repr_of_a_loaded_project(tmp_path: Path) -> None:
    text = (
        project(SOURCE.replace("path: in/*.csv", "path: in/*.csv, options: {password: '${S}'}"))
        .replace("  lake:", AZURE.replace("AUTH", "{mode: sas, sas_token: '${S}'}"), 1)
        .replace("project: demo", "project: demo\nspark: {conf: {fs.azure.account.key.a: '${S}'}}")
    )
    loaded = load(tmp_path, text, env={"S": SECRET})
    assert loaded.config.spark.conf == {"fs.azure.account.key.a": SECRET}
    for shown in (repr(loaded), str(loaded), repr(loaded.config), str(loaded.config)):
        assert SECRET not in shown


def test_an_empty_secret_is_a_mistake(tmp_path: Path) -> None:
    text = project().replace("  lake:", AZURE.replace("AUTH", "{mode: sas, sas_token: '${S}'}"), 1)
    assert "connections.az.auth.sas_token: must not be empty" in told(tmp_path, text, {"S": ""})
