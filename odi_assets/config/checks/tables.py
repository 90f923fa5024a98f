"""Tables that would destroy one another, and partitions that do not fit."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from odi_assets.config.diagnostics.locations import Finding
from odi_assets.config.diagnostics.mistakes import Mistake, about
from odi_assets.config.diagnostics.partial_project import Outline
from odi_assets.config.models import (
    AzureBlobConnection,
    GcsConnection,
    LocalConnection,
    S3Connection,
    SystemConfig,
)
from odi_assets.config.paths import SCHEME, inside, local_base
from odi_assets.config.yaml.document import Path


@dataclass(frozen=True, order=True)
class _Folder:
    """A table's folder: the store it is in and its path there; comparable, whatever the connections' names."""

    store: tuple[str, ...]
    parts: tuple[str, ...]
    path: Path
    owner: str

    def holds(self, other: _Folder) -> bool:
        return self.store == other.store and other.parts[: len(self.parts)] == self.parts


def shared_folders(outline: Outline) -> Iterator[Finding]:
    """Find tables in the folder of another table: one would overwrite, or its vacuum delete, the other's files."""
    folders = sorted(folder for folder in _folders(outline) if folder is not None)
    around: list[_Folder] = []
    for folder in folders:
        while around and not around[-1].holds(folder):
            around.pop()
        if around:
            earlier, later = sorted((folder, around[-1]), key=lambda one: (one.path[0] != "system", one.path))
            yield Finding(later.path, Mistake(_overlap(later, earlier)))
        around.append(folder)


def _overlap(one: _Folder, other: _Folder) -> str:
    if one.parts == other.parts:
        return f"{other.owner} writes the same table"
    if other.holds(one):
        return f"this folder is inside the table of {other.owner}, whose vacuum would delete it"
    return f"the table of {other.owner} is inside this folder, and a vacuum would delete it"


def _folders(outline: Outline) -> Iterator[_Folder | None]:
    for node in outline.nodes:
        connection = node.connections.get((*node.path, "write", "connection"))
        if connection is not None and node.target:
            owner = f"node `{node.pipeline}.{node.shown}`" if node.pipeline else f"node `{node.shown}`"
            yield _folder(outline, connection, node.target, (*node.path, "write", "path"), owner)
    if outline.system is not None:
        for key, folder in _system_paths(outline.system):
            yield _folder(outline, outline.system.connection, folder, ("system", key), "`system`")


def _system_paths(system: SystemConfig) -> list[tuple[str, str]]:
    if system.meta_runs_path is not None and system.meta_state_path is not None:
        return [("meta_runs_path", system.meta_runs_path), ("meta_state_path", system.meta_state_path)]
    return [("path", system.path)]


def _folder(outline: Outline, name: str, folder: str, path: Path, owner: str) -> _Folder | None:
    connection = outline.connection(name)
    store: tuple[str, ...] = ("connection", name)
    base = getattr(connection, "base_path", "")
    if isinstance(connection, LocalConnection):
        store = ("local",)
        base = local_base(base, outline.root)
    elif isinstance(connection, AzureBlobConnection):
        store = ("azure", connection.account_name, connection.container, connection.endpoint or "")
    elif isinstance(connection, S3Connection | GcsConnection):
        store = (connection.type, connection.bucket, connection.endpoint or "")
    below = inside(folder, base)
    if below is None:
        return None
    whole = posixpath.normpath(posixpath.join("/", base, below))
    return _Folder(store, tuple(part for part in whole.split("/") if part), path, owner)


def outside_paths(outline: Outline) -> Iterator[Finding]:
    """Find paths that lead out of their connection's folder, or that are URIs."""
    for path, connection, text in _paths(outline):
        base = getattr(outline.connection(connection), "base_path", None)
        if SCHEME.match(text):
            yield Finding(path, Mistake("is a URI: paths are relative to their connection"))
        elif base is not None and inside(text, _start(outline, connection, base)) is None:
            yield Finding(
                path, about(text, f"leads out of the connection `{connection}`: paths stay in its `base_path`")
            )


def _start(outline: Outline, connection: str, base: str) -> str:
    local = isinstance(outline.connection(connection), LocalConnection)
    return local_base(base, outline.root) if local else base.strip("/")


def _paths(outline: Outline) -> Iterator[tuple[Path, str, str]]:
    for node in outline.nodes:
        for section, text in (("read", node.source), ("write", node.target)):
            connection = node.connections.get((*node.path, section, "connection"))
            if connection is not None and text:
                yield (*node.path, section, "path"), connection, text
    if outline.system is not None:
        for key, text in _system_paths(outline.system):
            yield ("system", key), outline.system.connection, text


def partitions(outline: Outline) -> Iterator[Finding]:
    """Find write modes that need partitions and have none, and partition columns that contradict one another."""
    for node in outline.nodes:
        write, partition = node.write, node.partition
        if write is None:
            continue
        if write.mode.traits.partitioned and "partition" not in node.given and not write.partition_by:
            message = f"`{write.mode}` needs `partition_by`, or `partition` on the node: what to overwrite"
            yield Finding((*node.path, "write", "mode"), Mistake(message), absence=True)
        lower = [column.lower() for column in write.partition_by]
        if partition is not None and lower and partition.column.lower() not in lower:
            text = "is not in `write.partition_by`: add it there, or leave `partition_by` out"
            yield Finding((*node.path, "partition", "column"), about(partition.column, text))
