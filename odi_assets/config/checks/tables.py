"""Tables that share a folder, paths outside their connection, and partitions that do not fit."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from odi_assets.config.checks.partial_project import PartialProject
from odi_assets.config.diagnostics.mistakes import Mistake, Path, about
from odi_assets.config.models import SystemConfig
from odi_assets.config.models.connections import SCHEME, StoreConnection, inside


@dataclass(frozen=True, order=True)
class _Folder:
    """A table's folder: the store it is in and its path there; comparable, whatever the connections' names."""

    store: tuple[str, ...]
    parts: tuple[str, ...]
    at: Path
    owner: str

    def holds(self, other: _Folder) -> bool:
        return self.store == other.store and other.parts[: len(self.parts)] == self.parts


def shared_folders(project: PartialProject) -> Iterator[Mistake]:
    """Find tables in the folder of another table: one would overwrite, or its vacuum delete, the other's files."""
    around: list[_Folder] = []
    for folder in sorted(_folders(project)):
        while around and not around[-1].holds(folder):
            around.pop()
        if around:
            earlier, later = sorted((folder, around[-1]), key=lambda one: (one.at[0] != "system", one.at))
            yield Mistake(_overlap(later, earlier), at=later.at)
        around.append(folder)


def _overlap(one: _Folder, other: _Folder) -> str:
    if one.parts == other.parts:
        return f"{other.owner} writes the same table"
    if other.holds(one):
        return f"this folder is inside the table of {other.owner}, whose vacuum would delete it"
    return f"the table of {other.owner} is inside this folder, and a vacuum would delete it"


def _folders(project: PartialProject) -> Iterator[_Folder]:
    for path, name, text, owner in _paths(project, "write"):
        connection = project.connection(name)
        store: tuple[str, ...] = ("connection", name)
        base = ""
        if isinstance(connection, StoreConnection):
            store, base = connection.store, connection.folder(project.root)
        below = inside(text, base)
        if below is not None:
            whole = posixpath.normpath(posixpath.join("/", base, below))
            yield _Folder(store, tuple(part for part in whole.split("/") if part), path, owner)


def outside_paths(project: PartialProject) -> Iterator[Mistake]:
    """Find paths that lead out of their connection's folder, or that are URIs."""
    for path, name, text, _ in _paths(project, "read", "write"):
        connection = project.connection(name)
        if SCHEME.match(text):
            yield Mistake("is a URI: paths are relative to their connection", at=path)
        elif isinstance(connection, StoreConnection) and inside(text, connection.folder(project.root)) is None:
            message = f"leads out of the connection `{name}`: paths stay in its `base_path`"
            yield about(text, message, at=path)


def _paths(project: PartialProject, *sections: str) -> Iterator[tuple[Path, str, str, str]]:
    """Yield the paths in these sections of the nodes and in ``system``, with connection, text, and whose they are."""
    for node in project.nodes:
        for section in sections:
            connection, text = node.text(section, "connection"), node.text(section, "path")
            if connection and text:
                yield (*node.path, section, "path"), connection, text, f"node `{node.shown}`"
    if project.system is not None:
        for key, text in _system_paths(project.system):
            yield ("system", key), project.system.connection, text, "`system`"


def _system_paths(system: SystemConfig) -> list[tuple[str, str]]:
    if system.meta_runs_path is not None and system.meta_state_path is not None:
        return [("meta_runs_path", system.meta_runs_path), ("meta_state_path", system.meta_state_path)]
    return [("path", system.path)]


def partitions(project: PartialProject) -> Iterator[Mistake]:
    """Find write modes that need partitions and have none, and partition columns that contradict one another."""
    for node in project.nodes:
        write, partition = node.write, node.partition
        if write is None:
            continue
        if write.mode.traits.partitioned and not node.gives("partition") and not write.partition_by:
            message = f"`{write.mode}` needs `partition_by`, or `partition` on the node: what to overwrite"
            yield Mistake(message, at=(*node.path, "write", "mode"), absence=True)
        lower = [column.lower() for column in write.partition_by]
        if partition is not None and lower and partition.column.lower() not in lower:
            text = "is not in `write.partition_by`: add it there, or leave `partition_by` out"
            yield about(partition.column, text, at=(*node.path, "partition", "column"))
