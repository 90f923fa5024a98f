"""State of pipelines (HWMs, run history) in a JSON file or in Delta tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odi_assets.state.backend import StateBackend as StateBackend
    from odi_assets.state.delta.backend import CatalogStateBackend as CatalogStateBackend
    from odi_assets.state.factory import create_state_backend as create_state_backend
    from odi_assets.state.local.backend import LocalJSONStateBackend as LocalJSONStateBackend
    from odi_assets.state.manager import StateManager as StateManager
    from odi_assets.state.records import HwmEntry as HwmEntry
    from odi_assets.state.records import RunRecord as RunRecord
    from odi_assets.state.records import RunStatus as RunStatus

# Each is loaded by those who use it: deltalake, above all.
_MODULES = {
    "CatalogStateBackend": "delta.backend",
    "HwmEntry": "records",
    "LocalJSONStateBackend": "local.backend",
    "RunRecord": "records",
    "RunStatus": "records",
    "StateBackend": "backend",
    "StateManager": "manager",
    "create_state_backend": "factory",
}
__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
