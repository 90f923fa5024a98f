"""The JSON Schema that editors use."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from odi_assets.config.json_schema import SCHEMA_FILE, json_schema, schema_text
from odi_assets.config.yaml.document import read_document
from odi_assets.sample.examples import Example, project_file
from odi_assets_tests.config.support import SOURCE, load, project

ROOT = Path(__file__).resolve().parents[2]
VALIDATOR = Draft202012Validator(json_schema())


def complaints(text: str) -> list[str]:
    document = read_document(text)
    assert document.data is not None
    assert not document.mistakes
    return [error.message for error in VALIDATOR.iter_errors(document.data)]


@pytest.mark.slow
def test_the_schema_is_a_schema_with_a_title_and_a_text_for_every_key() -> None:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == "odi_assets project file"
    assert schema["description"]
    silent = [
        f"{name}.{key}"
        for name, model in {"": schema, **schema["$defs"]}.items()
        for key, value in model.get("properties", {}).items()
        if "description" not in value and key not in ("mode", "type")
    ]
    assert silent == []


ENV = {"S": "lake", "N": "3", "LAG": "2h", "DAY": "2013-01-01", "MODE": "upsert", "FORMAT": "csv"}


@pytest.mark.parametrize(
    "text",
    [
        project(),
        project().replace("system: {connection: lake}\n", ""),
        project().replace("system: {connection: lake}", "system:"),
        project().replace("{connection: lake}\n", "{connection: lake, meta_runs_path: a, meta_state_path: b}\n", 1),
        project().replace("  lake:", "  az: {type: azure_blob, account_name: a, container: c, "
                          "auth: {mode: account_key, account_key: '${S}'}}\n  lake:", 1),
        project().replace("  lake:", "  s: {type: s3, bucket: b, region: eu-central-1}\n  g: {type: gcs, bucket: b}\n"
                          "  lake:", 1),
        project().replace("project: demo", "project: demo\nstory: {a: b}\nspark: {conf: {a.b: 1, c: true}}"),
        project(
            """\
            - name: a
              runbook_url: x
              description:
              owner: ${S}@example.org
              tags: [a, "${S}"]
              depends_on: []
              read:
                connection: ${S}
                format: ${FORMAT}
                path: in
                schema: "id BIGINT, c TIMESTAMP, d TIMESTAMP"
                options: {header: true, x: 1, y: "z"}
                incremental: {mode: rolling_window, column: c, lookback: ${N}, unit: day}
              transform: {function: "os.path:join", params: {x: [1, {y: 2}]}}
              partition: {column: d, every: hour, start: "${DAY}", end: 2014-01-01}
              write: {connection: lake, path: a, mode: "${MODE}", merge_keys: [c], partition_by: [d]}
            """,
            """\
            - name: b
              automation: eager
              inputs: [a, {node: p.c, incremental: version}]
              transform: {sql: SELECT 1}
              write: {connection: lake, path: b, mode: overwrite}
            - name: c
              automation: on_cron 0 6 * * *
              inputs: {x: a, y: {node: a, incremental: {mode: stateful, column: q, watermark_lag: "${LAG}"}}}
              transform: {sql: SELECT 1}
              write: {connection: lake, path: c, mode: upsert, options: {keys: [c]}}
            """,
        ),
        project(SOURCE.replace("format: csv", "format: csv, incremental: files")),
        project(SOURCE.replace("name: raw", "name: raw, automation: {on_cron: 0 6 * * *}")),
        project(SOURCE.replace("path: raw}}", "path: raw, mode: append_once, keys: [a]}}").replace(
            "format: csv", "format: csv, incremental: {mode: stateful, column: c, watermark_lag: 5}")),
    ],
)  # fmt: skip
def test_editors_have_nothing_against_what_the_loader_accepts(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text, ENV)
    assert complaints(text) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("project: demo", "projct: demo"),
        ("format: csv", "format: cvs"),
        ("path: raw", "path: 5"),
        ("path: raw", "path: raw, mode: upsrt"),
        ("path: raw", "path: raw, options: {x: 1}"),
        ("name: raw", "name: raw raw"),
        ("name: raw", "name: raw, owner: joe"),
        ("name: raw", "name: raw, automation: lazy"),
        ("name: raw", "name: raw, automation: {}"),
        ("format: csv", "format: csv, incremental: {mode: fles}"),
        ("format: csv", "format: csv, incremental: {mode: stateful, column: c, watermark_lag: 2x}"),
        ("{type: local, base_path: data}", "{base_path: data}"),
        ("{type: local, base_path: data}", "{type: azure_blob, base_path: data}"),
        ("  - pipeline: p\n", "  - pipeline: p\n    schedul: x\n"),
    ],
)
def test_editors_mark_what_the_loader_refuses(old: str, new: str) -> None:
    assert old in project()
    assert complaints(project().replace(old, new, 1))


def test_the_projects_own_file_is_right_for_editors() -> None:
    own = Path(__file__).parents[2] / "odibi.yaml"
    assert complaints(own.read_text(encoding="utf-8")) == []


def test_the_published_schema_is_the_one_of_the_code_and_project_files_name_it() -> None:
    published = ROOT / "docs" / SCHEMA_FILE
    assert published.read_text(encoding="utf-8") == schema_text(), "odi config schema > docs/odibi.schema.json"
    own = (ROOT / "odibi.yaml").read_text(encoding="utf-8")
    assert own.startswith(f"# yaml-language-server: $schema=docs/{SCHEMA_FILE}\n")
    assert complaints(own) == []
    for example in Example:
        text = project_file(example)
        assert text.startswith(f"# yaml-language-server: $schema={SCHEMA_FILE}\n"), example
        assert complaints(text) == [], example
        wrong = text.replace("mode: append}", "mode: apend}").replace("nodes:", "noodles:", 1)
        assert complaints(wrong), example
