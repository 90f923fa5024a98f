"""Where a run is killed: the named points of the protocol, each a function of production code that a child wraps.

Production code knows nothing of them. A name that moved is an error when the child installs its point, and a point
that no kill reached fails the sweep, so neither a renamed nor a bypassed function goes unnoticed.
"""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Literal

Moment = Literal["before", "after", "during", "half"]
Report = Callable[[str], None]


@dataclass(frozen=True)
class Point:
    """One point.

    Attributes:
        function: dotted name, as its caller looks it up.
        moment: when, seen from the call of that function.
        needs: what a scenario must have for a run to come by; every run does, if empty. `first`: a capture that begins.
        often: whether an upsert comes by more than once.
    """

    name: str
    function: str
    moment: Moment
    needs: Literal["", "ledger", "repair", "first", "quarantine"] = ""
    often: bool = False


POINTS = (
    Point("history repaired, notes still there", "odi_assets.orchestration.runs.reconcile.end", "before", "repair"),
    Point("before planning", "odi_assets.nodes.run_history.begin", "after"),
    Point("planned", "odi_assets.nodes.run_node.plan_node", "after"),
    Point("upper bound fixed", "odi_assets.nodes.execution.materialize.resolve", "after"),
    Point("before the ledger", "odi_assets.sources.files.loaded.ledger.write", "before", "ledger"),
    Point("half of the ledger", "odi_assets.sources.files.loaded.ledger.pq.write_table", "half", "ledger"),
    Point("ledger written", "odi_assets.sources.files.loaded.ledger.write", "after", "ledger"),
    Point("while Spark writes", "odi_assets.tables.modes.base.Write.stage", "during", often=True),
    Point("Parquet written, footers not read", "odi_assets.tables.modes.base.written_files", "before", often=True),
    Point("before the commit", "odi_assets.delta.commit._commit_once", "before"),
    Point("committed, not acknowledged", "odi_assets.delta.commit._commit_once", "after"),
    Point("bad rows staged", "odi_assets.nodes.execution.checks.guard.Guard._staged", "after", "quarantine"),
    Point("committed, bad rows not", "odi_assets.nodes.execution.checks.guard.bring_in_step", "before", "quarantine"),
    Point("bad rows committed", "odi_assets.nodes.execution.checks.quarantine.commit", "after", "quarantine"),
    Point("before advance", "odi_assets.nodes.execution.materialize.advance", "before"),
    Point("advanced", "odi_assets.nodes.execution.materialize.advance", "after"),
    Point("before the row of history", "odi_assets.nodes.run_history.record", "before"),
    Point("row of history written, note still there", "odi_assets.nodes.history.attempts.end", "before"),
    Point("after the row of history", "odi_assets.nodes.run_history.record", "after"),
)
"""In the order in which a run comes by."""

NAIVE_POINTS = (
    Point("before the write", "benchmarks.kill_sweep.naive.append", "before"),
    Point("written", "benchmarks.kill_sweep.naive.append", "after"),
    Point("before the HWM", "benchmarks.kill_sweep.naive.advance", "before"),
    Point("after the HWM", "benchmarks.kill_sweep.naive.advance", "after"),
)
CAPTURE_POINTS = (
    Point("before planning", "odi_assets.nodes.run_history.begin", "after"),
    Point("planned", "odi_assets.nodes.run_node.plan_node", "after"),
    Point("before the publication", "odi_assets.sources.cdc.postgres.server.ServerSession.publish", "before", "first"),
    Point("published", "odi_assets.sources.cdc.postgres.server.ServerSession.publish", "after", "first"),
    Point("slot made", "odi_assets.sources.cdc.postgres.server.ServerSession.create_slot", "after", "first"),
    Point("log begun", "odi_assets.sources.cdc.source.LogSource.begun", "after"),
    Point("step read", "odi_assets.sources.cdc.source.LogSource.step", "after"),
    Point("before the commit", "odi_assets.delta.commit._commit_once", "before"),
    Point("committed, not acknowledged", "odi_assets.delta.commit._commit_once", "after"),
    Point("before the slot moves", "odi_assets.sources.cdc.source.LogSource.acknowledge", "before"),
    Point("slot moved", "odi_assets.sources.cdc.source.LogSource.acknowledge", "after"),
    Point("before advance", "odi_assets.nodes.execution.materialize.advance", "before"),
    Point("advanced", "odi_assets.nodes.execution.materialize.advance", "after"),
    Point("before the row of history", "odi_assets.nodes.run_history.record", "before"),
    Point("after the row of history", "odi_assets.nodes.run_history.record", "after"),
)
"""Those of a node that captures the log of a database, which come by without Spark."""
_BY_NAME = {point.name: point for point in (*CAPTURE_POINTS, *POINTS, *NAIVE_POINTS)}
_LONGEST_WRITE = 0.5


def install(name: str, nth: int, fraction: float, report: Report) -> None:
    """Die at the ``nth`` passing of a point; ``fraction`` says how far into the call, where the point has a length.

    Raises:
        AttributeError: production code has no such function any more.
    """
    point = _BY_NAME[name]
    holder_name, _, attribute = point.function.rpartition(".")
    holder = resolve_name(holder_name)
    original = getattr(holder, attribute)
    passed = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal passed
        passed += 1
        if passed < nth:
            return original(*args, **kwargs)
        return _WRAPPERS[point.moment](original, args, kwargs, lambda: die(name, report), fraction)

    setattr(holder, attribute, wrapped)


def die_after(seconds: float, report: Report) -> None:
    """Die at a moment that has no name."""
    threading.Thread(target=_sleep_and_die, args=(seconds, "random moment", report), daemon=True).start()


def die(name: str, report: Report) -> None:
    """SIGKILL: nothing of this process runs after it, no handler, no ``finally``."""
    report(name)
    os.kill(os.getpid(), signal.SIGKILL)


def _sleep_and_die(seconds: float, name: str, report: Report) -> None:
    time.sleep(seconds)
    die(name, report)


Kill = Callable[[], None]
Call = Callable[..., Any]


def _before(original: Call, args: Any, kwargs: Any, kill: Kill, fraction: float) -> Any:
    del fraction
    kill()
    return original(*args, **kwargs)


def _after(original: Call, args: Any, kwargs: Any, kill: Kill, fraction: float) -> Any:
    del fraction
    original(*args, **kwargs)
    kill()


def _during(original: Call, args: Any, kwargs: Any, kill: Kill, fraction: float) -> Any:
    def later() -> None:
        time.sleep(fraction * _LONGEST_WRITE)
        kill()

    threading.Thread(target=later, daemon=True).start()
    original(*args, **kwargs)
    kill()


def _half(original: Call, args: Any, kwargs: Any, kill: Kill, fraction: float) -> Any:
    """Of ``write_table(table, stream)``: a part of the bytes are written, and no more."""
    table, stream = args
    whole = io.BytesIO()
    original(table, whole, **kwargs)
    stream.write(whole.getvalue()[: int(fraction * len(whole.getvalue()))])
    stream.flush()
    kill()


_WRAPPERS: dict[Moment, Callable[..., Any]] = {
    "before": _before,
    "after": _after,
    "during": _during,
    "half": _half,
}
