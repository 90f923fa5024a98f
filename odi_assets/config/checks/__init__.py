"""Checks of how the parts of a project file fit together, which no model can make alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odi_assets.config.checks import (
    columns,
    databases,
    functions,
    increments,
    jobs,
    logs,
    nodes,
    packages,
    row_checks,
    tables,
)
from odi_assets.config.checks.view import ProjectView
from odi_assets.config.diagnostics.mistakes import Mistake

CHECKS: tuple[Callable[[ProjectView], Iterator[Mistake]], ...] = (
    nodes.unknown_connections,
    nodes.duplicate_names,
    jobs.wrong_jobs,
    nodes.wrong_references,
    databases.connections,
    logs.logs,
    packages.missing_packages,
    packages.taken_of_packages,
    tables.shared_folders,
    tables.tables_as_sources,
    tables.outside_paths,
    tables.partitions,
    increments.shared_state_keys,
    increments.several_increments,
    increments.formats,
    increments.repeated_rows,
    increments.rewritten_files,
    increments.passing_keys,
    nodes.nothing_to_read,
    nodes.wrong_queries,
    columns.wrong_columns,
    columns.unknown_tables,
    row_checks.wrong_checks,
    functions.wrong_functions,
)
