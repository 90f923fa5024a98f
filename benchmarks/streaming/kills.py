"""Runs of a stateful join in processes of their own, killed with SIGKILL: around the commits of their batches, in the
tables of kept rows, at the ends of runs, in a rewind, and with the JVM alone killed.

In the end, rows, kept rows and watermarks have to be those of a project whose runs nobody disturbed, and no process is
left. A killed process takes its JVM along, so each kill costs the start of another one: some seconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from benchmarks.harness import Options, Row
from benchmarks.processes import processes_of

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
      unmatched_rows: unmatched
    transform:
      sql: SELECT id, at, paid FROM orders JOIN payments ON id = order_id
        AND paid BETWEEN at - INTERVAL 5 MINUTES AND at + INTERVAL 5 MINUTES
    write: {{connection: lake, path: matched, mode: append}}
"""
_FILES, _ORDERS = 12, 8
_POINT = "ODI_BENCHMARK_KILL"
_DIED = 77
"""The exit code of a run whose JVM died, and that said so."""
_EXECUTION, _REWIND = "odi_assets.streams.execution", "odi_assets.streams.recovery.rewind"
POINTS = {
    "batch": f"{_EXECUTION}.batch.BatchCommitter.__call__",
    "late rows": f"{_EXECUTION}.kept_rows.KeptRows._keep_late",
    "unmatched rows": f"{_EXECUTION}.kept_rows.KeptRows.keep_unmatched",
    "kept rows": f"{_EXECUTION}.kept_rows._write",
    "record of batches": f"{_EXECUTION}.run._record",
    "end of the run": f"{_EXECUTION}.run.StreamRun._keep_up",
    "result": f"{_EXECUTION}.run.StreamRun._result",
    "rewind: copy": f"{_REWIND}.CheckpointFolder.keep_copy",
    "rewind: checkpoint": f"{_REWIND}.CheckpointFolder.truncate",
    "rewind: kept rows": f"{_REWIND}.bring_in_step",
    "redo: copy": f"{_REWIND}.CheckpointFolder.put_back",
    "redo: kept rows": f"{_REWIND}.bring_in_step",
}
"""Where a run, a rewind, or the way forward again after one is killed: functions that it comes by."""
_MOMENTS = ("before", "after")
_VICTIMS = ("run", "JVM")
_LEFT_SECONDS = 30.0
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
            name = f"{store}: {made} kills; tables that differ in rows, watermarks, late or unmatched rows"
            rows.append(Row(name, differing, None, "an undisturbed run", None, "0", differing == 0))
    return rows


def draw_point(draw: random.Random) -> str:
    """A point as a child takes it: ``VICTIM MOMENT NTH NAME``."""
    name = draw.choice(sorted(POINTS))
    victim = "run" if name.startswith(("rewind", "redo")) else draw.choice(_VICTIMS)
    nth = draw.randint(1, 3) if name in ("batch", "record of batches") else 1
    return f"{victim} {draw.choice(_MOMENTS)} {nth} {name}"


def _disturb(place: Path, count: int, options: Options) -> int:
    draw, made, attempts = random.Random(2013), 0, 0
    while True:
        attempts += 1
        point = draw_point(draw) if made < count and attempts < 3 * count else None
        if not run_killed(place, point):
            if point is None:
                return made
            continue
        made += 1
        options.say(f"killed {point} ({made}/{count})")


def run_killed(place: Path, point: str | None) -> bool:
    """Run the node once; whether it was killed at the point. A rewind that was killed is repeated.

    Raises:
        RuntimeError: the run failed, or left a process behind.
    """
    done = _run(place, point)
    if done.returncode not in (-signal.SIGKILL, _DIED):
        _require_done(done)
        return False
    if point is not None and ("rewind" in point or "redo" in point):
        _require_done(_run(place, "rewind again"))
    return True


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
    # A file, not a pipe: a process that is left would keep a pipe open.
    with (place / "stderr.txt").open("w+", encoding="utf-8") as told:
        process = subprocess.Popen(command, stdout=told, stderr=told, env=environment, start_new_session=True)
        process.wait()
        told.seek(0)
        text = told.read()
    until = time.monotonic() + _LEFT_SECONDS
    while left := processes_of(process.pid):
        if time.monotonic() > until:
            raise RuntimeError(f"processes {left} are left of a run that was to die at {point!r}")
        time.sleep(0.1)
    return subprocess.CompletedProcess(command, process.returncode, "", text)


def _require_done(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise RuntimeError(f"a run failed ({done.returncode}):\n{done.stderr[-4000:]}")


def outcome(place: Path) -> dict[str, Any]:
    """Rows of the node's table and of its late rows, and the watermarks of its batches."""
    import pyarrow as pa
    from deltalake import DeltaTable

    from odi_assets.config.graph import NodeKey
    from odi_assets.delta.table import TableHandle
    from odi_assets.nodes.node import Node
    from odi_assets.nodes.project import Project
    from odi_assets.streams.execution.ledger import records_of

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
        "unmatched": rows("unmatched", ["input", "batch", "row"]),
        "watermarks": [(one.batch, one.watermark) for one in records_of(node, TableHandle.open(node.target.location))],
    }


def _child(place: Path, point: str | None) -> None:
    """Run the node once, or take it back by two batches if ``point`` is one of a rewind, and forward again if it is one
    of a redo; die at the point."""
    from odi_assets.config.graph import NodeKey
    from odi_assets.errors import SparkDiedError
    from odi_assets.nodes.project import Project
    from odi_assets.nodes.run_history import RunHistory
    from odi_assets.nodes.run_node import NodeRun, run_node
    from odi_assets.spark.session import open_session

    project = Project.load(place / "odibi.yaml")
    state = project.open_state()
    is_redo = point is not None and "redo" in point
    if is_redo and not _rewind(project, state, place, forth=True):
        return
    if point is not None and not point.startswith("rewind"):
        _install(*point.split(" ", 3))
    if point is not None and (is_redo or "rewind" in point):
        _rewind(project, state, place)
        return
    with ExitStack() as opened:

        def open_spark() -> Any:
            session = open_session(project.config.spark)
            opened.callback(session.stop)
            return session.spark

        history = RunHistory(project, state, f"run-{os.getpid()}")
        try:
            run_node(NodeRun(history, NodeKey("p", "matched"), open_spark))
        except SparkDiedError:
            sys.exit(_DIED)


def _rewind(project: Any, state: Any, place: Path, *, forth: bool = False) -> bool:
    """Take the node to the batch that is noted; else back by two batches. The batch is noted: a rewind that was killed
    is repeated as it was.

    Args:
        forth: note the batch that the node has now, for the next call.

    Returns:
        Whether there were enough batches.
    """
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.node import Node
    from odi_assets.nodes.recovery.rewind import apply_rewind, plan_rewind
    from odi_assets.streams.recovery.rewind import at_batch

    key, noted = NodeKey("p", "matched"), place / "rewind.txt"
    records = project.open_batches().of_node(str(key))
    if not noted.exists():
        if len(records) < 4:
            return False
        noted.write_text(str(records[-3].batch), encoding="utf-8")
    batch = int(noted.read_text(encoding="utf-8"))
    apply_rewind(project, state, plan_rewind(project, state, key, at_batch(Node.of(project, key), batch)))
    noted.unlink()
    if forth:
        noted.write_text(str(records[-1].batch), encoding="utf-8")
    return True


def _install(victim: str, moment: str, nth: str, name: str) -> None:
    """Die, or kill the JVM, at the ``nth`` passing of a point."""
    holder_name, _, attribute = POINTS[name].rpartition(".")
    holder = resolve_name(holder_name)
    original: Callable[..., Any] = getattr(holder, attribute)
    left = int(nth)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and moment == "before":
            _kill(victim)
        result = original(*args, **kwargs)
        if left == 0 and moment == "after":
            _kill(victim)
        return result

    setattr(holder, attribute, wrapped)


def _kill(victim: str) -> None:
    from pyspark import SparkContext

    process: Any = getattr(SparkContext._gateway, "proc", None)
    if victim == "JVM" and process is not None:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    else:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _child(Path(sys.argv[1]), os.environ.get(_POINT))
