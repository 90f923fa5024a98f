"""Writers that are killed with SIGKILL at random moments."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Row
from benchmarks.state.lab import Contender, Lab, counted
from benchmarks.state.sizes import Sizes

# A kill comes within so many seconds of the last write that was waited for.
_SECONDS = 0.02


@dataclass(frozen=True)
class _Outcome:
    kills: int
    lost: int
    unreadable: int


def kills(lab: Lab, sizes: Sizes) -> Iterator[Row]:
    """After every kill each acknowledged write must be there, and every file that the state consists of readable."""
    writes = {"odi_assets": sizes.killed_writes, "odibi": sizes.odibi_killed_writes}
    against = f"{lab.against}, {sizes.odibi_killed_writes} writes"
    for kind, name in (("catalog", "Delta"), ("local", "JSON file")):
        found = {
            who.library: _killed(lab, who, kind, writes[who.library], sizes.writes_per_kill) for who in lab.contenders
        }
        ours, odibi = found[lab.ours.library], found.get("odibi")
        of = f"{sizes.killed_writes} writes, {ours.kills} kills, {name}"
        yield counted(f"{of}: acknowledged and lost", ours.lost, odibi and odibi.lost, against, "0", ours.lost == 0)
        torn = odibi and odibi.unreadable
        yield counted(f"{of}: unreadable files", ours.unreadable, torn, against, "0", ours.unreadable == 0)


def _killed(lab: Lab, who: Contender, kind: str, writes: int, per_kill: int) -> _Outcome:
    lab.say(f"{who.title}: {writes} writes, killed again and again, {kind}")
    project, draw = lab.project(who), random.Random(2013)
    acknowledged: dict[str, int] = {}
    number = 0
    while len(acknowledged) < writes:
        acknowledged.update(_until_killed(lab, who, project, kind, f"r{number}.", draw.randint(1, per_kill), draw))
        number += 1
    looker = lab.driver(who, project, kind)
    found = looker.ask("values", keys=list(acknowledged))
    lost = sum(value != told for value, told in zip(found, acknowledged.values(), strict=True))
    return _Outcome(number, lost, len(looker.ask("unreadable")))


def _until_killed(
    lab: Lab, who: Contender, project: Path, kind: str, prefix: str, writes: int, draw: random.Random
) -> dict[str, int]:
    """What a writer was acknowledged before its death, soon after so many writes."""
    writer = lab.driver(who, project, kind)
    writer.send("forever", prefix=prefix)
    told = [writer.line() for _ in range(writes)]
    time.sleep(draw.uniform(0, _SECONDS))
    writer.kill()
    while told[-1] is not None:
        told.append(writer.line())
    return {f"{prefix}{int(line)}": int(line) for line in told if line is not None}
