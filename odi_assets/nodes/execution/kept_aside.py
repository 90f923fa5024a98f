"""Rows of which `rescued` keeps what does not fit, in nodes that know rows by keys, or replace partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odi_assets.config.write_modes import WriteMode
from odi_assets.spark.lazy import F
from odi_assets.spark.raised import stopped_by
from odi_assets.tables.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from odi_assets.nodes.node import Node


@dataclass(frozen=True)
class KnownKeys:
    """The keys by which a node knows rows, and the columns in which values of them may be kept aside.

    Attributes:
        node: ``pipeline.node``.
        mode: of its writes.
        keys: those that no check on NULL has; or the columns of the partitions that it replaces.
        aside: the columns that `rescued` names, of what the node reads and of what the nodes above it read.
        can_check: the node may have checks.
        names_files: Spark knows the file of a row until rows of several sources are put together.
    """

    node: str
    mode: str
    keys: tuple[str, ...]
    aside: tuple[str, ...]
    can_check: bool
    names_files: bool

    @classmethod
    def of(cls, node: Node) -> KnownKeys:
        """The keys of a node. A key whose check `not_null` blocks is left to the check."""
        config, mode = node.config, node.config.write.mode
        decisive = node.partition_by if mode is WriteMode.PARTITION_OVERWRITE else config.write.keys
        checks = [check for check in config.all_checks if check.kind == "not_null" and check.blocks]
        checked = {column.casefold() for check in checks for column in check.columns}
        keys = tuple(key for key in decisive if key.casefold() not in checked)
        aside = _columns_aside(node) if keys else ()
        own = {name.casefold() for name in decisive}
        if own & {name.casefold() for name in aside}:
            keys = ()
        is_alone = config.transform is None and len(config.reads) == 1
        return cls(str(node), mode.value, keys, aside, config.kind == "batch", is_alone)

    def required_of(self, rows: DataFrame) -> DataFrame:
        """Rows that stop the run, once they are written, if a row lacks a key because its value is kept aside.

        The key of such a row is NULL, and NULL equals NULL: the table would have one of all such rows, or only the rows
        of the last run.
        """
        aside = [name for name in self.aside if name in rows.columns]
        own = {column.casefold(): column for column in rows.columns}
        keys = [own[key.casefold()] for key in self.keys if key.casefold() in own]
        return rows.withColumns({key: self._known(rows, key, aside) for key in keys}) if aside and keys else rows

    def _known(self, rows: DataFrame, key: str, aside: list[str]) -> Column:
        column = F.col(quoted(key))
        kept = F.coalesce(*(F.col(quoted(name)) for name in aside))
        stopped = stopped_by(
            *(["a row of ", F.input_file_name()] if self.names_files else [f"a row of {self.node}"]),
            f" has no `{key}`, which mode `{self.mode}` goes by, because a value of it is kept in `{aside[0]}`: ",
            F.substring(kept, 1, 100),
            fix=self._fix(key, aside[0]),
        )
        return F.when(column.isNull() & kept.isNotNull(), stopped.cast(rows.schema[key].dataType)).otherwise(column)

    def _fix(self, key: str, aside: str) -> str:
        ways = [
            "correct the row where it comes from, and land its file again, under its name",
            f"leave such rows out in a transform (`WHERE {aside} IS NULL`)",
        ]
        if self.can_check:
            checks = f"`checks: [{{not_null: {key}}}]`"
            ways.append(f"give the node {checks} and `quarantine: TABLE`, which keeps them apart")
        return f"{'; or '.join(ways)}; nothing was committed"


def _columns_aside(node: Node) -> tuple[str, ...]:
    """The columns that keep what does not fit, of what a node reads and of what the nodes above it read."""
    graph, names = node.project.graph, dict[str, None]()
    waiting, seen = [node.key], {node.key}
    while waiting:
        key = waiting.pop()
        names |= {name: None for read in graph.node(key).reads.values() if (name := read.kept_aside) is not None}
        above = [node_key for node_key in graph.upstream(key) if node_key not in seen]
        waiting += above
        seen.update(above)
    return tuple(names)
