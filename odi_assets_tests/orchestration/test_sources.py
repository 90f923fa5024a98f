"""The sources of a project, as assets that Dagster shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets.sources import Sources
from odi_assets_tests.work import grows_with_the_input, steps

HEAD = """\
project: many
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
pipelines:
- pipeline: p
  nodes:
"""
NODE = """\
  - {{name: n{n}, read: {{connection: landing, format: json, path: n{n}}}, write: {{connection: lake, path: n{n}}}}}
"""


@pytest.mark.slow
def test_the_sources_of_many_nodes_are_found_in_one_pass(tmp_path: Path) -> None:
    def work(size: int) -> int:
        file = tmp_path / f"{size}.yaml"
        file.write_text(HEAD + "".join(NODE.format(n=n) for n in range(size)), encoding="utf-8")
        project = Project.load(file)

        def look() -> None:
            sources = Sources(project)
            assert all(sources.of(key) for key in project.graph.nodes)

        return steps(look)

    assert grows_with_the_input(work, 80)
