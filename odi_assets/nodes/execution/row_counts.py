"""Rows read, counted during the write or taken from it: never by a pass of their own."""

from __future__ import annotations

import contextlib
import io
import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odi_assets.config.compared_columns import known_rows
from odi_assets.nodes.execution.deliveries import follow_each_other
from odi_assets.nodes.planning.plan import ResolvedPlan
from odi_assets.sources.reads import Read
from odi_assets.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_log = logging.getLogger(__name__)
_PATIENCE = 10.0
"""Seconds to wait for a count after the write; Spark delivers it asynchronously, normally within milliseconds."""


@dataclass
class RowCounts:
    """Counts of a node's sources: from the table's log if it has them, else by Spark's observed metrics.

    Attributes:
        as_stored: each row that is read is stored, so the write counts the rows of the source. That costs nothing,
            while an observed metric takes some percent of a large write.
    """

    as_stored: bool = False
    known: dict[str, int] = field(default_factory=dict)
    observed: dict[str, Observation] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: ResolvedPlan) -> RowCounts:
        """Counts of the sources of ``plan``, none taken yet."""
        config, write = plan.node.config, plan.node.config.write
        if config.transform is not None or plan.write.within is not None or plan.write.mode is not write.mode:
            return cls()
        selects = write.delete_when is not None or write.only_if_newer is not None or follow_each_other(plan)
        selects = selects or bool(known_rows(config))
        stores_all = write.mode.traits.stores_every_row and not selects
        return cls(as_stored=stores_all and all(read.overlap is None for read in plan.reads))

    def watch(self, read: Read, rows: DataFrame) -> DataFrame:
        """``rows``, counted when they are written."""
        from pyspark.sql import Observation

        known = read.rows_known
        if known is not None:
            self.known[read.name] = known
            return rows
        if self.as_stored:
            return rows
        observation = Observation(f"rows of {read.name}")
        self.observed[read.name] = observation
        return rows.observe(observation, F.count(F.lit(1)).alias("rows"))

    def keep_those_in(self, result: DataFrame) -> None:
        """Drop counts of sources that the result does not use: they never come."""
        text = _plan_text(result)
        self.observed = {name: o for name, o in self.observed.items() if f"rows of {name}" in text}

    def total(self, rows_written: int) -> int | None:
        """All rows read; call it after the write, which wrote ``rows_written``. None if a count did not come.

        Spark Connect gives no count of rows that SQL reads through a view: it collects only what the plan of the write
        itself observes.
        """
        if self.as_stored:
            return rows_written
        counts = [*self.known.values(), *(_await(observation) for observation in self.observed.values())]
        return None if None in counts else sum(count for count in counts if count is not None)


def _plan_text(frame: DataFrame) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        frame.explain("extended")
    # Only the physical plan shows what will run: the optimizer may have dropped a source.
    return text.getvalue().rpartition("== Physical Plan ==")[2]


def _await(observation: Observation) -> int | None:
    counts: list[int] = []

    def get() -> None:
        try:
            # Spark Connect does not wait, and may have no count.
            counts.extend(int(rows) for name, rows in observation.get.items() if name == "rows")
        except Exception as error:  # noqa: BLE001  Spark Connect and py4j raise different ones
            # Adaptive execution drops a branch that turns out to be empty; Spark then has no metrics for it.
            _log.debug("no count of rows came: %s", error)

    # A count that the optimizer dropped never comes, and Spark offers no way to ask but to wait.
    waiter = threading.Thread(target=get, daemon=True)
    waiter.start()
    waiter.join(_PATIENCE)
    return counts[0] if counts else None
