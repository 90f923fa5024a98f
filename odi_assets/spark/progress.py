"""The stages that Spark is running now, for progress displays; of classic sessions and of Spark Connect."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from odi_assets.spark.lazy import java_errors


@dataclass(frozen=True)
class Stages:
    """The stages that are running: how many, and their tasks done and in all."""

    stages: int
    tasks_done: int
    tasks: int


_remote: dict[str | None, Stages] = {}
_lock = threading.Lock()


def watch_remote(client: Any) -> None:
    """Note the stages that the client of a Spark Connect session reports while it waits for results."""
    client.register_progress_handler(_on_progress)


def running_stages() -> Stages | None:
    """The running stages of this process's sessions; None if there are none, or Spark was not started."""
    return _remote_stages() or _classic_stages()


def _classic_stages() -> Stages | None:
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or getattr(context, "_jsc", None) is None:
        return None
    try:
        tracker = context.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except (java_errors.Py4JError, AttributeError, OSError):
        # The session was stopped in the meantime, so nothing runs.
        return None
    return _sum((info.numCompletedTasks, info.numTasks) for info in infos if info is not None)


def _remote_stages() -> Stages | None:
    with _lock:
        running = list(_remote.values())
    if not running:
        return None
    return Stages(*(sum(getattr(s, name) for s in running) for name in ("stages", "tasks_done", "tasks")))


def _on_progress(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
    del inflight_tasks
    current = _sum((s.num_completed_tasks, s.num_tasks) for s in stages or () if not s.done)
    with _lock:
        if done or current is None:
            _remote.pop(operation_id, None)
        else:
            _remote[operation_id] = current


def _sum(tasks: Iterable[tuple[int, int]]) -> Stages | None:
    counts = list(tasks)
    return Stages(len(counts), sum(done for done, _ in counts), sum(of for _, of in counts)) if counts else None
