"""Code versions: the same definition has the same one, whatever version of this package looks at it."""

from __future__ import annotations

from pathlib import Path

from odi_assets.nodes.node import code_version
from odi_assets.nodes.project import Project

PROJECT = """\
project: demo
connections:
  lake: {type: local, base_path: data}
  db: {type: postgres, host: h, database: d, log: {slot: odi_shop, create: true}}
pipelines:
  - pipeline: p
    nodes:
      - name: csv
        read: {connection: lake, format: csv, path: in/*.csv, schema: "id BIGINT", options: {header: true},
          rescued: rest, incremental: files}
        write: {connection: lake, path: csv, mode: append}
      - name: parquet
        read: {connection: lake, format: parquet, path: facts, strict: false}
        write: {connection: lake, path: parquet}
      - name: delta
        read: {connection: lake, format: delta, path: other, incremental: version}
        write: {connection: lake, path: delta, mode: append}
      - name: table
        read: {connection: db, format: sql, table: sales.orders, pieces: 2, partition_column: id}
        write: {connection: lake, path: table}
      - name: query
        read: {connection: db, format: sql, query: SELECT 1 AS one}
        write: {connection: lake, path: query}
      - name: log
        read: {connection: db, format: cdc, tables: [public.orders]}
        write: {connection: lake, path: log}
      - name: stream
        stream: {}
        inputs: {a: {read: {connection: lake, format: json, path: events, schema: "id BIGINT"}}}
        write: {connection: lake, path: stream, mode: append}
"""


def test_definitions_have_the_code_versions_that_commits_of_earlier_versions_name(tmp_path: Path) -> None:
    (tmp_path / "odibi.yaml").write_text(PROJECT, encoding="utf-8")
    project = Project.load(tmp_path / "odibi.yaml")
    assert {key.node: code_version(project, key) for key in project.graph.nodes} == {
        "csv": "2be2ff01d226",
        "parquet": "812d399f4526",
        "delta": "c77add3aba24",
        "table": "0e442cab5301",
        "query": "121b6ab7e438",
        "log": "5e558734a27a",
        "stream": "b6cf277711bb",
    }
