"""Checks of the parts of a project file against one another, which no model can make alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odi_assets.config.checks import databases, increments, nodes, sql, tables
from odi_assets.config.checks.partial_project import PartialProject
from odi_assets.config.diagnostics.mistakes import Mistake

CHECKS: tuple[Callable[[PartialProject], Iterator[Mistake]], ...] = (
    nodes.unknown_connections,
    nodes.duplicate_names,
    nodes.unknown_nodes,
    nodes.cycles,
    databases.connections,
    tables.shared_folders,
    tables.outside_paths,
    tables.partitions,
    increments.shared_state_keys,
    increments.several_increments,
    increments.formats,
    increments.repeated_rows,
    nodes.nothing_to_read,
    nodes.missing_files,
    sql.broken_sql,
)
