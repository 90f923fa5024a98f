"""A versioned key-value store on Delta, with the life cycle of Spark's state stores; nodes' functions may have one.

Example:
    >>> with StateStoreProvider("lake/seen").get_store(0) as store:
    ...     store.put(b"customer/1", b"2024-01-31")
    ...     version = store.commit()
"""

from odi_assets.store.provider import StateStoreProvider
from odi_assets.store.state_store import StateStore, StoreChange, StoreMetrics, StoreState

__all__ = ["StateStore", "StateStoreProvider", "StoreChange", "StoreMetrics", "StoreState"]
