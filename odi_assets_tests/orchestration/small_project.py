"""A small project: two days of sales that land as CSV files, and its nodes over them."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from odi_assets.nodes.project import Project

PROJECT_FILE = """
project: shop_analytics
owner: data@shop.example
connections:
  landing: {type: local, base_path: ./landing}
  lake: {type: local, base_path: ./lake}
system: {connection: lake, path: _odibi_system}
pipelines:
  - pipeline: shop
    description: Sales of the shop.
    schedule: "15 6 * * *"
    tags: [retail]
    nodes:
      - name: raw_sales
        description: Sales as they land.
        tags: [bronze]
        read:
          connection: landing
          format: csv
          path: sales/*.csv
          schema: "id BIGINT, day STRING, shop STRING, amount DOUBLE"
          options: {header: true}
          incremental: files
        write: {connection: lake, path: raw_sales, mode: append}
      - name: shops
        owner: team:places
        read:
          connection: landing
          format: csv
          path: shops.csv
          schema: "shop STRING, city STRING"
          options: {header: true}
        write: {connection: lake, path: shops, mode: overwrite}
      - name: sales
        description: One row per sale.
        inputs: {raw_sales: {node: raw_sales, incremental: version}}
        transform: {sql: "SELECT id, CAST(day AS DATE) AS day, shop, amount FROM raw_sales"}
        write: {connection: lake, path: sales, mode: upsert, keys: [id]}
      - name: sales_by_day
        inputs: {sales: {node: sales, incremental: version}, shops: shops}
        partition: {column: day, every: day, start: 2024-01-01, end: 2024-02-01}
        transform:
          sql: |
            SELECT day, city, sum(amount) AS amount
            FROM sales JOIN shops USING (shop) GROUP BY day, city
        write: {connection: lake, path: sales_by_day, mode: partition_overwrite}
      - name: revenue
        inputs: {sales_by_day: {node: sales_by_day, incremental: version}}
        partition: {column: day, every: day, start: 2024-01-01, end: 2024-02-01}
        transform: {sql: "SELECT day, sum(amount) AS revenue FROM sales_by_day GROUP BY day"}
        write: {connection: lake, path: revenue, mode: partition_overwrite}
"""

SALES = {
    "2024-01-01": [(1, "north", 10.0), (2, "south", 5.5), (3, "north", 1.0)],
    "2024-01-02": [(4, "south", 7.0), (5, "south", 2.5)],
    "2024-01-03": [(6, "north", 4.0)],
}
NODES = ["raw_sales", "shops", "sales", "sales_by_day", "revenue"]


def make_project(root: Path, *days: str, text: str = PROJECT_FILE) -> Project:
    """Write the project file and the landing of ``days`` into ``root``."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "odibi.yaml").write_text(textwrap.dedent(text), encoding="utf-8")
    (root / "landing" / "sales").mkdir(parents=True, exist_ok=True)
    (root / "landing" / "shops.csv").write_text("shop,city\nnorth,Oslo\nsouth,Rome\n", encoding="utf-8")
    for day in days:
        land(root, day)
    return Project.load(root / "odibi.yaml")


def land(root: Path, day: str) -> None:
    """Land the sales of one day, later than all that landed before."""
    folder = root / "landing" / "sales"
    path = folder / f"{day}.csv"
    lines = [f"{number},{day},{shop},{amount}" for number, shop, amount in SALES[day]]
    path.write_text("\n".join(["id,day,shop,amount", *lines]) + "\n", encoding="utf-8")
    last = max(file.stat().st_mtime_ns for file in folder.iterdir())
    later = last + 1_000_000
    os.utime(path, ns=(later, later))
