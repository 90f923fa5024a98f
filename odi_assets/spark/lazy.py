"""Spark's functions, types and errors, loaded at their first use: plans are made, and state is shown, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.util.lazy import LazyModule

if TYPE_CHECKING:
    from py4j import protocol as java_errors  # type: ignore[import-untyped]
    from pyspark import errors as spark_errors
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
else:
    F, T = LazyModule("pyspark.sql.functions"), LazyModule("pyspark.sql.types")
    java_errors, spark_errors = LazyModule("py4j.protocol"), LazyModule("pyspark.errors")

__all__ = ["F", "T", "java_errors", "spark_errors"]
