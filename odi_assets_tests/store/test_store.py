"""The life cycle of a state store.

Spark's StateStoreSuite (with StateStoreSuiteBase) and AutoSnapshotLoaderSuite are the conformance list. Their tests,
and ours of the same behaviour (here, unless another module is named; V is `test_store_versions`):

* get, put, remove, commit, and all data iterator; numKeys metrics: `test_what_is_put_removed_and_committed_…`,
  `test_metrics_tell_…`
* StateStore.get; getStore with invalid versions: `test_a_version_that_is_no_version_is_refused`,
  `test_a_version_that_is_none_…`
* prefix scan: `test_a_prefix_scan_finds_the_keys_that_begin_with_it_changes_included`
* removing while iterating; SPARK-38320 (each iterator is a snapshot, as in RocksDB):
  `test_an_iterator_sees_the_store_as_it_was_when_it_was_made`
* abort: `test_abort_drops_the_changes_and_leaves_no_trace`
* two concurrent StateStores, one read-only and one read-write:
  `test_a_reader_and_a_writer_of_one_version_do_not_meet`
* SPARK-35659: put cannot put null value: `test_keys_and_values_that_are_null_or_not_bytes_are_refused`
* SPARK-18416: nothing on disk before an update; a commit without updates makes a version:
  `test_nothing_is_written_before_the_commit`, `test_a_commit_without_changes_makes_a_version`
* SPARK-18342: commit fails when rename fails (the error names the version and the store):
  `test_errors_of_a_commit_name_the_version`, `test_a_commit_that_failed_may_be_made_again`
* error writing [version].delta cancels the output stream: the same; V
  `test_a_commit_that_landed_although_its_answer_was_an_error_counts`
* SPARK-19677: committing a delta file atop an existing one: refused, idempotent or replaced here: V, "fences" and
  "going back"
* failure after committing with MAX_BATCHES_TO_RETAIN_IN_MEMORY set to 1:
  `test_a_version_that_was_replaced_is_not_taken_from_memory`
* retaining only two latest versions; no cache data with … set to 0:
  `test_as_many_versions_stay_in_memory_as_are_asked_for`
* expose metrics with custom metrics: `test_custom_metrics_count_what_the_provider_found_in_memory_and_loaded`
* SPARK-34270: StateStoreMetrics.combine: `test_metrics_of_several_stores_combine_to_their_sums`
* reports memory usage (on current version): `test_metrics_tell_keys_memory_counts_and_the_time_of_the_commit`
* cleaning; maintenance; snapshotting: V, "snapshots and retention"
* corrupted file handling: V, "damage"
* AutoSnapshotLoader: load without repair, a failed snapshot gets repaired, all snapshots are corrupt: V
  `test_changes_stand_for_snapshots_that_are_damaged`
* SPARK-21145, SPARK-48105: a new provider per run; iterating while it is closed: every test of V reads through a new
  provider; iterators hold what they iterate
* the change data reader (getStateStoreChangeDataReader): V `test_the_changes_between_versions_can_be_read`

These do not apply. AutoSnapshotLoader's switch and its limits (failures before it is activated, change files that are
replayed): digests decide at once whether a snapshot is damaged, every change since an earlier one is verified, and
there are at most as many as are retained. The coordinator, loading and unloading of providers, maintenance threads
(SPARK-40492, SPARK-48997): a provider is an object of its user's, and commits clean. Operator, partition and column
family ids: a store is a table of its own, and its path tells it from others. Row encoders, range scan encoders, row
format validation (SPARK-42572), compression codecs, SQL metrics (SPARK-35763): keys and values are bytes; Parquet
compresses. The release of a store for reuse by the same task: get_store is cheap. RocksDB's options, changelogs and
lineage.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odi_assets.delta.retry import Retry
from odi_assets.errors import IllegalStateError, StateError, Transient
from odi_assets.state.delta import table as system_tables
from odi_assets.store import StateStore, StateStoreProvider, StoreMetrics, StoreState


def opened(folder: Path, **options: Any) -> StateStoreProvider:
    def no_waiting(seconds: float) -> None:
        raise AssertionError(f"waited {seconds} s")

    options.setdefault("retry", Retry(sleep=no_waiting))
    return StateStoreProvider(folder / "store", **options)


def held(folder: Path, version: int) -> dict[bytes, bytes]:
    """What a version holds, for a process that has loaded nothing yet."""
    return dict(opened(folder).get_store(version, read_only=True).iterator())


@pytest.fixture
def provider(tmp_path: Path) -> StateStoreProvider:
    return opened(tmp_path)


def test_what_is_put_removed_and_committed_is_in_the_next_version_and_only_there(tmp_path: Path) -> None:
    provider = opened(tmp_path)
    store = provider.get_store(0)
    assert (store.version, store.state, store.has_committed) == (0, StoreState.UPDATING, False)
    assert store.get(b"a") is None
    assert list(store.iterator()) == []
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"aa", b"3"), (b"b", b"4"), (b"", b"")):
        store.put(key, value)
    assert store.get(b"b") == b"4"
    assert store.get(b"") == b""
    assert provider.latest_version() == 0
    for key, _ in store.prefix_scan(b"a"):
        store.remove(key)
    store.remove(b"never there")
    assert store.commit() == 1
    assert (store.version, store.state, store.has_committed) == (0, StoreState.COMMITTED, True)
    assert dict(store.iterator()) == {b"": b"", b"b": b"4"}
    assert held(tmp_path, 1) == {b"": b"", b"b": b"4"}

    later = opened(tmp_path).get_store(1)
    later.put(b"c", b"5")
    later.remove(b"")
    assert later.commit() == 2
    assert held(tmp_path, 2) == {b"b": b"4", b"c": b"5"}
    assert held(tmp_path, 1) == {b"": b"", b"b": b"4"}
    assert held(tmp_path, 0) == {}
    assert (provider.latest_version(), provider.versions()) == (2, [1, 2])


@pytest.mark.parametrize("version", [-1, True, "1", 1.0, None])
def test_a_version_that_is_no_version_is_refused(provider: StateStoreProvider, version: Any) -> None:
    with pytest.raises(StateError, match="is not a version"):
        provider.get_store(version)


def test_a_version_that_is_none_or_was_never_committed_is_refused(tmp_path: Path) -> None:
    provider = opened(tmp_path)
    with pytest.raises(StateError, match=r"version 1 .* was never committed; it has no version yet"):
        provider.get_store(1)
    assert provider.get_store(0).commit() == 1
    assert provider.get_store(1).commit() == 2
    with pytest.raises(StateError, match=r"version 3 .* was never committed; versions 1 to 2 can be read") as told:
        opened(tmp_path).get_store(3, read_only=True)
    assert "get_store(2)" in str(told.value)


def test_a_prefix_scan_finds_the_keys_that_begin_with_it_changes_included(provider: StateStoreProvider) -> None:
    store = provider.get_store(0)
    for key in (b"b/2", b"a/1", b"\xff\xff", b"b/1", b"c", b"\xff", b"b"):
        store.put(key, b"old " + key)
    store = provider.get_store(store.commit())

    def keys(prefix: bytes) -> list[bytes]:
        return [key for key, _ in store.prefix_scan(prefix)]

    assert keys(b"b/") == [b"b/1", b"b/2"]
    assert keys(b"\xff") == [b"\xff", b"\xff\xff"]
    assert keys(b"none") == []
    store.put(b"b/0", b"new")
    store.put(b"b/2", b"new")
    store.remove(b"b/1")
    assert list(store.prefix_scan(b"b/")) == [(b"b/0", b"new"), (b"b/2", b"new")]
    assert [key for key, _ in store.iterator()] == [b"a/1", b"b", b"b/0", b"b/2", b"c", b"\xff", b"\xff\xff"]
    store.abort()
    assert list(store.prefix_scan(b"b/")) == [(b"b/1", b"old b/1"), (b"b/2", b"old b/2")]


def test_metrics_tell_keys_memory_counts_and_the_time_of_the_commit(tmp_path: Path) -> None:
    store = opened(tmp_path).get_store(0)
    empty = store.metrics
    assert (empty.keys, empty.memory_used_bytes, empty.puts, empty.removes, empty.commit_ms) == (0, 0, 0, 0, None)
    store.put(b"a", b"1" * 1000)
    one = store.metrics.memory_used_bytes
    store.put(b"b", b"2" * 1000)
    store.put(b"b", b"3" * 1000)
    store.put(b"c", b"")
    store.remove(b"a")
    store.remove(b"not there")
    told = store.metrics
    assert (told.keys, told.puts, told.removes) == (2, 4, 2)
    assert 1000 < one < told.memory_used_bytes < 2 * one
    store.commit()
    assert store.metrics.commit_ms is not None
    assert store.metrics.commit_ms > 0
    again = opened(tmp_path).get_store(1).metrics
    assert (again.keys, again.memory_used_bytes, again.puts) == (2, told.memory_used_bytes, 0)


def custom(store: StateStore, *names: str) -> tuple[int, ...]:
    return tuple(store.metrics.custom[name] for name in names)


def test_custom_metrics_count_what_the_provider_found_in_memory_and_loaded(tmp_path: Path) -> None:
    """The numbers of Spark's "expose metrics with custom metrics to StateStoreMetrics"."""
    provider = opened(tmp_path)
    store = provider.get_store(0)
    store.put(b"b", b"2")
    store.commit()
    assert custom(store, "cache_hits", "cache_misses", "loads") == (0, 0, 0)
    second = provider.get_store(1)
    second.put(b"cc", b"4")
    second.commit()
    assert custom(second, "cache_hits", "cache_misses", "loads") == (1, 0, 0)

    again = opened(tmp_path)
    assert custom(again.get_store(1), "cache_hits", "cache_misses", "loads") == (0, 1, 1)
    reloaded = again.get_store(2)
    assert custom(reloaded, "cache_hits", "cache_misses", "loads", "snapshots_rebuilt") == (0, 2, 2, 0)
    assert reloaded.metrics.custom["load_ms"] >= 0


def test_metrics_of_several_stores_combine_to_their_sums(tmp_path: Path) -> None:
    """Spark's SPARK-34270: a custom metric of one store does not take the place of another's."""
    left = StoreMetrics(1, 10, 2, 1, None, {"cache_hits": 10, "loads": 5})
    right = StoreMetrics(3, 20, 4, 0, 1.5, {"cache_hits": 20, "load_ms": 300})
    total = StoreMetrics.combine([left, right])
    assert total == StoreMetrics(4, 30, 6, 1, 1.5, {"cache_hits": 30, "loads": 5, "load_ms": 300})
    assert StoreMetrics.combine([]) == StoreMetrics(0, 0, 0, 0, None, {})
    stores = [opened(tmp_path / name).get_store(0) for name in "ab"]
    for number, store in enumerate(stores):
        store.put(b"%d" % number, b"v")
        store.commit()
    combined = StoreMetrics.combine(store.metrics for store in stores)
    assert (combined.keys, combined.puts) == (2, 2)
    assert combined.commit_ms == sum(store.metrics.commit_ms or 0 for store in stores)


@pytest.mark.parametrize(("kept", "hits"), [(0, [0, 0, 0]), (1, [1, 1, 1]), (2, [1, 2, 2]), (3, [1, 2, 3])])
def test_as_many_versions_stay_in_memory_as_are_asked_for(tmp_path: Path, kept: int, hits: list[int]) -> None:
    """The newest is looked for first; one that is read from files takes the place of another."""
    provider = opened(tmp_path, keep_in_memory=kept)
    for version in range(3):
        store = provider.get_store(version)
        store.put(b"a", b"%d" % (version + 1))
        store.commit()
    before = custom(provider.get_store(0), "cache_hits")[0]
    found = []
    for version in (3, 2, 1):
        store = provider.get_store(version, read_only=True)
        assert store.get(b"a") == b"%d" % version
        found.append(custom(store, "cache_hits")[0] - before)
    assert found == hits


def test_a_version_that_was_replaced_is_not_taken_from_memory(tmp_path: Path) -> None:
    """Spark's "failure after committing with MAX_BATCHES_TO_RETAIN_IN_MEMORY set to 1"."""
    provider = opened(tmp_path, keep_in_memory=1)
    for version in range(2):
        store = provider.get_store(version)
        store.put(b"a", b"%d" % (version + 1))
        store.commit()
    again = provider.get_store(1)
    again.put(b"a", b"-2")
    assert again.commit(replace=True) == 2
    assert provider.get_store(2).get(b"a") == b"-2"
    assert held(tmp_path, 2) == {b"a": b"-2"}


def test_each_commit_is_told_with_its_version_and_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The line of Spark's HDFS-backed store: "Committed version … for … to file …"."""
    caplog.set_level("INFO", "odi_assets.store")
    provider = opened(tmp_path, snapshot_every=2)
    for version in range(2):
        store = provider.get_store(version)
        store.put(b"a", b"%d" % version)
        store.commit()
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" to file ")[0] for line in lines] == [
        f"Committed version 1 for {provider.uri}",
        f"Committed version 2 for {provider.uri}",
        f"Written the snapshot of version 2 for {provider.uri}",
    ]
    files = [Path(line.split(" to file ")[1]) for line in lines]
    assert all(file.is_file() and file.parent == tmp_path / "store" for file in files)
    assert len(set(files)) == 3
    caplog.clear()
    assert store.metrics.commit_ms
    again = opened(tmp_path, writer=provider.writer).get_store(1)
    again.put(b"a", b"1")
    again.commit()
    assert caplog.records == []


def test_errors_of_a_commit_name_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = opened(tmp_path)
    provider.get_store(0).commit()

    def full(*_args: Any, **_options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(system_tables, "write_deltalake", full)
    with pytest.raises(StateError, match=r"^version 2 of the state store at .* was not committed: .*No space") as told:
        provider.get_store(1).commit()
    assert told.value.version == 2


def test_a_snapshot_that_fails_does_not_fail_its_commit_and_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    provider = opened(tmp_path, snapshot_every=2)
    provider.get_store(0).commit()
    real, calls = system_tables.write_deltalake, []

    def fails_at_the_second(*args: Any, **options: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(*args, **options)

    monkeypatch.setattr(system_tables, "write_deltalake", fails_at_the_second)
    assert provider.get_store(1).commit() == 2
    assert "the snapshot of version 2" in caplog.text
    assert [commit.snapshot for commit in provider.check().readable] == [0, 0]
    assert provider.get_store(2).commit() == 3
    assert [commit.snapshot for commit in provider.check().readable] == [0, 0, 3]


def test_an_iterator_sees_the_store_as_it_was_when_it_was_made(provider: StateStoreProvider) -> None:
    first = provider.get_store(0)
    for number in range(4):
        first.put(b"%d" % number, b"old")
    store = provider.get_store(first.commit())
    store.put(b"4", b"new")
    made_before, prefixed = store.iterator(), store.prefix_scan(b"")
    store.put(b"5", b"newer")
    seen = []
    for key, value in store.iterator():
        seen.append((key, value))
        store.remove(key)
        store.put(b"9" + key, value)
    assert seen == [(b"0", b"old"), (b"1", b"old"), (b"2", b"old"), (b"3", b"old"), (b"4", b"new"), (b"5", b"newer")]
    assert list(made_before) == list(prefixed) == seen[:5]
    assert [key for key, _ in store.iterator()] == [b"90", b"91", b"92", b"93", b"94", b"95"]


def test_abort_drops_the_changes_and_leaves_no_trace(tmp_path: Path) -> None:
    provider = opened(tmp_path)
    first = provider.get_store(0)
    first.put(b"a", b"1")
    first.commit()
    before = sorted(tmp_path.rglob("*"))
    store = provider.get_store(1)
    store.put(b"a", b"2")
    store.remove(b"a")
    store.abort()
    assert (store.state, store.has_committed) == (StoreState.ABORTED, False)
    assert dict(store.iterator()) == {b"a": b"1"}
    store.abort()
    assert sorted(tmp_path.rglob("*")) == before
    assert held(tmp_path, 1) == {b"a": b"1"}


def test_a_reader_and_a_writer_of_one_version_do_not_meet(tmp_path: Path) -> None:
    provider = opened(tmp_path)
    first = provider.get_store(0)
    first.put(b"a", b"1")
    first.commit()
    reader, writer = provider.get_store(1, read_only=True), provider.get_store(1)
    writer.put(b"a", (reader.get(b"a") or b"") + b"+1")
    assert reader.get(b"a") == b"1"
    assert writer.commit() == 2
    reader.abort()
    assert reader.get(b"a") == b"1"
    assert held(tmp_path, 2) == {b"a": b"1+1"}


@pytest.mark.parametrize("doing", ["put", "remove", "commit"])
def test_a_store_that_was_opened_to_read_takes_no_change(provider: StateStoreProvider, doing: str) -> None:
    provider.get_store(0).commit()
    with pytest.raises(IllegalStateError, match=f"Cannot {doing} in a store that was opened read-only"):
        change(provider.get_store(1, read_only=True), doing)
    assert provider.latest_version() == 1


def change(store: StateStore, doing: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: store.put(b"k", b"v"),
        "remove": lambda: store.remove(b"k"),
        "commit": store.commit,
    }
    calls[doing]()


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("doing", ["put", "remove", "commit"])
def test_a_store_that_has_ended_takes_no_change(provider: StateStoreProvider, end: str, doing: str) -> None:
    store = provider.get_store(0)
    store.put(b"k", b"v")
    getattr(store, end)()
    state = store.state
    with pytest.raises(IllegalStateError, match=f"^Cannot {doing} after already committed or aborted") as told:
        change(store, doing)
    assert told.value.fix
    store.abort()
    assert store.state is state
    assert provider.latest_version() == (1 if end == "commit" else 0)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (b"k", None, "Cannot put a null value"),
        (None, b"v", "Cannot put a null key"),
        ("k", b"v", "a key of type str: a state store holds bytes"),
        (b"k", 1, "a value of type int"),
        (b"k", bytearray(b"v"), "a value of type bytearray"),
    ],
)
def test_keys_and_values_that_are_null_or_not_bytes_are_refused(
    provider: StateStoreProvider, key: Any, value: Any, why: str
) -> None:
    store = provider.get_store(0)
    with pytest.raises(StateError, match=why):
        store.put(key, value)
    assert store.metrics.keys == store.metrics.puts == 0


@pytest.mark.parametrize("doing", ["get", "remove", "prefix_scan"])
def test_a_null_key_is_nowhere_accepted(provider: StateStoreProvider, doing: str) -> None:
    with pytest.raises(StateError, match="a null"):
        getattr(provider.get_store(0), doing)(None)


def test_nothing_is_written_before_the_commit(tmp_path: Path) -> None:
    provider = opened(tmp_path)
    assert (provider.latest_version(), provider.versions(), provider.clean()) == (0, [], 0)
    assert provider.maintain() == {"files_cleaned": 0, "files_removed": 0}
    store = provider.get_store(0)
    store.put(b"k", b"v")
    store.remove(b"k")
    assert list(store.iterator()) == []
    store.abort()
    provider.get_store(0, read_only=True).get(b"k")
    assert list(tmp_path.iterdir()) == []


def test_a_commit_without_changes_makes_a_version(tmp_path: Path) -> None:
    provider = opened(tmp_path)
    first = provider.get_store(0)
    first.put(b"k", b"v")
    first.commit()
    assert provider.get_store(1).commit() == 2
    assert provider.versions() == [1, 2]
    assert held(tmp_path, 2) == {b"k": b"v"}


def test_a_store_is_aborted_at_the_end_of_its_block_unless_it_was_committed(provider: StateStoreProvider) -> None:
    with provider.get_store(0) as forgotten:
        forgotten.put(b"k", b"v")
    with pytest.raises(KeyError, match="transform"), provider.get_store(0) as failed:
        fail_after_a_put(failed)
    assert (forgotten.state, failed.state, provider.latest_version()) == (StoreState.ABORTED, StoreState.ABORTED, 0)
    with provider.get_store(0) as store:
        store.put(b"k", b"v")
        store.commit()
    assert store.has_committed
    assert provider.latest_version() == 1


def fail_after_a_put(store: StateStore) -> None:
    store.put(b"k", b"v")
    raise KeyError("transform")


def test_a_commit_that_failed_may_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk cannot be provoked here; deltalake tells it like this."""
    provider = opened(tmp_path)
    provider.get_store(0).commit()
    store = provider.get_store(1)
    store.put(b"k", b"v")

    def full(*_args: Any, **_options: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(system_tables, "write_deltalake", full)
        with pytest.raises(StateError, match="No space left") as told:
            store.commit()
    assert not isinstance(told.value, Transient)
    assert (store.state, store.metrics.commit_ms, provider.latest_version()) == (StoreState.UPDATING, None, 1)
    store.put(b"l", b"w")
    assert store.commit() == 2
    assert held(tmp_path, 2) == {b"k": b"v", b"l": b"w"}


def test_a_passing_fault_of_the_store_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    provider = opened(tmp_path, retry=Retry(sleep=waits.append, draw=lambda low, _high: low))
    left: list[Exception] = [TimeoutError("slow"), TimeoutError("slow")]
    real = system_tables.write_deltalake

    def faulty(*args: Any, **options: Any) -> None:
        if left:
            raise left.pop(0)
        real(*args, **options)

    monkeypatch.setattr(system_tables, "write_deltalake", faulty)
    assert provider.get_store(0).commit() == 1
    assert waits == [1, 2]


def test_threads_may_share_a_provider(tmp_path: Path) -> None:
    provider = opened(tmp_path)
    version = 0
    for number in range(5):
        store = provider.get_store(version)
        store.put(b"%d" % number, b"x" * number)
        version = store.commit()
    seen: dict[int, list[dict[bytes, bytes]]] = {}

    def read(number: int) -> None:
        turn: Iterator[int] = iter([1 + (number + step) % 5 for step in range(5)])
        seen[number] = [dict(provider.get_store(v, read_only=True).iterator()) for v in turn]

    threads = [threading.Thread(target=read, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = {v: {b"%d" % n: b"x" * n for n in range(v)} for v in range(1, 6)}
    assert seen == {n: [expected[1 + (n + step) % 5] for step in range(5)] for n in range(5)}


@pytest.mark.parametrize(("option", "value"), [("retain", 0), ("snapshot_every", 0), ("keep_in_memory", -1)])
def test_options_that_make_no_sense_are_refused(tmp_path: Path, option: str, value: int) -> None:
    with pytest.raises(StateError, match=f"`{option}` of a state store is {value}"):
        opened(tmp_path, **{option: value})


def test_the_store_is_loaded_by_those_who_use_it(tmp_path: Path) -> None:
    script = (
        "import sys, odi_assets.state\n"
        "assert {'deltalake', 'odi_assets.store'}.isdisjoint(sys.modules)\n"
        "import odi_assets.store as s\n"
        f"p = s.StateStoreProvider({str(tmp_path / 'store')!r}, storage_options={{'account_key': 'SECRET'}})\n"
        "p.get_store(0).commit()\n"
        "assert dict(p.get_store(1).iterator()) == {}\n"
        "print({'pyspark', 'dagster', 'pandas', 'numpy', 'pyarrow'} & set(sys.modules), 'SECRET' in repr(p))\n"
    )
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "set() False\n"
