"""Measures as rows: ours, the peer's and the ratio, from one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from benchmarks.peers import PeerCrashed

L = TypeVar("L")
S = TypeVar("S")

_ATTEMPTS = 2
"""How often a measure is begun whose peer crashes."""


@dataclass(frozen=True)
class Row:
    """One measure.

    Attributes:
        ours, peer: what was measured, in the unit that ``name`` says; medians where there were several rounds.
            The peer is None where there is none, or where it was left out.
        against: who the peer is, with its version.
        ratio: ours / peer, or ours − peer where ``bar`` is a difference; None without a peer.
        bar: what must hold, in words.
        holds: whether it does; None if that takes a peer that was left out.
    """

    name: str
    ours: float
    peer: float | None
    against: str
    ratio: float | None
    bar: str
    holds: bool | None

    def to_json(self) -> dict[str, Any]:
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}


@dataclass(frozen=True)
class Options:
    """How the measures are taken.

    Attributes:
        say: tells whoever waits what is being measured.
        peers: whether to measure the peers that need an environment of their own.
        kills: how many kills a kill sweep makes.
        steps, seed: how many steps a change sweep makes, and where its draws begin.
        minutes: how long a soak goes on before it comes to rest.
    """

    say: Callable[[str], None]
    peers: bool = True
    kills: int = 2000
    steps: int = 3000
    seed: int = 2013
    minutes: float = 4.0


@dataclass(frozen=True)
class Benchmark:
    """A command: ``python -m benchmarks NAME``, and of its parts: ``python -m benchmarks NAME --only PART``.

    Attributes:
        headline: its result in a line, printed above the rows.
        in_all: whether ``all`` runs it; one that takes very long is run by its name alone.
    """

    name: str
    about: str
    parts: Mapping[str, Callable[[Options], list[Row]]]
    headline: Callable[[Sequence[Row]], str] | None = None
    in_all: bool = True


def in_labs(
    measures: Mapping[str, Callable[[L, S], Iterable[Row]]],
    lab: Callable[[Options], AbstractContextManager[L]],
    sizes: S,
) -> dict[str, Callable[[Options], list[Row]]]:
    """The parts of a benchmark at some size: ``measures``, each in a lab of its own.

    A measure whose peer crashes is taken again; of a peer that crashes each time the rows say so, beside ours alone.
    """

    def in_lab(measure: Callable[[L, S], Iterable[Row]]) -> Callable[[Options], list[Row]]:
        def rows(options: Options) -> list[Row]:
            with lab(options) as opened:
                return list(measure(opened, sizes))

        def run(options: Options) -> list[Row]:
            for _ in range(_ATTEMPTS):
                try:
                    return rows(options)
                except PeerCrashed as crash:
                    crashed = str(crash)
                    options.say(f"{crashed}; measuring again")
            return [replace(row, against=crashed) for row in rows(replace(options, peers=False))]

        return run

    return {name: in_lab(measure) for name, measure in measures.items()}


def alternate(contenders: Mapping[str, Callable[[], object]], rounds: int, warm: int = 1) -> dict[str, list[float]]:
    """Seconds of each contender, in turn, so that all of them meet the same neighbours on the machine."""

    def timed(contender: Callable[[], object]) -> Callable[[], float]:
        def call() -> float:
            began = time.perf_counter()
            contender()
            return time.perf_counter() - began

        return call

    return in_turn({name: timed(contender) for name, contender in contenders.items()}, rounds, warm)


def in_turn(contenders: Mapping[str, Callable[[], float]], rounds: int, warm: int = 1) -> dict[str, list[float]]:
    """What each contender measures of itself, in turn; the first ``warm`` rounds do not count.

    Every second round goes the other way round: whoever comes next has what the one before left to the collector and
    to the disk.
    """
    measured: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(warm + rounds):
        for name in list(contenders) if number % 2 == 0 else list(contenders)[::-1]:
            value = contenders[name]()
            if number >= warm:
                measured[name].append(value)
    return measured


def paired_ratio(ours: list[float], peer: list[float]) -> float:
    """The median of the ratios of each round, which a machine that slows down for a while moves least."""
    return statistics.median(a / b for a, b in zip(ours, peer, strict=True))


def timed_row(name: str, ours: list[float], peer: list[float] | None, against: str, limit: float) -> Row:
    """A row that holds where ours takes at most ``limit`` × the peer's time."""
    bar = f"ratio <= {limit:.3g}"
    if peer is None:
        return Row(name, statistics.median(ours), None, against, None, bar, None)
    ratio = paired_ratio(ours, peer)
    return Row(name, statistics.median(ours), statistics.median(peer), against, ratio, bar, ratio <= limit)


def in_child(module: str, *arguments: str) -> dict[str, Any]:
    """Run ``python -m module arguments`` and return the JSON object on the last line of its stdout."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)} failed ({done.returncode}):\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def peak_memory_mb(call: Callable[[], object]) -> float:
    """Peak resident memory of this Python process during ``call``; the JVM is another process and not counted."""
    import psutil

    process, peak, done = psutil.Process(), [0.0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], process.memory_info().rss / 2**20)
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        call()
    finally:
        done.set()
        watcher.join()
    return peak[0]
