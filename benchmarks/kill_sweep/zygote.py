"""A Python process that has imported everything and forks a child for each run: a run starts in milliseconds.

It opens no table and starts no thread, for delta-rs and py4j do not survive a fork. It reads requests from stdin, each
a line of JSON with the runs to make at once, and answers with a line of JSON when all of them have ended. What a run
had to import still, it imports before the next one.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.kill_sweep import attempt, naive, points


def main() -> None:
    """Serve until stdin ends; ``argv[1]`` is the file that children's output goes to."""
    log = Path(sys.argv[1])
    for line in sys.stdin:
        runs = [_start(spec, log) for spec in json.loads(line)]
        ended = [_end(pid, source) for pid, source in runs]
        _import({name for facts in ended for name in facts.pop("imported", ())})
        print(json.dumps(ended), flush=True)


def _import(names: Iterable[str]) -> None:
    for name in sorted(names):
        # Some are made by the code of others, and cannot be imported by their name.
        with suppress(ImportError):
            import_module(name)


def _start(spec: dict[str, Any], log: Path) -> tuple[int, int]:
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(spec, sink, log)
    os.close(sink)
    return pid, source


def _end(pid: int, source: int) -> dict[str, Any]:
    with os.fdopen(source, "r", encoding="utf-8") as told:
        lines = [json.loads(line) for line in told]
    _, status = os.waitpid(pid, 0)
    facts: dict[str, Any] = {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}
    for line in lines:
        facts |= line
    return facts


def _child(spec: dict[str, Any], sink: int, log: Path) -> None:
    """Make one run and end: nothing of the zygote's may go on in here."""
    try:
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for stream in (1, 2):
            os.dup2(output, stream)
        began, imported = time.monotonic(), set(sys.modules)
        facts = _outcome(spec, sink)
        _tell(sink, **facts, seconds=time.monotonic() - began, imported=sorted(set(sys.modules) - imported))
    except BaseException:  # noqa: BLE001  it ends here, whatever it was: the zygote's own code must not go on in a child
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _outcome(spec: dict[str, Any], sink: int) -> dict[str, Any]:
    kill = spec["kill"] or {}
    if "point" in kill:
        points.install(kill["point"], kill["nth"], kill["fraction"], lambda name: _tell(sink, point=name))
    if "after" in kill:
        points.die_after(kill["after"], lambda name: _tell(sink, point=name))
    run = attempt.run_node if spec["kind"] == attempt.PROTOCOL else naive.run_naive
    try:
        result = run(spec, lambda what: _tell(sink, **{what: True}))
    except Exception as error:  # noqa: BLE001  whatever a run may end with is its outcome, judged by the sweep
        traceback.print_exc()
        return {"error": type(error).__name__, "message": str(error)}
    return {"status": result.status.value if result else "SUCCESS"}


def _tell(sink: int, **facts: Any) -> None:
    os.write(sink, json.dumps(facts).encode() + b"\n")


if __name__ == "__main__":
    main()
