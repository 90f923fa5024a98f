"""What a change is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.change_sweep.world import Home, NodeAt, World


@dataclass(frozen=True)
class Change:
    """A change of a world.

    Attributes:
        make: makes it, and says what was done; None if it does not fit the world as it is.
        may_stop: whether a run may stop because of it; where it may not, the run has to be right.
        rows_stay: the rows of the source and of the table are the same ones afterwards: they may be adopted.
    """

    name: str
    make: Callable[[World, random.Random], str | None]
    may_stop: bool = False
    rows_stay: bool = False
    weight: int = 2


def a_reader(world: World, draw: random.Random) -> tuple[Home, NodeAt]:
    """A node that reads a source."""
    home = draw.choice(world.homes)
    return home, draw.choice([at for at in home.nodes() if at.upstream is None])


def a_node(world: World, draw: random.Random) -> tuple[Home, NodeAt]:
    """Any node."""
    home = draw.choice(world.homes)
    return home, draw.choice(list(home.nodes()))
