"""What ends the computation of a node, as errors of ours: what cannot be read, and where the user's Python failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odi_assets.errors import SourceError, TransformError
from odi_assets.sources.errors import lost_data_file, read_errors_named
from odi_assets.sources.sql.errors import refused_value
from odi_assets.spark.connectors import missing_connector
from odi_assets.spark.lazy import java_errors, spark_errors
from odi_assets.spark.raised import error_text, stop_message
from odi_assets.util.user_code import error_with_place, worker_error_with_place

if TYPE_CHECKING:
    from odi_assets.nodes.node import Node


CORRECT = "correct it, and run the node again: it reads the rows that were not written"
"""The way on from a computation that fails."""
_VALUE_FIX = (
    "correct the row in the database, and run the node that captures and this one again: the last values of a row "
    "count; or change the type of the column there to text. A history has all values: there, the type alone helps"
)
_TYPES_FIX = (
    "correct `types` of the node that writes the log, or let messages have a schema; then make the log again ({}) and "
    "run this node"
)


@contextmanager
def errors_named(node: Node, reads: Sequence[Any]) -> Iterator[None]:
    """Within, an error of Spark raises a SourceError if it is about what one of ``reads`` reads, a ConfigError if Spark
    lacks the connector of a store, a SourceError if a change log has a value that Spark's type does not hold, and a
    TransformError if a row stops the job, or if Python of the user's failed in one of Spark's workers: that names the
    line."""
    try:
        of_target = partial(lost_data_file, str(node), table=node.target.location)
        with read_errors_named(str(node), [of_target, *(read.snapshot.read_error for read in reads)]):
            yield
    except (spark_errors.PySparkException, java_errors.Py4JError) as error:
        text = error_text(error)
        if (lacking := missing_connector(text, str(node))) is not None:
            raise lacking from error
        if (stopped := stop_message(text)) is not None:
            raise TransformError(f"{node}: {stopped[0]}", fix=stopped[1], node=str(node)) from error
        if node.applies is not None and (value := refused_value(text)) is not None:
            log = node.project.graph.node(node.applies)
            again = f"odi run {node.applies.pipeline} --node {node.applies.node} --full-refresh --yes"
            fix = _VALUE_FIX if log.captures_server else _TYPES_FIX.format(again)
            raise SourceError(f"{node}: {value}", fix=fix, node=str(node)) from error
        failure = worker_error_with_place(text, node.project.root)
        if failure is None:
            raise
        raise TransformError(
            f"{node}: its Python failed in a worker of Spark: {failure}", fix=CORRECT, node=str(node)
        ) from error


@contextmanager
def computation_named(node: Node, reads: Sequence[Any]) -> Iterator[None]:
    """What :func:`errors_named` does, and a TransformError for rows that Spark cannot compute: a cast of text that is
    no date, a division by zero."""
    try:
        with errors_named(node, reads):
            yield
    except spark_errors.PySparkException as error:
        if error.getCondition() is None:
            raise
        raise TransformError(
            f"{node}: Spark cannot compute or write its rows: {error}", fix=CORRECT, node=str(node)
        ) from error


def description_of(error: Exception, root: Path) -> str:
    """What an error of the user's function says, and where: in a worker of Spark, if the function had rows computed."""
    return worker_error_with_place(error_text(error), root) or error_with_place(error, root)
