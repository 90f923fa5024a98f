"""Modules that are loaded when they are first used: what takes long to load stays out of commands that need none of it.

Example:
    >>> from odi_assets.util.lazy import pa
    >>> pa.table({"id": [1]}).num_rows
    1
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any


class LazyModule(ModuleType):
    """A module in the place of the one with this name, which the first look at an attribute loads."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Executors get the module itself."""
        return importlib.import_module, (self.__name__,)


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from sqlglot import exp
else:
    pa, pc, pq = (LazyModule(name) for name in ("pyarrow", "pyarrow.compute", "pyarrow.parquet"))
    exp = LazyModule("sqlglot.expressions")

__all__ = ["LazyModule", "exp", "pa", "pc", "pq"]
