"""What a soak came to: the tables against the files that landed, run history and Dagster's own record of runs.

Tables and history are read with deltalake and the files with csv, and not through the package.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg

from benchmarks.dagster.server import Server
from benchmarks.harness import Row

HEALTHY = ("shop/orders", "shop/large", "shop/daily", "air/wind", "air/gusts")
BROKEN = "shop/broken"
UNFINISHED = dg.RunsFilter(
    statuses=[
        dg.DagsterRunStatus.QUEUED,
        dg.DagsterRunStatus.NOT_STARTED,
        dg.DagsterRunStatus.STARTING,
        dg.DagsterRunStatus.STARTED,
        dg.DagsterRunStatus.CANCELING,
    ]
)
_STEPS = {dg.DagsterEventType.STEP_START, dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.STEP_FAILURE}
_PLANNED = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
_ENDED = frozenset({"SUCCESS", "NO_DATA"})
_MOST_WAITING = 2


def open_steps(instance: dg.DagsterInstance, run_id: str) -> set[str]:
    """The steps of a run that began, and of which no end is recorded."""
    found: set[str] = set()
    for record in instance.get_records_for_run(run_id, of_type=_STEPS).records:
        event = record.event_log_entry.dagster_event
        if event is None or event.step_key is None:
            continue
        if event.event_type is dg.DagsterEventType.STEP_START:
            found.add(event.step_key)
        else:
            found.discard(event.step_key)
    return found


@dataclass
class Findings:
    """Reads what is there once all is quiet.

    Attributes:
        folder: of the project.
        killed, cancelled: by the ids of the runs that were ended from outside, the steps that were computed then.
        say: told each fault that is found.
    """

    folder: Path
    instance: dg.DagsterInstance
    server: Server
    killed: Mapping[str, set[str]]
    cancelled: Mapping[str, set[str]]
    say: Callable[[str], None]

    def rows(self, files: int, settled: float, patience: float) -> list[Row]:
        """Each measure with its bar.

        Args:
            files: how many landed.
            settled: seconds until all was quiet.
            patience: how many there may be.
        """
        return [
            *self._what_happened(files),
            *self.of_tables(settled, patience),
            # One of the sensor and one of the schedule.
            _at_most("runs of one asset that wait", self._most_at_once(_waiting), _MOST_WAITING),
            _none("healthy assets that are red", len(self._red(HEALTHY))),
            Row("the broken one is red", len(self._red([BROKEN])), None, "", None, "1", bool(self._red([BROKEN]))),
            _none("failures of healthy nodes", len(self._failures())),
            *self._told("killed", self.killed, "LOST"),
            *self._told("cancelled", self.cancelled, "CANCELLED"),
            _none("nodes of cancelled runs without a row", len(self._without_row())),
        ]

    def of_tables(self, settled: float, patience: float) -> list[Row]:
        """What was lost or repeated, and whether runs of an asset came one after the other; see :meth:`rows`."""
        return [
            Row("until all was quiet, s", settled, None, "", None, f"<= {patience:g}", settled <= patience),
            *self._tables(),
            _none("runs that did not end", self.instance.get_runs_count(UNFINISHED)),
            _at_most("increments of one asset at once", self._most_at_once(_running), 1),
        ]

    def _what_happened(self, files: int) -> list[Row]:
        done = self.server.backfills("COMPLETED_SUCCESS")
        counts = {
            "files that arrived": files,
            "runs": len(self._records),
            "runs killed": len(self.killed),
            "runs cancelled": len(self.cancelled),
            "backfills that succeeded": done,
        }
        return [Row(name, count, None, "", None, "> 0", count > 0) for name, count in counts.items()]

    # -- tables --------------------------------------------------------------------------------------------------------

    def _tables(self) -> list[Row]:
        lost, repeated = 0, 0
        for table, expected in self._expected().items():
            columns = "day, orders, amount" if table == "daily" else "id"
            found = Counter(tuple(map(str, row.values())) for row in self._read(table, columns))
            missing, too_many = expected - found, found - expected
            lost, repeated = lost + missing.total(), repeated + too_many.total()
            if missing or too_many:
                self.say(f"  {table}: missing {sorted(missing)[:5]}, too many {sorted(too_many)[:5]}")
        return [_none("rows lost", lost), _none("rows repeated or wrong", repeated)]

    def _expected(self) -> dict[str, Counter[tuple[str, ...]]]:
        orders, wind = self._landed("orders"), self._landed("wind")
        days: dict[str, list[int]] = {}
        for row in orders:
            days.setdefault(row["day"], []).append(int(row["amount"]))
        return {
            "orders": _ids(orders),
            "large": _ids(row for row in orders if int(row["amount"]) >= 50),
            "daily": Counter((day, str(len(found)), str(sum(found))) for day, found in days.items()),
            "wind": _ids(wind),
            "gusts": _ids(row for row in wind if int(row["amount"]) >= 50),
        }

    def _landed(self, source: str) -> list[dict[str, str]]:
        rows: list[dict[str, str]] = []
        for file in sorted((self.folder / "landing" / source).glob("*.csv")):
            with file.open(encoding="utf-8", newline="") as lines:
                rows += csv.DictReader(lines)
        return rows

    def _read(self, table: str, columns: str) -> list[dict[str, Any]]:
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        opened = DeltaTable(str(self.folder / "lake" / table))
        found = QueryBuilder().register("t", opened).execute(f"SELECT {columns} FROM t")
        rows: list[dict[str, Any]] = pa.RecordBatchReader.from_stream(found).read_all().to_pylist()
        return rows

    # -- runs ----------------------------------------------------------------------------------------------------------

    @cached_property
    def _records(self) -> list[dg.RunRecord]:
        return list(self.instance.get_run_records())

    def _planned(self, run_id: str) -> set[str]:
        records = self.instance.get_records_for_run(run_id, of_type=_PLANNED).records
        return {record.asset_key.to_user_string() for record in records if record.asset_key is not None}

    def _most_at_once(self, span: Callable[[dg.RunRecord], tuple[float, float] | None]) -> int:
        """Of the assets, the most runs that take in an increment of one whose spans have a moment in common."""
        moments: dict[str, list[tuple[float, int]]] = {}
        for record in self._records:
            found = None if _is_of_partitions(record.dagster_run) else span(record)
            if found is not None:
                for asset in self._planned(record.dagster_run.run_id):
                    moments.setdefault(asset, []).extend([(found[0], 1), (found[1], -1)])
        return max(map(_most, moments.values()), default=0)

    def _red(self, assets: Iterable[str]) -> list[str]:
        """The assets that Dagster's UI paints red: by its rule, of what its API tells it."""
        keys = [{"path": asset.split("/")} for asset in assets]
        found = self.server.ask(_HEALTH, keys=keys)
        red = {"/".join(one["assetKey"]["path"]) for one in found["assetsLatestInfo"] if _failed_last(one)}
        for one in found["assetNodes"]:
            if (one["partitionStats"] or {}).get("numFailed"):
                red.add("/".join(one["assetKey"]["path"]))
        for asset in red - {BROKEN}:
            self.say(f"  {asset} is red")
        return sorted(red)

    # -- history -------------------------------------------------------------------------------------------------------

    @cached_property
    def _history(self) -> list[dict[str, Any]]:
        return self._read("system/meta_runs", "run_id, pipeline_name, node_name, status, error")

    def _status(self, run_id: str, node: str) -> set[str]:
        """How history says that a node of a run ended."""
        return {
            row["status"]
            for row in self._history
            if row["run_id"] == run_id and f"{row['pipeline_name']}/{row['node_name']}" == node
        }

    def _failures(self) -> list[dict[str, Any]]:
        found = [
            row
            for row in self._history
            if row["status"] == "FAILURE" and f"{row['pipeline_name']}/{row['node_name']}" in HEALTHY
        ]
        for row in found:
            self.say(f"  run {row['run_id']}: {row['node_name']} failed: {row['error']}")
        return found

    def _told(self, what: str, runs: Mapping[str, set[str]], status: str) -> list[Row]:
        """Whether history has the right status for the nodes that were computed when a run was ended. One that had
        committed by then has succeeded."""
        said, wrong = 0, 0
        for run_id, steps in runs.items():
            for step in steps:
                node = "/".join(step.split("__")[:2])
                found = self._status(run_id, node)
                said += status in found
                if not found & {status, *_ENDED}:
                    wrong += 1
                    self.say(f"  run {run_id} was {what}, and history says of {node}: {sorted(found) or 'nothing'}")
        return [
            Row(f"nodes of {what} runs that are {status}", said, None, "", None, "> 0", said > 0),
            _none(f"nodes of {what} runs that are something else", wrong),
        ]

    def _without_row(self) -> list[tuple[str, str]]:
        found = [
            (run_id, node)
            for run_id in self.cancelled
            for node in self._planned(run_id)
            if not self._status(run_id, node)
        ]
        for run_id, node in found:
            self.say(f"  run {run_id} was cancelled, and history does not tell of {node}")
        return found


def _none(name: str, count: int) -> Row:
    return _at_most(name, count, 0)


def _at_most(name: str, count: int, most: int) -> Row:
    return Row(name, count, None, "", None, f"<= {most}" if most else "0", count <= most)


def _ids(rows: Iterable[dict[str, str]]) -> Counter[tuple[str, ...]]:
    return Counter((row["id"],) for row in rows)


def _is_of_partitions(run: dg.DagsterRun) -> bool:
    return any(tag.startswith(("dagster/partition", "dagster/asset_partition_range")) for tag in run.tags)


def _running(record: dg.RunRecord) -> tuple[float, float] | None:
    if record.start_time is None:
        return None
    return record.start_time, record.end_time or float("inf")


def _waiting(record: dg.RunRecord) -> tuple[float, float] | None:
    """From the moment that a run was requested to that in which it began or was given up."""
    until = record.start_time or record.end_time or float("inf")
    return record.create_timestamp.timestamp(), until


def _most(moments: list[tuple[float, int]]) -> int:
    most = now = 0
    # At one moment, ends come before beginnings.
    for _, change in sorted(moments):
        now += change
        most = max(most, now)
    return most


def _failed_last(info: dict[str, Any]) -> bool:
    run, made = info["latestRun"], info["latestMaterialization"]
    return bool(run) and run["status"] == "FAILURE" and (made is None or made["runId"] != run["id"])


_HEALTH = (
    "query($keys: [AssetKeyInput!]!) { "
    "assetsLatestInfo(assetKeys: $keys) { assetKey { path } latestRun { id status } latestMaterialization { runId } } "
    "assetNodes(assetKeys: $keys) { assetKey { path } partitionStats { numFailed } } }"
)
