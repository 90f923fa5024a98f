"""Drops what runs of the sample made: the Delta tables of its pipeline and their high-water marks."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from odi_assets.config.graph import Graph, NodeKey, state_key
from odi_assets.config.loader import LoadedProject, load_project_file
from odi_assets.connections.location import resolve
from odi_assets.errors import ConfigError
from odi_assets.state.factory import create_state_backend

PIPELINE = "flights"
"""The sample's pipeline."""


@dataclass(frozen=True)
class Dropped:
    """The nodes whose tables were dropped, and the keys whose HWMs were deleted."""

    tables: tuple[NodeKey, ...]
    keys: tuple[str, ...]


def drop_tables(project_file: Path) -> Dropped:
    """Drop the Delta tables of pipeline ``flights`` and delete its HWMs. Run history stays.

    Tables go first: a run that comes between finds a target behind its state and says so, whereas a table without
    its HWM would be loaded twice.

    Raises:
        ConfigError: the project file is wrong, has no pipeline ``flights``, or keeps its tables elsewhere than on disk.
    """
    project = load_project_file(project_file)
    nodes = _nodes(project)
    tables = _local_tables(project, nodes)
    dropped = tuple(key for key, table in tables.items() if _drop(table, project.root))
    shutil.rmtree(_trash(project.root), ignore_errors=True)
    state = create_state_backend(project.config, project.root)
    marked = tuple(name for name in nodes.values() if state.get_entry(name) is not None)
    keys = tuple(name for name in marked if state.delete_hwm(name))
    return Dropped(dropped, keys)


def _nodes(project: LoadedProject) -> dict[NodeKey, str]:
    graph = Graph(project.config)
    nodes = {key: state_key(key, node) for key, node in graph.nodes.items() if key.pipeline == PIPELINE}
    if not nodes:
        raise ConfigError(
            f"{project.path} has no pipeline `{PIPELINE}`: it is not the sample's project file",
            fix="give the sample's project file with -c",
            path=str(project.path),
        )
    return nodes


def _local_tables(project: LoadedProject, nodes: dict[NodeKey, str]) -> dict[NodeKey, Path]:
    graph, tables = Graph(project.config), {}
    for key in nodes:
        write = graph.nodes[key].write
        location = resolve(project.config.connections[write.connection], write.path, project.root)
        if not location.is_local:
            raise ConfigError(
                f"{key} is written to {location.uri}; the sample is only reset where its tables are on disk",
                fix="drop the tables by hand",
                node=str(key),
            )
        tables[key] = location.local_path
    return tables


def _trash(root: Path) -> Path:
    return root / "data" / "lake" / ".dropped"


def _drop(table: Path, root: Path) -> bool:
    """Take a table away in one step, so that no one ever sees half of it; False if there is none."""
    if not table.exists():
        return False
    trash = _trash(root)
    trash.mkdir(parents=True, exist_ok=True)
    table.rename(trash / uuid4().hex)
    return True
