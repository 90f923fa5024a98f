"""Many writer processes at once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import Row
from benchmarks.state.lab import Contender, Driver, Lab, counted
from benchmarks.state.sizes import Sizes


@dataclass(frozen=True)
class _Storm:
    """What became of the sets of all writers together."""

    lost: int
    per_second: float
    p95: float
    waits: int


def distinct_keys(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Writers that each set keys of their own; ours before and after Odibi, so that both meet the same machine."""
    ours = [_storm(lab, lab.ours, sizes.writers, sizes.sets)]
    odibi = _storm(lab, lab.odibi, sizes.writers, sizes.sets) if lab.odibi else None
    if odibi:
        ours.append(_storm(lab, lab.ours, sizes.writers, sizes.sets))
    of = f"{sizes.writers} writers × {sizes.sets} set_hwm of distinct keys"
    lost = max(storm.lost for storm in ours)
    yield counted(f"{of}: sets lost", lost, odibi and odibi.lost, lab.against, "0", lost == 0)
    speed, p95 = statistics.mean(s.per_second for s in ours), statistics.mean(s.p95 for s in ours)
    faster, slower = (speed / odibi.per_second, p95 / odibi.p95) if odibi else (None, None)
    yield Row(
        f"{of}: sets per second",
        speed,
        odibi and odibi.per_second,
        lab.against,
        faster,
        "ratio >= 5",
        faster and faster >= 5,
    )
    yield Row(
        f"{of}: p95, seconds", p95, odibi and odibi.p95, lab.against, slower, "ratio <= 0.2", slower and slower <= 0.2
    )
    waits = max(storm.waits for storm in ours)
    yield counted(f"{of}: retries that waited", waits, odibi and odibi.waits, lab.against, "0", waits == 0)


def json_file(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Writers of one JSON file; one after the other is over before the machine changes."""
    storms = {who.library: _storm(lab, who, sizes.writers, sizes.json_sets, "local") for who in lab.contenders}
    ours, odibi = storms[lab.ours.library], storms.get("odibi")
    of = f"{sizes.writers} writers × {sizes.json_sets} set_hwm, JSON file: sets lost"
    yield counted(of, ours.lost, odibi and odibi.lost, lab.against, "0", ours.lost == 0)


def one_key(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """Writers that increment one key; Odibi's read and set, as it has no compare-and-set."""
    wanted = sizes.writers * sizes.increments
    final, done = _increments(lab, lab.ours, sizes, seconds=600)
    odibi_final, against = None, lab.against
    if lab.odibi:
        odibi_final, odibi_done = _increments(lab, lab.odibi, sizes, sizes.odibi_seconds)
        against = f"{lab.odibi.title}, get + set: {odibi_done} told done in {sizes.odibi_seconds:.0f} s"
    name = f"{sizes.writers} writers × {sizes.increments} increments of one key: its value"
    yield counted(name, final, odibi_final, against, f"exactly {wanted}", final == done == wanted)


def _storm(lab: Lab, who: Contender, writers: int, sets: int, kind: str = "catalog") -> _Storm:
    lab.say(f"{who.title}: {writers} writers × {sets} sets, {kind}")
    project = lab.project(who)
    drivers = lab.drivers(who, project, writers, kind)
    for number, driver in enumerate(drivers):
        driver.ask("set", key=f"w{number}.warm", value=0)
    began = time.perf_counter()
    for number, driver in enumerate(drivers):
        driver.send("sets", prefix=f"w{number}.", count=sets)
    told = [driver.answer() for driver in drivers]
    seconds = time.perf_counter() - began
    keys = [f"w{writer}.{number}" for writer in range(writers) for number in range(sets)]
    found = lab.driver(who, project, kind).ask("values", keys=keys)
    kept = sum(value == number for value, number in zip(found, list(range(sets)) * writers, strict=True))
    took = [one for answer in told for one in answer["seconds"] if one is not None]
    return _Storm(len(keys) - kept, kept / seconds, _p95(took), sum(answer["waits"] for answer in told))


def _increments(lab: Lab, who: Contender, sizes: Sizes, seconds: float) -> tuple[int, int]:
    """The key's value in the end, and how many increments were acknowledged."""
    lab.say(f"{who.title}: {sizes.writers} writers × {sizes.increments} increments of one key")
    project = lab.project(who)
    drivers = lab.drivers(who, project, sizes.writers)
    drivers[0].ask("set", key="shared", value=0)
    done = sum(_all(drivers, "increments", key="shared", count=sizes.increments, seconds=seconds))
    return lab.driver(who, project).ask("values", keys=["shared"])[0], done


def _all(drivers: list[Driver], name: str, **arguments: Any) -> list[Any]:
    for driver in drivers:
        driver.send(name, **arguments)
    return [driver.answer() for driver in drivers]


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))] if values else float("inf")
