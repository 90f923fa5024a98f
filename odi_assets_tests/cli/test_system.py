"""``odi system maintain`` and ``odi catalog state``."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from odi_assets.nodes.project import Project
from odi_assets.state import StateBackend
from odi_assets_tests.cli.conftest import Odi
from odi_assets_tests.cli.shop import PROJECT
from odi_assets_tests.state.test_runs_contract import run


@pytest.fixture
def state(shop: Path) -> StateBackend:
    """Three runs of 2013 and one of now, of one node."""
    state = Project.load(shop / "odibi.yaml").open_state()
    for number in range(3):
        state.record_runs([run(number, pipeline="shop", node="orders")])
    state.record_runs([run(3, pipeline="shop", node="orders", timestamp=datetime.now(UTC))])
    return state


def test_maintenance_drops_runs_that_are_too_old_and_folds_files(state: StateBackend, odi: Odi) -> None:
    dry = odi("system", "maintain", "--keep-runs-for", "90d", "--dry-run", "--json")
    assert json.loads(dry.out) == {"runs_recovered": 0, "runs_dropped": 3, "files_folded": 4, "files_removed": 0}
    assert len(state.list_runs()) == 4
    done = odi("system", "maintain", "--keep-runs-for", "90d")
    assert (done.code, done.out) == (0, "")
    assert "3 rows of run history dropped" in done.err
    assert [record.run_id for record in state.list_runs()] == ["run-3"]


def test_how_long_runs_are_kept_may_stand_in_the_project_file(state: StateBackend, odi: Odi, shop: Path) -> None:
    kept = odi("system", "maintain")
    assert kept.code == 0
    assert "All runs are kept" in kept.err
    assert len(state.list_runs()) == 4
    (shop / "odibi.yaml").write_text(PROJECT.replace("path: system}", "path: system, keep_runs_for: 12w}"))
    assert odi("system", "maintain").code == 0
    assert len(state.list_runs()) == 1


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("span", ["90", "soon", "0d", "-1d"])
def test_a_span_that_is_none_is_bad_input(odi: Odi, span: str) -> None:
    answer = odi("system", "maintain", f"--keep-runs-for={span}")
    assert (answer.code, answer.out) == (2, "")
    assert "--keep-runs-for" in answer.err


def test_state_is_listed_as_odibis_documents_have_it(state: StateBackend, odi: Odi) -> None:
    state.set_hwm("shop.orders", date(2013, 1, 31))
    state.set_hwm("other", 5)
    head, first, second = odi("catalog", "state", "odibi.yaml").out.splitlines()
    assert head.split() == ["key", "value", "updated_at"]
    assert (first.split()[:2], second.split()[:2]) == (["other", "5"], ["shop.orders", "2013-01-31"])
    (only,) = json.loads(odi("catalog", "state", "odibi.yaml", "--pipeline", "shop", "--format", "json").out)
    assert (only["key"], only["value"], sorted(only)) == ("shop.orders", "2013-01-31", ["key", "updated_at", "value"])
    assert odi("catalog", "state", "nowhere.yaml").code == 2
