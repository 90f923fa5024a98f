"""The sources of a node: where they are, where they stood, and what its table remembers of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from odi_assets.config.graph import NodeKey
from odi_assets.config.models import FileFormat, NodeConfig, StatefulIncrement, WriteConfig, WriteMode
from odi_assets.connections.location import Location
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IncrementError
from odi_assets.nodes.fences import app_id
from odi_assets.nodes.project import READ_VIEW, Project
from odi_assets.sources.cursor.window import Memory
from odi_assets.sources.position import table_position
from odi_assets.sources.reads import SourceSpec
from odi_assets.state.values import encode


def source_specs(project: Project, key: NodeKey, target: Location | None = None) -> list[SourceSpec]:
    """The sources of a node with their places resolved; with ``target``, to be remembered beside that table."""
    node = project.node(key)
    specs = []
    if node.read is not None:
        read = node.read
        specs.append(
            SourceSpec(
                READ_VIEW,
                f"{read.connection}:{read.path}",
                read.format,
                project.location(read.connection, ""),
                read.path,
                project.location(read.connection, read.path),
                read.schema_ddl,
                read.options,
                read.incremental,
                target,
                node.write.mode,
            )
        )
    for name, item in node.inputs.items():
        upstream = project.graph.resolve(key, item.node)
        table = project.target(upstream)
        spec = SourceSpec(name, str(upstream), FileFormat.DELTA, table, "", table, incremental=item.incremental)
        specs.append(replace(spec, mode=node.write.mode))
    return specs


def waited_for(project: Project, key: NodeKey) -> tuple[NodeKey, ...]:
    """The nodes of ``depends_on``: they run first, and what this node takes from them is not ours to see."""
    return tuple(project.graph.resolve(key, name) for name in project.node(key).depends_on)


def waited_positions(project: Project, key: NodeKey) -> dict[str, Any]:
    return {str(other): table_position(TableHandle.open(project.target(other))) for other in waited_for(project, key)}


def hwm_of(hwm: Any, spec: SourceSpec, key: NodeKey) -> Any:
    """The part of a node's HWM that belongs to one source: all of it for ``read``, by name for inputs."""
    if hwm is None or spec.incremental is None or spec.name == READ_VIEW:
        return hwm if spec.incremental is not None else None
    if not isinstance(hwm, dict):
        raise IncrementError(
            f"{key}: its HWM {hwm!r} does not say which input it is of",
            fix=f"set it as {{{spec.name!r}: …}} with odi state set, or run the node with --full-refresh",
            node=str(key),
        )
    return hwm.get(spec.name)


def rows_are_known_by_keys(write: WriteConfig) -> bool:
    """Whether rows that are read again are told from new ones as they are written."""
    return write.mode is not WriteMode.APPEND or bool(write.keys)


def memories(node: NodeConfig, target: TableHandle, key: NodeKey, hwm: Any, *, typed: bool) -> Mapping[str, Memory]:
    """What the commit that set ``hwm`` remembers of the sources of stateful increments, if it was set by one."""
    items = {READ_VIEW: node.read.incremental if node.read else None}
    items |= {name: item.incremental for name, item in node.inputs.items()}
    names = [name for name, increment in items.items() if isinstance(increment, StatefulIncrement)]
    facts = _facts_of(target, app_id(key), hwm) if names and hwm is not None else {}
    by_keys = rows_are_known_by_keys(node.write)
    return {name: replace(Memory.of(facts.get(name)), by_keys=by_keys, typed=typed) for name in names}


def _facts_of(target: TableHandle, fence: str, hwm: Any) -> Mapping[str, Any]:
    for stamp in target.stamps():
        # A backfill's commit repeats the HWM, and remembers nothing.
        if stamp.app_id == fence and "hwm" in stamp.facts and "bounds" not in stamp.facts:
            found = stamp.facts["hwm"]
            same = tuple(encode(hwm)) == (found["value"], found["type"])
            return found.get("reads") or {} if same else {}
    return {}
