"""A node of a project: its configuration, its table, its sources, its code version, and its names in state and logs."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odi_assets.config.compared_columns import known_by_of
from odi_assets.config.graph import NodeKey, state_key
from odi_assets.config.models import ChunksConfig, NodeConfig
from odi_assets.nodes.kinds import NodeKind, gated, kind_of
from odi_assets.nodes.mark import NodeMark
from odi_assets.sources.cdc.mark import PARTITION
from odi_assets.sources.marks import Identity, Mark
from odi_assets.sources.registry import source_of, table_source
from odi_assets.sources.snapshot import Partitions
from odi_assets.sources.source import Source, Target

if TYPE_CHECKING:
    from odi_assets.delta.table import TableHandle
    from odi_assets.nodes.project import Project

NODE_PREFIX, _BOUNDED = "odi_assets:", ":range"
_HASH_LENGTH = 12
_OF_BACKFILLS = ("timezone", "hour_offset", "minute_offset", "values", "in_dagster", "max_partitions_per_run")
_NOT_CODE: dict[str, Any] = {
    **dict.fromkeys(("description", "owner", "tags", "automation", "freshness"), True),
    "partition": {**dict.fromkeys(_OF_BACKFILLS, True), "also": {"values"}},
}
_OF_ALL_READS = {
    **dict.fromkeys(("schema_ddl", "rescued", "table", "query", "partition_column")),
    **{"options": {}, "strict": True, "pieces": 1, "columns": {}, "tables": []},
    "snapshot": ChunksConfig().model_dump(mode="json"),
}
"""Keys that the definition of each ``read`` has, whatever its kind, so that code versions stay what they are."""


def app_id(key: NodeKey, *, bounded: bool = False) -> str:
    """The Delta app transaction that fences a node's increments and full refreshes.

    Args:
        bounded: the one for the node's bounded runs instead. They have a fence of their own, and leave the other alone.
    """
    return f"{NODE_PREFIX}{key}{_BOUNDED if bounded else ''}"


def app_ids(key: NodeKey) -> tuple[str, str]:
    """Both app transactions: first for increments and full refreshes, then for bounded runs."""
    return app_id(key), app_id(key, bounded=True)


def node_of_app(app: str) -> str | None:
    """The name of the node whose commits this app transaction fences; None if it is not one of a node."""
    name = app.removeprefix(NODE_PREFIX).removesuffix(_BOUNDED)
    return name if app.startswith(NODE_PREFIX) and "." in name else None


@dataclass(frozen=True)
class Node:
    """One node of ``project``; make it with :meth:`of`.

    Attributes:
        state_key: the key of its HWM in state.
        waits_for: the nodes of ``depends_on``: they run first. What it takes from them, if anything, is not known.
        target: its table, as its sources see it.
        partition_by: the columns that its table is partitioned by.
        log: the change log that it applies, if that is open; None: it is opened once it is asked for.
    """

    project: Project
    key: NodeKey
    config: NodeConfig
    state_key: str
    waits_for: tuple[NodeKey, ...]
    target: Target
    partition_by: tuple[str, ...]
    log: TableHandle | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, project: Project, key: NodeKey, log: TableHandle | None = None) -> Node:
        """The node ``key``.

        Raises:
            ConfigError: there is no such node.
        """
        config = project.graph.node(key)
        write, partition = config.write, config.partition
        partition_by = tuple(write.partition_by or (partition.columns if partition else ()))
        traits, keys = write.mode.traits, tuple(write.keys)
        known_by = partial(known_by_of, config, project.root)
        target = Target(str(key), project.target(key), traits, keys, write.schema_policy, partition_by, known_by)
        waits_for = tuple(project.graph.resolve(key, name) for name in config.depends_on)
        return cls(project, key, config, state_key(key, config), waits_for, target, partition_by, log)

    def __str__(self) -> str:
        return str(self.key)

    @property
    def command(self) -> str:
        """The arguments of ``odi run`` that run this node alone."""
        return f"{self.key.pipeline} --node {self.key.node}"

    @property
    def kind(self) -> NodeKind:
        """What differs between its kind of node and others."""
        return kind_of(self.config)

    @property
    def captures(self) -> bool:
        """Whether it writes a change log."""
        return self.config.captures

    @property
    def applies(self) -> NodeKey | None:
        """The node whose change log it applies; None if it applies none."""
        applied = self.config.apply
        return None if applied is None else self.project.graph.resolve(self.key, applied.changes)

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """What its ``read`` names, then its inputs.

        Raises:
            ConfigError: a connection cannot be resolved.
        """
        config, project = self.config, self.project
        sources: list[Source] = []
        if config.read is not None:
            connection = project.config.connections[config.read.connection]
            source = source_of(config.read, self.target, connection, project.location)
            if config.cursor is not None:
                source = gated(source, config.cursor, project.place, config.read.declared)
            sources.append(source)
        for name, input_config in config.inputs.items():
            if input_config.read is not None:
                connection = project.config.connections[input_config.read.connection]
                sources.append(source_of(input_config.read, self.target, connection, project.location, name))
                continue
            upstream = project.graph.resolve(self.key, input_config.node)
            table = project.target(upstream)
            only = None if config.apply is None else Partitions(PARTITION, (config.apply.table,))
            sources.append(
                table_source(name, str(upstream), self.target, input_config.incremental, table, only, self.log)
            )
        return tuple(sources)

    @cached_property
    def following(self) -> tuple[str, ...]:
        """The names of the sources that keep a mark; none for a node that keeps no HWM."""
        return tuple(source.name for source in self.sources if source.follows)

    def marks(
        self,
        hwm: NodeMark | None,
        remembered: Mapping[str, Any] | None = None,
        measures: Mapping[str, Identity] | None = None,
        *,
        names: Mapping[str, str] | None = None,
        typed: bool = True,
    ) -> dict[str, Mark]:
        """The marks of its sources, taken from its HWM; none without one.

        Args:
            remembered: by source, what the commit of the HWM stored beside it.
            measures: by source, what the marks measure, as it was stored.
            names: by source, the name under which the HWM, and these two, keep its mark; None: its own.
            typed: False for an HWM that another tool stored without its type.

        Raises:
            IncrementError: the HWM does not fit this node.
        """
        marks: dict[str, Mark] = {}
        kept = tuple(measures) if measures else self.following
        for source in self.sources:
            name = source.name if names is None else names.get(source.name)
            if hwm is not None and source.follows and name is not None:
                value = hwm.of_source(name, kept, str(self.key))
                if isinstance(value, dict) and {"cursor", "rows"} <= value.keys() and self.config.cursor is None:
                    # A cursor document drove the source once.
                    value = value["rows"]
                if value is not None:
                    mark = source.mark(value, (remembered or {}).get(name) or {}, typed=typed)
                    marks[source.name] = replace(mark, measures=(measures or {}).get(name))
        return marks


def code_version(project: Project, key: NodeKey) -> str:
    """A short hash of what the node does: its configuration, its SQL, the source of the module its function is in.

    The module is read, not imported: this starts no Spark and runs nobody's code.
    """
    node = project.graph.node(key)
    dumped = node.model_dump(mode="json", exclude=_NOT_CODE)
    for at, read in node.reads.items():
        within = dumped if len(at) == 1 else dumped["inputs"][at[1]]
        own = {name: value for name, value in within["read"].items() if name != "asset"}
        within["read"] = {**_OF_ALL_READS, "path": read.place, **own}
    definition = kind_of(node).definition(dumped)
    if node.cursor is not None and not node.cursor.numbers:
        del definition["cursor"]["numbers"]
    if node.partition is not None and node.partition.also is None:
        del definition["partition"]["also"]
    for name in ("checks", "quarantine"):
        if not definition[name]:
            del definition[name]
    digest = hashlib.sha256(json.dumps(definition, sort_keys=True).encode())
    if node.transform is not None and node.transform.function is not None:
        source = _module_file(node.transform.function.partition(":")[0], project.root)
        digest.update(source.read_bytes() if source else b"")
    elif node.transform is not None:
        digest.update(node.transform.sql_text(project.root).encode())
    return digest.hexdigest()[:_HASH_LENGTH]


def _module_file(module: str, root: Path) -> Path | None:
    beside = root / Path(*module.split("."))
    for candidate in (beside.with_suffix(".py"), beside / "__init__.py"):
        if candidate.is_file():
            return candidate
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None
