"""Rows that belong to none of the partitions that the project file lists: they stop the run, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odi_assets.delta.files.spans import NamedPartitions
from odi_assets.spark.lazy import F
from odi_assets.spark.raised import stopped_by
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odi_assets.config.models import NodeConfig, ValuesConfig
    from odi_assets.config.models.checks import Check
    from odi_assets.nodes.planning.plan import ResolvedPlan


def in_partitions_only(rows: DataFrame, plan: ResolvedPlan) -> DataFrame:
    """Rows that stop the run, once they are written, if one has a value that the node's partitions do not list: no run
    of a partition would ever compute it again.

    What checks say of the column is left to them where they block: they may send such rows to the quarantine.

    Raises:
        ConfigError: a value that is listed is none of the column's type.
    """
    config = plan.node.config
    named = config.partition.listed if config.partition is not None else None
    if named is None or named.column not in rows.columns:
        return rows
    column, kind = F.col(quoted(named.column)), rows.schema[named.column].dataType
    known = sorted(NamedPartitions(named.column, named.values).names(kind.jsonValue()))
    others = ~column.isin([F.lit(value).cast(kind) for value in known])
    # An empty text is NULL in the table's log.
    missing = column.isNull() | (column == "") if kind.simpleString() == "string" else column.isNull()
    outside = (F.lit(False) if _checks_values(config, named) else others & ~missing) | (
        F.lit(False) if _checks_null(config, named) else missing
    )
    if (marker := plan.write_spec.delete_when) is not None:
        outside = outside & ~F.coalesce(F.col(quoted(marker)), F.lit(False))
    stopped = stopped_by(
        f"a row of {plan.node} has `{named.column}` = ",
        F.coalesce(column.cast("string"), F.lit("NULL")),
        f", which is none of its partitions: {', '.join(named.values)}",
        fix=_fix(named),
    )
    return rows.withColumn(named.column, F.when(outside, stopped.cast(kind)).otherwise(column))


def _checks_values(config: NodeConfig, named: ValuesConfig) -> bool:
    """Whether a check that blocks accepts no value but partitions."""
    accepted = [check.config.accepted_values for check in _blocking(config, named)]
    return any(
        {str(value) for value in values.values} <= set(named.values) for values in accepted if values is not None
    )


def _checks_null(config: NodeConfig, named: ValuesConfig) -> bool:
    return any(check.kind == "not_null" for check in _blocking(config, named))


def _blocking(config: NodeConfig, named: ValuesConfig) -> list[Check]:
    """The checks of the column that block. They know no capitals."""
    checks = (check for check in config.all_checks if check.blocks)
    return [check for check in checks if tuple(map(str.casefold, check.columns)) == (named.column.casefold(),)]


def _fix(named: ValuesConfig) -> str:
    values = ", ".join(named.values)
    checks = (
        f"`checks: [{{accepted_values: {{column: {named.column}, values: [{values}]}}}}, {{not_null: {named.column}}}]`"
    )
    return (
        "add the value to `partition` of the node; or correct the row where it comes from; or give the node "
        f"{checks} and `quarantine: TABLE`, which keeps such rows apart; nothing was committed"
    )
