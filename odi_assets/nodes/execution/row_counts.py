"""Rows read, counted while they pass or as they are stored: never by a pass of its own."""

from __future__ import annotations

import contextlib
import io
import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odi_assets.nodes.planning.plan import ResolvedPlan
from odi_assets.sources.reads import Read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_log = logging.getLogger(__name__)
_PATIENCE = 10.0
"""Seconds to wait for a count after the write; Spark delivers it asynchronously, normally within milliseconds."""


@dataclass
class RowCounts:
    """Counts of a node's sources: from the table's log where it tells, by Spark's observed metrics elsewhere.

    Attributes:
        as_stored: each row that is read is stored, so the count of the write is that of the source. It costs nothing,
            where an observed metric takes some percent of a large write.
    """

    as_stored: bool = False
    known: dict[str, int] = field(default_factory=dict)
    observed: dict[str, Observation] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: ResolvedPlan) -> RowCounts:
        """Counts of the sources of ``plan``, none taken yet."""
        return cls(_stores_what_it_reads(plan))

    def watch(self, read: Read, rows: DataFrame) -> DataFrame:
        """``rows``, counted on their way."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

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
        """Forget counts of sources that the result does not use: they would be waited for in vain."""
        if self.observed:
            text = _plan_text(result)
            self.observed = {name: o for name, o in self.observed.items() if f"rows of {name}" in text}

    def total(self, rows_written: int) -> int | None:
        """All rows read; call it after the write, which wrote ``rows_written``. None if a count did not come.

        Spark Connect has none for rows that SQL reaches through a view: it collects what the plan of the write itself
        observes, and the view's was another.
        """
        if self.as_stored:
            return rows_written
        counts = [*self.known.values(), *(_await(observation) for observation in self.observed.values())]
        return None if None in counts else sum(count for count in counts if count is not None)


def _stores_what_it_reads(plan: ResolvedPlan) -> bool:
    config, write = plan.node.config, plan.node.config.write
    if config.transform is not None or plan.write.within is not None or plan.write.mode is not write.mode:
        return False
    chooses = write.delete_when is not None or write.only_if_newer is not None or not write.mode.traits.stores_every_row
    return not chooses and all(read.overlap is None for read in plan.reads)


def _plan_text(frame: DataFrame) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        frame.explain("extended")
    # Only the physical plan tells what will run; the optimizer may have dropped a source.
    return text.getvalue().rpartition("== Physical Plan ==")[2]


def _await(observation: Observation) -> int | None:
    found: list[int] = []

    def get() -> None:
        try:
            # Spark Connect does not wait, and may have nothing.
            found.extend(int(rows) for name, rows in observation.get.items() if name == "rows")
        except Exception as error:  # noqa: BLE001  Spark Connect and py4j raise different ones
            # A branch that adaptive execution finds out to be empty is left out, and what Spark then gives is no row.
            _log.debug("no count of rows came: %s", error)

    # A count that the optimizer dropped never comes, and Spark offers no other way to ask than to wait.
    waiter = threading.Thread(target=get, daemon=True)
    waiter.start()
    waiter.join(_PATIENCE)
    return found[0] if found else None
