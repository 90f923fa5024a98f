"""Drivers and executors of a real cluster end by SIGKILL in mid-run; no row is lost, and none comes twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from odi_assets_tests.cli.shop import odi
from odi_assets_tests.cluster.conftest import PLACES
from odi_assets_tests.cluster.killed import HELD, HOLD, POINTS, PROJECT, orders, stored
from odi_assets_tests.cluster.servers import Cluster, local_environment, until
from odi_assets_tests.cluster.test_projects import placed

TWO_DAYS = 172_800.0
DRIVER, EXECUTOR = "driver", "executors"
ROUNDS = {
    "connect": [*((point, DRIVER) for point in POINTS), (HELD, DRIVER), (HELD, EXECUTOR)],
    "standalone": [(HELD, DRIVER), (HELD, EXECUTOR)],
}
"""What is killed where, in turn. A process of Spark Connect starts in a fraction of the time of a classic one."""

UNSAFE = {"spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2"}
"""A setting of some clusters that has each task publish its files by itself; staging does not follow it."""


class Sweep:
    """A project in a folder, and the rounds that were run in it."""

    def __init__(self, root: Path, place: tuple[str, str], cluster: Cluster) -> None:
        self.root = root
        self.cluster = cluster
        self.is_classic = place[0] == "master"
        (root / "landing").mkdir()
        (root / "landing" / "orders-0.csv").write_text(
            "\n".join(["id,customer,amount", *(",".join(map(str, row)) for row in orders(0)), ""]), encoding="utf-8"
        )
        text = placed(PROJECT, place, **UNSAFE)
        (root / "odibi.yaml").write_text(text, encoding="utf-8")
        (root / "held.py").write_text(HOLD, encoding="utf-8")

    @contextmanager
    def process(self, number: int, point: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "odi_assets_tests.cluster.killed", str(number), point]
        with (self.root / f"round-{number}.log").open("w", encoding="utf-8") as log:
            running = subprocess.Popen(
                command,
                cwd=self.root,
                env=local_environment(PYTHONPATH=str(Path(__file__).parents[2])),
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            try:
                yield running
            finally:
                for child in psutil.Process(running.pid).children(recursive=True) if running.poll() is None else ():
                    child.kill()
                running.kill()
                running.wait(60)

    def round(self, number: int, point: str, killed: str) -> None:
        """Run one, kill what is to be killed, and look at what the run before it made of its predecessor."""
        others = {app for app, _ in self.cluster.executors()} if killed == EXECUTOR and self.is_classic else set()
        with self.process(number, point) as running:
            if point == HELD:
                self._kill_in_mid_write(number, running, killed, others)
            code = running.wait(600)
        (self.root / "hold").unlink(missing_ok=True)
        log = (self.root / f"round-{number}.log").read_text(encoding="utf-8")
        assert code == (-signal.SIGKILL if killed == DRIVER else 0), log[-4000:]
        told = json.loads((self.root / f"recovered-{number}.json").read_text(encoding="utf-8"))
        assert told == {"orders": all_orders(number), "latest": latest_orders(number)}, f"before {point}: {log[-4000:]}"

    def _kill_in_mid_write(self, number: int, running: subprocess.Popen[str], killed: str, others: set[str]) -> None:
        before = set(self._staged(""))

        def writing() -> bool:
            assert running.poll() is None, (self.root / f"round-{number}.log").read_text(encoding="utf-8")[-4000:]
            now = {
                name: set(self._staged(name)) - before for name in ("_temporary/0/_temporary/", "_temporary/0/task_")
            }
            return (self.root / f"began-{number}").exists() and all(now.values())

        until("one task is done and another writes", writing)
        if killed == DRIVER:
            running.kill()
        else:
            # Whichever of them has the task: all executors of the application end.
            for app, executor in self.cluster.executors():
                if app not in others:
                    executor.kill()
        (self.root / f"go-{number}").touch()

    def _staged(self, below: str) -> list[Path]:
        # Not rglob: folders of tasks come and go while it looks.
        found = (Path(folder, name) for folder, _, names in os.walk(self.root / "lake" / "orders") for name in names)
        return [path for path in found if path.suffix == ".parquet" and f"/{below}" in path.as_posix()]


def all_orders(rounds: int) -> list[list[Any]]:
    return sorted(list(row) for number in range(rounds) for row in orders(number))


def latest_orders(rounds: int) -> list[list[Any]]:
    return sorted({row[1]: list(row) for number in range(rounds) for row in orders(number)}.values())


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_no_row_is_lost_or_repeated_whoever_is_killed(
    place: tuple[str, str],
    cluster: Cluster,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = request.node.callspec.params["place"]
    sweep = Sweep(tmp_path, place, cluster)
    rounds = ROUNDS[name]
    for number, (point, killed) in enumerate(rounds, start=1):
        sweep.round(number, point, killed)
    # Whoever lost executors went on with others, to the end.
    monkeypatch.chdir(tmp_path)
    assert stored("orders") == all_orders(len(rounds) + 1)
    assert stored("latest") == latest_orders(len(rounds) + 1)

    lake = tmp_path / "lake"
    if not sweep.is_classic:
        # A JVM whose Python was killed ends its job, and may have time to take its files away.
        assert files(lake / "orders") > live(lake / "orders"), "whoever is killed leaves files behind"
    # Orphans as young as these are left alone: they may belong to a run that is still writing.
    for path in files(lake / "orders") | files(lake / "latest"):
        os.utime(path, (time.time() - TWO_DAYS,) * 2)
    vacuumed = odi("tables", "maintain", "--retain-hours", "0", "--small-mb", "0", "--yes", cwd=tmp_path)
    assert vacuumed.returncode == 0, vacuumed.stderr
    for table in ("orders", "latest"):
        assert files(lake / table) == live(lake / table)


def files(table: Path) -> set[Path]:
    """The data files in a table's folder, those of unfinished writes included."""
    found = (path.relative_to(table) for path in table.rglob("*.parquet"))
    return {(table / path).resolve() for path in found if not path.parts[0].startswith("_")}


def live(table: Path) -> set[Path]:
    return {Path(uri).resolve() for uri in DeltaTable(str(table)).file_uris()}
