"""Spark's functions and types, loaded when they are first used: plans are made, and state is shown, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.util.lazy import LazyModule

if TYPE_CHECKING:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
else:
    F, T = LazyModule("pyspark.sql.functions"), LazyModule("pyspark.sql.types")

__all__ = ["F", "T"]
