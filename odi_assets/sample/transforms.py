"""The sample's Python transform: a function of DataFrames, named in the project file as ``module:function``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATE_MINUTES = 15
"""The US Bureau of Transportation Statistics counts a flight as late from 15 minutes on."""


def delays_by_day_and_carrier(flights_enriched: DataFrame, late_minutes: int = LATE_MINUTES) -> DataFrame:
    """How late each carrier's flights were on each day.

    Args:
        flights_enriched: flights with ``local_date``, ``carrier``, ``carrier_name``, ``cancelled`` and their delays
            in minutes.
        late_minutes: a flight counts as late when it arrives this many minutes after its schedule, or more.

    Returns:
        One row per ``local_date`` and ``carrier``: numbers of flights, and delays in minutes over those that flew.
        A mean is NULL on a day when none of the carrier's flights did.
    """
    return flights_enriched.groupBy("local_date", "carrier", "carrier_name").agg(
        F.count("*").alias("flights"),
        F.count_if("cancelled").alias("cancelled"),
        F.count_if(F.col("arr_delay") >= late_minutes).alias("late"),
        F.avg("dep_delay").alias("mean_dep_delay"),
        F.avg("arr_delay").alias("mean_arr_delay"),
        F.max("arr_delay").alias("worst_arr_delay"),
    )
