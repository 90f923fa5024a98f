"""Runs of a stateful join in processes of their own, killed with SIGKILL around the commits of their batches.

In the end, rows and watermarks have to be those of a project whose runs nobody disturbed. A killed process takes its
JVM along, so each kill costs the start of another one: some seconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Options, Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PROJECT = """
project: kills
connections:
  landing: {{type: local, base_path: landing}}
  lake: {{type: local, base_path: lake}}
system: {{connection: lake, path: system}}
spark: {{{spark}}}
pipelines:
- pipeline: p
  nodes:
  - name: matched
    inputs:
      orders: {{read: {{connection: landing, format: json, path: orders, schema: "id STRING, at TIMESTAMP"}}}}
      payments:
        read: {{connection: landing, format: json, path: payments, schema: "order_id STRING, paid TIMESTAMP"}}
    stream:
      inputs:
        orders: {{watermark: {{column: at, delay: 2m}}, max_files_per_batch: 1}}
        payments: {{watermark: {{column: paid, delay: 2m}}, max_files_per_batch: 1}}
      state_store: {store}
      state_partitions: 2
      late_rows: late
    transform:
      sql: SELECT id, at, paid FROM orders JOIN payments ON id = order_id
        AND paid BETWEEN at - INTERVAL 5 MINUTES AND at + INTERVAL 5 MINUTES
    write: {{connection: lake, path: matched, mode: append}}
"""
_FILES, _ORDERS = 12, 8
_POINT = "ODI_BENCHMARK_KILL"
_PER_SWEEP = 100
"""Of the kills that the option names, one in so many is made for each store: they cost seconds each."""


def kills(options: Options) -> list[Row]:
    """Both stores in turn: how many kills, and how many rows and watermarks differ after them."""
    rows = []
    count = max(4, options.kills // _PER_SWEEP)
    for store in ("rocksdb", "hdfs"):
        with tempfile.TemporaryDirectory(prefix="odi-benchmark-") as folder:
            # A kill takes the stream on by one or two batches: there have to be enough of them.
            files = max(_FILES, 2 * count)
            places = {name: make_project(Path(folder) / name, store, files) for name in ("undisturbed", "disturbed")}
            _require_done(_run(places["undisturbed"], None))
            made = _disturb(places["disturbed"], count, options)
            found = {name: outcome(place) for name, place in places.items()}
            differing = sum(found["undisturbed"][part] != found["disturbed"][part] for part in found["undisturbed"])
            name = f"{store}: {made} kills around commits; tables that differ in rows, watermarks or late rows"
            rows.append(Row(name, differing, None, "an undisturbed run", None, "0", differing == 0))
    return rows


def _disturb(place: Path, count: int, options: Options) -> int:
    draw, made = random.Random(2013), 0
    while True:
        point = f"{draw.choice(('before', 'after'))} {draw.randint(1, 3)}" if made < count else None
        done = _run(place, point)
        if done.returncode == -signal.SIGKILL:
            made += 1
            options.say(f"killed {point} ({made}/{count})")
            continue
        _require_done(done)
        return made


def make_project(root: Path, store: str, files: int = _FILES, spark: str = 'master: "local[2]"') -> Path:
    """A project of a stateful join, whose files have landed.

    Args:
        spark: its ``spark`` settings.
    """
    for name in ("orders", "payments"):
        (root / "landing" / name).mkdir(parents=True)
    (root / "odibi.yaml").write_text(_PROJECT.format(store=store, spark=spark), encoding="utf-8")
    for number in range(files):
        minute = 10 * number
        orders = [{"id": f"o{number}-{i}", "at": _moment(minute + i)} for i in range(_ORDERS)]
        payments = [{"order_id": f"o{number}-{i}", "paid": _moment(minute + i + i % 7)} for i in range(_ORDERS)]
        # The last of them comes two files later: most are too late by then.
        payments[-1] = {"order_id": f"o{max(number - 2, 0)}-0", "paid": _moment(max(minute - 20, 0))}
        for name, lines in (("orders", orders), ("payments", payments)):
            file = root / "landing" / name / f"{number:03}.json"
            file.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    return root


def _moment(minute: int) -> str:
    return f"2024-01-01T{minute // 60:02}:{minute % 60:02}:00Z"


def _run(place: Path, point: str | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({_POINT: point} if point else {})}
    command = [sys.executable, "-m", "benchmarks.streaming.kills", str(place)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def _require_done(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise RuntimeError(f"a run failed ({done.returncode}):\n{done.stderr[-4000:]}")


def outcome(place: Path) -> dict[str, Any]:
    """Rows of the node's table and of its late rows, and the watermarks of its batches."""
    import pyarrow as pa
    from deltalake import DeltaTable

    from odi_assets.config.graph import NodeKey
    from odi_assets.delta.table import TableHandle
    from odi_assets.nodes.execution.stream_ledger import records_of
    from odi_assets.nodes.node import Node
    from odi_assets.nodes.project import Project

    node = Node.of(Project.load(place / "odibi.yaml"), NodeKey("p", "matched"))

    def rows(name: str, columns: list[str]) -> list[tuple[Any, ...]]:
        path = place / "lake" / name
        if not DeltaTable.is_deltatable(str(path)):
            return []
        found = pa.table(DeltaTable(str(path)).scan(columns=columns).read_all()).to_pylist()
        return sorted(tuple(map(str, row.values())) for row in found)

    return {
        "rows": rows("matched", ["id", "at", "paid"]),
        "late": rows("late", ["input", "batch", "row"]),
        "watermarks": [(one.batch, one.watermark) for one in records_of(node, TableHandle.open(node.target.location))],
    }


def _child(place: Path, point: str | None) -> None:
    """Run the node once; at ``before N`` or ``after N``, die around the commit of the N-th batch of the run."""
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.execution.advance import no_data
    from odi_assets.nodes.execution.materialize import commit, compute
    from odi_assets.nodes.execution.stream_batch import BatchCommitter
    from odi_assets.nodes.planning.planner import plan_node
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.result import RunInfo
    from odi_assets.spark.session import open_session

    project = Project.load(place / "odibi.yaml")
    state, run = project.open_state(), RunInfo(f"run-{os.getpid()}")
    write, when, left = BatchCommitter.__call__, (point or "").partition(" ")[0], int((point or "x 0").split()[1])

    def dying(self: BatchCommitter, rows: DataFrame, number: int) -> None:
        nonlocal left
        left -= 1
        if left == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, rows, number)
        if left == 0 and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    BatchCommitter.__call__ = dying  # type: ignore[method-assign]
    plan = plan_node(project, state, NodeKey("p", "matched"))
    if plan.nothing_new:
        no_data(plan, state, run)
        return
    session = open_session(project.config.spark)
    commit(compute(plan, session.spark), state, run)
    session.stop()


if __name__ == "__main__":
    _child(Path(sys.argv[1]), os.environ.get(_POINT))
