"""Tables that share a folder, paths outside their connection, and unfit partitions."""

from __future__ import annotations

import posixpath
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

from odi_assets.config.checks.view import NodeView, ProjectView
from odi_assets.config.diagnostics.mistakes import Mistake, Path, about
from odi_assets.config.models import ReadConfig
from odi_assets.config.models.connections import SCHEME, StoreConnection, inside

_Folder = tuple[tuple[str, ...], Path, str]
"""A table's folder: its address, where the file gives it, and whose it is. An address is the store and the parts of the
path there: comparable, whatever the connections' names; it begins with the address of each folder around it."""

_DEEPEST = 6
"""Levels of folders below a table that a glob is tried with."""
_Store = tuple[str, ...]
_LAST = "\U0010ffff"
"""Behind all letters of paths."""


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
            other_folder, reported_folder = sorted(
                (folder, around[-1]), key=lambda each: (each[1][0] != "system", each[1])
            )
            yield Mistake(_overlap(reported_folder, other_folder), at=reported_folder[1])
        around.append(folder)


def _overlap(folder: _Folder, other_folder: _Folder) -> str:
    (address, _, _), (others, _, owner) = folder, other_folder
    if address == others:
        return f"{owner} writes the same table"
    if address[: len(others)] == others:
        return f"this folder is inside the table of {owner}, whose vacuum would delete it"
    return f"the table of {owner} is inside this folder, and a vacuum would delete it"


def tables_as_sources(project: ProjectView) -> Iterator[Mistake]:
    """Find nodes that read the files of another node's table, some of which hold rows that were removed; and nodes that
    follow the table that they write, which each of their runs changes."""
    tables = _TableFolders(_tables(project))
    for node in project.nodes:
        for at, read in node.config.reads.items():
            store, path = _place(project, read.connection, read.stored_at)
            owners = [owner for owner, folder in tables.near(store, path) if _reads(read, path, folder)]
            own = any(owner is node for owner in owners)
            if owners and read.READS == "files":
                shown = owners[0].shown
                text = f"these are files of the table that node `{shown}` writes, some of which hold rows that were "
                text += "removed or replaced: read the table, with "
                text += "`format: delta`" if own else f"`inputs: {{x: {{node: {shown}}}}}`, or with `format: delta`"
                yield Mistake(text, at=(*node.path, *at, "path"))
            elif own and node.config.follows_table(read):
                text = "the node writes this table: each run would find what the run before it wrote, for ever; read "
                text += "the table that its rows come from, or this one whole (without `incremental`)"
                yield Mistake(text, at=(*node.path, *at, "path"))


class _TableFolders:
    """The folders of tables, found by a path: a project of a thousand nodes has a million pairs of path and table."""

    def __init__(self, tables: Iterable[tuple[NodeView, _Store, str]]) -> None:
        self._folders: dict[_Store, list[tuple[str, int]]] = {}
        self._owners: list[tuple[NodeView, str]] = []
        for owner, store, folder in tables:
            self._folders.setdefault(store, []).append((f"{folder}/", len(self._owners)))
            self._owners.append((owner, folder))
        for folders in self._folders.values():
            folders.sort()

    def near(self, store: _Store | None, path: str) -> list[tuple[NodeView, str]]:
        """The tables around or below what a path names before its first wildcard, in the order of the project."""
        folders = self._folders.get(store or (), [])
        fixed = f"{_fixed(path).rstrip('/')}/"
        inside_it = folders[bisect_left(folders, (fixed,)) : bisect_left(folders, (f"{fixed}{_LAST}",))]
        around = [fixed[: place + 1] for place, letter in enumerate(fixed[:-1]) if letter == "/"]
        spans = [(bisect_left(folders, (outer,)), bisect_left(folders, (outer, len(self._owners)))) for outer in around]
        numbers = [number for _, number in inside_it]
        numbers += [number for first, end in spans for _, number in folders[first:end]]
        return [self._owners[number] for number in sorted(numbers)]


def _tables(project: ProjectView) -> Iterator[tuple[NodeView, _Store, str]]:
    """Yield the tables of nodes, with their stores and their paths there."""
    for node in project.nodes:
        write = node.config.write
        for text in filter(None, (write.path, node.config.quarantine)):
            store, path = _place(project, write.connection, text)
            if store is not None and path:
                yield node, store, path


def _place(project: ProjectView, connection: str, text: str) -> tuple[_Store | None, str]:
    """The store and the path there that a path of a connection means; empty where that is not known."""
    store_connection = project.connection(connection)
    base = store_connection.folder(project.root) if isinstance(store_connection, StoreConnection) else ""
    below = inside(text, base) if isinstance(store_connection, StoreConnection) and text else None
    if not isinstance(store_connection, StoreConnection) or below is None:
        return None, ""
    return store_connection.store, posixpath.normpath(posixpath.join("/", base, below))


def _reads(read: ReadConfig, path: str, table: str) -> bool:
    """Whether the path of a source names the folder of a table, or files in it."""
    if read.READS != "files":
        return read.READS == "table" and path == table
    fixed, last = _fixed(path), posixpath.basename(path)
    if fixed == path and f"{table}/".startswith(f"{path.rstrip('/')}/"):
        return True
    if f"{fixed}/".startswith(f"{table}/"):
        return "." not in last or last.endswith(".parquet")
    # Files lie in the folder of a write, and in folders of partitions.
    names = (f"{table}/{'k=1/' * depth}1.parquet" for depth in range(_DEEPEST))
    return any(_matches(path.split("/"), name.split("/")) for name in names)


def _fixed(path: str) -> str:
    """The folders of a path before its first wildcard."""
    return "/".join(takewhile(lambda part: not set(part) & set("*?["), path.split("/")))


def _matches(glob: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether a path, in parts, matches a glob, in parts."""
    if not glob:
        return not parts
    if glob[0] == "**":
        return any(_matches(glob[1:], parts[start:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], glob[0]) and _matches(glob[1:], parts[1:])


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
        owner, write = f"node `{node.shown}`", node.config.write
        if "read" in sections:
            for at, read in node.config.reads.items():
                if read.connection and read.stored_at:
                    yield (*node.path, *at, "path"), read.connection, read.stored_at, owner
        if "write" in sections and write.connection and write.path:
            yield (*node.path, "write", "path"), write.connection, write.path, owner
            for at, text in node.config.folders_beside.items():
                yield (*node.path, *at), write.connection, text, f"`{at[-1]}` of {owner}"
    system = project.config.system
    if system is not None:
        path_by_key = {"meta_runs_path": system.meta_runs_path, "meta_state_path": system.meta_state_path}
        folders = [(key, text) for key, text in path_by_key.items() if text]
        if len(folders) == 1:
            folders += [
                ("path", f"{system.path}/{key.removesuffix('_path')}") for key, text in path_by_key.items() if not text
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
        for at, column in (partition.places if partition is not None else {}).items():
            if column and lower and column.lower() not in lower:
                text = "is not in `write.partition_by`: add it there, or leave `partition_by` out"
                yield about(column, text, at=(*node.path, "partition", *at))
