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
    import croniter
    import fsspec
    import polars as pl
    import psycopg
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.fs as pa_fs
    import pyarrow.parquet as pq
    import pymysql
    import sqlglot
    from sqlglot import exp

    # Its own hints lack half of it.
    kafka: Any
    kafka_admin: Any
else:
    pa, pc, pa_fs, pq = (LazyModule(f"pyarrow{name}") for name in ("", ".compute", ".fs", ".parquet"))
    sqlglot, exp = LazyModule("sqlglot"), LazyModule("sqlglot.expressions")
    croniter, fsspec, pl, psycopg, pymysql = map(LazyModule, ("croniter", "fsspec", "polars", "psycopg", "pymysql"))
    kafka, kafka_admin = LazyModule("confluent_kafka"), LazyModule("confluent_kafka.admin")

__all__ = [
    "LazyModule",
    "croniter",
    "exp",
    "fsspec",
    "kafka",
    "kafka_admin",
    "pa",
    "pa_fs",
    "pc",
    "pl",
    "pq",
    "psycopg",
    "pymysql",
    "sqlglot",
]
