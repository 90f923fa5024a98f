"""The state backend that a project file asks for."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from odi_assets.config.models import ProjectConfig, RetryConfig, SystemConfig
from odi_assets.errors import ConfigError
from odi_assets.state.backend import StateBackend
from odi_assets.state.local.backend import LocalJSONStateBackend
from odi_assets.state.retry import Retry


def create_state_backend(config: ProjectConfig, project_root: str | PathLike[str] = ".") -> StateBackend:
    """The backend of ``system``: Delta tables at its connection, or without ``system`` the project's JSON file.

    The environment is ``system.environment``, or else the project's ``environment``.

    Args:
        config: a loaded project file.
        project_root: the folder of the project file.

    Raises:
        ConfigError: ``system.connection`` names no connection.
    """
    root = Path(project_root).absolute()
    if config.system is None:
        return LocalJSONStateBackend(root / ".odibi" / "state.json", environment=config.environment)
    return _catalog(config, config.system, root)


def catalog_at(config: ProjectConfig, root: Path, connection: str, path: str) -> StateBackend:
    """The Delta backend of the folder ``path`` of a connection, as the environment without a name sees it."""
    system = SystemConfig(
        connection=connection, path=path, retry=config.system.retry if config.system else RetryConfig()
    )
    return _catalog(config, system, root).in_environment(None)


def _catalog(config: ProjectConfig, system: SystemConfig, root: Path) -> StateBackend:
    from odi_assets.connections.location import resolve
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
    return CatalogStateBackend(
        runs.uri,
        state.uri,
        storage_options=state.storage_options,
        environment=system.environment or config.environment,
        retry=Retry(system.retry),
        connection=system.connection,
        keep_runs_for=system.keep_runs_for,
    )
