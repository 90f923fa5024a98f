"""The project file: read, checked, typed."""

from odi_assets.config.diagnostics.mistakes import ConfigErrors, Problem
from odi_assets.config.graph import Graph, NodeKey, state_key
from odi_assets.config.loader import LoadedProject, load_config_from_file, load_project_file
from odi_assets.config.models import ProjectConfig

__all__ = [
    "ConfigErrors",
    "Graph",
    "LoadedProject",
    "NodeKey",
    "Problem",
    "ProjectConfig",
    "load_config_from_file",
    "load_project_file",
    "state_key",
]
