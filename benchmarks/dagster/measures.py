"""The measures. Each contender is a process of its own, so that what one imports the other has to import too."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, Row, in_child, in_turn, timed_row

CHILD = "benchmarks.dagster.process"
NODES, FEWER = 1000, 250
DUE, RUN_OF = 4, 200
QUERIES = 500
ROUNDS, WARM_ROUNDS = 3, 15
TICK_SECONDS, LOOK_TIMEOUT = 2.0, 3.0
_DEFINITIONS, _EXPONENT, _RUN, _IO, _FILE = 1.5, 1.1, 1.2, 1.0, 2.0


def definitions(options: Options) -> list[Row]:
    """CPU seconds from the project file to a loaded repository, against plain assets with jobs and sensors."""
    with tempfile.TemporaryDirectory() as folder:
        measured: dict[int, dict[str, list[float]]] = {}
        for nodes in (FEWER, NODES):
            options.say(f"definitions of {nodes:,} nodes")
            root = Path(folder) / str(nodes)
            in_child(CHILD, "make", str(root), str(nodes))
            kinds = {kind: _cpu("definitions", str(root), str(nodes), kind) for kind in ("ours", "plain")}
            measured[nodes] = in_turn(kinds, ROUNDS, warm=0)
        ours, plain = measured[NODES]["ours"], measured[NODES]["plain"]
        growth = math.log(min(ours) / min(measured[FEWER]["ours"]), NODES / FEWER)
        started = in_child(CHILD, "definitions", str(Path(folder) / str(NODES)), str(NODES), "ours")["started"]
        return [
            timed_row(f"definitions of {NODES:,} nodes, CPU s", ours, plain, "plain @dg.asset", _DEFINITIONS),
            Row("growth exponent of that", growth, None, "", None, f"<= {_EXPONENT}", growth <= _EXPONENT),
            Row("processes that it starts", len(started), None, "", None, "0", not started),
        ]


def project_file(options: Options) -> list[Row]:
    """CPU seconds to load a project file in which each node has a query of its own, against its parsers alone."""
    with tempfile.TemporaryDirectory() as folder:
        options.say(f"a project file of {QUERIES:,} queries")
        in_child(CHILD, "make-queries", folder, str(QUERIES))
        found = in_turn({kind: _cpu("project-file", folder, kind) for kind in ("ours", "parsers")}, ROUNDS, warm=0)
    name = f"project file of {QUERIES:,} nodes, CPU s"
    return [timed_row(name, found["ours"], found["parsers"], "PyYAML and sqlglot alone", _FILE)]


def _cpu(*arguments: str) -> Any:
    return lambda: float(in_child(CHILD, *arguments)["cpu"])


def tick(options: Options) -> list[Row]:
    """CPU seconds of a tick over many nodes of which one in a hundred is due; and one source that never answers."""
    with tempfile.TemporaryDirectory() as folder:
        options.say(f"{NODES:,} tables with their high-water marks")
        root = Path(folder)
        in_child(CHILD, "make-mixed", str(root), str(NODES), str(LOOK_TIMEOUT))
        in_child(CHILD, "load", str(root))
        options.say("ticks")
        found = in_child(CHILD, "tick", str(root))
        cpu, cold, hung = found["cpu"], found["cold"], found["hung"]
        bar = f"<= {TICK_SECONDS:g} s CPU"
        late = hung - found["wall"]
        due = NODES // 100
        name = f"tick over {NODES:,} nodes, {due} due, CPU s"
        return [
            Row(name, cpu, None, "", None, f"{bar}, {due} found", cpu <= TICK_SECONDS and found["due"] == due),
            Row("the same in a new process, CPU s", cold, None, "", None, bar, cold <= TICK_SECONDS),
            Row("a source that hangs, s more", late, None, "", None, "<= its deadline + 1 s", late <= LOOK_TIMEOUT + 1),
        ]


def run_of_a_few(options: Options) -> list[Row]:
    """A run of 4 due nodes of 200, against a pipeline of those 4: in a process of its own, as Dagster starts runs."""
    against = f"a pipeline of those {DUE}"
    with tempfile.TemporaryDirectory() as folder:
        roots = {kind: str(Path(folder) / kind) for kind in ("many", "few")}
        for kind, nodes in (("many", RUN_OF), ("few", DUE)):
            in_child(CHILD, "make", roots[kind], str(nodes), "10", str(nodes))
        options.say(f"runs of {DUE} nodes of {RUN_OF}, each in its own process")
        whole = in_turn({kind: _whole(root) for kind, root in roots.items()}, ROUNDS)
        options.say("the runs themselves, beside a warm JVM")
        warm = in_child(CHILD, "run", roots["many"], roots["few"], str(DUE), str(WARM_ROUNDS))
    return [
        timed_row(f"run of {DUE} due nodes of {RUN_OF}, s", whole["many"], whole["few"], against, _RUN),
        timed_row("the run itself, beside a warm JVM, s", warm["many"], warm["few"], against, _RUN),
    ]


def _whole(root: str) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter()
        in_child(CHILD, "run-once", root, str(DUE))
        return time.perf_counter() - began

    return run


def io_manager(options: Options) -> list[Row]:
    """A pandas frame of 100,000 rows × 8 columns as an asset."""
    options.say("a pandas frame through both IO managers")
    with tempfile.TemporaryDirectory() as folder:
        found = in_child(CHILD, "io", folder, "7")
    row = timed_row("IO manager, pandas frame of 100 k rows, s", found["ours"], found["peer"], found["against"], _IO)
    assert statistics.median(found["ours"]) > 0
    return [row]
