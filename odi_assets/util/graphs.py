"""Orders and cycles of directed graphs, without recursion: chains of nodes are long."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

Vertex = TypeVar("Vertex", bound=Hashable)


def topological_order(needs: Mapping[Vertex, Iterable[Vertex]]) -> tuple[Vertex, ...]:
    """Return the vertices, each after those it needs, otherwise in the order given. The graph has no cycle."""
    done: dict[Vertex, None] = {}
    for start in needs:
        stack = [start]
        while stack:
            missing = [other for other in needs[stack[-1]] if other not in done]
            if missing:
                stack.append(missing[0])
            else:
                done.setdefault(stack.pop())
    return tuple(done)


def find_cycles(edges: Mapping[Vertex, Sequence[Vertex]]) -> list[list[Vertex]]:
    """Return a shortest cycle of every knot of vertices that reach one another, its first vertex repeated at the end.

    Args:
        edges: every vertex with the ones it leads to. Of a knot, the vertex that comes first here starts the cycle.
    """
    cycles = []
    for knot in _knots(edges):
        start = next(vertex for vertex in edges if vertex in knot)
        cycle = _way_back(start, edges, knot)
        if cycle:
            cycles.append(cycle)
    return cycles


def _way_back(start: Vertex, edges: Mapping[Vertex, Sequence[Vertex]], knot: set[Vertex]) -> list[Vertex]:
    came_from: dict[Vertex, Vertex] = {}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        for there in edges[here]:
            if there == start:
                way = [here]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return [*reversed(way), start]
            if there in knot and there not in came_from:
                came_from[there] = here
                queue.append(there)
    return []


def _knots(edges: Mapping[Vertex, Sequence[Vertex]]) -> list[set[Vertex]]:
    """Return the strongly connected parts (Kosaraju's way)."""
    finished: dict[Vertex, None] = {}
    seen: set[Vertex] = set()
    for start in edges:
        stack = [(start, iter(edges[start]))] if start not in seen else []
        seen.add(start)
        while stack:
            vertex, rest = stack[-1]
            there = next((other for other in rest if other not in seen), None)
            if there is None:
                finished[stack.pop()[0]] = None
            else:
                seen.add(there)
                stack.append((there, iter(edges[there])))
    back: dict[Vertex, list[Vertex]] = {vertex: [] for vertex in edges}
    for vertex, others in edges.items():
        for other in others:
            back[other].append(vertex)
    knots: list[set[Vertex]] = []
    placed: set[Vertex] = set()
    for start in reversed(finished):
        knot = {start} - placed
        stack_of_one = list(knot)
        while stack_of_one:
            for other in back[stack_of_one.pop()]:
                if other not in placed and other not in knot:
                    knot.add(other)
                    stack_of_one.append(other)
        placed |= knot
        if knot:
            knots.append(knot)
    return knots
