"""Columns followed through the nodes: up to the sources, or down to all that is made of them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from odi_assets.config.graph import NodeKey
from odi_assets.lineage.made import NotFollowed
from odi_assets.lineage.node_lineage import How
from odi_assets.lineage.project_lineage import ProjectLineage

NOT_RUN = "its columns are known once it has run"
Place = tuple[NodeKey | str, str]
"""A column of a node's table, or of a source."""


@dataclass(frozen=True)
class TrailEntry:
    """A column that is met on the way.

    Attributes:
        owner: the node in whose table it is, or the source that delivers it.
        column: empty where a node's columns are not known.
        how: whether its value goes in, or it decides; ``unknown`` where the trail ends.
        why: it ends.
    """

    owner: NodeKey | str
    column: str
    how: How | Literal["unknown"]
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """``{node, column, how}`` or ``{source, column, how}``; with ``why`` where the trail ends."""
        kind = "node" if isinstance(self.owner, NodeKey) else "source"
        document: dict[str, Any] = {kind: str(self.owner), "column": self.column or None, "how": self.how}
        return {**document, "why": self.why} if self.why else document


@dataclass(frozen=True)
class Trail:
    """What a column is made of, or what is made of it.

    Attributes:
        entries: what was met, the nearest first; a column whose value goes in and which decides is there twice.
        edges: by pair of columns, the first of which goes into the second or decides about it, how.
    """

    entries: tuple[TrailEntry, ...]
    edges: Mapping[tuple[Place, Place], frozenset[How]]

    @property
    def is_whole(self) -> bool:
        """Whether nothing on the way is unknown."""
        return not any(entry.how == "unknown" for entry in self.entries)


class _Walk:
    def __init__(self, start: Place) -> None:
        self.waiting: deque[tuple[Place, How]] = deque([(start, "value")])
        self.met: dict[TrailEntry, None] = {}
        self.edges: dict[tuple[Place, Place], set[How]] = defaultdict(set)
        self._seen: set[tuple[Place, How]] = {(start, "value")}

    def meet(self, place: Place, before: How, step: How, edge: tuple[Place, Place]) -> None:
        """Go on to a column; what decides about what goes in decides, and so does what goes into what decides."""
        how: How = "value" if before == step == "value" else "condition"
        self.edges[edge].add(step)
        self.met[TrailEntry(*place, how)] = None
        if (place, how) not in self._seen:
            self._seen.add((place, how))
            self.waiting.append((place, how))

    def ended(self) -> Trail:
        return Trail(tuple(self.met), {edge: frozenset(how) for edge, how in self.edges.items()})


def followed_up(lineage: ProjectLineage, key: NodeKey, column: str) -> Trail:
    """All that a column is made of: columns of nodes above, up to what sources deliver."""
    walk = _Walk((key, column))
    while walk.waiting:
        (owner, name), how = walk.waiting.popleft()
        if not isinstance(owner, NodeKey):
            continue
        try:
            for made_of in lineage.node(owner).made_of(name):
                place = (made_of.owner, made_of.column)
                walk.meet(place, how, made_of.how, (place, (owner, name)))
        except NotFollowed as unknown:
            walk.met[TrailEntry(owner, name, "unknown", str(unknown))] = None
    return walk.ended()


def followed_down(lineage: ProjectLineage, key: NodeKey, column: str) -> Trail:
    """All that is made of a column: columns of nodes below."""
    walk, readers = _Walk((key, column)), _readers(lineage)
    made: dict[NodeKey, dict[Place, list[tuple[str, How]]]] = {}
    while walk.waiting:
        (owner, name), how = walk.waiting.popleft()
        for reader in readers.get(owner, ()):
            if reader not in made:
                made[reader] = _turned(lineage, reader, walk)
            for below, step in made[reader].get((owner, name.casefold()), ()):
                walk.meet((reader, below), how, step, ((owner, name), (reader, below)))
    return walk.ended()


def _readers(lineage: ProjectLineage) -> dict[NodeKey | str, list[NodeKey]]:
    readers: dict[NodeKey | str, list[NodeKey]] = defaultdict(list)
    for key in lineage.project.graph.order(None):
        for owner in dict.fromkeys(lineage.owners(key).values()):
            readers[owner].append(key)
    return readers


def _turned(lineage: ProjectLineage, reader: NodeKey, walk: _Walk) -> dict[Place, list[tuple[str, How]]]:
    """By column that a node reads, its own columns that are made of it. Where they are not known, a trail ends."""
    columns_by_place: dict[Place, list[tuple[str, How]]] = defaultdict(list)
    node = lineage.node(reader)
    if node.columns is None or node.rows is None:
        walk.met[TrailEntry(reader, "", "unknown", node.unknown or NOT_RUN)] = None
        return columns_by_place
    for column in node.columns:
        # What its rows do not have any more is made of nothing that it reads now.
        for made_of in node.made_of(column) if node.rows.column(column) is not None else ():
            columns_by_place[made_of.owner, made_of.column.casefold()].append((column, made_of.how))
    return columns_by_place
