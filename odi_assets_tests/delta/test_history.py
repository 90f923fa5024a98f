"""Commits and stamps keep their own numbers, whichever version a handle is opened at."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from odi_assets.connections.location import Location
from odi_assets.delta.history import METADATA_KEY, commits
from odi_assets.delta.maintenance.repair import plan_repair
from odi_assets.delta.table import TableHandle
from odi_assets.errors import TableError


def write(folder: Path, number: int) -> None:
    facts = {"fence": {"app_id": "app", "number": number}, "hwm": number}
    write_deltalake(
        str(folder),
        pa.table({"a": [number]}),
        mode="append",
        commit_properties=CommitProperties(
            custom_metadata={METADATA_KEY: facts}, app_transactions=[Transaction("app", number)]
        ),
    )


def test_a_handle_sees_the_stamps_up_to_its_version_and_none_that_came_later(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for number in range(3):
        write(table, number)
    stale = TableHandle.open(Location(str(table)))
    old = TableHandle.open(Location(str(table)), version=1)
    write(table, 3)
    assert [(stamp.version, stamp.facts["hwm"]) for stamp in stale.stamps()] == [(2, 2), (1, 1), (0, 0)]
    assert [(stamp.version, stamp.facts["hwm"]) for stamp in old.stamps()] == [(1, 1), (0, 0)]
    last = stale.last_stamp("app", carrying="hwm")
    assert last is not None
    assert last.facts["hwm"] == 2
    assert stale.last_stamp("app", carrying="nothing") is None


def test_the_history_ends_where_the_log_was_cleaned(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for number in range(3):
        write(table, number)
    handle = TableHandle.open(Location(str(table)))
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    assert [commit.version for commit in handle.commits()] == [2, 1]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x1c", "\x0b"])
def test_a_text_with_a_separator_of_lines_in_it_tears_no_commit(tmp_path: Path, separator: str) -> None:
    """Python's ``splitlines`` knows more of them than a commit, whose lines end at a line feed."""
    location = Location(str(tmp_path / "table"))
    rows = pa.table({f"v{separator}": [1, 2], "k": [f"a{separator}b", "c"]})
    write_deltalake(location.uri, rows, partition_by=["k"])
    (commit,) = commits(location, 0)
    assert (commit.version, commit.operation) == (0, "WRITE")
    assert plan_repair(location) is None


def test_a_version_that_was_cleaned_from_the_log_is_an_error_and_no_missing_table(tmp_path: Path) -> None:
    for number in range(3):
        write_deltalake(str(tmp_path), pa.table({"id": [number]}), mode="append")
    DeltaTable(tmp_path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    location = Location(str(tmp_path))
    with pytest.raises(TableError, match=r"the log of .* does not hold version 1 any more"):
        TableHandle.open(location, 1)
    handle = TableHandle.open(location)
    assert [handle.is_kept(version) for version in range(3)] == [False, False, True]
    assert not TableHandle.open(Location(str(tmp_path / "nowhere")), 1).exists
