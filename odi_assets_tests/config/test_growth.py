"""What loading a project costs grows with its nodes, and not with their pairs."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path

from odi_assets.config.loader import load_project_file

_HEAD = """project: grows
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: system}
pipelines:
- pipeline: p
  nodes:
"""
_FEW = 40


def _calls(folder: Path, nodes: int) -> int:
    """The function calls that it takes to load a project of landing zones, tables, and chains between them."""
    lines = []
    for number in range(nodes):
        read = f"read: {{connection: landing, format: csv, path: 'n{number}/*.csv', schema: id BIGINT}}"
        inputs = f"inputs: {{above: {{node: n{number - 1}, incremental: version}}}}"
        above = f"{inputs}, transform: {{sql: SELECT id FROM above}}"
        write = f"write: {{connection: lake, path: n{number}, mode: upsert, keys: [id]}}"
        lines.append(f"  - {{name: n{number}, {above if number % 4 else read}, {write}}}")
    file = folder / f"{nodes}.yaml"
    file.write_text(_HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    profile = cProfile.Profile()
    profile.runcall(load_project_file, file)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def test_four_times_as_many_nodes_take_about_four_times_as_many_steps(tmp_path: Path) -> None:
    _calls(tmp_path, 4)
    few, many = _calls(tmp_path, _FEW), _calls(tmp_path, 4 * _FEW)
    assert many <= 4.4 * few
