"""State of pipelines (HWMs, run history) in a JSON file or in Delta tables, and versioned key-value stores."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odi_assets.state.backend import StateBackend
    from odi_assets.state.delta.backend import CatalogStateBackend
    from odi_assets.state.factory import create_state_backend
    from odi_assets.state.local.backend import LocalJSONStateBackend
    from odi_assets.state.manager import StateManager
    from odi_assets.state.records import HwmEntry, RunRecord, RunStatus
    from odi_assets.state.store import StateStore, StoreMetrics, StoreState
    from odi_assets.state.store.provider import StateStoreProvider

__all__ = [
    "CatalogStateBackend",
    "HwmEntry",
    "LocalJSONStateBackend",
    "RunRecord",
    "RunStatus",
    "StateBackend",
    "StateManager",
    "StateStore",
    "StateStoreProvider",
    "StoreMetrics",
    "StoreState",
    "create_state_backend",
]


# Each is loaded by those who use it: deltalake, above all.
_ON_DEMAND = {
    "CatalogStateBackend": "odi_assets.state.delta.backend",
    "HwmEntry": "odi_assets.state.records",
    "LocalJSONStateBackend": "odi_assets.state.local.backend",
    "RunRecord": "odi_assets.state.records",
    "RunStatus": "odi_assets.state.records",
    "StateBackend": "odi_assets.state.backend",
    "StateManager": "odi_assets.state.manager",
    "StateStore": "odi_assets.state.store",
    "StateStoreProvider": "odi_assets.state.store.provider",
    "StoreMetrics": "odi_assets.state.store",
    "StoreState": "odi_assets.state.store",
    "create_state_backend": "odi_assets.state.factory",
}


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return getattr(import_module(_ON_DEMAND[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
