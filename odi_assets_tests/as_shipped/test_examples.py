"""Every project that ``odi init`` makes: what it says to type next is typed, and Dagster runs what is left.

The example of a capture has a server, and tests of its own.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odi_assets.sample.examples import NEXT, Example
from odi_assets_tests.as_shipped.installed import Installed
from odi_assets_tests.as_shipped.test_projects import MATERIALIZE


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize("example", [one for one in Example if one is not Example.CDC])
def test_what_an_example_says_to_type_next_works(example: Example, installed: Installed, tmp_path: Path) -> None:
    shown = installed.run(f"odi init --example {example} made", tmp_path)
    assert shown.returncode == 0, shown.stderr
    folder = tmp_path / "made"
    for step in NEXT[example]:
        assert step.command in shown.stderr
        installed.done(step.command, folder)
    installed.done(MATERIALIZE, folder)
    installed.done("odi doctor", folder)
    runs = json.loads(installed.done("odi runs list --json", folder))
    assert {run["status"] for run in runs} <= {"SUCCESS", "NO_DATA"}
