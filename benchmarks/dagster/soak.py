"""A soak: Dagster's daemon, sensors, a schedule and backfills over a project in which files arrive all the time, while
runs are killed and cancelled. What it came to is read by :mod:`soak_findings`.

Two pipelines: in ``shop``, orders are appended, filtered, and summed by day, beside a node whose file is broken; in
``air``, measurements are appended, and the strong ones follow by their greatest id. All rows have ids that grow.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import dagster as dg

from benchmarks.dagster.server import LOCATION, Server, running_dagster
from benchmarks.dagster.soak_findings import UNFINISHED, Findings, open_steps
from benchmarks.harness import Options, Row
from odi_assets.orchestration.runs.in_flight import PROCESS_TAG
from odi_assets.orchestration.runs.instance import HOME_VARIABLE, open_instance

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04")
PROJECT_FILE = """\
project: soak
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: system}
spark: {master: "local[1]", conf: {spark.sql.shuffle.partitions: "1", spark.ui.enabled: "false"}}
automation: {interval: 5s, max_attempts: 3, first_pause: 5s, longest_pause: 10s}
pipelines:
  - pipeline: shop
    schedule: "* * * * *"
    nodes:
      - name: orders
        read: {connection: landing, format: csv, path: orders/*.csv, schema: "id BIGINT, day DATE, amount BIGINT",
               options: {header: true}, incremental: files}
        write: {connection: lake, path: orders, mode: append}
      - name: large
        inputs: {orders: {node: orders, incremental: version}}
        transform: {sql: SELECT id FROM orders WHERE amount >= 50}
        write: {connection: lake, path: large, mode: append}
      - name: daily
        inputs: {orders: {node: orders, incremental: version}}
        partition: {column: day, every: day, start: 2024-01-01, end: 2024-01-05}
        transform: {sql: "SELECT day, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY day"}
        write: {connection: lake, path: daily, mode: partition_overwrite}
      - name: broken
        read: {connection: landing, format: csv, path: broken/*.csv, schema: id BIGINT, incremental: files}
        write: {connection: lake, path: broken, mode: append}
  - pipeline: air
    nodes:
      - name: wind
        read: {connection: landing, format: csv, path: wind/*.csv, schema: "id BIGINT, day DATE, amount BIGINT",
               options: {header: true}, incremental: files}
        write: {connection: lake, path: wind, mode: append}
      - name: gusts
        inputs: {wind: {node: wind, incremental: version}}
        transform: {sql: SELECT id FROM wind WHERE amount >= 50}
        write: {connection: lake, path: gusts, mode: upsert, keys: [id]}
"""
SOURCES = ("orders", "wind")
_ROWS_OF_A_FILE = 20
_FILE_EVERY, _DISTURB_EVERY, _BACKFILL_EVERY = 3.0, 25.0, 50.0
_QUIET_SECONDS, PATIENCE = 25.0, 1800.0
"""How long nothing has to happen until it is over, and how long that may take on a machine with neighbours."""
_RUNNING = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])
_QUEUED = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])


def soak(options: Options) -> list[Row]:
    """Some minutes of everything at once, and what it came to. The folder stays if that falls short."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    rows = _soak(options, folder)
    if all(row.holds for row in rows):
        shutil.rmtree(folder)
    else:
        options.say(f"the project and Dagster's log are in {folder}")
    return rows


def _soak(options: Options, folder: Path) -> list[Row]:
    landing = Landing(folder / "landing")
    (folder / "odibi.yaml").write_text(PROJECT_FILE, encoding="utf-8")
    (landing.root / "broken").mkdir(parents=True)
    (landing.root / "broken" / "1.csv").write_text("no number\n", encoding="utf-8")
    for source in SOURCES:
        landing.land(source)
    with (
        running_dagster(folder) as server,
        patch.dict(os.environ, {HOME_VARIABLE: str(folder)}),
        open_instance(folder) as instance,
    ):
        disturber = Disturber(instance, server, options.say)
        options.say(f"{options.minutes:g} minutes of files, backfills, kills and cancelled runs")
        with automation(server, {"shop": LOCATION, "air": LOCATION}):
            _live(landing, disturber, server, options.minutes * 60)
            for source in SOURCES:
                landing.land(source)
            # A cancelled run is not requested again until the position moves, and one may have had the broken node.
            (landing.root / "broken" / "2.csv").write_text("no number either\n", encoding="utf-8")
            backfill_all(landing, server)
        options.say("waiting until nothing happens any more")
        settled = await_quiet(instance, server)
        findings = Findings(folder, instance, server, disturber.killed, disturber.cancelled, options.say)
        return findings.rows(landing.files, settled, PATIENCE)


@dataclass
class Landing:
    """The folder in which files arrive; ``files`` counts them."""

    root: Path
    files: int = 0
    _next: int = 0

    @property
    def is_loaded(self) -> bool:
        """Whether orders were loaded once: before, there is nothing to compute partitions from."""
        return (self.root.parent / "lake" / "orders" / "_delta_log").exists()

    def land(self, source: str) -> None:
        """A file with rows of all days. It appears at once, as a whole."""
        folder = self.root / source
        folder.mkdir(parents=True, exist_ok=True)
        numbers = range(self._next, self._next + _ROWS_OF_A_FILE)
        self._next, self.files = numbers.stop, self.files + 1
        lines = (f"{number},{DAYS[number % len(DAYS)]},{number * 37 % 100}" for number in numbers)
        begun = folder / f"{self.files:06}.begun"
        begun.write_text("\n".join(["id,day,amount", *lines]) + "\n", encoding="utf-8")
        begun.rename(begun.with_suffix(".csv"))


@dataclass
class Disturber:
    """Ends runs that did nothing wrong.

    Attributes:
        killed, cancelled: by the ids of those runs, the steps that were computed then.
    """

    instance: dg.DagsterInstance
    server: Server
    say: Callable[[str], None]
    killed: dict[str, set[str]] = field(default_factory=dict)
    cancelled: dict[str, set[str]] = field(default_factory=dict)
    _draw: random.Random = field(default_factory=lambda: random.Random(2013))
    _turn: int = 0

    def disturb(self) -> bool:
        """Kill a run while one of its nodes is computed, or cancel such a run or one that waits; in turn.

        Returns:
            False if there is none.
        """
        kind = ("kill", "cancel", "kill", "cancel a waiting one")[self._turn % 4]
        waiting = self.instance.get_runs(_QUEUED) if kind == "cancel a waiting one" else ()
        candidates = waiting or [run for run in self.instance.get_runs(_RUNNING) if self._is_computing(run)]
        if not candidates:
            return False
        run = self._draw.choice(list(candidates))
        self._turn += 1
        steps = open_steps(self.instance, run.run_id)
        self.say(f"  {kind}: run {run.run_id} of {run.job_name}")
        if kind == "kill":
            try:
                os.kill(int(run.tags[PROCESS_TAG].split("/")[-2]), signal.SIGKILL)
            except ProcessLookupError:
                # It ended by itself just now.
                return False
            self.killed[run.run_id] = steps
        else:
            self.server.ask(_TERMINATE, runs=[run.run_id])
            self.cancelled[run.run_id] = steps
        return True

    def _is_computing(self, run: dg.DagsterRun) -> bool:
        known = {*self.killed, *self.cancelled}
        return run.run_id not in known and PROCESS_TAG in run.tags and bool(open_steps(self.instance, run.run_id))


def _live(landing: Landing, disturber: Disturber, server: Server, seconds: float) -> None:
    began = time.monotonic()
    files, disturbed, backfilled = 0, 0.0, 0.0
    draw = random.Random(42)
    while (now := time.monotonic() - began) < seconds:
        if now >= files * _FILE_EVERY:
            landing.land(SOURCES[files % len(SOURCES)])
            files += 1
        if now - disturbed >= _DISTURB_EVERY and disturber.disturb():
            disturbed = now
        if now - backfilled >= _BACKFILL_EVERY and landing.is_loaded and not server.backfills("REQUESTED"):
            server.ask(BACKFILL, what=backfill_of(draw.sample(DAYS, draw.randint(1, len(DAYS)))))
            backfilled = now
        time.sleep(0.25)


def backfill_all(landing: Landing, server: Server) -> None:
    """One more backfill, which is left alone."""
    until = time.monotonic() + PATIENCE
    while not landing.is_loaded and time.monotonic() < until:
        time.sleep(0.5)
    server.ask(BACKFILL, what=backfill_of([*DAYS]))


def backfill_of(days: list[str]) -> dict[str, object]:
    return {"assetSelection": [{"path": ["shop", "daily"]}], "partitionNames": sorted(days)}


@contextmanager
def automation(server: Server, locations: Mapping[str, str]) -> Iterator[None]:
    """Turn on the sensors and the schedule; in the end turn off the schedule, with which it would never be quiet.

    Args:
        locations: by pipeline, the code location.
    """
    places = {
        pipeline: {"repositoryLocationName": location, "repositoryName": "__repository__"}
        for pipeline, location in locations.items()
    }
    for pipeline, place in places.items():
        server.ask(_START_SENSOR, sensor={**place, "sensorName": f"{pipeline}_new_data"})
    started = server.ask(_START_SCHEDULE, schedule={**places["shop"], "scheduleName": "shop_schedule"})
    try:
        yield
    finally:
        server.ask(_STOP_SCHEDULE, schedule=started["startSchedule"]["scheduleState"]["id"])


def await_quiet(instance: dg.DagsterInstance, server: Server) -> float:
    """Seconds until no run and no backfill was left and none came; infinite if there are still some."""
    began = quiet_since = time.monotonic()
    seen = instance.get_runs_count()
    while (now := time.monotonic()) < began + PATIENCE:
        runs = instance.get_runs_count()
        if runs != seen or instance.get_runs_count(UNFINISHED) or server.backfills("REQUESTED"):
            quiet_since, seen = now, runs
        if now - quiet_since > _QUIET_SECONDS:
            return quiet_since - began
        time.sleep(0.5)
    return float("inf")


_ERROR = "... on PythonError { message }"
_START_SENSOR = (
    f"mutation($sensor: SensorSelector!) {{ startSensor(sensorSelector: $sensor) {{ __typename {_ERROR} }} }}"
)
_START_SCHEDULE = (
    "mutation($schedule: ScheduleSelector!) { startSchedule(scheduleSelector: $schedule) "
    f"{{ __typename ... on ScheduleStateResult {{ scheduleState {{ id }} }} {_ERROR} }} }}"
)
_STOP_SCHEDULE = f"mutation($schedule: String!) {{ stopRunningSchedule(id: $schedule) {{ __typename {_ERROR} }} }}"
_TERMINATE = f"mutation($runs: [String!]!) {{ terminateRuns(runIds: $runs) {{ __typename {_ERROR} }} }}"
BACKFILL = (
    "mutation($what: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $what) "
    f"{{ __typename {_ERROR} }} }}"
)
