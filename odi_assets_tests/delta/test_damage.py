"""Damage of a table's log that deltalake passes over is found when the table is opened."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odi_assets.connections.location import Location
from odi_assets.delta.errors import DamagedTableError
from odi_assets.delta.maintenance.repair import apply_repair, plan_repair
from odi_assets.delta.table import TableHandle


@pytest.mark.parametrize("damage", ["a folder", "nothing"])
def test_a_commit_that_is_no_file_beside_its_checkpoint_is_found_and_set_aside(tmp_path: Path, damage: str) -> None:
    """deltalake reads such a version from the checkpoint, and can commit nothing after it."""
    location = Location(str(tmp_path / "t"))
    for number in range(3):
        write_deltalake(location.uri, pa.table({"id": [number]}), mode="append")
    DeltaTable(location.uri).create_checkpoint()
    commit = tmp_path / "t/_delta_log" / f"{2:020d}.json"
    commit.unlink()
    if damage == "a folder":
        commit.mkdir()
    else:
        commit.touch()
    with pytest.raises(DamagedTableError, match=r"0002\.json is (no file|empty)") as stopped:
        TableHandle.open(location)
    assert f"odi tables repair {location.uri}" in str(stopped.value)
    repair = plan_repair(location)
    assert repair is not None
    apply_repair(repair)
    assert TableHandle.open(location).version == 1
    write_deltalake(location.uri, pa.table({"id": [9]}), mode="append")
    assert sorted(DeltaTable(location.uri).to_pyarrow_table()["id"].to_pylist()) == [0, 1, 9]
