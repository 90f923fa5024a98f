"""Whether sources keep the values that rows of the table are known by as they kept them when the rows were loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odi_assets.config.compared_columns import known_by_of
from odi_assets.nodes.planning.known_rows import known_in
from odi_assets.nodes.planning.plan import ResolvedPlan
from odi_assets.sources.cursor.digits import look_of
from odi_assets.sources.cursor.types import kept_of, require_kept
from odi_assets.sources.reads import Read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def with_kept_values(plan: ResolvedPlan, sources: Mapping[str, DataFrame], spark: SparkSession) -> ResolvedPlan:
    """The plan with what its commit is to say of the columns that rows are known by.

    Args:
        sources: the rows of each read.

    Raises:
        IncrementError: a source rounds or shows them otherwise than when rows were loaded that stay.
    """
    node, kept = plan.node, dict[str, Any]()
    before = {} if plan.replaces_rows else ((known_in(plan.target, node) or {}).get("kept") or {})
    for read in plan.reads:
        columns = known_by_of(node.config, node.project.root, read.name)
        if columns and (now := _kept(read, sources[read.name], columns, spark)):
            of_files = read.snapshot.format not in ("delta", "sql")
            require_kept(before.get(read.name) or {}, now, read.label, of_files=of_files)
            kept[read.name] = now
    return replace(plan, kept=kept)


def _kept(read: Read, rows: DataFrame, columns: Mapping[str, bool], spark: SparkSession) -> dict[str, Any]:
    """What ``sources.cursor.types.kept_of`` says of the columns, and how texts look that are made of them."""
    types = {field.name: field.dataType.jsonValue() for field in rows.schema.fields}
    kept = kept_of(types, columns)
    if read.snapshot.format != "delta":
        # Each file has types of its own, and rounds no rows of others. Of a database, the mark has it, if there is one.
        by_source = {} if read.follows else read.snapshot.known_by(spark)
        kept = {name: by_source.get(name, [kind, None]) for name, (kind, _) in kept.items()}
    looks = {name: [look_of(str(types[name]))] for name in kept if columns[name.casefold()]}
    facts = {name: [*kept[name], *looks.get(name, [])] for name in kept}
    return {name: values for name, values in facts.items() if values[1:] != [None]}
