"""A project for the tests of ``odi``: its node ``events`` follows the cursor ``at`` of CSV files."""

from __future__ import annotations

from pathlib import Path


def project(columns: str, write: str, more: str = "") -> str:
    """The project file.

    Args:
        columns: of the files, with ``at TIMESTAMP`` among them.
        write: how the node's table is written.
        more: settings of the increment.
    """
    return f"""
project: test
connections:
  landing: {{type: local, base_path: landing}}
  lake: {{type: local, base_path: lake}}
system: {{connection: lake, path: system}}
pipelines:
- pipeline: p
  nodes:
  - name: events
    read:
      connection: landing
      format: csv
      path: in/*
      schema: "{columns}"
      options: {{header: "true"}}
      incremental: {{mode: stateful, column: at{f", {more}" if more else ""}}}
    write: {{connection: lake, path: events, {write}}}
"""


def land_lines(root: Path, name: str, *lines: str) -> None:
    """Land a file of these lines, the names of its columns first."""
    folder = root / "landing" / "in"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join([*lines, ""]), encoding="utf-8")
