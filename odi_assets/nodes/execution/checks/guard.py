"""Stands between the rows of an increment and their commit: evaluates the node's checks over the staged rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odi_assets.config.compared_columns import known_rows
from odi_assets.config.graph import NodeKey
from odi_assets.config.models import WriteMode
from odi_assets.config.models.checks import FAILED_CHECKS, Check, Reference
from odi_assets.delta.commit import Stamp
from odi_assets.delta.schema_evolution import plan_schema
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError, OdiError, SourceError
from odi_assets.nodes.execution.checks.bad_rows import FACT, BadRows, OutOfStep, out_of_step
from odi_assets.nodes.execution.checks.by_files import passed_by_files
from odi_assets.nodes.execution.checks.conditions import kind_of
from odi_assets.nodes.execution.checks.evaluate import Evaluation
from odi_assets.nodes.execution.checks.outcomes import CheckOutcome, stopped
from odi_assets.nodes.execution.checks.quarantine import bring_in_step, live_partitions, require_own
from odi_assets.nodes.execution.deliveries import DELIVERY
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.plan import ResolvedPlan
from odi_assets.nodes.planning.writers import quarantine_of
from odi_assets.nodes.result import CHECKS, QUARANTINED
from odi_assets.spark.lazy import F
from odi_assets.tables.columns import quoted, row_text
from odi_assets.tables.engine import WriteSpec, engine_of
from odi_assets.tables.modes.base import Write
from odi_assets.tables.reader import read_staged
from odi_assets.tables.schema import delta_schema, require_same_partitioning

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from odi_assets.delta.files.footers import WrittenFile
    from odi_assets.delta.partition_values import PartitionValues

_log = logging.getLogger(__name__)


@dataclass
class Guard:
    """The checks of one increment.

    Attributes:
        outcomes: of each check, once the rows are staged.
        bad: what the node's commit says of the rows that go to its quarantine; None if it has no quarantine.
    """

    plan: ResolvedPlan
    outcomes: tuple[CheckOutcome, ...] = ()
    bad: BadRows | None = None
    _split: Write | None = None

    def admit(self, rows: DataFrame, files: Sequence[WrittenFile]) -> DataFrame | None:
        """Evaluate the checks, and stage rows for the quarantine; see ``tables.engine.WriteSpec.admit``.

        Raises:
            ChecksFailedError: the rows fail a check of severity ``error``, and no quarantine takes them.
            ConfigError: a check cannot be evaluated.
            SourceError: a foreign key leads to a node that has no table.
            TableError: the quarantine cannot take the rows.
        """
        node, location, kept = self.plan.node, self.plan.target.location, self._kept()
        # Files that follow each other are judged as runs of their own would judge them.
        apart = [DELIVERY] if DELIVERY in rows.columns else []
        if node.config.quarantine is not None and FAILED_CHECKS in map(str.casefold, rows.columns):
            raise ConfigError(
                f"{node}: its rows have a column `{FAILED_CHECKS}`, and its quarantine needs that name for a column of "
                "odi's own",
                fix="rename the column in the node's `transform`, or leave it out; nothing was committed",
                node=str(node),
            )
        evaluation = Evaluation(
            rows,
            self._checks(),
            str(node),
            looked_up(node, rows.sparkSession),
            kept,
            node.config.write.keys,
            lambda check: passed_by_files(check, location, files, kind_of(rows, check.columns), apart),
            sum(file.rows for file in files) if kept is None else None,
            apart,
        )
        self.outcomes = evaluation.run()
        blocking = [outcome for outcome in self.outcomes if outcome.blocks]
        quarantine = quarantine_of(node)
        if blocking and (quarantine is None or not all(outcome.check.by_row for outcome in blocking)):
            raise stopped(str(node), "its increment", self.outcomes, quarantine=node.config.quarantine)
        if quarantine is None:
            return None
        table = TableHandle.open(quarantine)
        require_own(node, table)
        split = self._judged(evaluation.with_failed_checks()) if blocking else evaluation.with_failed_checks()
        is_bad = self._is_bad(blocking)
        bad = split.where(is_bad).drop(*self.plan.write_spec.beside, *apart)
        self.bad = self._staged(bad if blocking else None, bad, table, files)
        return split.where(~is_bad).drop(FAILED_CHECKS) if blocking else None

    def _judged(self, split: DataFrame) -> DataFrame:
        """The rows as they are judged now, in files. A moment later a condition may judge otherwise
        (``current_timestamp()``, a function of the user's), and no row may be good and bad, or neither."""
        table = self.plan.target
        schema = delta_schema(split, table.location.uri)
        self._split = Write(split, table, WriteSpec(WriteMode.APPEND), Stamp(str(self.plan.node), 0), schema)
        return read_staged(split.sparkSession, table.location, self._split.stage(split), schema)

    def _is_bad(self, blocking: Sequence[CheckOutcome]) -> Column:
        names = (
            F.array(*[F.lit(outcome.check.name) for outcome in blocking])
            if blocking
            else F.array().cast("array<string>")
        )
        return F.arrays_overlap(F.col(FAILED_CHECKS), names)

    def _staged(
        self, bad: DataFrame | None, shape: DataFrame, table: TableHandle, files: Sequence[WrittenFile]
    ) -> BadRows:
        """Stage the bad rows in the folder of the quarantine; no version names them yet.

        Args:
            shape: has the columns of the quarantine.
            files: the staged files of the whole increment.
        """
        node = self.plan.node
        since, path = self._in_step_since(), str(node.config.quarantine)
        replaces, nothing = self._replaces(table, files), BadRows(since, path, seen=table.position)
        if bad is None and not replaces:
            return nothing
        require_same = table.exists and replaces != "table"
        if require_same:
            require_same_partitioning(table, node.partition_by)
        schema = delta_schema(shape, table.location.uri)
        if require_same:
            plan_schema(table, schema, "evolve")
        stamp = Stamp(str(node), 0)
        rows, parts = 0, None
        if bad is not None:
            again = self._not_in(bad, table) if self._comes_again and table.exists and table.live_files else bad
            write = Write(again, table, WriteSpec(WriteMode.APPEND, partition_by=node.partition_by), stamp, schema)
            staged = write.stage(again)
            rows = sum(file.rows for file in staged)
            # A later commit may replace partitions, whatever the mode of this one: the first load is an overwrite.
            parts = [(file.partition, file.rows) for file in staged] if node.partition_by else None
        if not rows and not replaces:
            return nothing
        return BadRows(since, path, rows, stamp.write_id, replaces, schema, nothing.seen, parts)

    def _in_step_since(self) -> int:
        """The version of the node's table up to which its quarantine has everything. What is overwritten counts no
        more."""
        target = self.plan.target
        differences = (
            OutOfStep() if self.plan.write.mode is WriteMode.OVERWRITE else out_of_step(self.plan.node, target)
        )
        version = -1 if target.version is None else target.version
        return min([version, *(missed - 1 for missed, _ in (*differences.missing, *differences.passed))])

    def _replaces(self, table: TableHandle, files: Sequence[WrittenFile]) -> str | Sequence[PartitionValues] | None:
        """What of the quarantine the increment replaces, as it does in the node's table."""
        mode, spec = self.plan.write.mode, self.plan.write_spec
        there = [file.partition for file in table.live_files] if table.exists else []
        named = (spec.replaced_in(there, table.columns) or ()) if table.exists else ()
        if mode is WriteMode.OVERWRITE:
            return "table" if table.exists and table.live_files else None
        if mode is WriteMode.PARTITION_OVERWRITE:
            return live_partitions(table, [*(file.partition for file in files), *named]) or None
        return None

    @property
    def _comes_again(self) -> bool:
        """Whether a row of the source may be read again by a later increment, and is known by its keys then."""
        plan = self.plan
        by_keys = plan.write.mode in (WriteMode.UPSERT, WriteMode.APPEND_ONCE)
        return by_keys or any(read.overlap is not None for read in plan.reads) or bool(known_rows(plan.node.config))

    def _not_in(self, bad: DataFrame, table: TableHandle) -> DataFrame:
        """The bad rows that the quarantine does not hold yet."""
        held = engine_of(table).read(bad.sparkSession, table)
        names = [name for name in bad.columns if name in held.columns]
        texts = held.select(row_text(names).alias("__odi_text")).distinct()
        return bad.join(texts, row_text(names) == F.col("__odi_text"), "left_anti")

    def facts(self) -> dict[str, Any]:
        """What the node's commit says of its bad rows."""
        return {} if self.bad is None else {FACT: self.bad.to_json()}

    def committed(self, version: int) -> None:
        """Put the bad rows into the quarantine, once ``version`` of the node's table is made. The commit has named
        them, so they count already: if this fails, the node's next run does it."""
        if self._split is not None:
            self._split.discard()
        if self.bad is None or self.bad.write_id is None:
            return
        try:
            bring_in_step(self.plan.node, TableHandle.open(self.plan.target.location, version))
        except OdiError as error:
            text = "%s: its quarantine will be brought in step by its next run: %s"
            _log.warning(text, self.plan.node, error.message)

    @property
    def rows_quarantined(self) -> int:
        """Rows that go to the quarantine."""
        return 0 if self.bad is None else self.bad.rows

    @property
    def metrics(self) -> dict[str, Any]:
        """What the run history says of the checks."""
        metrics: dict[str, Any] = {CHECKS: [outcome.to_json() for outcome in self.outcomes]}
        return metrics if self.bad is None else {**metrics, QUARANTINED: self.bad.rows}

    def _checks(self) -> tuple[Check, ...]:
        """Rows of a range are as old as the range is: how fresh they are says nothing."""
        checks = self.plan.node.config.all_checks
        return (
            checks
            if not self.plan.request.is_bounded
            else tuple(check for check in checks if check.kind != "freshness")
        )

    def _kept(self) -> Column | None:
        """Which rows are looked at: all but those that delete others."""
        marker = self.plan.write_spec.delete_when
        if marker is None:
            return None
        return ~F.coalesce(F.col(quoted(marker)), F.lit(False))


def looked_up(node: Node, spark: SparkSession) -> Any:
    """What gives the values that a foreign key of ``node`` may have: as the other node's table is when it is asked."""

    # Each table is looked at once: rows that are added during an evaluation count for no part of it.
    opened: dict[NodeKey, TableHandle] = {}

    def values(reference: Reference) -> DataFrame:
        key = node.project.graph.resolve(node.key, reference.node)
        if key not in opened:
            opened[key] = TableHandle.open(node.project.target(key))
        table = opened[key]
        if not table.exists:
            raise SourceError(
                f"{node}: a check looks its `{reference.column}` up in {key}, which has no table yet",
                fix=f"run that node first: odi run {key.pipeline} --node {key.node}; if it finds nothing to read, let "
                "its first rows land, or take the check out; nothing was committed",
                node=str(node),
            )
        return engine_of(table).read(spark, table).select(quoted(reference.key or reference.column))

    return values
