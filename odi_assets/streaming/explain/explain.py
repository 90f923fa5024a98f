"""Explains keys of a streaming query: collects the evidence, and decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from odi_assets.streaming.explain.collect import (
    SourceRows,
    collect_pairs,
    collect_rows,
    count_written,
    failing_groups,
)
from odi_assets.streaming.explain.definition import Definition
from odi_assets.streaming.explain.evidence import Evidence, Lost, Watermarks
from odi_assets.streaming.explain.fates import row_fates
from odi_assets.streaming.explain.joins import explain_join
from odi_assets.streaming.explain.single import explain_single
from odi_assets.streaming.explain.verdicts import KeyExplanation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Past:
    """What is known of the batches of a query.

    Attributes:
        watermarks: by batch.
        versions: by batch, the version of the node's table that holds it.
        lost_rows: by input of the node, rows that can no longer be read.
        lost_batches: what is no longer known of the batches.
    """

    watermarks: Watermarks
    versions: Mapping[int, int] = field(default_factory=dict)
    lost_rows: Mapping[str, Lost] = field(default_factory=dict)
    lost_batches: Lost | None = None


def collect_evidence(
    spark: SparkSession,
    definition: Definition,
    keys: Sequence[str],
    sources: Mapping[str, SourceRows],
    past: Past,
    table: DataFrame | None = None,
) -> Evidence:
    """Everything that decides about ``keys``.

    Args:
        keys: each once; a key of several columns has its parts joined by ``SEPARATOR``.
        sources: by input of the node.
        table: the rows of the node's table, to compare the answers with.
    """
    found = [collect_rows(spark, definition, one, sources[one.source], keys) for one in definition.inputs]
    if definition.kind == "aggregation" and definition.withheld:
        fates = row_fates(definition.inputs[0], found[0].rows, past.watermarks)
        after = failing_groups(spark, definition, found[0], fates.accepted)
        found = [replace(found[0], rows=replace(found[0].rows, after=after))]
    columns = [column for column in definition.output_key if column is not None]
    comparable = table is not None and bool(columns) and len(columns) == len(definition.output_key)
    return Evidence(
        keys=tuple(keys),
        rows=tuple(one.rows for one in found),
        watermarks=past.watermarks,
        pairs=collect_pairs(spark, definition, *found) if definition.is_join else None,
        versions=past.versions,
        lost_rows=tuple(past.lost_rows.get(one.source) for one in definition.inputs),
        lost_batches=past.lost_batches,
        similar=tuple(one.similar for one in found),
        written=count_written(table, columns, keys) if comparable and table is not None else None,
    )


def decide(definition: Definition, evidence: Evidence) -> Iterator[KeyExplanation]:
    """The answers, in the order of the keys. Pure: the same evidence gives the same answers."""
    return (explain_join if definition.is_join else explain_single)(definition, evidence)
