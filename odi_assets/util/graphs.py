"""Orders and cycles of directed graphs, each vertex given with those it needs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import TypeVar

Vertex = TypeVar("Vertex", bound=Hashable)


def topological_order(needs: Mapping[Vertex, Iterable[Vertex]]) -> tuple[Vertex, ...]:
    """Return the vertices, each after those it needs, otherwise in the order given.

    Raises:
        graphlib.CycleError: there is no such order.
    """
    vertices = list(needs)
    position = {vertex: i for i, vertex in enumerate(vertices)}
    sorter = TopologicalSorter(needs)
    sorter.prepare()
    ready: list[int] = []
    order: list[Vertex] = []
    while sorter.is_active():
        for vertex in sorter.get_ready():
            heappush(ready, position[vertex])
        order.append(vertices[heappop(ready)])
        sorter.done(order[-1])
    return tuple(order)


def find_cycles(needs: Mapping[Vertex, Iterable[Vertex]]) -> list[list[Vertex]]:
    """Return cycles that share no vertex, as many as it takes to break all cycles; linear where there is none.

    Each vertex of a cycle needs the next. A cycle starts and ends with its vertex that comes first in ``needs``.
    """
    cycles: list[list[Vertex]] = []
    left = dict(needs)
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            cycle = error.args[1][:0:-1]  # graphlib names each vertex before the one that needs it
        else:
            return cycles
        on_cycle = set(cycle)
        start = cycle.index(next(vertex for vertex in left if vertex in on_cycle))
        cycles.append([*cycle[start:], *cycle[: start + 1]])
        left = {
            vertex: [other for other in others if other not in on_cycle]
            for vertex, others in left.items()
            if vertex not in on_cycle
        }
