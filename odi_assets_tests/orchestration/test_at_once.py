"""Below ``odi dev --connect``: which nodes keep a JVM of their own, and which runs take several processes."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from odi_assets.config.graph import NodeKey
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.orchestration.runs.at_once import is_one_process, own_jvm, run_executor
from odi_assets.spark.shared_server import SERVER_VARIABLE

PROJECT = """
project: levels
connections: {landing: {type: local, base_path: landing}, lake: {type: local, base_path: lake}}
system: {connection: lake, path: system}
pipelines:
- pipeline: wide
  nodes:
  - &read
    name: one
    read: {connection: landing, format: json, path: "*", schema: "id INT"}
    write: {connection: lake, path: one, mode: append}
  - {<<: *read, name: two, write: {connection: lake, path: two, mode: overwrite}}
- pipeline: chain
  nodes:
  - {<<: *read, name: first, write: {connection: lake, path: first, mode: overwrite}}
  - {name: second, inputs: [first], write: {connection: lake, path: second, mode: overwrite}}
- pipeline: own
  nodes:
  - {<<: *read, name: flow, stream: {}, write: {connection: lake, path: flow, mode: append}}
  - {<<: *read, name: old, transform: {function: "old:rows"}, write: {connection: lake, path: old, mode: overwrite}}
  - {<<: *read, name: new, transform: {function: "new:rows"}, write: {connection: lake, path: new, mode: overwrite}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "odibi.yaml").write_text(PROJECT, encoding="utf-8")
    (tmp_path / "old.py").write_text("def rows(df):\n    return df.rdd.toDF()\n", encoding="utf-8")
    (tmp_path / "new.py").write_text("def rows(df):\n    return df.distinct()\n", encoding="utf-8")
    return Project.load(tmp_path / "odibi.yaml")


def one_process(project: Project, pipeline: str) -> bool:
    definitions = build_definitions(project, executor=run_executor(project))
    return is_one_process(project, definitions.resolve_job_def(pipeline))


def test_streams_and_functions_that_use_the_jvm_keep_one_of_their_own(project: Project) -> None:
    assert own_jvm(project, project.graph.order(None)) == {
        NodeKey("own", "flow"): "it is a stream",
        NodeKey("own", "old"): "its function uses the JVM (old.py:2: rdd)",
    }


def test_nodes_of_one_level_run_in_processes_of_their_own_only_where_they_share_a_server(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_executor(project) is dg.in_process_executor
    assert one_process(project, "wide")
    monkeypatch.setenv(SERVER_VARIABLE, "sc://localhost:1/;token=t")
    assert not one_process(project, "wide")
    assert one_process(project, "chain")
    assert one_process(project, "own")
