"""Unknown table engines, tables that share a folder, paths outside their connection, and unfit partitions."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from odi_assets.config.checks.view import ProjectView
from odi_assets.config.diagnostics.mistakes import Mistake, Path, about
from odi_assets.config.models.connections import SCHEME, StoreConnection, inside
from odi_assets.config.table_engines import find_engine, known_engines

_Folder = tuple[tuple[str, ...], Path, str]
"""A table's folder: its address, where the file gives it, and whose it is. An address is the store and the parts of the
path there: comparable, whatever the connections' names; it begins with the address of each folder around it."""


def unknown_engines(project: ProjectView) -> Iterator[Mistake]:
    """Find connections whose table engine is not installed."""
    for name, connection in (project.connections or {}).items():
        if isinstance(connection, StoreConnection) and find_engine(connection.table_engine) is None:
            text = f"is no table engine that is installed here; there are: {', '.join(known_engines())}"
            yield about(connection.table_engine, text, at=("connections", name, "table_engine"))


def shared_folders(project: ProjectView) -> Iterator[Mistake]:
    """Find tables in the folder of another table: one would overwrite, or its vacuum delete, the other's files."""
    folders: list[_Folder] = []
    for at, name, text, owner in _paths(project, "write"):
        connection = project.connection(name)
        store: tuple[str, ...] = ("connection", name)
        base = ""
        if isinstance(connection, StoreConnection):
            store, base = connection.store, connection.folder(project.root)
        below = inside(text, base)
        if below is not None:
            whole = posixpath.normpath(posixpath.join("/", base, below))
            folders.append(((*store, *filter(None, whole.split("/"))), at, owner))
    around: list[_Folder] = []
    for folder in sorted(folders):
        while around and folder[0][: len(around[-1][0])] != around[-1][0]:
            around.pop()
        if around:
            other, one = sorted((folder, around[-1]), key=lambda each: (each[1][0] != "system", each[1]))
            yield Mistake(_overlap(one, other), at=one[1])
        around.append(folder)


def _overlap(one: _Folder, other: _Folder) -> str:
    (address, _, _), (others, _, owner) = one, other
    if address == others:
        return f"{owner} writes the same table"
    if address[: len(others)] == others:
        return f"this folder is inside the table of {owner}, whose vacuum would delete it"
    return f"the table of {owner} is inside this folder, and a vacuum would delete it"


def outside_paths(project: ProjectView) -> Iterator[Mistake]:
    """Find paths that lead out of their connection's folder, or that are URIs."""
    for path, name, text, _ in _paths(project, "read", "write"):
        connection = project.connection(name)
        if SCHEME.match(text):
            yield Mistake("is a URI: paths are relative to their connection", at=path)
        elif isinstance(connection, StoreConnection) and inside(text, connection.folder(project.root)) is None:
            message = f"leads out of the connection `{name}`: paths stay in its `base_path`"
            yield about(text, message, at=path)


def _paths(project: ProjectView, *sections: str) -> Iterator[tuple[Path, str, str, str]]:
    """Yield the paths in these sections of the nodes and in ``system``, with connection, text, and whose they are."""
    for node in project.nodes:
        owner, write, stream = f"node `{node.shown}`", node.config.write, node.config.stream
        if "read" in sections:
            for at, read in node.config.reads.items():
                if read.connection and read.path:
                    yield (*node.path, *at, "path"), read.connection, read.path, owner
        if "write" in sections and write.connection and write.path:
            yield (*node.path, "write", "path"), write.connection, write.path, owner
            for key, text in (stream.paths if stream is not None else {}).items():
                yield (*node.path, "stream", key), write.connection, text, f"`{key}` of {owner}"
            if node.config.quarantine:
                yield (*node.path, "quarantine"), write.connection, node.config.quarantine, f"`quarantine` of {owner}"
    system = project.config.system
    if system is not None:
        given = {"meta_runs_path": system.meta_runs_path, "meta_state_path": system.meta_state_path}
        folders = [(key, text) for key, text in given.items() if text]
        if len(folders) == 1:
            folders += [
                ("path", f"{system.path}/{key.removesuffix('_path')}") for key, text in given.items() if not text
            ]
        for key, text in folders or [("path", system.path)]:
            if system.connection and text:
                yield ("system", key), system.connection, text, "`system`"


def partitions(project: ProjectView) -> Iterator[Mistake]:
    """Find write modes that need partitions and have none, and partition columns that contradict each other."""
    for node in project.nodes:
        write, partition = node.config.write, node.config.partition
        if write.mode.traits.partitioned and partition is None and not write.partition_by:
            message = f"`{write.mode}` needs `partition_by`, or `partition` on the node: what to overwrite"
            yield Mistake(message, at=(*node.path, "write", "mode"), absence=True)
        lower = [column.lower() for column in write.partition_by]
        if partition is not None and partition.column and lower and partition.column.lower() not in lower:
            text = "is not in `write.partition_by`: add it there, or leave `partition_by` out"
            yield about(partition.column, text, at=(*node.path, "partition", "column"))
