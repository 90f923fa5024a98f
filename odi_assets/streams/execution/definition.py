"""What the query of a stream node does with a row, read from Spark's plan of it.

Spark Connect gives its clients no plans: only their text, which is not SQL, and the unresolved tree of what the client
asked for, in which SQL is still one string. Both would have to be understood as Spark understands them. So a process
with a Spark of its own plans the query there, which needs Java and a few seconds, and reads nothing of the inputs.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odi_assets.config.graph import NodeKey
from odi_assets.errors import TransformError
from odi_assets.nodes.execution.transform import load_function, transformed
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.spark.own_session import own_session
from odi_assets.spark.plans.definition import Input, QueryDefinition
from odi_assets.spark.plans.plan import InputShape, read_definition
from odi_assets.spark.session import open_session
from odi_assets.streams.planning.inputs import stream_inputs
from odi_assets.streams.planning.marks import settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_OF_CONNECT = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE", "SPARK_API_MODE")
"""Environment variables that make PySpark create Spark Connect sessions."""


def stream_definition(node: Node, spark: SparkSession) -> QueryDefinition:
    """What the query of a stream node does with a row.

    Raises:
        ConfigError: it is not known what the query does with a row.
        TransformError: the node's SQL or function is not right, or with Spark Connect: no process could look at it.
    """
    if not hasattr(spark, "_jsparkSession"):
        return _from_another_process(node)
    shapes = {}
    for source in stream_inputs(node):
        watermark = source.settings.watermark
        delay = None if watermark is None else (watermark.column, watermark.spark_delay)
        shapes[source.name] = InputShape(source.schema(), source.settings.where, delay)

    def transform(frames: Mapping[str, DataFrame]) -> DataFrame:
        return transformed(spark, node.config, node.project.root, frames, str(node))

    with own_session(spark):
        return read_definition(spark, shapes, transform, settings_of(node).output_mode, str(node))


def late_times(node: Node, spark: SparkSession) -> dict[str, str]:
    """By input, SQL of the time that decides whether its rows are dropped as late: for a window, its end. It is empty
    where no row is dropped. An input whose time is not in the plan is left out."""
    try:
        definition = stream_definition(node, spark)
    except Exception as error:  # noqa: BLE001  a query that runs must not fail because its plan cannot be examined
        _log.warning(
            "%s: whether a row is late is judged by the row's own time, although its window may have been open: "
            "the query cannot be examined: %s",
            node,
            error,
        )
        return {}
    times_by_source: dict[str, set[str]] = {}
    for query_input in definition.every_input:
        times_by_source.setdefault(query_input.source, set()).add(_late_time(query_input))
    return {name: times.pop() for name, times in times_by_source.items() if len(times) == 1}


def _late_time(query_input: Input) -> str:
    times = [time for time in (query_input.late_time, query_input.once and query_input.once.late_time) if time]
    return f"least({', '.join(times)})" if len(times) > 1 else "".join(times)


def _from_another_process(node: Node) -> QueryDefinition:
    project, transform = node.project, node.config.transform
    own = {name: value for name, value in os.environ.items() if name not in _OF_CONNECT}
    # A node's function is found there where it was found here.
    paths = os.pathsep.join(filter(None, sys.path))
    function = (transform and transform.function) or ""
    command = [sys.executable, "-m", __name__, str(project.path), project.chosen or "", str(node.key), function]
    done = subprocess.run(command, env=own | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TransformError(
            f"{node}: its query cannot be examined: {done.stderr.strip()[-2_000:] or 'the process ended'}",
            fix="a Spark on this machine looks at the query: see that it can",
            node=str(node),
        )
    return QueryDefinition.from_json(json.loads(done.stdout.splitlines()[-1]))


def _tell_definition(project_file: str, chosen: str, name: str, function: str) -> None:
    project, key = Project.load(project_file, chosen), NodeKey.parse(name)
    if key not in project.graph.order():
        # One that was given to build_definitions: the file does not name it.
        project = Project.load(project_file, chosen, nodes=[load_function(function, project.root, name)])
    # What the query means depends on the project's settings; where it is looked at does not.
    config = project.config.spark.model_copy(update={"remote": None, "master": "local[1]"})
    handle = open_session(config, app_name="odi_assets definition")
    try:
        print(json.dumps(stream_definition(Node.of(project, key), handle.spark).to_json()))
    finally:
        handle.stop()


if __name__ == "__main__":
    _tell_definition(*sys.argv[1:])
