"""The state backends that a project file, or a name that people give, asks for."""

from __future__ import annotations

from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from odi_assets.config.loader import load_project_file
from odi_assets.config.models import ProjectConfig, SystemConfig
from odi_assets.connections.location import resolve
from odi_assets.errors import ConfigError
from odi_assets.state.backend import StateBackend
from odi_assets.state.text_order import declared_order

PROJECT = "project"


def create_state_backend(
    config: ProjectConfig, project_root: str | PathLike[str] = ".", spark_session: Any = None
) -> StateBackend:
    """The backend of ``system``: Delta tables at its connection, or without ``system`` the project's JSON file.

    The environment is ``system.environment``, or else the project's ``environment``. The arguments are the same as in
    Odibi 3.15.1.

    Args:
        config: a loaded project file.
        project_root: the folder of the project file.
        spark_session: for tables that deltalake cannot handle; see ``CatalogStateBackend``. A JSON file needs none.

    Raises:
        ConfigError: ``system.connection`` names no connection.
    """
    root = Path(project_root).absolute()
    system = config.system
    if system is None:
        from odi_assets.state.local.backend import LocalJSONStateBackend

        local = LocalJSONStateBackend(root / ".odibi" / "state.json", environment=config.environment)
        local.text_order = partial(declared_order, config)
        return local
    from odi_assets.delta.retry import Retry
    from odi_assets.state.delta.backend import CatalogStateBackend

    connection = config.connections.get(system.connection)
    if connection is None:
        raise ConfigError(
            f"`system.connection` names `{system.connection}`, which is not among the connections",
            fix=f"name one of: {', '.join(sorted(config.connections))}",
            key="system.connection",
        )
    runs = resolve(connection, system.meta_runs_path or f"{system.path}/meta_runs", root)
    state = resolve(connection, system.meta_state_path or f"{system.path}/meta_state", root)
    backend = CatalogStateBackend(
        runs.uri,
        state.uri,
        spark_session=spark_session,
        storage_options=state.storage_options,
        environment=system.environment or config.environment,
        retry=Retry(config.retry),
        connection=system.connection,
        keep_runs_for=system.keep_runs_for,
        notes=root / ".odibi" if state.is_local else None,
        fsync=state.fsync,
    )
    backend.text_order = partial(declared_order, config)
    return backend


def open_store(name: str, config: ProjectConfig, root: Path) -> StateBackend:
    """The backend that ``name`` means, as the environment without a name sees it.

    Args:
        name: ``project`` (where the project keeps its state), a state file (``.odibi/state.json``, Odibi's too), a
            folder that holds ``meta_state`` and ``meta_runs``, ``CONNECTION:PATH`` for such a folder on a connection
            of the project, or another project's file (``old/odibi.yaml``).
        config: the project.
        root: the project file's folder.

    Raises:
        ConfigError: it means none of these.
    """
    if name == PROJECT:
        return create_state_backend(config, root).in_environment(None)
    connection, colon, path = name.partition(":")
    if colon and connection in config.connections:
        system = SystemConfig(connection=connection, path=path)
        return create_state_backend(config.model_copy(update={"system": system}), root).in_environment(None)
    if "://" in name:
        raise ConfigError(
            "a URI does not tell how to sign in there",
            fix="add a connection to the project file and write CONNECTION:PATH, PATH being the folder of both tables",
        )
    if name.endswith((".yaml", ".yml")):
        other = load_project_file(name)
        return create_state_backend(other.config, other.root).in_environment(None)
    from odi_assets.state.local.backend import LocalJSONStateBackend

    folder = Path(name).absolute()
    if name.endswith(".json"):
        return LocalJSONStateBackend(folder)
    if (folder / "state.json").is_file():
        return LocalJSONStateBackend(folder / "state.json")
    from odi_assets.state.delta.backend import CatalogStateBackend

    return CatalogStateBackend(str(folder / "meta_runs"), str(folder / "meta_state"))
