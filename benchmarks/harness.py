"""Measures as rows: ours, the peer's and the ratio, from one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One measure.

    Attributes:
        ours, peer: what was measured, in the unit that ``name`` says; medians where there were several rounds.
        against: who the peer is, with its version.
        ratio: ours / peer, or ours − peer where ``bar`` is a difference.
        bar: what must hold, in words.
    """

    name: str
    ours: float
    peer: float
    against: str
    ratio: float
    bar: str
    holds: bool

    def to_json(self) -> dict[str, Any]:
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}


@dataclass(frozen=True)
class Benchmark:
    """A command: ``python -m benchmarks NAME``."""

    name: str
    about: str
    run: Callable[[Callable[[str], None]], list[Row]]


def alternate(contenders: Mapping[str, Callable[[], object]], rounds: int, warm: int = 1) -> dict[str, list[float]]:
    """Seconds of each contender, in turn, so that all of them meet the same neighbours on the machine."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(warm + rounds):
        for name, contender in contenders.items():
            began = time.perf_counter()
            contender()
            if number >= warm:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def paired_ratio(ours: list[float], peer: list[float]) -> float:
    """The median of the ratios of each round, which a machine that slows down for a while moves least."""
    return statistics.median(a / b for a, b in zip(ours, peer, strict=True))


def timed_row(name: str, ours: list[float], peer: list[float], against: str, limit: float) -> Row:
    """A row that holds where ours takes at most ``limit`` × the peer's time."""
    ratio = paired_ratio(ours, peer)
    return Row(
        name, statistics.median(ours), statistics.median(peer), against, ratio, f"ratio <= {limit:g}", ratio <= limit
    )


def in_child(module: str, *arguments: str) -> dict[str, Any]:
    """Run ``python -m module arguments`` and return the JSON object on the last line of its stdout."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)} failed ({done.returncode}):\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result
