"""Folders that a deployment's processes write to."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from odi_assets.nodes.project import Project
from odi_assets.orchestration.deployment.look import Look, not_looked_at, right, wrong
from odi_assets.orchestration.runs.instance import instance_ref, storage_data

FOLDERS = "folders"


def look_at_folders(project: Project, home: Path | None) -> Iterator[Look]:
    """Whether this process can write where Dagster, Spark and nodes write: a file is made and removed again."""
    purposes: dict[Path, str] = {Path(tempfile.gettempdir()): "temporary files"}
    remote: set[str] = set()
    for key in project.graph.nodes:
        connection, target = project.graph.node(key).write.connection, project.target(key)
        if target.is_local:
            purposes.setdefault(target.local_path, f"the table of {key}")
        else:
            remote.add(str(connection))
    system = project.config.system
    if system is None:
        purposes[project.root / ".odibi"] = "state"
    elif (state_location := project.location(system.connection, system.path)).is_local:
        purposes[state_location.local_path] = "state"
    else:
        remote.add(system.connection)
    if home is not None:
        purposes |= _of_dagster(home)
    closed = [f"{folder}, for {what}: {why}" for folder, what in purposes.items() if (why := _why_closed(folder))]
    for closed_folder in closed:
        yield wrong(FOLDERS, f"this user cannot write to {closed_folder}", "let the user of the code server own it")
    if not closed:
        yield right(FOLDERS, f"{len(purposes)} folders can be written, {next(iter(purposes))} among them")
    if remote:
        names = ", ".join(sorted(remote))
        yield not_looked_at(
            FOLDERS, f"whether the stores of {names} can be written", "let a node run that writes there"
        )


def _of_dagster(home: Path) -> dict[Path, str]:
    ref = instance_ref(home)
    named = {
        "Dagster's compute logs": ref.compute_logs_data.config_dict.get("base_dir"),
        "Dagster's files": ref.local_artifact_storage_data.config_dict.get("base_dir"),
        "Dagster's storage": storage_data(ref).config_dict.get("base_dir"),
    }
    return {Path(folder): what for what, folder in named.items() if isinstance(folder, str)}


def _why_closed(folder: Path) -> str | None:
    """Why no file can be made in a folder, or in the one in which it would be made; None if one can."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        return error.strerror or str(error)
