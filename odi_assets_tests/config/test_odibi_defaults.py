"""Keys of Odibi 3.15.1 that are not known here: at the values that they have unless given, they change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from odi_assets.config.json_schema import json_schema
from odi_assets.config.models import ProjectConfig
from odi_assets_tests.config.support import load, problem, project

WITH_DEFAULTS = """\
project: demo
vars: {}
environments:
performance: {use_arrow: true, spark_config: {}, skip_run_logging: false}
connections:
  lake: {type: local, base_path: data, validation_mode: lazy}
system:
  connection: lake
  sync_to:
  optimize_catalog: false
  sync_timeout_seconds: 30
  async_lineage: true
pipelines:
  - pipeline: p
    freshness_sla:
    freshness_anchor: run_completion
    auto_cache_threshold: 3
    nodes:
      - name: raw
        enabled: true
        columns: {}
        streaming: false
        transformer:
        params: {}
        pre_sql: []
        post_sql: []
        materialized:
        cache: false
        log_level:
        on_error: fail_later
        validation:
        contracts: []
        schema_policy:
        privacy:
        sensitive: false
        read:
          connection: lake
          format: csv
          path: in/*.csv
          streaming: false
          filter:
          time_travel:
          archive_options: {}
          incremental: {mode: stateful, column: c, lookback: , unit: }
        write:
          connection: lake
          format: delta
          path: raw
          table:
          zorder_by: []
          table_properties: {}
          merge_schema: false
          overwrite_schema: false
          first_run_query:
          options: {}
          add_metadata:
          skip_if_unchanged: false
          merge_keys:
"""


def test_keys_at_their_defaults_are_taken_and_change_nothing(tmp_path: Path) -> None:
    loaded = load(tmp_path, WITH_DEFAULTS)
    assert loaded.warnings == ()
    plain = project(
        "- {name: raw, read: {connection: lake, format: csv, path: in/*.csv, "
        "incremental: {mode: stateful, column: c}}, write: {connection: lake, path: raw}}\n"
    )
    assert loaded.config == load(tmp_path, plain).config


def test_editors_have_nothing_against_them() -> None:
    data: dict[str, Any] = yaml.safe_load(WITH_DEFAULTS)
    assert [error.message for error in Draft202012Validator(json_schema()).iter_errors(data)] == []


@pytest.mark.parametrize(
    ("default", "other"),
    [
        ("cache: false", "cache: true"),
        ("enabled: true", "enabled: false"),
        ("enabled: true", "enabled: 1"),
        ("pre_sql: []", "pre_sql: [SELECT 1]"),
        ("on_error: fail_later", "on_error: ignore"),
        ("filter:", "filter: a > 1"),
        ("merge_schema: false", "merge_schema: true"),
        ("optimize_catalog: false", "optimize_catalog: true"),
        ("skip_run_logging: false", "skip_run_logging: true"),
        ("use_arrow: true", "use_arow: true"),
        ("vars: {}", "vars: {a: 1}"),
        ("auto_cache_threshold: 3", "auto_cache_threshold: 4"),
        ("validation_mode: lazy", "validation_mode: eager"),
    ],
)
def test_another_value_is_refused_by_name(tmp_path: Path, default: str, other: str) -> None:
    text = WITH_DEFAULTS.replace(default, other, 1)
    assert text != WITH_DEFAULTS
    found = problem(tmp_path, text)
    named = default.partition(":")[0].strip()
    assert named in found.key or "performance" in found.key


@pytest.mark.parametrize("given", ["meta_runs_path", "meta_state_path"])
def test_one_path_of_the_system_tables_is_enough(tmp_path: Path, given: str) -> None:
    system = load(
        tmp_path, project().replace("{connection: lake}\n", f"{{connection: lake, {given}: a/b}}\n", 1)
    ).config.system
    assert system is not None
    assert (getattr(system, given), system.path) == ("a/b", "_odibi_system")


def test_pipelines_may_be_left_out_but_not_empty(tmp_path: Path) -> None:
    head = project().partition("pipelines:")[0]
    loaded = load(tmp_path, head)
    assert loaded.config.pipelines == ()
    assert "pipelines" not in ProjectConfig.model_json_schema()["required"]
    assert problem(tmp_path, f"{head}pipelines: []\n").key == "pipelines"
