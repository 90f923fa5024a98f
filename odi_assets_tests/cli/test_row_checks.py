"""Checks of a node in the shell: what ``odi run`` prints of them, and ``odi checks`` over a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odi_assets_tests.cli.conftest import Odi

pytestmark = pytest.mark.usefixtures("spark")

PROJECT = """\
project: checked
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: system}
pipelines:
- pipeline: p
  nodes:
  - name: orders
    read: {connection: landing, format: json, path: "orders", schema: "id BIGINT, amount DOUBLE", incremental: files}
    write: {connection: lake, path: orders, mode: append}
    checks:
    - not_null: id
    - unique: id
    - {range: {column: amount, min: 0}, severity: warn}
  - name: plain
    inputs: [orders]
    write: {connection: lake, path: plain}
"""


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "odibi.yaml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    land(tmp_path, "1", '{"id": 1, "amount": 5.0}', '{"id": 2, "amount": -1.0}')
    return tmp_path


def land(root: Path, name: str, *rows: str) -> None:
    folder = root / "landing" / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text("\n".join(rows) + "\n")


def test_a_run_prints_a_line_for_each_check_that_failed(checked: Path, odi: Odi) -> None:
    done = odi("run", "p")
    assert done.code == 0, done.err
    text = "p.orders: check `range_amount` (warn): 1 of 2 rows has `amount` below 0; as in amount=-1.0, id=2"
    assert text in done.err
    land(checked, "2", '{"id": null, "amount": 1.0}')
    stopped = odi("run", "p")
    assert stopped.code == 1
    assert "`not_null_id`: 1 of 1 row has NULL in `id`; as in id=NULL, amount=1.0" in stopped.err
    assert "severity: warn" in stopped.err
    shown = json.loads(odi("runs", "list", "--node", "orders", "--json").out)
    assert [run["status"] for run in shown] == ["FAILURE", "SUCCESS"]


@pytest.mark.usefixtures("checked")
def test_a_run_gives_its_checks_as_json(odi: Odi) -> None:
    by_node = {one["node"]: one for one in json.loads(odi("run", "--json").out)}
    found = {one["check"]: one["passed"] for one in by_node["orders"]["checks"]}
    assert found == {"not_null_id": True, "unique_id": True, "range_amount": False}
    assert "checks" not in by_node["plain"]


def test_checks_are_evaluated_over_the_table_where_asked(checked: Path, odi: Odi) -> None:
    assert odi("checks", "orders").code == 1, "there is no table yet"
    odi("run")
    done = odi("checks", "orders")
    assert done.code == 0, done.err
    assert [line.split()[:3] for line in done.out.splitlines()[1:]] == [
        ["not_null_id", "error", "yes"],
        ["unique_id", "error", "yes"],
        ["range_amount", "warn", "no"],
    ]
    assert "2 of 3 checks passed over 2 rows, version 0." in done.err
    # Each increment is unique by itself, and the table is not.
    land(checked, "2", '{"id": 1, "amount": 1.0}')
    assert odi("run").code == 0
    again = odi("checks", "p.orders", "--json")
    assert again.code == 1
    by_name = {one["check"]: one for one in json.loads(again.out)}
    assert (by_name["unique_id"]["passed"], by_name["unique_id"]["rows_failed"]) == (False, 2)


@pytest.mark.usefixtures("checked")
def test_a_node_without_checks_says_where_they_are_given(odi: Odi) -> None:
    done = odi("checks", "plain")
    assert done.code == 2
    assert "p.plain has no checks" in done.err
