"""Dagster assets on Spark and Delta Lake that never lose a row and never repeat one.

What this module names is the public face; the rest may change. Nothing is imported before it is used, so that
``import odi_assets`` costs nothing: no Dagster, no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odi_assets.config.python_nodes import node
    from odi_assets.errors import OdiError
    from odi_assets.nodes.project import Project
    from odi_assets.orchestration.assets.io_manager import DeltaIOManager
    from odi_assets.orchestration.component import PipelinesComponent
    from odi_assets.orchestration.definitions import build_definitions
    from odi_assets.orchestration.resources import SparkResource, StateResource
    from odi_assets.orchestration.run import run_pipeline
    from odi_assets.orchestration.table_resource import NodeTableResource, delta_table_resource
    from odi_assets.state.manager import StateManager

__all__ = [
    "DeltaIOManager",
    "NodeTableResource",
    "OdiError",
    "PipelinesComponent",
    "Project",
    "SparkResource",
    "StateManager",
    "StateResource",
    "build_definitions",
    "delta_table_resource",
    "node",
    "run_pipeline",
]

_PLACES = {
    "DeltaIOManager": "orchestration.assets.io_manager",
    "NodeTableResource": "orchestration.table_resource",
    "OdiError": "errors",
    "PipelinesComponent": "orchestration.component",
    "Project": "nodes.project",
    "SparkResource": "orchestration.resources",
    "StateManager": "state.manager",
    "StateResource": "orchestration.resources",
    "build_definitions": "orchestration.definitions",
    "delta_table_resource": "orchestration.table_resource",
    "node": "config.python_nodes",
    "run_pipeline": "orchestration.run",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module `odi_assets` has no attribute `{name}`")
    return getattr(import_module(f"odi_assets.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
