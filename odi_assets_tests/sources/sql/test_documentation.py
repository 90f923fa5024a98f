"""The project file of docs/sql.md runs as it is printed there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odi_assets.nodes.project import Project
from odi_assets.nodes.run_history import RunHistory
from odi_assets.nodes.run_node import NodeRun, run_node
from odi_assets.sources.sql.dialects import Mssql, Mysql, Postgres
from odi_assets_tests.sources.sql.servers import DATABASE, PASSWORD, USER, Server

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "sql.md").read_text(encoding="utf-8")


def test_the_drivers_of_the_document_are_those_of_the_messages() -> None:
    for dialect in (Postgres, Mysql, Mssql):
        assert f"| `{dialect.package}` | `pip install 'odi_assets[{dialect.extra}]'` |" in DOCUMENT


def test_its_project_file_runs(
    server: Server, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute(
        "DROP SCHEMA IF EXISTS sales CASCADE",
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.orders (id bigint PRIMARY KEY, amount numeric(10,2), changed_at timestamptz NOT NULL)",
        "CREATE TABLE sales.customers (id int, name text, active boolean)",
        "CREATE TABLE sales.shipments (id bigint PRIMARY KEY, delivered_at timestamptz, sent_at timestamptz NOT NULL)",
        "INSERT INTO sales.shipments VALUES (1, NULL, now()), (2, now(), now()), (3, NULL, now())",
        "INSERT INTO sales.orders VALUES (1, 2.5, now()), (2, 3.5, now())",
        "INSERT INTO sales.customers VALUES (1, 'a', true), (2, 'b', false), (9, 'c', true)",
    )
    (text,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    text = text.replace("database: shop", f"database: {DATABASE}").replace("user: reader", f"user: {USER}")
    (tmp_path / "odibi.yaml").write_text(text, encoding="utf-8")
    for name, value in {"HOST": "127.0.0.1", "PORT": str(server.port), "PASSWORD": PASSWORD}.items():
        monkeypatch.setenv(f"SHOP_DB_{name}", value)
    project = Project.load(tmp_path / "odibi.yaml")
    history = RunHistory(project, project.open_state(), "documentation")
    found = [run_node(NodeRun(history, key, lambda: spark)) for key in project.pipeline_nodes()]
    assert {result.key.node: result.rows_written for result in found} == {"orders": 2, "customers": 2, "shipments": 3}
