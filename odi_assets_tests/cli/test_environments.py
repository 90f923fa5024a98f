"""``environments`` of the project file, on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from odi_assets_tests.cli.conftest import Odi

TEST = "environments:\n  test:\n    connections: {lake: {base_path: test_lake}}\n"


@pytest.fixture
def two(shop: Path) -> Path:
    """The tiny project, with a second environment whose lake is another one."""
    file = shop / "odibi.yaml"
    file.write_text(file.read_text(encoding="utf-8") + TEST, encoding="utf-8")
    return shop


def _json(odi: Odi, *arguments: str) -> Any:
    answer = odi(*arguments, "--json")
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def _marks(odi: Odi, *options: str) -> dict[str, tuple[str | None, bool]]:
    """The environment of each key of the pipeline, and whether it has a mark."""
    found = _json(odi, *options, "state", "list", "--pipeline", "shop")
    return {one["key"]: (one["environment"], one["value"] is not None) for one in found}


@pytest.mark.usefixtures("spark")
def test_an_environment_has_tables_state_and_history_of_its_own(
    two: Path, odi: Odi, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert odi("run", "shop", "--node", "orders").code == 0
    assert _marks(odi) == {"shop.orders": (None, True), "shop.spending": (None, False)}
    assert _marks(odi, "--env", "test") == {"shop.orders": (None, False), "shop.spending": (None, False)}
    assert _json(odi, "--env", "test", "runs", "list") == []
    assert "orders-1.csv" in odi("--env", "test", "plan", "shop").out
    assert odi("--env", "test", "run", "shop", "--node", "orders").code == 0
    assert _marks(odi, "--env", "test") == {"shop.orders": ("test", True), "shop.spending": (None, False)}
    for lake in ("lake", "test_lake"):
        table = DeltaTable(str(two / lake / "orders"))
        assert (table.version(), table.count()) == (0, 2), "each environment loaded the file once"
    plain, test = _json(odi, "runs", "list"), _json(odi, "--env", "test", "runs", "list")
    assert [len(plain), len(test)] == [1, 1]
    assert plain[0]["run_id"] != test[0]["run_id"]
    monkeypatch.setenv("ODI_ENV", "test")
    assert _json(odi, "runs", "list") == test
    assert _marks(odi)["shop.orders"] == ("test", True)


@pytest.mark.usefixtures("two")
def test_an_unknown_environment_is_named(odi: Odi) -> None:
    answer = odi("--env", "tset", "state", "list")
    assert answer.code == 2
    assert "did you mean `test`?" in answer.err
