"""``make check`` selects what it promises to: tests that need neither Spark nor a server nor a browser."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from odi_assets_tests.conftest import NOT_QUICK, is_quick

MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"


def test_no_test_of_make_check_uses_spark_or_a_server(request: pytest.FixtureRequest) -> None:
    """Of those that this run has collected: all, in a run of the whole suite."""
    quick = [item for item in request.session.items if item.get_closest_marker("quick")]
    assert request.node in quick
    for item in quick:
        assert NOT_QUICK.isdisjoint(item.fixturenames), item.nodeid  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("place", "fixtures", "marks", "quick"),
    [
        ("nodes/planning/test_ranges.py::test_a", ["tmp_path", "box", "spark"], [], False),
        ("cli/test_run.py::test_a", ["jvm", "odi"], [], False),
        ("sources/sql/test_values.py::test_a[postgres]", ["server", "databases"], [], False),
        ("orchestration/test_browser.py::test_a", ["address"], [], False),
        ("config/test_mistakes.py::test_a", ["tmp_path"], [], True),
        ("config/test_mistakes.py::test_a", ["tmp_path"], ["slow"], False),
    ],
)
def test_a_test_is_judged_by_its_fixtures_and_by_the_mark_of_what_takes_seconds(
    place: str, fixtures: list[str], marks: list[str], quick: bool
) -> None:
    """A fixture that uses another brings it along: pytest lists both."""
    item = SimpleNamespace(nodeid=f"odi_assets_tests/{place}", fixturenames=fixtures, keywords=marks)
    assert is_quick(cast(pytest.Item, item)) is quick


def test_the_fixtures_that_are_left_out_exist() -> None:
    """A fixture that was renamed would let its tests in."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("*.py"))
    for name in NOT_QUICK:
        assert re.search(rf"@pytest\.fixture.*\ndef {name}\(", sources), name


def test_the_makefile_selects_them_by_that_mark() -> None:
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert recipe
    assert "pytest -m quick" in recipe[1]
    assert all(tool in recipe[1] for tool in ("ruff check", "mypy"))
