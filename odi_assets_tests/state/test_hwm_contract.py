"""What every state backend does with high-water marks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime

import pytest

from odi_assets.errors import StateConflictError, StateError, Transient
from odi_assets.state import StateBackend
from odi_assets.state.records import KeyRestore
from odi_assets_tests.state.conftest import Reopen
from odi_assets_tests.state.test_runs_contract import run

KEYS = [
    "orders.last_processed_id",
    "it's",
    'a "b"',
    "back\\slash",
    "new\nline",
    "ø ☃ 日本",
    "null",
    "%_*",
    "x" * 500,
    " ",
]


def test_a_backend_fulfils_the_protocol(backend: StateBackend) -> None:
    assert isinstance(backend, StateBackend)


def test_a_key_never_set_is_none(backend: StateBackend) -> None:
    assert backend.get_hwm("p.n") is None
    assert backend.get_entry("p.n") is None
    assert backend.list_hwms() == []
    assert backend.history("p.n") == []


def test_reading_creates_nothing(backend: StateBackend, tmp_path) -> None:
    backend.get_hwm("p.n")
    backend.list_hwms()
    backend.get_last_run_status("p", "n")
    assert list(tmp_path.iterdir()) == []


def test_a_value_set_is_read_by_a_reopened_backend(backend: StateBackend, reopen: Reopen) -> None:
    backend.set_hwm("p.n", 41)
    backend.set_hwm("p.n", 42)
    assert reopen().get_hwm("p.n") == 42


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that changed a moment ago count as settled."""
    monkeypatch.setattr("odi_assets.state.local.backend._SETTLES_NS", 0)


@pytest.mark.usefixtures("settled")
def test_the_stamp_is_another_one_after_each_change(backend: StateBackend, reopen: Reopen) -> None:
    stamps = []
    for change in (
        lambda: backend.set_hwm("p.n", 41),
        lambda: backend.set_hwm("p.n", 42),
        lambda: backend.reset_hwm("p.n", 41),
        lambda: backend.set_hwm("p.m", 1),
        lambda: backend.delete_hwm("p.m"),
        lambda: backend.maintain(),
        lambda: backend.set_hwm("p.m", 1),
    ):
        change()
        stamps.append(reopen().hwms_stamp())
    del stamps[-2]
    assert None not in stamps
    assert len({*stamps}) == len(stamps)


@pytest.mark.usefixtures("settled")
def test_the_stamp_stays_while_nothing_is_changed_and_tells_environments_apart(
    backend: StateBackend, reopen: Reopen
) -> None:
    backend.set_hwm("p.n", 41)
    before = backend.hwms_stamp()
    backend.record_runs([run()])
    assert reopen().hwms_stamp() == before
    assert reopen("prod").hwms_stamp() != before


def test_an_entry_tells_who_wrote_it_when_and_for_which_commit(backend: StateBackend, reopen: Reopen) -> None:
    before = datetime.now(UTC)
    written = backend.set_hwm("p.n", date(2013, 1, 31), target_commit=7, run_id="run-1")
    assert before <= written.updated_at <= datetime.now(UTC)
    assert (written.revision, written.target_commit, written.run_id, written.value_type) == (1, 7, "run-1", "date")
    assert reopen().get_entry("p.n") == written


@pytest.mark.parametrize("key", KEYS)
def test_any_text_can_be_a_key(backend: StateBackend, reopen: Reopen, key: str) -> None:
    backend.set_hwm("other", 0)
    backend.set_hwm(key, 1)
    backend.set_hwm(key, 2)
    assert reopen().get_hwm(key) == 2
    assert [entry.key for entry in backend.list_hwms()] == sorted([key, "other"])


@pytest.mark.parametrize("key", ["", None, 5, "\ud800"])
def test_what_is_not_text_cannot_be_a_key(backend: StateBackend, key: object) -> None:
    with pytest.raises(StateError, match="state key"):
        backend.set_hwm(key, 1)  # type: ignore[arg-type]


def test_revisions_count_from_one_and_never_repeat(backend: StateBackend) -> None:
    backend.set_hwm("k", 1)
    backend.set_hwm("k", 2)
    backend.delete_hwm("k")
    assert backend.set_hwm("k", 1).revision == 4


def test_a_stale_writer_cannot_move_a_value_back(backend: StateBackend) -> None:
    backend.set_hwm("k", 10)
    with pytest.raises(StateError, match=r"`k`.*9 lies before.*10") as refused:
        backend.set_hwm("k", 9)
    assert "reset" in str(refused.value)
    assert not isinstance(refused.value, Transient)
    assert (refused.value.current, refused.value.value) == (10, 9)
    assert backend.get_hwm("k") == 10


def test_a_value_of_another_type_is_refused_naming_both(backend: StateBackend) -> None:
    backend.set_hwm("k", 10)
    with pytest.raises(StateError, match=r"is a int .*is a date"):
        backend.set_hwm("k", date(2013, 1, 1))


def test_naive_and_zoned_datetimes_do_not_compare(backend: StateBackend) -> None:
    backend.set_hwm("k", datetime(2013, 1, 1, tzinfo=UTC))
    with pytest.raises(StateError, match="cannot be compared"):
        backend.set_hwm("k", datetime(2014, 1, 1))


def test_a_reset_moves_back_and_to_another_type(backend: StateBackend) -> None:
    backend.set_hwm("k", 10)
    assert backend.reset_hwm("k", 3).revision == 2
    assert backend.reset_hwm("k", "x").value == "x"
    assert backend.get_hwm("k") == "x"


def test_values_without_an_order_replace_each_other(backend: StateBackend) -> None:
    for value in ({"b": 2}, {"a": 1}, {"a": date(2013, 1, 1)}):
        backend.set_hwm("dict", value)
    for flag in (True, False):
        backend.set_hwm("bool", flag)
    backend.set_hwm("none", None)
    backend.set_hwm("none", 1)
    assert backend.get_hwm("dict") == {"a": date(2013, 1, 1)}
    assert backend.get_hwm("bool") is False
    assert backend.get_hwm("none") == 1


def test_compare_and_set_wants_the_revision_it_saw(backend: StateBackend) -> None:
    first = backend.compare_and_set("k", "a", expected_revision=None)
    second = backend.compare_and_set("k", "b", expected_revision=first.revision)
    with pytest.raises(StateConflictError, match="at revision 2, and was at revision 1 when") as lost:
        backend.compare_and_set("k", "c", expected_revision=first.revision)
    assert (lost.value.key, lost.value.revision) == ("k", second.revision)
    with pytest.raises(StateConflictError, match="at revision 2, and was not set when"):
        backend.compare_and_set("k", "c", expected_revision=None)
    assert backend.get_hwm("k") == "b"


def test_compare_and_set_takes_a_deleted_key_for_one_not_set(backend: StateBackend) -> None:
    backend.set_hwm("k", 1)
    backend.delete_hwm("k")
    assert backend.compare_and_set("k", 2, expected_revision=None).revision == 3


def test_a_deletion_wants_the_revision_it_saw(backend: StateBackend) -> None:
    first = backend.set_hwm("k", 1)
    second = backend.set_hwm("k", 2)
    for seen in (first.revision, None):
        with pytest.raises(StateConflictError, match="another writer was first"):
            backend.delete_hwm("k", expected_revision=seen)
    assert backend.get_hwm("k") == 2
    assert backend.delete_hwm("k", expected_revision=second.revision)
    assert not backend.delete_hwm("k", expected_revision=second.revision)


def test_a_batch_sets_all_keys_and_of_two_updates_of_one_key_the_last(backend: StateBackend, reopen: Reopen) -> None:
    backend.set_hwm("b", 1)
    updates = [{"key": "a", "value": 1}, {"key": "b", "value": 2}, {"key": "a", "value": 3, "run_id": "r"}]
    entries = backend.set_hwm_batch(updates)
    assert {(e.key, e.value, e.revision) for e in entries} == {("a", 3, 1), ("b", 2, 2)}
    assert {e.key: e.value for e in reopen().list_hwms()} == {"a": 3, "b": 2}
    assert reopen().get_entry("a") == next(e for e in entries if e.key == "a")


def test_a_batch_with_one_refused_update_changes_nothing(backend: StateBackend) -> None:
    backend.set_hwm_batch([{"key": "a", "value": 5}, {"key": "b", "value": 5}])
    with pytest.raises(StateError, match="`b`"):
        backend.set_hwm_batch([{"key": "a", "value": 6}, {"key": "b", "value": 4}])
    with pytest.raises(StateError, match="update 1"):
        backend.set_hwm_batch([{"key": "a", "value": 6}, {"key": "b"}])
    assert [e.value for e in backend.list_hwms()] == [5, 5]


def test_an_empty_batch_does_nothing(backend: StateBackend, tmp_path) -> None:
    assert backend.set_hwm_batch([]) == []
    assert list(tmp_path.iterdir()) == []


def test_a_batch_of_many_keys_can_be_moved_on(backend: StateBackend, reopen: Reopen) -> None:
    for value in (1, 2):
        backend.set_hwm_batch([{"key": f"k{n}", "value": value} for n in range(300)])
    assert {(e.value, e.revision) for e in reopen().list_hwms()} == {(2, 2)}
    assert reopen().get_hwm("k123") == 2


def test_deleting_one_key_touches_no_other(backend: StateBackend, reopen: Reopen) -> None:
    for key in ("a", "a.b", "A", "a%"):
        backend.set_hwm(key, 1)
    assert backend.delete_hwm("a") is True
    assert backend.delete_hwm("a") is False
    assert backend.delete_hwm("never") is False
    assert reopen().get_hwm("a") is None
    assert [e.key for e in reopen().list_hwms()] == ["A", "a%", "a.b"]


def test_history_shows_every_revision_newest_first_with_tombstones(backend: StateBackend, reopen: Reopen) -> None:
    backend.set_hwm("k", 1)
    backend.set_hwm("other", 1)
    backend.delete_hwm("k")
    backend.set_hwm("k", 2)
    told = [(e.revision, e.value, e.deleted) for e in reopen().history("k")]
    assert told == [(3, 2, False), (2, None, True), (1, 1, False)]


def test_a_later_revision_has_a_later_time(backend: StateBackend) -> None:
    times = [backend.set_hwm("k", n).updated_at for n in range(10)]
    assert times == sorted(set(times))


def test_threads_may_share_a_backend(backend: StateBackend) -> None:
    def increment(_: int) -> None:
        while True:
            entry = backend.get_entry("k")
            value, revision = (entry.value, entry.revision) if entry else (0, None)
            try:
                backend.compare_and_set("k", value + 1, expected_revision=revision)
            except StateConflictError:
                continue
            return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(increment, range(20)))
    assert backend.get_hwm("k") == 20


def test_environments_share_no_keys(reopen: Reopen) -> None:
    for environment in (None, "dev", "prod"):
        reopen(environment).set_hwm("k", str(environment))
    reopen("dev").delete_hwm("k")
    assert reopen(None).get_hwm("k") == "None"
    assert reopen("dev").get_hwm("k") is None
    assert reopen("prod").get_entry("k").environment == "prod"
    assert [e.value for e in reopen("prod").list_hwms()] == ["prod"]
    assert len(reopen("dev").history("k")) == 2


def test_an_environment_has_a_name_or_is_none(reopen: Reopen) -> None:
    with pytest.raises(StateError, match="environment"):
        reopen("")


def test_state_survives_many_writes_and_maintenance(backend: StateBackend, reopen: Reopen) -> None:
    for number in range(1, 151):
        backend.set_hwm(f"k{number % 3}", number)
    backend.delete_hwm("k0")
    expected = {"k1": 148, "k2": 149}
    assert {e.key: e.value for e in reopen().list_hwms()} == expected
    backend.maintain()
    assert {e.key: e.value for e in reopen().list_hwms()} == expected
    assert reopen().get_entry("k1").revision == 50
    assert [e.revision for e in reopen().history("k1")][:20] == list(range(50, 30, -1))
    assert reopen().history("k0")[0].deleted
    assert backend.set_hwm("k1", 200).revision == 51


def test_a_tombstone_can_be_seen_where_it_is_asked_for(backend: StateBackend, reopen: Reopen) -> None:
    backend.set_hwm("k", 1)
    backend.delete_hwm("k")
    tombstone = reopen().get_entry("k", deleted=True)
    assert tombstone is not None
    assert (tombstone.deleted, tombstone.revision, tombstone.value) == (True, 2, None)
    assert reopen().list_hwms(deleted=True) == [tombstone]
    assert reopen().list_hwms() == []


def test_environments_are_listed_and_each_can_be_looked_into(backend: StateBackend, reopen: Reopen) -> None:
    assert backend.environments() == []
    reopen("prod").set_hwm("k", 1)
    reopen("dev").record_runs([run()])
    backend.set_hwm("k", 3)
    assert reopen().environments() == [None, "dev", "prod"]
    assert backend.in_environment("prod").get_hwm("k") == 1


def test_revisions_are_restored_as_they_are_or_not_at_all(backend: StateBackend, reopen: Reopen) -> None:
    other = reopen("other")
    for number in range(3):
        other.reset_hwm("k", date(2013, 1, 3 - number), target_commit=number, run_id="r")
    newest, *older = other.history("k")
    backend.restore([KeyRestore(newest, None, tuple(reversed(older)))])
    assert [entry._replace(environment="other") for entry in reopen().history("k")] == [newest, *older]
    backend.set_hwm("free", 1)
    with pytest.raises(StateConflictError):
        backend.restore([KeyRestore(newest._replace(key="free", revision=5), 1), KeyRestore(newest, 2)])
    assert backend.get_hwm("free") == 1
    assert backend.set_hwm("k", date(2013, 1, 2)).revision == 4
