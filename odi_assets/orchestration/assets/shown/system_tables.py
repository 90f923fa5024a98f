"""The system tables as assets that nobody materializes: where they are, and which columns they have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import dagster as dg

from odi_assets.connections.location import Location
from odi_assets.nodes.project import Project
from odi_assets.orchestration.metadata import STORAGE_KIND
from odi_assets.orchestration.naming import DagsterNames
from odi_assets.state.delta import batches, hwms, runs
from odi_assets.state.delta.system_columns import Columns

SYSTEM_GROUP = "system"
_TABLES: Mapping[str, tuple[str, Columns]] = {
    "meta_state": ("How far each node has read: a row for each revision of each high-water mark.", hwms.COLUMNS),
    "meta_runs": ("What ran: a row for each attempt of each node.", runs.COLUMNS),
    "meta_batches": ("What streams read: a row for each batch of each stream.", batches.COLUMNS),
}


def system_tables(project: Project) -> Iterator[dg.AssetSpec]:
    """The tables of ``system``, in the group ``system``; none for a project that keeps its state in a JSON file."""
    names = DagsterNames.of(project)
    for table, location in _locations(project).items():
        text, columns = _TABLES[table]
        yield dg.AssetSpec(
            names.system(project, table),
            group_name=SYSTEM_GROUP,
            kinds={"delta"},
            description=f"{text} Of {project.config.project}; every run writes to it, and no run materializes it.",
            metadata={
                "dagster/uri": location.uri,
                "dagster/table_name": table,
                "dagster/storage_kind": STORAGE_KIND,
                "dagster/column_schema": dg.TableSchema.from_name_type_dict(dict(columns.kinds)),
            },
        )


def _locations(project: Project) -> dict[str, Location]:
    system = project.config.system
    if system is None:
        return {}
    paths = {"meta_state": system.meta_state_path, "meta_runs": system.meta_runs_path}
    locations = {
        table: project.location(system.connection, path or f"{system.path}/{table}") for table, path in paths.items()
    }
    if any(node.stream is not None for node in project.graph.nodes.values()):
        locations["meta_batches"] = project.open_batches().location
    return locations
