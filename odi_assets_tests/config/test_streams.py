"""The ``stream`` block of a node, and inputs that are files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from textwrap import dedent, indent

import pytest

from odi_assets.config.diagnostics.mistakes import ConfigErrors
from odi_assets.config.graph import Graph, NodeKey
from odi_assets.config.loader import load_project_file
from odi_assets.config.models import NodeConfig

HEAD = """\
project: shop
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
  db: {type: postgres, host: h, database: d, user: u, password: p}
pipelines:
- pipeline: p
  nodes:
  - name: payments
    read: {connection: landing, format: json, path: payments/*.json, incremental: files}
    write: {connection: lake, path: payments, mode: append}
"""
MATCHED = """\
- name: matched
  inputs:
    orders: {read: {connection: landing, format: json, path: orders/*.json, schema: "id STRING, at TIMESTAMP"}}
    payments: payments
  stream:
    inputs:
      orders: {where: "id <> ''", watermark: {column: at, delay: 2m}, max_files_per_batch: 1}
      payments: {watermark: {column: paid_at, delay: 1h30m}}
    state_partitions: 2
    late_rows: matched_late
  transform: {sql: "SELECT * FROM orders JOIN payments USING (id)"}
  write: {connection: lake, path: matched, mode: append}
"""


def load(tmp_path: Path, node: str) -> NodeConfig:
    (tmp_path / "odibi.yaml").write_text(HEAD + indent(dedent(node), "  "))
    return Graph(load_project_file(tmp_path / "odibi.yaml").config).node(NodeKey("p", "matched"))


def refusal(tmp_path: Path, node: str) -> str:
    with pytest.raises(ConfigErrors) as caught:
        load(tmp_path, node)
    return str(caught.value)


def test_a_stream_node_reads_files_and_tables(tmp_path: Path) -> None:
    stream = load(tmp_path, MATCHED).stream
    assert stream is not None
    orders, payments = stream.of_input("orders"), stream.of_input("payments")
    assert orders.watermark is not None
    assert (orders.watermark.delay, orders.watermark.spark_delay) == (timedelta(minutes=2), "120000 milliseconds")
    assert (orders.where, orders.max_files_per_batch, payments.where) == ("id <> ''", 1, None)
    assert (stream.output_mode, stream.state_store, stream.retain_batches) == ("append", "rocksdb", None)


def test_a_stream_without_settings(tmp_path: Path) -> None:
    node = """\
    - name: matched
      inputs: [payments]
      stream: {}
      write: {connection: lake, path: matched, mode: append}
    """
    stream = load(tmp_path, node).stream
    assert stream is not None
    assert stream.of_input("payments").watermark is None


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "payments: {watermark",
            "payment: {watermark",
            "`payment` is no input of the node; there are orders, payments",
        ),
        ("payments: payments", "payments: {node: payments, incremental: version}", "leave `incremental` out"),
        ("mode: append}\n", "mode: overwrite}\n", "`append` gives rows that `mode: overwrite` cannot take"),
        ("state_partitions: 2", "output_mode: update", "write with `upsert`, or set `output_mode: append`"),
        ("mode: append}\n", "mode: partition_overwrite, partition_by: [id]}\n", "a batch has the new ones"),
        (', schema: "id STRING, at TIMESTAMP"', "", "a stream of files needs `schema`"),
        ("path: orders/*.json,", "path: orders/*.json, rescued: r,", "is not for streams"),
        ("path: orders/*.json,", "path: orders/*.json, options: {latestFirst: true},", "come too late"),
        ("path: orders/*.json,", "path: orders/*.json, options: {maxFileAge: 1d},", "leaves out files"),
        ("path: orders/*.json,", "path: orders/*.json, options: {fileNameOnly: true},", "other folders have"),
        ("path: orders/*.json,", "path: orders/**/new/*.json,", "has folders after `**`, which a stream cannot follow"),
        ("path: orders/*.json,", "path: orders/**/a**.json,", "has folders after `**`, which a stream cannot follow"),
        ("state_partitions: 2", "conf: {spark.sql.shuffle.partitions: 4}", "has a key of its own: `state_partitions`"),
        ("state_partitions: 2", "conf: {spark.sql.session.timeZone: Asia/Tokyo}", "is UTC in every run"),
        ("state_partitions: 2", "conf: {spark.my.password: x}", "is shown with its value in Spark's events"),
        ("state_partitions: 2", "state_partitions: 0", "state_partitions"),
        ("late_rows: matched_late", "late_rows: payments/late", "inside the table of node `p.payments`"),
        ("late_rows: matched_late", "checkpoint: matched", "node `p.matched` writes the same table"),
        ("delay: 2m", "delay: soon", "is not a lag"),
        (
            "payments: payments",
            "payments: {node: payments, read: {connection: lake, format: delta, path: x}}",
            "give `node` or `read`",
        ),
        ("payments: payments", "payments: {}", "names nothing to read"),
        ("  transform:", "  partition: {column: day, start: 2024-01-01}\n  transform:", "no partitions to backfill"),
    ],
)
def test_settings_that_do_not_fit_are_told(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in MATCHED
    assert told in refusal(tmp_path, MATCHED.replace(old, new, 1))


def test_a_database_cannot_be_streamed(tmp_path: Path) -> None:
    read = '{connection: landing, format: json, path: orders/*.json, schema: "id STRING, at TIMESTAMP"}'
    told = refusal(tmp_path, MATCHED.replace(read, "{connection: db, format: sql, table: orders}"))
    assert "a database cannot be read as a stream" in told


def test_files_as_inputs_are_for_stream_nodes(tmp_path: Path) -> None:
    start, end = MATCHED.index("  stream:"), MATCHED.index("  transform:")
    assert "is for stream nodes: add `stream: {}`" in refusal(tmp_path, MATCHED[:start] + MATCHED[end:])
