"""The processes of a sweep: one JVM for all, and a zygote per lane."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

_PATIENCE = 600.0
"""Seconds after which a run that neither ends nor dies is an error of the sweep."""


class Helper:
    """A process that answers lines of JSON with lines of JSON, and ends with its stdin."""

    def __init__(self, log: Path, module: str, *arguments: str) -> None:
        self._log = log
        self._module = module
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )

    def ask(self, question: Any, meanwhile: Callable[[], None] | None = None) -> Any:
        """Its answer; ``meanwhile`` is done once it was asked.

        Raises:
            RuntimeError: it ended, or does not answer.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        if meanwhile is not None:
            meanwhile()
        return self.answer()

    def answer(self) -> Any:
        """The next line.

        Raises:
            RuntimeError: it ended, or does not answer.
        """
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            ended = self._process.poll()
            why = f"gave no answer in {_PATIENCE:.0f} s" if ended is None and not ready else f"ended ({ended})"
            raise RuntimeError(f"{self._module} {why}; its output is in {self._log}")
        return json.loads(line)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Lane:
    """Makes runs, one batch after the other."""

    def __init__(self, zygote: Helper, jvm: dict[str, Any]) -> None:
        self._zygote = zygote
        self._jvm = jvm

    def run(self, specs: list[dict[str, Any]], meanwhile: Callable[[], None] | None = None) -> list[dict[str, Any]]:
        """Make runs at once, and say what became of each."""
        found: list[dict[str, Any]] = self._zygote.ask([{**self._jvm, **spec} for spec in specs], meanwhile)
        return found


@contextmanager
def open_lanes(count: int, folder: Path, *, spark: bool = True, jars: Sequence[Path] = ()) -> Iterator[list[Lane]]:
    """Lanes whose processes end with the block; their output goes to ``folder``. Spark gets ``jars``."""
    with ExitStack() as leaving:
        # They start side by side; the JVM takes longest.
        jvm = Helper(folder / "jvm.log", "benchmarks.kill_sweep.jvm", *map(str, jars)) if spark else None
        zygotes = []
        for number in range(count):
            runs, own = folder / f"runs{number}.log", folder / f"zygote{number}.log"
            zygotes.append(Helper(own, "benchmarks.kill_sweep.zygote", str(runs)))
            leaving.callback(zygotes[-1].close)
        if jvm is not None:
            leaving.callback(jvm.close)
        reached = jvm.answer() if jvm is not None else {}
        yield [Lane(zygote, reached) for zygote in zygotes]
