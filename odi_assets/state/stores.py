"""Places that state can be moved from and to, by the names that people give them."""

from __future__ import annotations

from pathlib import Path

from odi_assets.config.models import ProjectConfig
from odi_assets.errors import ConfigError
from odi_assets.state.backend import StateBackend
from odi_assets.state.factory import catalog_at, create_state_backend
from odi_assets.state.local.backend import LocalJSONStateBackend

PROJECT = "project"


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
        return catalog_at(config, root, connection, path)
    if "://" in name:
        raise ConfigError(
            "a URI does not tell how to sign in there",
            fix="add a connection to the project file and write CONNECTION:PATH, PATH being the folder of both tables",
        )
    if name.endswith((".yaml", ".yml")):
        from odi_assets.config.loader import load_project_file

        other = load_project_file(name)
        return create_state_backend(other.config, other.root).in_environment(None)
    folder = Path(name).absolute()
    if name.endswith(".json"):
        return LocalJSONStateBackend(folder)
    if (folder / "state.json").is_file():
        return LocalJSONStateBackend(folder / "state.json")
    from odi_assets.state.delta.backend import CatalogStateBackend

    return CatalogStateBackend(str(folder / "meta_runs"), str(folder / "meta_state"))
