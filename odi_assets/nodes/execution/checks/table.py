"""The checks of a node over its table as it is, where somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.nodes.execution.checks.evaluate import Evaluation
from odi_assets.nodes.execution.checks.guard import looked_up
from odi_assets.nodes.execution.checks.outcomes import CheckOutcome
from odi_assets.nodes.execution.errors import errors_named
from odi_assets.nodes.node import Node
from odi_assets.tables.engine import engine_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_checks(node: Node) -> None:
    """Raises ConfigError if the node has no checks."""
    if not node.config.checks:
        raise ConfigError(
            f"{node} has no checks",
            fix="say with `checks:` in the project file what its rows must be (docs/checks.md)",
            node=str(node),
        )


def check_table(node: Node, table: TableHandle, spark: SparkSession) -> tuple[CheckOutcome, ...]:
    """Evaluate all checks of ``node`` over all rows of ``table``. Nothing is written, and no check stops anything.

    Raises:
        ConfigError: a check cannot be evaluated.
        SourceError: a foreign key leads to a node that has no table; a data file is gone or cannot be read.
        TableError: the table cannot be read.
    """
    with errors_named(node, ()):
        rows = engine_of(table).read(spark, table)
        lookup = looked_up(node, spark)
        return Evaluation(rows, node.config.all_checks, str(node), lookup, keys=node.config.write.keys).run()
