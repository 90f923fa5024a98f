"""A reader that is many commits behind: one scan for all of them, and the rows of as many single increments."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.changes import changes
from odi_assets.delta.commit import Stamp
from odi_assets.delta.history import METADATA_KEY
from odi_assets.delta.maintenance.restore import restore
from odi_assets.delta.table import TableHandle
from odi_assets.sources.delta.versions import step
from odi_assets.sources.marks import VersionMark
from odi_assets.tables.changed_rows import affected_rows, changed_rows
from odi_assets.tables.engine import WriteSpec
from odi_assets_tests.tables.support import APP, ENGINE, frame, read_table

COLUMNS = "id BIGINT, day STRING, v BIGINT, gone BOOLEAN"
KEYED: dict[str, Any] = {"mode": WriteMode.UPSERT, "keys": ("id",), "delete_when": "gone"}


def leaves(rows: DataFrame) -> int:
    return int(rows._jdf.queryExecution().optimizedPlan().collectLeaves().size())


class Log:
    """A table whose commits are written by hand: one file of one row each, and no Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_deltalake(str(folder), pa.table({"id": [0], "v": [0]}))
        self.version = 0
        self.live = [Path(uri).name for uri in DeltaTable(str(folder)).file_uris()]
        self.content = folder / "one.parquet"
        pq.write_table(pa.table({"id": [1], "v": [1]}), self.content)

    def commit(self, how: str) -> None:
        """An append; an upsert that updates or deletes a row of the newest file; or a restore of the version before."""
        self.version += 1
        name = f"{self.version}.parquet"
        os.link(self.content, self.folder / name)
        add = {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
        info: dict[str, Any] = {"timestamp": 0, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
        actions: list[dict[str, Any]] = [{"add": add}]
        if how != "append":
            removed = {"path": self.live.pop(), "deletionTimestamp": 0, "dataChange": True}
            actions.append({"remove": removed})
            counts = {"rows_updated": int(how == "update"), "rows_deleted": int(how == "delete")}
            info[METADATA_KEY] = {"changes": "rows", "keys": ["id"], **counts}
        self.live.append(name)
        self._write(info, actions)

    def restored(self) -> None:
        """Undo the last commit, an append."""
        self.version += 1
        removed = {"path": self.live.pop(), "deletionTimestamp": 0, "dataChange": True}
        parameters = {"version": str(self.version - 2)}
        self._write({"timestamp": 0, "operation": "RESTORE", "operationParameters": parameters}, [{"remove": removed}])

    def _write(self, info: Mapping[str, Any], actions: list[dict[str, Any]]) -> None:
        lines = [json.dumps(action) for action in ({"commitInfo": info}, *actions)]
        (self.folder / "_delta_log" / f"{self.version:020}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")

    @property
    def handle(self) -> TableHandle:
        return TableHandle.open(Location(str(self.folder)))


@pytest.mark.parametrize("commits", [1, 10, 100, 1000])
@pytest.mark.parametrize("how", ["append", "update", "delete", "restore"])
def test_the_plan_does_not_grow_with_the_commits(spark: SparkSession, tmp_path: Path, how: str, commits: int) -> None:
    log = Log(tmp_path / "the table")
    while log.version < commits:
        log.commit("append" if how == "restore" else how)
        if how == "restore" and log.version % 3 == 0:
            log.commit("append")
            log.restored()
    handle = log.handle
    found = changes(handle, 0, log.version)
    rows = changed_rows(spark, handle, found)
    assert leaves(rows) <= 2
    assert sum(leaves(part) for part in affected_rows(spark, handle, found)) <= 5
    upserts = how == "update"
    assert rows.count() == (1 if upserts else len({file.path for file in found.files}))


WRITES = st.tuples(
    st.sampled_from(["upsert", "upsert", "append", "restore", "compact"]),
    st.dictionaries(st.integers(1, 6), st.tuples(st.sampled_from("ab"), st.booleans()), min_size=1, max_size=3),
    st.integers(0, 5),
)


class Upstream:
    """A table that a node and others write, and what a reader of its versions makes of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.location, self.count = spark, Location(str(folder)), 0
        self.write("upsert", {1: ("a", False), 2: ("b", False), 3: ("a", False)}, 0)

    @property
    def handle(self) -> TableHandle:
        return ENGINE.open(self.location)

    def write(self, how: str, rows: Mapping[int, tuple[str, bool]], back: int) -> None:
        self.count += 1
        handle = self.handle
        stamp = Stamp(APP, handle.transaction_number(APP) + 1, {"run_id": "run"})
        version = int(handle.version or 0)
        if how == "restore" and version:
            restore(handle, max(version - 1 - back, 0), stamp)
        elif how == "compact":
            DeltaTable(self.location.uri).optimize.compact()
        elif how == "append":
            # Another writer knows no keys: an `id` may be there twice.
            fresh = pa.table(
                {"id": list(rows), "day": [day for day, _ in rows.values()], "v": [self.count] * len(rows)}
            )
            write_deltalake(self.location.uri, fresh, mode="append")
        else:
            batch = frame(self.spark, [(i, day, self.count, gone) for i, (day, gone) in rows.items()], COLUMNS)
            ENGINE.write(batch, handle, WriteSpec(**KEYED), stamp)

    def rows(self, version: int) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row) for row in read_table(self.spark, TableHandle.open(self.location, version)).collect())

    def read(self, held: Counter[tuple[Any, ...]], after: int, upto: int) -> Counter[tuple[Any, ...]]:
        """What a copy of the table that has read it up to ``after`` holds after one increment."""
        handle = TableHandle.open(self.location, upto)
        found = step(handle, VersionMark(after, handle.table_id), "up", replaced=True)
        if found.extent in ("table", "partitions"):
            return self.rows(upto)
        if found.extent == "nothing" or found.changes is None:
            return held
        gained = Counter(tuple(row) for row in changed_rows(self.spark, handle, found.changes).collect())
        keys = {row[0] for row in gained} if any(commit.updated for commit in found.changes.commits) else set()
        replaced = {row[0] for row in gained if row[0] in keys and self._is_replaced(found.changes, row[0], handle)}
        return Counter({row: count for row, count in held.items() if row[0] not in replaced}) + gained

    def _is_replaced(self, found: Any, key: int, handle: TableHandle) -> bool:
        from odi_assets.tables.reader import read_files

        files = [file for commit in found.commits if commit.updated for file in commit.files]
        return any(row[0] == key for row in read_files(self.spark, handle, files).collect())


@given(st.lists(WRITES, min_size=2, max_size=6))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_increment_of_many_commits_is_as_many_single_ones(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, writes: list[Any]
) -> None:
    upstream = Upstream(spark, tmp_path_factory.mktemp("up") / "table")
    for write in writes:
        upstream.write(*write)
    newest = int(upstream.handle.version or 0)
    after, now = upstream.rows(0), upstream.rows(newest)
    singly = after
    for version in range(newest):
        singly = upstream.read(singly, version, version + 1)
    assert singly == now
    assert upstream.read(after, 0, newest) == now


@given(st.lists(WRITES, min_size=1, max_size=6))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_partition_whose_rows_changed_is_affected(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, writes: list[Any]
) -> None:
    upstream = Upstream(spark, tmp_path_factory.mktemp("up") / "table")
    for write in writes:
        upstream.write(*write)
    handle = upstream.handle
    newest = int(handle.version or 0)
    found = step(handle, VersionMark(0, handle.table_id), "up", replaced=True)
    then, now = upstream.rows(0), upstream.rows(newest)
    changed = {row[1] for row in (then - now) + (now - then)}
    if found.changes is None:
        assert found.extent == ("table" if found.extent == "table" or changed else "nothing")
        return
    affected = {row["day"] for rows in affected_rows(spark, handle, found.changes) for row in rows.collect()}
    assert changed <= affected
