"""What a node that applies a change log takes from it without Spark: the key of its table, and how values are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odi_assets.errors import ConfigError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.sources.cdc.value_types import MARIADB, POSTGRES, ValueTypes
from odi_assets.sources.delta.source import TableSnapshot

if TYPE_CHECKING:
    from odi_assets.nodes.planning.plan import NodePlan


def key_of_log(plan: NodePlan) -> tuple[str, ...]:
    """The columns that identify a row of the table that ``plan`` applies, as the log's last commit has them.

    Raises:
        ConfigError: the log does not capture the table, or the table has no key.
    """
    node, config = plan.node, plan.node.config.apply
    if config is None:
        raise AssertionError("a node that applies a log")
    tables = _mark_of_log(plan).get("tables", {})
    if config.table not in tables:
        listed = ", ".join(sorted(tables)) or "none"
        raise ConfigError(
            f"{node}: the log `{config.changes}` does not capture {config.table}; it captures {listed}",
            fix="name one of these in `apply.table`, or add the table to `tables` of the capture",
            node=str(node),
        )
    key = tuple(tables[config.table]["key"])
    if not key:
        raise ConfigError(
            f"{node}: {config.table} has no key, so it is not known which row a change is of",
            fix=f"give it a primary key; or keep its changes with `apply: {{…, table: {config.table}, history: true}}`",
            node=str(node),
        )
    return key


def value_types(plan: NodePlan) -> ValueTypes:
    """How the texts of the log are read, as the database writes them."""
    return MARIADB if "binlog" in _mark_of_log(plan) else POSTGRES


def _mark_of_log(plan: NodePlan) -> dict[str, Any]:
    """How far the log was captured, as its last commit has it; empty if there is none."""
    for read in plan.reads:
        if not isinstance(read.snapshot, TableSnapshot):
            continue
        for stamp in read.snapshot.handle.stamps():
            hwm = CommitFacts.of(stamp).hwm
            mark = hwm.mark if hwm is not None else None
            if mark is not None and isinstance(mark.value, dict) and "tables" in mark.value:
                return dict(mark.value)
    return {}
