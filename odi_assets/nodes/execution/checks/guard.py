"""Stands between the rows of an increment and their commit: evaluates the node's checks over the staged rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odi_assets.config.models.checks import Check, Reference
from odi_assets.delta.table import TableHandle
from odi_assets.errors import SourceError
from odi_assets.nodes.execution.checks.evaluate import Evaluation
from odi_assets.nodes.execution.checks.outcomes import Outcome, stopped
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.plan import ResolvedPlan
from odi_assets.nodes.result import CHECKS
from odi_assets.tables.columns import quoted
from odi_assets.tables.engine import engine_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from odi_assets.delta.files.footers import WrittenFile

_log = logging.getLogger(__name__)


@dataclass
class Guard:
    """The checks of one increment.

    Attributes:
        outcomes: of each check, once the rows are staged.
    """

    plan: ResolvedPlan
    outcomes: tuple[Outcome, ...] = field(default=())

    def admit(self, rows: DataFrame, files: Sequence[WrittenFile]) -> DataFrame | None:
        """Evaluate the checks; see ``tables.engine.WriteSpec.admit``.

        Raises:
            ChecksFailedError: the rows fail a check of severity ``error``.
            ConfigError: a check cannot be evaluated.
            SourceError: a foreign key leads to a node that has no table.
        """
        del files
        node = self.plan.node
        found = Evaluation(
            rows, self._checks(), str(node), looked_up(node, rows.sparkSession), self._kept(), node.config.write.keys
        )
        self.outcomes = found.run()
        if any(one.blocks for one in self.outcomes):
            raise stopped(str(node), "its increment", self.outcomes, quarantine=None)
        return None

    @property
    def metrics(self) -> dict[str, Any]:
        """What the run history says of the checks."""
        return {CHECKS: [one.to_json() for one in self.outcomes]}

    def _checks(self) -> tuple[Check, ...]:
        """Rows of a range are as old as the range is: how fresh they are says nothing."""
        checks = self.plan.node.config.all_checks
        return checks if self.plan.request.bounds is None else tuple(one for one in checks if one.kind != "freshness")

    def _kept(self) -> Column | None:
        """Which rows are looked at: all but those that delete others."""
        marker = self.plan.write_spec.delete_when
        if marker is None:
            return None
        from pyspark.sql import functions as F

        return ~F.coalesce(F.col(quoted(marker)), F.lit(False))


def looked_up(node: Node, spark: SparkSession) -> Any:
    """What gives the values that a foreign key of ``node`` may have: as the other node's table is when it is asked."""

    def values(reference: Reference) -> DataFrame:
        key = node.project.graph.resolve(node.key, reference.node)
        table = TableHandle.open(node.project.target(key))
        if not table.exists:
            raise SourceError(
                f"{node}: a check looks its `{reference.column}` up in {key}, which has no table yet",
                fix=f"run that node first: odi run {key.pipeline} --node {key.node}; nothing was committed",
                node=str(node),
            )
        return engine_of(table).read(spark, table).select(quoted(reference.key or reference.column))

    return values
