"""The versions of a state store: fences, snapshots, retention, damage, and answers that are lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from odi_assets.connections.location import Location
from odi_assets.delta.errors import CommitConflict
from odi_assets.delta.retry import Retry
from odi_assets.errors import FencedError, StateError
from odi_assets.state import StateStore, StateStoreProvider
from odi_assets.state.delta import table as system_tables
from odi_assets.state.store.log import VersionLog, remove_before, store_files
from odi_assets_tests.state import faults
from odi_assets_tests.state.test_store import held, opened


def commit(provider: StateStoreProvider, version: int, **items: str) -> int:
    return prepared(provider, version, **items).commit()


def prepared(provider: StateStoreProvider, version: int, **items: str) -> StateStore:
    store = provider.get_store(version)
    for key, value in items.items():
        store.put(key.encode(), value.encode())
    return store


def grown(folder: Path, versions: int, **options: Any) -> StateStoreProvider:
    """A store whose version ``n`` holds ``a`` = n and ``k<n % 3>`` = n."""
    provider = opened(folder, **options)
    for version in range(versions):
        commit(provider, version, a=f"{version + 1}", **{f"k{(version + 1) % 3}": f"{version + 1}"})
    return provider


def expected(version: int) -> dict[bytes, bytes]:
    newest = {f"k{n % 3}".encode(): str(n).encode() for n in range(1, version + 1)}
    return {b"a": str(version).encode(), **newest}


def table(folder: Path) -> DeltaTable:
    return DeltaTable(str(folder / "store"))


def file_of(folder: Path, version: int) -> Path:
    handle = VersionLog(Location(str(folder / "store")), 4).open()
    assert handle is not None
    return folder / "store" / next(one.file.path for one in store_files(handle) if one.low == version)


# -- fences ------------------------------------------------------------------------------------------------------------


def test_a_second_commit_of_a_version_is_refused_and_names_the_winner(tmp_path: Path) -> None:
    winner, loser = opened(tmp_path, writer="run-1"), opened(tmp_path, writer="run-2")
    first, second = prepared(winner, 0, a="1"), prepared(loser, 0, a="2")
    assert first.commit() == 1
    for _ in range(2):
        with pytest.raises(FencedError, match=r"version 1 .* committed by writer `run-1`.*nothing was written") as told:
            second.commit()
        assert (told.value.winner, told.value.version) == ("run-1", 1)
    assert held(tmp_path, 1) == {b"a": b"1"}
    commit(winner, 1, b="1")
    with pytest.raises(FencedError, match=r"version 1 .* committed by writer `run-1`"):
        second.commit()
    assert commit(loser, 2, c="3") == 3
    assert held(tmp_path, 3) == {b"a": b"1", b"b": b"1", b"c": b"3"}


def test_of_two_commits_on_one_handle_the_second_meets_the_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rival commits between this writer's look and its append: only Delta's conflict check sees that."""
    provider, rival = grown(tmp_path, 25), opened(tmp_path, writer="rival")
    real = system_tables.write_deltalake
    others: list[Callable[[], int]] = [lambda: commit(rival, 25, a="rival")]

    def overtaken(*args: Any, **options: Any) -> None:
        if others:
            others.pop()()
        real(*args, **options)

    monkeypatch.setattr(system_tables, "write_deltalake", overtaken)
    with pytest.raises(FencedError, match=r"version 26 .* committed by writer `rival`"):
        commit(provider, 25, a="ours")
    assert held(tmp_path, 26)[b"a"] == b"rival"
    assert provider.latest_version() == 26


def test_the_same_batch_committed_again_by_its_writer_is_the_same_version(tmp_path: Path) -> None:
    assert commit(opened(tmp_path, writer="run-1"), 0, a="1", b="2") == 1
    assert commit(opened(tmp_path, writer="run-1"), 1, c="3") == 2
    log = table(tmp_path).version()
    again = prepared(opened(tmp_path, writer="run-1"), 0, b="2", a="0", x="")
    again.put(b"a", b"1")
    with pytest.raises(FencedError, match="this same writer `run-1` with other changes"):
        again.commit()
    assert commit(opened(tmp_path, writer="run-1"), 0, b="2", a="1") == 1
    assert commit(opened(tmp_path, writer="run-1"), 1, c="3") == 2
    assert table(tmp_path).version() == log
    with pytest.raises(FencedError, match="writer `run-1`"):
        commit(opened(tmp_path, writer="run-2"), 1, c="3")


def test_without_an_id_each_provider_is_a_writer_of_its_own(tmp_path: Path) -> None:
    provider = opened(tmp_path)
    assert commit(provider, 0, a="1") == commit(provider, 0, a="1") == 1
    with pytest.raises(FencedError, match=provider.writer):
        commit(opened(tmp_path), 0, a="1")


def test_a_commit_that_landed_although_its_answer_was_an_error_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = grown(tmp_path, 2)
    real = system_tables.write_deltalake

    def answer_lost(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise OSError("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(system_tables, "write_deltalake", answer_lost)
        store = prepared(provider, 2, a="3")
        assert store.commit() == 3
    assert store.has_committed
    assert provider.versions() == [1, 2, 3]
    assert held(tmp_path, 3)[b"a"] == b"3"


@pytest.mark.parametrize("away", [1, 1_000_000])
def test_a_commit_whose_outcome_was_unknown_is_looked_for_before_it_is_made_again(tmp_path: Path, away: int) -> None:
    grown(tmp_path, 2)
    provider = opened(tmp_path, retry=Retry(sleep=lambda _seconds: None))
    store = prepared(provider, 2, a="3")
    with faults.injected(faults.gone_after_the_commit(away)):
        if away == 1:
            assert store.commit() == 3
        else:
            with pytest.raises(StateError, match="it is not known whether a commit to"):
                store.commit()
    assert provider.versions() == [1, 2, 3]
    assert held(tmp_path, 3)[b"a"] == b"3"
    handle = VersionLog(Location(str(tmp_path / "store")), 4).open()
    assert handle is not None
    assert [one.low for one in store_files(handle)].count(3) == 1


def test_changes_to_a_version_that_was_restored_away_are_refused(tmp_path: Path) -> None:
    provider = grown(tmp_path, 5)
    store = prepared(provider, 5, a="six")
    at_version_3 = next(v for v in range(table(tmp_path).version(), 0, -1) if rows_at(tmp_path, v) == 3)
    table(tmp_path).restore(at_version_3)
    with pytest.raises(StateError, match=r"version 5 .* is no longer there: the table, now at version 3, was restored"):
        store.commit()
    assert provider.versions() == [1, 2, 3]
    assert commit(provider, 3, a="other") == 4
    assert held(tmp_path, 4) == {**expected(3), b"a": b"other"}
    assert provider.get_store(4).get(b"a") == b"other"
    assert commit(provider, 4, a="other") == 5
    with pytest.raises(StateError, match=r"version 5 .* is no longer there"):
        store.commit()


def rows_at(folder: Path, log_version: int) -> int:
    found = DeltaTable(str(folder / "store"), version=log_version).to_pyarrow_table(columns=["version"])
    return max([0, *found["version"].to_pylist()])


def test_a_table_that_is_no_state_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "store"), pa.table({"key": ["a"], "price": [1]}))
    provider = opened(tmp_path)
    for doing in (provider.latest_version, lambda: provider.get_store(1), lambda: commit(provider, 0, a="1")):
        with pytest.raises(StateError, match="is not a state store"):
            doing()
    assert (table(tmp_path).version(), len(table(tmp_path).schema().fields)) == (0, 2)


# -- snapshots and retention -------------------------------------------------------------------------------------------


def test_each_version_is_one_commit_and_is_read_from_few_files(tmp_path: Path) -> None:
    grown(tmp_path, 1, snapshot_every=4)
    provider, before = opened(tmp_path, snapshot_every=4), table(tmp_path).version()
    for version in range(1, 13):
        commit(provider, version, a=f"{version + 1}", **{f"k{(version + 1) % 3}": f"{version + 1}"})
    assert table(tmp_path).version() == before + 12
    for version in range(1, 4):
        file_of(tmp_path, version).unlink()
    for version in range(5, 8):
        file_of(tmp_path, version).rename(tmp_path / f"{version}")
    assert [held(tmp_path, version) for version in (4, *range(8, 14))] == [expected(v) for v in (4, *range(8, 14))]
    for version in (7, 5, 6):
        with pytest.raises(StateError, match=f"version {version} .* cannot be read"):
            held(tmp_path, 7)
        (tmp_path / f"{version}").rename(file_of(tmp_path, version))
    assert held(tmp_path, 7) == expected(7)


def test_old_versions_are_cleaned_and_every_retained_one_can_be_read(tmp_path: Path) -> None:
    provider = grown(tmp_path, 20, retain=3, snapshot_every=4)
    assert provider.versions() == list(range(16, 21))
    assert len(table(tmp_path).file_uris()) == 5
    for version in range(16, 21):
        assert held(tmp_path, version) == expected(version)
        assert dict(provider.get_store(version, read_only=True).iterator()) == expected(version)
    for version in (1, 15):
        with pytest.raises(StateError, match=f"version {version} .* was cleaned; versions 16 to 20 can be read"):
            provider.get_store(version, read_only=True)
    with pytest.raises(FencedError, match=r"version 1 .* was committed, and cleaned since") as told:
        commit(provider, 0, a="1")
    assert told.value.winner is None
    assert opened(tmp_path, retain=1).maintain()["files_cleaned"] == 4
    assert provider.versions() == [20]
    assert commit(provider, 20, a="21") == 21
    assert held(tmp_path, 21) == {**expected(20), b"a": b"21"}


def test_as_many_versions_as_are_retained_are_kept_whatever_the_snapshots(tmp_path: Path) -> None:
    grown(tmp_path, 9, snapshot_every=100)
    assert opened(tmp_path, retain=2).clean() == 0
    assert opened(tmp_path).versions() == list(range(1, 10))


def test_a_commit_and_a_cleaning_at_once_both_stand_and_of_two_cleanings_one(tmp_path: Path) -> None:
    grown(tmp_path, 12, snapshot_every=4)
    system = VersionLog(Location(str(tmp_path / "store")), 4)
    first, second, third = system.open(), system.open(), system.open()
    assert first
    assert second
    assert third
    commit(opened(tmp_path, snapshot_every=4), 12, a="13")
    assert remove_before(first, 8) == 7
    with pytest.raises(CommitConflict):
        remove_before(second, 8)
    with pytest.raises(CommitConflict):
        remove_before(third, 12)
    assert opened(tmp_path).versions() == [8, 9, 10, 11, 12, 13]
    assert held(tmp_path, 13)[b"a"] == b"13"


def test_a_cleaning_that_fails_does_not_fail_the_commit_it_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    provider = grown(tmp_path, 7, retain=1, snapshot_every=4)

    def failing(*_args: Any) -> int:
        raise StateError("permission denied")

    monkeypatch.setattr("odi_assets.state.store.provider.remove_before", failing)
    assert commit(provider, 7, a="8") == 8
    assert "could not be cleaned; old versions stay" in caplog.text
    assert provider.versions() == [4, 5, 6, 7, 8]


def test_maintenance_leaves_what_it_should_and_the_store_goes_on(tmp_path: Path) -> None:
    provider = grown(tmp_path, 9, retain=2, snapshot_every=4)
    provider.maintain()
    table(tmp_path).optimize.compact()
    provider.maintain()
    assert [held(tmp_path, version) for version in provider.versions()] == [expected(v) for v in provider.versions()]
    assert provider.versions() == [8, 9]
    assert commit(provider, 9, a="10") == 10


# -- damage ------------------------------------------------------------------------------------------------------------


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def overwritten(file: Path) -> None:
    """Bytes in the middle, where the values are."""
    data = bytearray(file.read_bytes())
    data[20:60] = b"\x00" * 40
    file.write_bytes(bytes(data))


def altered(file: Path) -> None:
    """A Parquet file like any other, with another value."""
    rows = pq.read_table(file, partitioning=None)
    values = pa.array([None if v is None else b"forged" for v in rows["value"].to_pylist()], pa.binary())
    pq.write_table(rows.set_column(rows.column_names.index("value"), "value", values), file)


@pytest.mark.parametrize("harm", [emptied, truncated, overwritten, altered, Path.unlink])
@pytest.mark.parametrize("version", [4, 6])
def test_a_damaged_file_is_named_and_never_taken_for_state(
    tmp_path: Path, harm: Callable[[Path], None], version: int
) -> None:
    """Version 4 is a snapshot, version 6 holds changes."""
    grown(tmp_path, 8, snapshot_every=4)
    file = file_of(tmp_path, version)
    harm(file)
    for affected in range(version, 8):
        with pytest.raises(StateError, match=f"version {version} .* cannot be read; file .* is damaged") as told:
            opened(tmp_path).get_store(affected)
        assert file.name in told.value.message
        assert told.value.path == file.name
        assert told.value.fix
    assert held(tmp_path, version - 1) == expected(version - 1)
    assert held(tmp_path, 8) == expected(8)
    assert commit(opened(tmp_path), 8, a="9") == 9


def test_a_damaged_log_is_told_and_not_taken_for_an_empty_store(tmp_path: Path) -> None:
    provider = grown(tmp_path, 1)
    for file in (tmp_path / "store" / "_delta_log").glob("*.json"):
        file.write_text('{"add": {')
    with pytest.raises(StateError, match="opening a system table failed"):
        provider.latest_version()
    with pytest.raises(StateError):
        commit(provider, 0, a="1")
