"""``odi tables maintain`` on a table that other tools filled."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odi_assets.cli import main

PROJECT = """
project: test
connections: {lake: {type: local, base_path: lake}}
system: {connection: lake, path: system}
pipelines:
- pipeline: p
  nodes:
  - {name: raw, read: {connection: lake, format: delta, path: source}, write: {connection: lake, path: raw}}
  - {name: empty, inputs: [raw], write: {connection: lake, path: empty}}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ODI_PROJECT", raising=False)
    (tmp_path / "odibi.yaml").write_text(PROJECT, encoding="utf-8")
    for number in range(3):
        write_deltalake(str(tmp_path / "lake" / "raw"), pa.table({"id": [number]}), mode="append")
    return tmp_path


def test_it_compacts_and_vacuums_once_it_is_told_to(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "maintain"]) == 2
    assert DeltaTable(str(project / "lake" / "raw")).version() == 2
    capfd.readouterr()
    assert main(["tables", "maintain", "--yes", "--retain-hours", "0", "--json"]) == 0
    raw, empty = json.loads(capfd.readouterr().out)
    assert (raw["before"]["files"], raw["after"]["files"], len(raw["vacuumed"]), raw["rewindable_from"]) == (3, 1, 3, 3)
    assert empty["before"] is None
    assert sorted(DeltaTable(str(project / "lake" / "raw")).to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2]


def test_a_dry_run_tells_and_changes_nothing(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["tables", "maintain", "raw", "--dry-run"]) == 0
    assert "3 → 1" in capfd.readouterr().out
    assert DeltaTable(str(project / "lake" / "raw")).version() == 2
