"""Tables in an object store that fails for a while: commits and openings are tried again, and data is there once."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from odi_assets.config.models import Connection, RetryConfig
from odi_assets.connections.location import Location, resolve
from odi_assets.delta.changes import table_change
from odi_assets.delta.commit import FileChanges, Stamp, commit
from odi_assets.delta.errors import DamagedTableError, OutcomeUnknownError, StoreAccessError, StoreUnreachableError
from odi_assets.delta.files.footers import WrittenFile
from odi_assets.delta.maintenance import maintain
from odi_assets.delta.table import TableHandle
from odi_assets.errors import FencedError, TableConflictError
from odi_assets_tests.state.clouds import clouds

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]})
QUICK = RetryConfig(retries=3, base_delay=0.001, jitter=0)
SECRET = clouds.SECRET


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, Any]]:
    with clouds.s3() as cloud:
        yield cloud.resolved("key")


@pytest.fixture
def table(store: dict[str, Any]) -> Location:
    """A place whose client asks once, so that each fault is ours to see."""
    connection = TypeAdapter(Connection).validate_python(store)
    place = resolve(connection, f"t/{uuid.uuid4().hex}", Path(), name="cloud", retry=QUICK)
    return replace(place, storage_options={**place.storage_options, "max_retries": "0"})


def write(handle: TableHandle, number: int, size: int = 1) -> int:
    add = WrittenFile(f"{number}.parquet", size, int(time.time() * 1000), 1, {}, json.dumps({"numRecords": 1}))
    return commit(handle, SCHEMA, (), FileChanges("rows", [add]), Stamp("app", number, {"run_id": f"r{number}"}))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().split(":")[0] for record in caplog.records if "trying again" in record.getMessage()]


@pytest.mark.parametrize("exists", [False, True], ids=["create", "append"])
@pytest.mark.parametrize("how", ["busy-commit", "lost-answer", "silent-after-commit"])
def test_a_store_that_fails_at_a_commit_is_asked_again_and_the_data_is_there_once(
    store: dict[str, Any], table: Location, caplog: pytest.LogCaptureFixture, how: str, exists: bool
) -> None:
    if exists:
        write(TableHandle.open(table), 1)
    handle = TableHandle.open(table)
    clouds.fail(store, how, 2)
    with caplog.at_level(logging.WARNING):
        assert write(handle, 1 + exists) == int(exists)
    now = TableHandle.open(table)
    assert [file.path for file in now.live_files] == [f"{n + 1}.parquet" for n in range(1 + exists)][::-1]
    assert (now.version, now.transaction_number("app")) == (int(exists), 1 + exists)
    if how != "lost-answer":
        assert set(told(caplog)) == {"the commit to s3"}
    clouds.fail(store, "busy", 0)


def test_retries_that_are_used_up_leave_the_table_as_it_was(store: dict[str, Any], table: Location) -> None:
    write(TableHandle.open(table), 1)
    handle = TableHandle.open(table)
    clouds.fail(store, "busy-commit", 1000)
    with pytest.raises(StoreUnreachableError, match="503") as given_up:
        write(handle, 2)
    assert given_up.value.connection == "cloud"
    assert given_up.value.__notes__ == ["given up after 4 attempts"]
    assert not isinstance(given_up.value, OutcomeUnknownError)
    clouds.fail(store, "busy", 0)
    assert TableHandle.open(table).version == 0
    assert write(handle, 2) == 1


def test_a_commit_whose_outcome_nobody_can_tell_is_not_made_again_unseen(
    store: dict[str, Any], table: Location
) -> None:
    write(TableHandle.open(table), 1)
    handle = TableHandle.open(table)
    clouds.fail(store, "silent-after-commit", 1000)
    with pytest.raises(OutcomeUnknownError, match=r"it is not known whether a commit to .* was made"):
        write(handle, 2)
    clouds.fail(store, "busy", 0)
    assert TableHandle.open(table).transaction_number("app") == 2
    with pytest.raises((FencedError, TableConflictError)):
        write(handle, 2)
    assert len(TableHandle.open(table).live_files) == 2


def test_opening_waits_for_a_store_that_does_not_answer(
    store: dict[str, Any], table: Location, caplog: pytest.LogCaptureFixture
) -> None:
    write(TableHandle.open(table), 1)
    clouds.fail(store, "busy", 2)
    with caplog.at_level(logging.WARNING):
        assert TableHandle.open(table).version == 0
    assert told(caplog)
    assert set(told(caplog)) == {"opening s3"}
    clouds.fail(store, "busy", 1000)
    with pytest.raises(StoreUnreachableError):
        TableHandle.open(table)
    clouds.fail(store, "busy", 0)


def test_the_log_is_read_by_deltalakes_own_client(store: dict[str, Any], table: Location) -> None:
    write(TableHandle.open(table), 1)
    handle = TableHandle.open(table)
    assert [stamp.facts["run_id"] for stamp in handle.stamps()] == ["r1"]
    other = TableHandle.open(table)
    clouds.fail(store, "busy", 1000)
    # A commit does not change: a handle reads it once.
    assert [stamp.facts["run_id"] for stamp in handle.stamps()] == ["r1"]
    for _ in range(2):
        with pytest.raises(StoreUnreachableError, match="reading the log"):
            list(other.stamps())
    clouds.fail(store, "busy", 0)
    assert [stamp.facts["run_id"] for stamp in other.stamps()] == ["r1"]


@pytest.mark.parametrize("read", [pa.table, lambda found: found.read_all()], ids=["pyarrow", "arro3"])
def test_a_file_that_cannot_be_looked_at_is_not_taken_for_lost(
    store: dict[str, Any], table: Location, read: Callable[[Any], Any]
) -> None:
    write(TableHandle.open(table), 1, size=1000)
    handle = TableHandle.open(table)
    clouds.fail(store, "busy", 1000)
    with pytest.raises(StoreUnreachableError, match="reading rows"), handle.reads("reading rows"):
        read(handle.table.scan())
    clouds.fail(store, "busy", 0)
    with pytest.raises(DamagedTableError, match="a data file of the Delta table"), handle.reads("reading rows"):
        read(handle.table.scan())


def test_versions_that_cannot_be_looked_at_are_not_taken_for_gone(
    store: dict[str, Any], table: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        write(TableHandle.open(table), number)
    handle = TableHandle.open(table)
    monkeypatch.setattr(maintain, "presence", lambda _location: lambda _path: True)
    assert maintain.rewindable_from(handle) == 0
    clouds.fail(store, "busy", 1000)
    for look in (lambda: maintain.rewindable_from(handle), lambda: handle.is_kept(0)):
        with pytest.raises(StoreUnreachableError):
            look()
    clouds.fail(store, "busy", 0)
    assert handle.is_kept(0)
    assert not handle.is_kept(9)


def test_a_log_that_cannot_be_read_is_not_taken_for_a_change(store: dict[str, Any], table: Location) -> None:
    for number in (1, 2):
        write(TableHandle.open(table), number)
    handle = TableHandle.open(table)
    then = TableHandle.open(table, 0).position
    assert table_change(then, handle) == "version 0 then, version 1 now"
    other = TableHandle.open(table)
    clouds.fail(store, "busy", 1000)
    with pytest.raises(StoreUnreachableError, match="reading the log"):
        table_change(then, other)
    clouds.fail(store, "busy", 0)


def test_a_store_that_refuses_is_told_at_once_with_its_connection(
    store: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    connection = TypeAdapter(Connection).validate_python({**store, "bucket": "nowhere"})
    with pytest.raises(StoreAccessError, match="nowhere") as refused:
        TableHandle.open(resolve(connection, "t", Path(), name="cloud"))
    assert "connection `cloud`" in refused.value.fix
    assert SECRET not in str(refused.value) + repr(vars(refused.value))
    assert not told(caplog)
