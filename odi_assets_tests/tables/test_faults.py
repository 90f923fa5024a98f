"""Faults below a write: whatever fails, the table holds what it held or what was written, and the next write works."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from odi_assets.config.models import LocalConnection, WriteMode
from odi_assets.connections.location import Location, resolve
from odi_assets.delta import commit as commits
from odi_assets.delta import history
from odi_assets.delta.commit import FileChanges, Stamp
from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.table import TableHandle
from odi_assets.errors import OdiError, TableError, Transient
from odi_assets.tables.embedded import writer
from odi_assets.tables.engine import WriteSpec
from odi_assets.tables.modes import base
from odi_assets.tables.refusals import refusal_of
from odi_assets_tests.tables.support import APP, ENGINE, Write, rows_of

OLD = [(1, "a"), (2, "b"), (3, "b")]
NEW = [(2, "b"), (9, "z")]
MODEL: dict[WriteMode, list[tuple[int, str]]] = {
    WriteMode.APPEND: sorted(OLD + NEW),
    WriteMode.APPEND_ONCE: [(1, "a"), (2, "b"), (3, "b"), (9, "z")],
    WriteMode.OVERWRITE: NEW,
    WriteMode.UPSERT: [(1, "a"), (2, "b"), (3, "b"), (9, "z")],
    WriteMode.PARTITION_OVERWRITE: [(1, "a"), (2, "b"), (9, "z")],
}
NOBODY = 65534
Commit = Callable[..., None]
Fault = Callable[[Commit, tuple[Any, ...], dict[str, Any]], None]


def spec(mode: WriteMode) -> WriteSpec:
    keys = ("id",) if mode in (WriteMode.UPSERT, WriteMode.APPEND_ONCE) else ()
    return WriteSpec(mode, keys, ("name",))


@pytest.fixture
def table() -> Iterator[Location]:
    """A table in a folder that others may look into."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield resolve(LocalConnection(base_path=name), "lake/the table", Path(name))


@pytest.fixture
def begin(spark: SparkSession, write: Write, table: Location) -> Callable[[WriteMode], None]:
    """Write the increment with the next fence, or find that it is there."""
    write(OLD, partition_by=("name",))

    def run(mode: WriteMode) -> None:
        handle = ENGINE.open(table)
        if handle.transaction_number(APP) == 1:
            frame = spark.createDataFrame(NEW, "id BIGINT, name STRING")
            ENGINE.write(frame, handle, spec(mode), Stamp(APP, 2, {"run_id": "run"}))

    return run


def fail_once(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[Commit, tuple[Any, ...], dict[str, Any]], None]
) -> None:
    real, failed = DeltaTable.create_write_transaction, []

    def commit(*arguments: Any, **options: Any) -> None:
        if failed:
            real(*arguments, **options)
        else:
            failed.append(True)
            fault(real, arguments, options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)


def refuse(error: Exception) -> Fault:
    def fault(*_: Any) -> None:
        raise error

    return fault


def land_and_lose_the_answer(commit: Commit, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    commit(*arguments, **options)
    raise OSError("connection reset by peer")


every_mode = pytest.mark.parametrize("mode", list(WriteMode))


@every_mode
def test_a_commit_conflict_is_met_by_writing_again_on_the_table_as_it_is(
    spark: SparkSession, table: Location, begin: Callable[..., None], monkeypatch: pytest.MonkeyPatch, mode: WriteMode
) -> None:
    fail_once(monkeypatch, refuse(CommitFailedError("a concurrent transaction deleted data this operation read")))
    begin(mode)
    assert rows_of(spark, table) == MODEL[mode]


@every_mode
def test_an_error_before_the_commit_leaves_the_table_and_the_next_run_writes(
    spark: SparkSession, table: Location, begin: Callable[..., None], monkeypatch: pytest.MonkeyPatch, mode: WriteMode
) -> None:
    fail_once(monkeypatch, refuse(OSError(28, "No space left on device")))
    with pytest.raises(TableError, match="No space left") as told:
        begin(mode)
    assert not isinstance(told.value, Transient)
    assert rows_of(spark, table) == OLD
    begin(mode)
    assert rows_of(spark, table) == MODEL[mode]


@every_mode
def test_a_commit_that_landed_and_whose_answer_was_lost_counts_as_done(
    spark: SparkSession, table: Location, begin: Callable[..., None], monkeypatch: pytest.MonkeyPatch, mode: WriteMode
) -> None:
    fail_once(monkeypatch, land_and_lose_the_answer)
    begin(mode)
    assert (ENGINE.open(table).version, rows_of(spark, table)) == (1, MODEL[mode])


@every_mode
def test_a_commit_that_landed_while_the_storage_went_away_is_found_by_the_next_run(
    spark: SparkSession, table: Location, begin: Callable[..., None], monkeypatch: pytest.MonkeyPatch, mode: WriteMode
) -> None:
    def gone(*_: Any) -> NoReturn:
        raise TableError("the storage does not answer")

    with monkeypatch.context() as patch:

        def land_and_go(commit: Commit, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
            commit(*arguments, **options)
            patch.setattr(TableHandle, "open_once", gone)
            patch.setattr(history, "commit_text", gone)
            raise OSError("connection reset by peer")

        fail_once(patch, land_and_go)
        with pytest.raises(OdiError, match="does not answer"):
            begin(mode)
    begin(mode)
    assert (ENGINE.open(table).version, rows_of(spark, table)) == (1, MODEL[mode])


@every_mode
@pytest.mark.parametrize("left", [0, 0.5])
def test_a_half_written_file_is_never_committed(
    spark: SparkSession,
    table: Location,
    begin: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    mode: WriteMode,
    left: float,
) -> None:
    real = base.written_files

    def torn(location: Location, folder: str, always_index: Any) -> list[WrittenFile]:
        file = next(Path(location.uri, folder).rglob("*.parquet"))
        file.write_bytes(file.read_bytes()[: int(file.stat().st_size * left)])
        return real(location, folder, always_index)

    with monkeypatch.context() as patch:
        patch.setattr(base, "written_files", torn)
        with pytest.raises(TableError, match="is not a whole Parquet file"):
            begin(mode)
    assert rows_of(spark, table) == OLD
    begin(mode)
    assert rows_of(spark, table) == MODEL[mode]


def commit_as_nobody(uri: str, version: int, arguments: tuple[Any, ...], told: Any) -> None:
    handle = TableHandle.open(Location(uri), version)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    try:
        commits.commit(handle, *arguments)
        told.put(None)
    except (OSError, OdiError) as error:
        told.put(f"{type(error).__name__}: {error}")


@every_mode
def test_a_log_that_may_not_be_written_leaves_the_table_as_it_was(
    spark: SparkSession, table: Location, begin: Callable[..., None], monkeypatch: pytest.MonkeyPatch, mode: WriteMode
) -> None:
    def commit(handle: TableHandle, *arguments: Any) -> int:
        # Root may write everywhere, so a child gives up being root and then commits what was staged here.
        context = multiprocessing.get_context("spawn")
        told = context.Queue()
        child = context.Process(target=commit_as_nobody, args=(handle.location.uri, handle.version, arguments, told))
        child.start()
        answer = told.get(timeout=60)
        child.join(60)
        raise OSError(answer)

    for folder in (*Path(table.uri).parents[:2], Path(table.uri)):
        folder.chmod(0o755)
    log = Path(table.uri, "_delta_log")
    log.chmod(0o555)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(writer, "commit", commit)
            with pytest.raises(OSError, match="Permission denied"):
                begin(mode)
    finally:
        log.chmod(0o755)
    assert rows_of(spark, table) == OLD
    begin(mode)
    assert rows_of(spark, table) == MODEL[mode]


@every_mode
def test_a_clock_that_went_back_does_not_disturb_the_order_of_commits(
    spark: SparkSession, table: Location, begin: Callable[..., None], monkeypatch: pytest.MonkeyPatch, mode: WriteMode
) -> None:
    monkeypatch.setattr(commits.time, "time", lambda: 1_000_000_000.0)
    begin(mode)
    newest = max(Path(table.uri, "_delta_log").glob("*.json"))
    os.utime(newest, (1_000_000_000, 1_000_000_000))
    handle = ENGINE.open(table)
    stamp = handle.last_stamp(APP)
    assert stamp is not None
    assert (handle.version, stamp.number, rows_of(spark, table)) == (1, 2, MODEL[mode])


SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]})


def staged(file: Path) -> WrittenFile:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"1")
    return WrittenFile(file.name, 1, int(time.time() * 1000), 1, {}, json.dumps({"numRecords": 1}))


def commit_on_a_full_disk(root: Path, exists: bool, ended: Any) -> None:
    location = resolve(LocalConnection(base_path=str(root)), "t", root)
    add = staged(root / "t" / "one.parquet")
    handle = TableHandle.open(location)
    # The kernel refuses bytes beyond the limit just as a full disk does.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
    try:
        commits.commit(handle, SCHEMA, (), FileChanges("rows", [add]), Stamp("app", 1 + exists))
        ended.put("committed")
    except (OSError, OdiError) as error:
        ended.put(type(error).__name__)


@pytest.mark.parametrize("exists", [False, True], ids=["create", "append"])
@pytest.mark.slow
def test_a_log_entry_that_does_not_fit_on_the_disk_is_not_in_the_log(tmp_path: Path, exists: bool) -> None:
    location = resolve(LocalConnection(base_path=str(tmp_path)), "t", tmp_path)
    add = staged(tmp_path / "t" / "zero.parquet")
    if exists:
        commits.commit(TableHandle.open(location), SCHEMA, (), FileChanges("rows", [add]), Stamp("app", 1))
    context = multiprocessing.get_context("spawn")
    ended = context.Queue()
    child = context.Process(target=commit_on_a_full_disk, args=(tmp_path, exists, ended))
    child.start()
    assert ended.get(timeout=60) != "committed"
    child.join(60)
    handle = TableHandle.open(location)
    assert (handle.exists, len(handle.live_files)) == (exists, int(exists))
    commits.commit(handle, SCHEMA, (), FileChanges("rows", [add]), Stamp("app", 1 + exists))
    assert TableHandle.open(location).transaction_number("app") == 1 + exists


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("No space left on device", r"were not written: No space left on device\n  → make room"),
        (
            "Mkdirs failed to create file:TABLE/_w=1",
            r"were not written: a folder cannot be made there\n  → let the user",
        ),
        ("TABLE/_w=1 (Permission denied)", r"were not written: Permission denied\n  → let the user of this process"),
    ],
)
def test_a_disk_that_takes_no_files_is_named_as_one(
    spark: SparkSession, table: Location, write: Write, monkeypatch: pytest.MonkeyPatch, reason: str, said: str
) -> None:
    write([(1, "a")])
    writer = type(spark.range(1).write)

    def refused(*_: Any) -> None:
        raise RuntimeError(f"Job aborted … Caused by: java.io.IOException: {reason.replace('TABLE', table.uri)}")

    monkeypatch.setattr(writer, "parquet", refused)
    with pytest.raises(TableError, match=said):
        write([(2, "b")])
    monkeypatch.undo()
    assert rows_of(spark, table) == [(1, "a")]


def test_a_closed_folder_beside_the_table_is_not_taken_for_the_tables(table: Location) -> None:
    assert refusal_of(f"java.io.IOException: {table.uri}_source/a.csv (Permission denied)", table) is None
    assert refusal_of(f"java.io.IOException: {table.uri}/a.parquet (Permission denied)", table) is not None
