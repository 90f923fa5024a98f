"""A tiny project for the tests of ``odi``: orders arrive as CSV files, and what each customer spent is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PROJECT = """\
project: shop
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: system}
spark:
  master: local[2]
  conf: {spark.sql.shuffle.partitions: "1", spark.driver.memory: 1g}
pipelines:
  - pipeline: shop
    nodes:
      - name: orders
        read:
          connection: landing
          format: csv
          path: "*.csv"
          options: {header: "true"}
          schema: id INT, customer STRING, amount INT
          incremental: {mode: files}
        write: {connection: lake, path: orders, mode: append}
      - name: spending
        inputs: {orders: {node: orders, incremental: version}}
        transform: {sql: "SELECT customer, sum(amount) AS amount FROM orders GROUP BY customer"}
        write: {connection: lake, path: spending}
"""

FAILING = """\
      - name: ratio
        inputs: {orders: orders}
        transform: {sql: "SELECT id DIV (id - id) AS ratio FROM orders"}
        write: {connection: lake, path: ratio}
      - name: after_ratio
        inputs: {ratio: ratio}
        transform: {sql: "SELECT * FROM ratio"}
        write: {connection: lake, path: after_ratio}
"""


def make_shop(root: Path, text: str = PROJECT) -> Path:
    """Write the project below ``root``, with one file of two orders, and return its project file."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "landing").mkdir()
    deliver(root, "orders-1.csv", ["1,ann,10", "2,bob,5"])
    file = root / "odibi.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def deliver(root: Path, name: str, orders: Sequence[str]) -> None:
    """Land a file of orders."""
    (root / "landing" / name).write_text("\n".join(["id,customer,amount", *orders, ""]), encoding="utf-8")


def environment(**more: str) -> dict[str, str]:
    """The environment of a shell in which nothing of ``odi``'s is set."""
    unset = {"ODI_PROJECT", "ODI_DEBUG", "ODI_SPARK_LOG_LEVEL", "NO_COLOR", "DAGSTER_HOME"}
    forced = {"FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "COLUMNS"}
    return {name: value for name, value in os.environ.items() if name not in unset | forced} | more


def odi(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run ``odi`` as a process of its own, with pipes for a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "odi_assets.cli", *arguments],
        cwd=cwd,
        env=dict(env or environment()),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
