"""What no single value shows: mistakes between the parts of a project file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odi_assets.config.checks import increments, nodes, references, sql, tables
from odi_assets.config.diagnostics.locations import Finding
from odi_assets.config.diagnostics.partial_project import Outline

Check = Callable[[Outline], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    references.unknown_connections,
    references.duplicate_names,
    references.unknown_nodes,
    references.cycles,
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


def check(outline: Outline) -> list[Finding]:
    """Return everything that is wrong between the parts of a project file."""
    return [finding for one in CHECKS for finding in one(outline)]
