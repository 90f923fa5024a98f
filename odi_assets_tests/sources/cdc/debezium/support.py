"""Envelopes as Debezium writes them, and projects that read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from odi_assets_tests.nodes.support import Sandbox

UNAVAILABLE = "__debezium_unavailable_value"
INT = {"type": "int32", "optional": False}
TEXT = {"type": "string", "optional": True}
ORDERS: Mapping[str, Mapping[str, Any]] = {"id": INT, "state": TEXT, "note": TEXT}


def envelope(
    op: str,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    *,
    table: str = "orders",
    **source: Any,
) -> dict[str, Any]:
    """A change of a table of PostgreSQL."""
    place: dict[str, Any] = {
        "connector": "postgresql",
        "name": "shop",
        "db": "shopdb",
        "schema": "public",
        "table": table,
    }
    place |= {"ts_ms": 1_700_000_000_000, "txId": 700, "snapshot": "false", **source}
    return {"before": before, "after": after, "source": place, "op": op, "ts_ms": 1_700_000_000_500}


def described(value: Mapping[str, Any], columns: Mapping[str, Mapping[str, Any]] = ORDERS) -> dict[str, Any]:
    """A change with the schema that Kafka's JsonConverter puts around it."""
    fields = [{"field": name, **kind} for name, kind in columns.items()]
    rows = [
        {"type": "struct", "fields": fields, "optional": True, "name": "shop.public.orders.Value", "field": side}
        for side in ("before", "after")
    ]
    others = [{"type": "string", "optional": False, "field": "op"}]
    return {"schema": {"type": "struct", "fields": [*rows, *others], "name": "Envelope"}, "payload": dict(value)}


def keyed(value: Mapping[str, Any] | None, **key: Any) -> dict[str, Any]:
    """A message with its key beside it."""
    return {"key": key, "value": value}


def lines(*messages: Any) -> Sequence[str]:
    return [json.dumps(one) for one in messages]


def project(
    folder: Path,
    spark: SparkSession,
    *tables: str,
    read: str = 'connection: landing, format: debezium, path: "topics/*"',
    connections: str = "",
    history: bool = False,
) -> Sandbox:
    """A project that makes a change log of envelopes, and applies it."""
    text = f"""
- pipeline: p
  nodes:
  - name: changes
    read: {{{read}}}
    write: {{connection: lake, path: changes}}
"""
    for name in tables:
        apply = f"changes: changes, table: public.{name}{', history: true' if history else ''}"
        text += f"  - {{name: {name}, apply: {{{apply}}}, write: {{connection: lake, path: {name}}}}}\n"
    return Sandbox(folder, spark, text, connections)


def run_all(box: Sandbox) -> None:
    """Run each node once, in order."""
    for key in box.project.graph.order("p"):
        box.run(key.node)


def held(box: Sandbox, name: str) -> dict[Any, dict[str, Any]]:
    """The rows of a node's table, by the value of their first column; each once."""
    table = box.table(name).table.to_pyarrow_table().to_pylist()
    first = next(iter(table[0])) if table else ""
    found = {row[first]: row for row in table}
    assert len(found) == len(table)
    return found
