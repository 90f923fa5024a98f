"""What happens between two runs to any database: to the project file, to the server's process, and to a run."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.capture.changes.server import NAMES
from benchmarks.capture.changes.world import World


@dataclass(frozen=True)
class Kind:
    """A kind of steps.

    Attributes:
        make: does it, and says what was done; raises what the driver does where the database refuses.
        weight: how often it comes.
        may_stop: a run may stop after it.
    """

    make: Callable[[World, random.Random], str]
    weight: int
    may_stop: bool = True


def _project(world: World, draw: random.Random) -> str:
    """The project file says something else."""
    schema = world.server.schema
    listed = [f"{schema}.{name}" for name in NAMES]
    what = draw.choice(["rename", "widen", "narrow", "chunks"])
    if what == "rename":
        world.capture = draw.choice([one for one in ("changes", "log", "capture") if one != world.capture])
    elif what == "widen":
        world.patterns = draw.choice([listed, [f"{schema}.*"], ["*.*"]])
        world.applied = list(NAMES) if world.applied else []
    elif what == "narrow":
        left_out = draw.choice(NAMES)
        world.patterns = [one for one in listed if one != f"{schema}.{left_out}"]
        world.applied = [one for one in world.applied if one != left_out]
    else:
        world.rows = draw.choice([3, 7, 1000])
    world.save()
    return f"project: {what}: {world.patterns}, {world.capture}"


def _restart(world: World, draw: random.Random) -> str:
    how = draw.choice(world.server.stops)
    world.close()
    world.server.restart(how)
    return f"the server is stopped by {how.name} and started again"


def _kill(world: World, draw: random.Random) -> str:
    return world.run_and_kill(draw)


def end_open(world: World, draw: random.Random) -> str:
    """End the transaction that goes on over runs, if there is one."""
    if world.open is None:
        return "nothing"
    commits = draw.random() < 0.7
    try:
        (world.open.commit if commits else world.open.rollback)()
    finally:
        world.close()
    return f"the open transaction {'commits' if commits else 'rolls back'}"


def _end_prepared(world: World, draw: random.Random) -> str:
    return world.server.end_prepared(draw.choice)


OF_ALL = {
    "open transaction ends": Kind(end_open, 3, may_stop=False),
    "prepared transactions end": Kind(_end_prepared, 2, may_stop=False),
    "project": Kind(_project, 3),
    "restart": Kind(_restart, 1, may_stop=False),
    "kill": Kind(_kill, 3, may_stop=False),
}
