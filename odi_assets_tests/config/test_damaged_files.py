"""Whatever is in the file: it loads, or its mistakes are listed with their places."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odi_assets.config.diagnostics.mistakes import ConfigErrors, Problem
from odi_assets.config.loader import load_project_file
from odi_assets_tests.config.support import SOURCE, project, write

WHOLE = project(
    SOURCE,
    """\
    - name: typed
      owner: team:data
      tags: [a]
      depends_on: [raw]
      inputs:
        r: {node: raw, incremental: {mode: stateful, column: id, watermark_lag: 2h}}
      transform:
        sql: |
          SELECT * FROM r
          WHERE id > 1
      partition: {column: d, start: 2013-01-01}
      write:
        connection: lake
        path: ${A}
        mode: upsert
        keys: [id]
    """,
)
LINES = WHOLE.splitlines()
SCRAPS = [
    "5",
    "null",
    "[]",
    "{}",
    "[a]",
    "{a: b}",
    "''",
    "${X}",
    "${",
    '"',
    "*a",
    "!t",
    "- ",
    "? ",
    ": ",
    "\t",
    "é",
    "..",
    "|",
]


def mistakes(folder: Path, text: str) -> tuple[Problem, ...]:
    try:
        load_project_file(write(folder, text), env={"A": "typed"})
    except ConfigErrors as error:
        return error.problems
    return ()


def check(folder: Path, text: str) -> None:
    lines = len(text.splitlines()) + 2
    assert all(1 <= problem.line <= lines and problem.column >= 1 for problem in mistakes(folder, text))


SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@SETTINGS
@given(st.integers(0, len(LINES) - 1), st.integers(0, len(LINES) - 1), st.integers(-4, 4))
def test_lines_that_are_lost_doubled_or_shifted(tmp_path: Path, lost: int, doubled: int, shift: int) -> None:
    lines = [*LINES]
    lines.insert(lost, " " * shift + LINES[doubled] if shift >= 0 else LINES[doubled][-shift:])
    del lines[lost + (shift % 2)]
    check(tmp_path, "\n".join(lines))


@pytest.mark.slow
@SETTINGS
@given(st.integers(0, len(WHOLE)), st.integers(0, 12), st.sampled_from(SCRAPS) | st.text(max_size=3))
def test_words_that_are_replaced_by_something_else(tmp_path: Path, start: int, length: int, scrap: str) -> None:
    text = (WHOLE[:start] + scrap + WHOLE[start + length :]).encode("utf-8", "replace").decode()
    check(tmp_path, text)
