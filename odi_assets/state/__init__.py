"""State of pipelines: high-water marks and run history, in a JSON file or in Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odi_assets.state.backend import StateBackend
from odi_assets.state.factory import create_state_backend
from odi_assets.state.local_json import LocalJSONStateBackend
from odi_assets.state.manager import StateManager
from odi_assets.state.records import HwmEntry, RunRecord, RunStatus

if TYPE_CHECKING:
    from odi_assets.state.catalog import CatalogStateBackend

__all__ = [
    "CatalogStateBackend",
    "HwmEntry",
    "LocalJSONStateBackend",
    "RunRecord",
    "RunStatus",
    "StateBackend",
    "StateManager",
    "create_state_backend",
]


def __getattr__(name: str) -> Any:
    # deltalake is loaded only by those who use it.
    if name == "CatalogStateBackend":
        from odi_assets.state.catalog import CatalogStateBackend

        return CatalogStateBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
