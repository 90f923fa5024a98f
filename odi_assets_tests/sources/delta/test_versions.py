"""What an upstream Delta table gained, whatever was done to it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IncrementError, TableError
from odi_assets.sources.delta.versions import VersionStep, step
from odi_assets.sources.marks import Identity, VersionMark


class Upstream:
    """A table of other writers, and how far it was read."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.mark: VersionMark | None = None

    def append(self, *ids: int) -> None:
        write_deltalake(self.path, pa.table({"id": list(ids)}), mode="append")

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.path)

    def look(self) -> VersionStep:
        return step(TableHandle.open(Location(self.path)), self.mark, "lake:up")

    def read(self) -> VersionStep:
        found = self.look()
        self.mark = found.after
        return found


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    found = Upstream(tmp_path / "up")
    found.append(1)
    found.append(2)
    found.read()
    return found


def test_appended_rows_are_read_from_their_files(upstream: Upstream) -> None:
    upstream.append(3, 4)
    found = upstream.read()
    assert (found.extent, found.changes.rows if found.changes else None, found.reason) == ("rows", 2, "version 2")
    assert upstream.look().extent == "nothing"


def test_compaction_is_nothing_new_and_hides_nothing(upstream: Upstream) -> None:
    upstream.table.optimize.compact()
    assert upstream.look().reason == "version 2: no row changed"
    upstream.append(3)
    found = upstream.look()
    assert (found.extent, found.changes.rows if found.changes else None) == ("rows", 1)


def test_rows_whose_file_was_compacted_and_vacuumed_are_read_with_the_whole_table(upstream: Upstream) -> None:
    upstream.append(3)
    upstream.table.optimize.compact()
    assert upstream.look().extent == "rows"
    upstream.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    found = upstream.look()
    assert found.extent == "table"
    assert "whole, at version" in found.reason
    assert "1 file of versions 2 to" in found.reason
    assert "vacuumed" in found.reason


@pytest.mark.parametrize("how", ["overwritten", "deleted from", "restored"])
def test_a_table_whose_rows_were_taken_away_is_read_whole(upstream: Upstream, how: str) -> None:
    if how == "overwritten":
        write_deltalake(upstream.path, pa.table({"id": [9]}), mode="overwrite")
    elif how == "deleted from":
        upstream.table.delete("id = 1")
    else:
        upstream.table.restore(0)
    found = upstream.read()
    assert (found.extent, found.changes) == ("table", None)
    assert upstream.look().extent == "nothing"


def test_a_table_that_was_dropped_and_made_again_is_read_whole(upstream: Upstream) -> None:
    shutil.rmtree(upstream.path)
    for number in range(5):
        upstream.append(number)
    assert upstream.look().reason == "whole, at version 4: lake:up was dropped and made again"


def test_another_table_than_the_one_that_was_read_is_called_so(tmp_path: Path) -> None:
    for name in ("here", "there"):
        write_deltalake(str(tmp_path / name), pa.table({"id": [1]}))
    here, there = (TableHandle.open(Location(str(tmp_path / name))) for name in ("here", "there"))
    place = Identity("delta", there.table_id, "version", place=there.location.true_path())
    mark = VersionMark(0, there.table_id, measures=place)
    assert step(here, mark, "p.y").reason == (
        f"whole, at version 0: p.y is another table than the one that was read, which is at {tmp_path}/there"
    )


def test_a_version_that_left_the_log_is_an_error_with_a_remedy(upstream: Upstream) -> None:
    upstream.append(3)
    upstream.append(4)
    upstream.table.create_checkpoint()
    (Path(upstream.path) / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(TableError, match=r"version 2 .* is no longer in its log[\s\S]*--full-refresh"):
        upstream.look()


def test_a_table_that_stands_before_the_hwm_is_an_error(upstream: Upstream) -> None:
    upstream.mark = VersionMark.of({"version": 7}, "lake:up")
    with pytest.raises(IncrementError, match="is at version 1, and it was read up to version 7 before"):
        upstream.look()


def test_a_copy_that_lacks_just_the_last_commit_is_an_error(upstream: Upstream, tmp_path: Path) -> None:
    copy = shutil.copytree(upstream.path, tmp_path / "copy")
    upstream.append(3)
    upstream.read()
    shutil.rmtree(upstream.path)
    copy.rename(upstream.path)
    with pytest.raises(IncrementError, match="is at version 1, and it was read up to version 2 before"):
        upstream.look()
