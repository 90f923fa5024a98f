"""What the query of a stream node does with a row, read from Spark's plan of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odi_assets.nodes.execution.transform import transformed
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.stream import stream_inputs
from odi_assets.spark.own_session import OwnSession
from odi_assets.streaming.explain.query.definition import Definition, Input
from odi_assets.streaming.explain.query.plan import InputShape, read_definition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)


def stream_definition(node: Node, spark: SparkSession) -> Definition:
    """What the query of a stream node does with a row; ``spark`` is no session of Spark Connect, which gives no plans.

    Raises:
        ConfigError: nothing can be told of its rows.
        TransformError: the node's SQL or function is not right.
    """
    stream = node.config.stream
    assert stream is not None
    shapes = {}
    for one in stream_inputs(node):
        watermark = one.settings.watermark
        delay = None if watermark is None else (watermark.column, watermark.spark_delay)
        shapes[one.name] = InputShape(one.schema(spark), one.settings.where, delay)

    def transform(frames: Mapping[str, DataFrame]) -> DataFrame:
        return transformed(spark, node.config, node.project.root, frames, str(node))

    with OwnSession(spark):
        return read_definition(spark, shapes, transform, stream.output_mode, str(node))


def late_times(node: Node, spark: SparkSession) -> dict[str, str]:
    """By input, SQL of the time that decides whether its rows are dropped as late: of a window, its end. An input of
    which the plan does not tell it is left out."""
    try:
        definition = stream_definition(node, spark)
    except Exception as error:  # noqa: BLE001  a query that runs must not fail because its plan cannot be told
        _log.debug("no plan of %s: %s", node, error)
        return {}
    found: dict[str, set[str]] = {}
    for one in definition.every_input:
        found.setdefault(one.source, set()).add(_late_time(one))
    return {name: times.pop() for name, times in found.items() if len(times) == 1 and "" not in times}


def _late_time(given: Input) -> str:
    times = [time for time in (given.late_time, given.once and given.once.late_time) if time]
    return f"least({', '.join(times)})" if len(times) > 1 else "".join(times)
