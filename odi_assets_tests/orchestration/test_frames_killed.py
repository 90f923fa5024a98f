"""Assets beside nodes whose process dies after its commit: tried again, they write nothing twice and lose nothing."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.transaction import Transaction

from benchmarks.frames.kills import sweep
from benchmarks.frames.process import write
from odi_assets.config.models import WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.history import METADATA_KEY
from odi_assets.nodes.project import Project
from odi_assets.orchestration.assets.attempts import StepAttempt, app_id
from odi_assets.orchestration.assets.frames import AssetTable, write_frame

pytestmark = pytest.mark.slow

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]


def test_no_row_is_there_twice_and_none_is_lost(tmp_path: Path) -> None:
    at_once = sweep(tmp_path, between=(0,))
    later = sweep(tmp_path, between=(60,), seeds=(1,))
    for tally in (at_once, later):
        assert (tally.twice, tally.lost, tally.written_again) == ([], [], [])
    assert (at_once.cases, later.cases) == (36, 9)


def test_a_range_has_one_fence_in_whatever_order_its_partitions_come() -> None:
    assert app_id("prices", DAYS) == app_id("prices", DAYS[::-1])
    assert app_id("prices", DAYS) != app_id("prices", [DAYS[0], DAYS[-1]])


def test_a_commit_of_a_former_version_is_found(tmp_path: Path) -> None:
    """It has the fence alone, under whichever of two names the hash seed of its process gave it."""
    began = dt.datetime.now(dt.UTC)
    facts = {"asset": "prices", "run_id": "first", "attempt_of": "root/prices/2024-01-01/2024-01-04", "reads": {}}
    fence = {"app_id": "odi_assets.asset:prices:2024-01-04...2024-01-01", "number": 1}
    properties = CommitProperties(
        custom_metadata={METADATA_KEY: {**facts, "fence": fence, "write_id": "w"}},  # type: ignore[dict-item]
        app_transactions=[Transaction(fence["app_id"], 1)],  # type: ignore[arg-type]
    )
    rows = pa.table({"day": DAYS, "price": [1, 2, 3, 4]})
    write_deltalake(str(tmp_path), rows, partition_by=["day"], commit_properties=properties)
    table = AssetTable("prices", Location(str(tmp_path)), WriteMode.APPEND, (), ("day",), "day")
    attempt = StepAttempt(facts["attempt_of"], "second", began, lambda _: False, tuple(DAYS))  # type: ignore[arg-type]
    assert write_frame(table, rows, attempt, pytest.fail) == (None, 0)
    assert DeltaTable(str(tmp_path)).version() == 0


def test_a_run_at_the_same_partitions_that_came_between_does_not_hide_the_attempt(tmp_path: Path) -> None:
    for run in ("first", "second", "third"):
        assert write(tmp_path, "prices", "append", DAYS, run) is not None
    assert write(tmp_path, "prices", "append", DAYS, "first") is None


SCRIPT = """
    import os, signal, sys
    import dagster as dg, pandas as pd
    from odi_assets import Project, build_definitions
    from odi_assets.orchestration.assets.io_manager import DeltaIOManager

    DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-06-01")

    @dg.asset(
        io_manager_key="delta_io_manager", partitions_def=DAILY, metadata={"mode": "append", "partition_column": "day"},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def prices(context):
        yield dg.Output(pd.DataFrame({"day": list(context.partition_keys), "price": 1}))
        if sys.argv[1] == "dies later":
            os.kill(os.getpid(), signal.SIGKILL)

    def job():
        job = dg.define_asset_job("alone", selection=[prices.key], executor_def=dg.in_process_executor)
        own = dg.Definitions(assets=[prices], jobs=[job])
        return dg.Definitions.merge(build_definitions(Project.load()), own).resolve_job_def("alone")

    def dies(manager, context, frame, real=DeltaIOManager._write_frame):
        real(manager, context, frame)
        os.kill(os.getpid(), signal.SIGKILL)

    if __name__ == "__main__":
        what = sys.argv[1]
        with dg.DagsterInstance.get() as instance:
            again = dg.reconstructable(job)
            if what == "dies":
                DeltaIOManager._write_frame = dies
            if what != "again":
                first, last = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
                dg.execute_job(again, instance, tags={first: "2024-01-01", last: "2024-01-04"})
            (run,) = instance.get_runs(limit=1)
            instance.report_run_failed(run)
            options = dg.ReexecutionOptions(parent_run_id=run.run_id)
            assert dg.execute_job(again, instance, tags=run.tags, reexecution_options=options).success
"""


@pytest.mark.parametrize("killed", ["dies", "dies later"])
def test_a_killed_run_at_a_range_is_executed_anew_without_a_second_commit(
    killed: str, project: Project, tmp_path: Path
) -> None:
    """It dies before Dagster records the materialization, or between that and the end of the step."""
    home = tmp_path / "home"
    home.mkdir()
    script = tmp_path / "prices_script.py"
    script.write_text(textwrap.dedent(SCRIPT), encoding="utf-8")

    def process(what: str, seed: int) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "DAGSTER_HOME": str(home), "ODI_PROJECT": str(project.path), "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, str(script), what]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)

    assert process(killed, 1).returncode == -signal.SIGKILL
    location = Location(str(project.root / "lake" / "prices"))
    table = AssetTable("prices", location, WriteMode.APPEND, (), ("day",), "day")
    for number in range(60):
        day = f"2024-03-{number % 28 + 1:02d}"
        attempt = StepAttempt(f"other {number}", f"other {number}", None, lambda _: False, (day,))
        write_frame(table, pa.table({"day": [day], "price": [1]}), attempt, pytest.fail)
    again = process("again", 2)
    assert again.returncode == 0, again.stderr
    found = pa.table(DeltaTable(location.uri).scan())["day"].to_pylist()
    assert sorted(day for day in found if day < "2024-02") == DAYS
    assert len(found) == 64
