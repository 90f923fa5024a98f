"""Reading a project file stays quick: commands that need no Spark answer in well under a second."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from odi_assets.config.loader import load_project_file
from odi_assets_tests.config.support import project, write

HEAVY = ("pyspark", "dagster", "pandas", "numpy", "pyarrow", "deltalake", "sqlglot", "croniter", "fsspec")


def test_the_room_imports_nothing_heavy() -> None:
    program = (
        "import sys, odi_assets.config, odi_assets.config.json_schema, odi_assets.connections;"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


NODE = """\
- name: n{i}
  description: node number {i}
  owner: team:data
  tags: [a, b]
  {source}
  transform:
    sql: |
      SELECT a, b, c, sum(d) AS d
      FROM {view}
      WHERE a > {i} AND b IN (SELECT b FROM {view})
      GROUP BY a, b, c
  write:
    connection: lake
    path: t/n{i}
    mode: upsert
    keys: [a, b]
"""
READ = "read: {connection: lake, format: csv, path: in, schema: 'a INT, b STRING, c INT, d DOUBLE', incremental: files}"


def test_five_hundred_nodes_load_in_about_a_second(tmp_path: Path) -> None:
    nodes = [
        NODE.format(i=i, source=f"inputs: [n{i - 1}]" if i else READ, view=f"n{i - 1}" if i else "df")
        for i in range(500)
    ]
    file = write(tmp_path, project(*nodes))
    load_project_file(file)
    start = time.process_time()
    loaded = load_project_file(file)
    assert (
        time.process_time() - start < 1.5
    )  # 0.5 s on two shared cores; processor time, so that neighbours matter less
    assert len(loaded.config.pipelines[0].nodes) == 500
