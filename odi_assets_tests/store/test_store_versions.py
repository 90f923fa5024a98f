"""The versions of a state store: fences, snapshots, retention, damage, and answers that are lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from odi_assets.connections.location import Location
from odi_assets.delta.errors import CommitConflict
from odi_assets.delta.retry import Retry
from odi_assets.errors import FencedError, StateError
from odi_assets.state.delta import table as system_tables
from odi_assets.store import StateStore, StateStoreProvider
from odi_assets.store.contents import digest
from odi_assets.store.files import remove_before, store_files
from odi_assets.store.log import VersionLog
from odi_assets.store.parts import COLUMNS
from odi_assets_tests.state import faults
from odi_assets_tests.store.test_store import held, opened


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


def file_of(folder: Path, version: int, kind: str = "changes") -> Path:
    handle = VersionLog(Location(str(folder / "store")), 4).open()
    assert handle is not None
    files = (one.file.path for one in store_files(handle) if (one.low, one.kind) == (version, kind))
    return folder / "store" / next(files)


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
    snapshots = 3
    assert table(tmp_path).version() == before + 12 + snapshots
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
    snapshots = 2
    assert len(table(tmp_path).file_uris()) == 5 + snapshots
    for version in range(16, 21):
        assert held(tmp_path, version) == expected(version)
        assert dict(provider.get_store(version, read_only=True).iterator()) == expected(version)
    for version in (1, 15):
        with pytest.raises(StateError, match=f"version {version} .* was cleaned; versions 16 to 20 can be read"):
            provider.get_store(version, read_only=True)
    with pytest.raises(FencedError, match=r"version 1 .* was committed, and cleaned since") as told:
        commit(provider, 0, a="1")
    assert told.value.winner is None
    assert opened(tmp_path, retain=1).maintain()["files_cleaned"] == 5
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
    snapshots = 1
    assert remove_before(first, 8) == 7 + snapshots
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

    monkeypatch.setattr("odi_assets.store.provider.remove_before", failing)
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


HARMS = [emptied, truncated, overwritten, altered, Path.unlink]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("version", [5, 6])
def test_a_damaged_file_is_named_and_never_taken_for_state(
    tmp_path: Path, harm: Callable[[Path], None], version: int
) -> None:
    """Changes after the snapshot of version 4: nothing else has them."""
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


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("versions", [(4,), (8,), (4, 8)], ids=str)
def test_changes_stand_for_snapshots_that_are_damaged(
    tmp_path: Path, harm: Callable[[Path], None], versions: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Of one snapshot, of the newest, of all: the changes since an earlier one, or since the beginning, are there."""
    grown(tmp_path, 10, snapshot_every=4)
    files = {version: file_of(tmp_path, version, "snapshot") for version in versions}
    for file in files.values():
        harm(file)
    assert [held(tmp_path, version) for version in range(1, 11)] == [expected(version) for version in range(1, 11)]
    assert all(f"without its file {file.name}, which is damaged" in caplog.text for file in files.values())
    provider = opened(tmp_path)
    assert provider.get_store(versions[-1], read_only=True).metrics.custom["snapshots_rebuilt"] == len(versions)
    assert provider.versions() == list(range(1, 11))
    assert commit(provider, 10, a="11") == 11
    assert held(tmp_path, 11) == {**expected(10), b"a": b"11"}


@pytest.mark.parametrize("harm", HARMS)
def test_a_snapshot_stands_for_its_versions_damaged_changes(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """Also those of the newest version, whose header says what the latest version is."""
    grown(tmp_path, 8, snapshot_every=4)
    for version in (4, 8):
        harm(file_of(tmp_path, version))
    provider = opened(tmp_path)
    assert provider.latest_version() == 8
    assert provider.versions() == list(range(1, 9))
    assert [held(tmp_path, version) for version in range(1, 9)] == [expected(version) for version in range(1, 9)]
    assert commit(provider, 8, a="9") == 9


@pytest.mark.parametrize("harm", HARMS)
def test_versions_that_cannot_be_read_are_named_and_the_others_listed(
    tmp_path: Path, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    grown(tmp_path, 10, snapshot_every=4)
    for version in (2, 6, 10):
        harm(file_of(tmp_path, version))
    provider = opened(tmp_path)
    assert provider.versions() == [1, 4, 5, 8, 9]
    assert "version 3 of" in caplog.text
    found = provider.check()
    assert [one.version for one in found.readable] == [1, 4, 5, 8, 9]
    assert found.unreadable == {2: 2, 3: 2, 6: 6, 7: 6, 10: 10}
    assert {one.versions for one in found.damaged} == {(2, 2), (6, 6), (10, 10)}
    assert not found.is_sound
    for version in found.unreadable:
        with pytest.raises(StateError, match="cannot be read"):
            held(tmp_path, version)


@pytest.mark.parametrize("harm", HARMS)
def test_a_repair_rebuilds_snapshots_from_changes_and_changes_from_snapshots(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    grown(tmp_path, 10, snapshot_every=4)
    for version, kind in ((4, "snapshot"), (8, "changes"), (10, "changes")):
        harm(file_of(tmp_path, version, kind))
    provider = opened(tmp_path)
    done = provider.check(repair=True)
    assert sorted(one.versions for one in done.repaired) == [(4, 4), (8, 8)]
    assert [one.versions for one in done.damaged] == [(10, 10)]
    for version in (1, 2, 3, 5, 6, 7):
        file_of(tmp_path, version).unlink()
    assert held(tmp_path, 4) == expected(4)
    file_of(tmp_path, 8, "snapshot").unlink()
    assert provider.check().unreadable.keys() >= {5, 6, 7, 8, 9, 10}


def test_rebuilt_changes_are_those_that_were_committed(tmp_path: Path) -> None:
    provider = grown(tmp_path, 8, snapshot_every=4, writer="run-1")
    file_of(tmp_path, 8).unlink()
    assert len(provider.check(repair=True).repaired) == 1
    file_of(tmp_path, 8, "snapshot").unlink()
    assert held(tmp_path, 8) == expected(8)
    assert provider.check().readable[-1].writer == "run-1"
    # The batch is still known: committed again, it is the same version.
    assert commit(opened(tmp_path, writer="run-1"), 7, a="8", k2="8") == 8


def test_of_a_store_that_is_sound_a_repair_changes_nothing(tmp_path: Path) -> None:
    provider = grown(tmp_path, 6, snapshot_every=4)
    before = table(tmp_path).version()
    done = provider.check(repair=True)
    assert (done.is_sound, done.repaired, table(tmp_path).version()) == (True, (), before)
    assert opened(tmp_path / "none").check(repair=True).is_sound
    assert not (tmp_path / "none").exists()


def test_what_a_damaged_snapshot_is_rebuilt_from_is_not_cleaned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = grown(tmp_path, 11, retain=4, snapshot_every=4)
    file_of(tmp_path, 8, "snapshot").unlink()
    commit(opened(tmp_path, retain=4, snapshot_every=4), 11, a="12", k0="12")
    assert "could not be cleaned; old versions stay" in caplog.text
    assert "--repair" in caplog.text
    assert held(tmp_path, 9) == expected(9)
    provider.check(repair=True)
    assert provider.clean() > 0
    assert provider.versions() == [8, 9, 10, 11, 12]


def test_a_store_that_may_not_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grown(tmp_path, 3)

    def denied(*_args: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("odi_assets.delta.maintenance.compaction.rows_in_files", denied)
    with pytest.raises(StateError, match="Permission denied"):
        opened(tmp_path).check(repair=True)


# -- going back --------------------------------------------------------------------------------------------------------


def test_a_batch_that_is_tried_again_with_other_changes_may_replace_its_version(tmp_path: Path) -> None:
    commit(opened(tmp_path, writer="run-1"), 0, a="1")
    commit(opened(tmp_path, writer="run-2"), 1, a="2", b="2")
    again = prepared(opened(tmp_path, writer="run-2"), 1, a="two")
    with pytest.raises(FencedError, match="this same writer `run-2` with other changes") as told:
        again.commit()
    assert "commit(replace=True)" in (told.value.fix or "")
    assert again.commit(replace=True) == 2
    assert held(tmp_path, 2) == {b"a": b"two"}
    log = table(tmp_path).version()
    assert prepared(opened(tmp_path, writer="run-2"), 1, a="two").commit(replace=True) == 2
    assert table(tmp_path).version() == log
    with pytest.raises(FencedError, match="writer `run-2`"):
        prepared(opened(tmp_path, writer="other"), 1, a="x").commit(replace=True)
    commit(opened(tmp_path, writer="run-3"), 2, c="3")
    with pytest.raises(FencedError, match="version 3 is based on it") as based_on:
        prepared(opened(tmp_path, writer="run-2"), 1, a="three").commit(replace=True)
    assert "odi store rewind" in (based_on.value.fix or "")
    assert held(tmp_path, 3) == {b"a": b"two", b"c": b"3"}


def test_a_replaced_version_with_a_snapshot_is_replaced_as_a_whole(tmp_path: Path) -> None:
    grown(tmp_path, 4, snapshot_every=4, writer="w")
    provider = opened(tmp_path, snapshot_every=4, writer="w")
    assert prepared(provider, 3, a="four").commit(replace=True) == 4
    assert held(tmp_path, 4) == {**expected(3), b"a": b"four"}
    assert provider.check().is_sound


def test_a_store_goes_back_to_a_version_and_on_from_there(tmp_path: Path) -> None:
    provider = grown(tmp_path, 6, snapshot_every=4)
    stale = prepared(provider, 6, a="7")
    file_of(tmp_path, 6).unlink()
    with pytest.raises(StateError, match=r"version 6 .* cannot be read"):
        opened(tmp_path).get_store(6)
    assert opened(tmp_path).rewind(3) == 4
    assert provider.versions() == [1, 2, 3]
    assert opened(tmp_path).latest_version() == 3
    with pytest.raises(StateError, match="is no longer there"):
        stale.commit()
    assert commit(provider, 3, a="four") == 4
    assert held(tmp_path, 4) == {**expected(3), b"a": b"four"}
    assert provider.rewind(4) == 0
    assert provider.rewind(0) > 0
    assert (provider.versions(), provider.latest_version()) == ([], 0)
    assert commit(provider, 0, a="1") == 1
    with pytest.raises(StateError, match="was never committed"):
        provider.rewind(2)


def test_versions_of_a_file_that_was_compacted_by_hand_can_be_withdrawn(tmp_path: Path) -> None:
    provider = grown(tmp_path, 6, snapshot_every=4)
    table(tmp_path).optimize.compact()
    provider.rewind(4)
    assert [held(tmp_path, version) for version in provider.versions()] == [expected(v) for v in (1, 2, 3, 4)]
    assert commit(provider, 4, a="5") == 5


def test_a_commit_and_a_rewind_at_once_do_not_both_stand(tmp_path: Path) -> None:
    grown(tmp_path, 4)
    log = VersionLog(Location(str(tmp_path / "store")), 10)
    handle = log.open()
    assert handle is not None
    commit(opened(tmp_path), 4, a="5")
    with pytest.raises(CommitConflict):
        log.remove_after(handle, 2)
    assert opened(tmp_path).versions() == [1, 2, 3, 4, 5]


def test_the_changes_between_versions_can_be_read(tmp_path: Path) -> None:
    provider = grown(tmp_path, 5, snapshot_every=2)
    store = provider.get_store(5)
    store.remove(b"k0")
    store.put(b"a", b"5")
    store.put(b"never", b"there")
    store.remove(b"never")
    store.commit()
    found = [(one.version, one.key, one.value) for one in opened(tmp_path).changes(3)]
    assert found == [
        *[(4, b"a", b"4"), (4, b"k1", b"4"), (5, b"a", b"5"), (5, b"k2", b"5")],
        (6, b"k0", None),
    ]
    assert [one.version for one in provider.changes(0, 2)] == [1, 1, 2, 2]
    assert list(provider.changes(4, 4)) == []
    for after, until, why in ((9, None, "comes before"), (3, 9, "was never committed"), (-1, 2, "is not a version")):
        with pytest.raises(StateError, match=why):
            list(provider.changes(after, until))


# -- stores of earlier releases ----------------------------------------------------------------------------------------


def earlier_release(folder: Path, versions: int, snapshot_every: int) -> None:
    """A store as releases up to 0.9 wrote it: a snapshot instead of changes, no column `part`."""
    names = [name for name in COLUMNS.kinds if name != "part"]
    schema = pa.schema([pa.schema(COLUMNS.schema).field(name) for name in names])
    properties = {"delta.dataSkippingStatsColumns": "version"}
    previous, chain = "", 0
    for version in range(1, versions + 1):
        is_snapshot = version - chain >= snapshot_every
        chain = version if is_snapshot else chain
        changes = {b"a": b"%d" % version, b"k%d" % (version % 3): b"%d" % version}
        rows = expected(version) if is_snapshot else changes
        header = {
            **{"version": version, "snapshot": chain, "commit_id": f"c{version}", "writer": "earlier"},
            **{"batch": digest(changes.items(), previous), "content": digest(rows.items())},
            "committed_at": datetime(2026, 1, 1, tzinfo=UTC),
        }
        entries = [{"version": version, "key": key, "value": value} for key, value in sorted(rows.items())]
        found = pa.Table.from_pylist([header, *entries], schema=schema)
        write_deltalake(
            str(folder / "store"),
            found,
            mode="append",
            configuration=properties if version == 1 else None,
            commit_properties=CommitProperties(app_transactions=[Transaction("odi/store", version)]),
        )
        previous = f"c{version}"


def test_stores_of_earlier_releases_are_read_written_and_protected_from_then_on(tmp_path: Path) -> None:
    earlier_release(tmp_path, 9, snapshot_every=4)
    provider = opened(tmp_path, snapshot_every=4)
    assert (provider.latest_version(), provider.versions()) == (9, list(range(1, 10)))
    assert [held(tmp_path, version) for version in range(1, 10)] == [expected(version) for version in range(1, 10)]
    assert provider.check().is_sound
    assert commit(opened(tmp_path, writer="earlier"), 8, a="9", k0="9") == 9
    for version in range(9, 13):
        commit(provider, version, a=f"{version + 1}", **{f"k{(version + 1) % 3}": f"{version + 1}"})
    assert [held(tmp_path, version) for version in range(1, 14)] == [expected(version) for version in range(1, 14)]
    file_of(tmp_path, 12, "snapshot").unlink()
    assert held(tmp_path, 13) == expected(13)
    assert len(provider.check(repair=True).repaired) == 1
    assert provider.check().is_sound


def test_a_damaged_snapshot_of_an_earlier_release_is_named_and_can_be_left_behind(tmp_path: Path) -> None:
    earlier_release(tmp_path, 10, snapshot_every=4)
    damaged = next((tmp_path / "store").glob("*.parquet"))
    for file in (tmp_path / "store").glob("*.parquet"):
        versions = pq.read_table(file, columns=["version"], partitioning=None)["version"].to_pylist()
        damaged = file if versions[0] == 8 else damaged
    damaged.unlink()
    provider = opened(tmp_path)
    found = provider.check(repair=True)
    assert ([one.path for one in found.damaged], found.repaired) == ([damaged.name], ())
    assert provider.versions() == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(StateError, match=r"version 8 .* cannot be read; file"):
        provider.get_store(10)
    provider.rewind(7)
    assert commit(provider, 7, a="8") == 8
    assert provider.check().is_sound


def test_a_damaged_log_is_told_and_not_taken_for_an_empty_store(tmp_path: Path) -> None:
    provider = grown(tmp_path, 1)
    for file in (tmp_path / "store" / "_delta_log").glob("*.json"):
        file.write_text('{"add": {')
    with pytest.raises(StateError, match=r"_delta_log/0+\.json is torn") as told:
        provider.latest_version()
    assert f"`odi tables repair {tmp_path / 'store'}`" in str(told.value.fix)
    with pytest.raises(StateError):
        commit(provider, 0, a="1")
