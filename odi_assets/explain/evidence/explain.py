"""Explains keys of a streaming query: collects the evidence, and decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from odi_assets.explain.evidence.collect import (
    FoundRows,
    PairsOn,
    SourceRows,
    collect_pairs,
    collect_passed_on,
    collect_rows,
    count_written,
    failing_groups,
    pass_on,
)
from odi_assets.explain.evidence.evidence import Evidence, Lost, Watermarks, objects
from odi_assets.explain.evidence.fates import row_fates
from odi_assets.explain.evidence.following import followed, not_followed
from odi_assets.explain.evidence.joins import explain_join, joined_pairs
from odi_assets.explain.evidence.single import explain_single
from odi_assets.explain.verdicts import KeyExplanation
from odi_assets.spark.plans.definition import JOINED, QueryDefinition

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
    definition: QueryDefinition,
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
    found_rows = [
        collect_rows(spark, definition, query_input, sources[query_input.source], keys)
        for query_input in definition.inputs
    ]
    if definition.kind == "aggregation" and definition.withheld:
        fates = row_fates(definition.inputs[0], found_rows[0].rows, past.watermarks)
        after = failing_groups(spark, definition, found_rows[0], fates.accepted)
        found_rows = [replace(found_rows[0], rows=replace(found_rows[0].rows, after=after))]
    evidence = _evidence(spark, definition, keys, found_rows, sources, past)
    columns = [column for column in definition.output_key if column is not None]
    comparable = table is not None and bool(columns) and len(columns) == len(definition.output_key)
    return replace(evidence, written=count_written(table, columns, keys) if comparable and table is not None else None)


def _evidence(
    spark: SparkSession,
    definition: QueryDefinition,
    keys: Sequence[str],
    found_rows: Sequence[FoundRows],
    sources: Mapping[str, SourceRows],
    past: Past,
) -> Evidence:
    """What decides about the rows that were found, here and behind the operator."""
    evidence = Evidence(
        keys=tuple(keys),
        rows=tuple(input_rows.rows for input_rows in found_rows),
        watermarks=past.watermarks,
        pairs=collect_pairs(spark, definition, *found_rows) if definition.is_join else None,
        versions=past.versions,
        lost_rows=tuple(past.lost_rows.get(query_input.source) for query_input in definition.inputs),
        lost_batches=past.lost_batches,
        similar=tuple(input_rows.similar for input_rows in found_rows),
    )
    if definition.then is None or evidence.pairs is None:
        return evidence
    joined, unsure = joined_pairs(definition, evidence)
    if not joined.any():
        return evidence
    on = pass_on(definition, found_rows, evidence.pairs, joined)
    then, passed_on = _behind(spark, definition.then, on, sources, past)
    left = evidence.rows[0].key[evidence.pairs.left[unsure]]
    return replace(evidence, then=then, passed_on=passed_on, unsure=frozenset(left))


def _behind(
    spark: SparkSession, then: QueryDefinition, on: PairsOn, sources: Mapping[str, SourceRows], past: Past
) -> tuple[tuple[Evidence, ...], dict[str, tuple[tuple[int, str], ...]]]:
    """What decides about the pairs of a join in the operator behind it, and where the answers for each key are.

    Two keys whose pairs have one key there are decided apart from each other.
    """
    joined_index = next(index for index, query_input in enumerate(then.inputs) if query_input.source == JOINED)
    pairs = collect_passed_on(spark, then, then.inputs[joined_index], on)
    if not then.is_join:
        by_question = replace(pairs, rows=replace(pairs.rows, key=objects(on.of_key)))
        keys = list(dict.fromkeys(on.of_key))
        return (_evidence(spark, then, keys, [by_question], sources, past),), {key: ((0, key),) for key in keys}
    # Where the key is NULL there, no row has it.
    there = ["\0" if key is None else key for key in pairs.rows.key]
    keys = list(dict.fromkeys(there))
    found_rows = [
        replace(pairs, rows=replace(pairs.rows, key=objects(there)))
        if query_input.source == JOINED
        else collect_rows(spark, then, query_input, sources[query_input.source], keys)
        for query_input in then.inputs
    ]
    whole = _evidence(spark, then, keys, found_rows, sources, past)
    turn_of, passed_on = _turns(on.of_key, there)
    turns = []
    for turn in range(max(turn_of, default=-1) + 1):
        mine = objects([key if of == turn else None for key, of in zip(there, turn_of, strict=True)])
        rows = tuple(
            replace(input_rows, key=mine) if index == joined_index else input_rows
            for index, input_rows in enumerate(whole.rows)
        )
        turns.append(replace(whole, rows=rows))
    return tuple(turns), passed_on


def _turns(questions: Sequence[str], keys: Sequence[str]) -> tuple[list[int], dict[str, tuple[tuple[int, str], ...]]]:
    """By pair, the turn in which it is decided; and by question, the turns and keys of its pairs."""
    asked_by: dict[str, dict[str, int]] = {}
    turn_of = []
    passed_on: dict[str, dict[tuple[int, str], None]] = {}
    for question, key in zip(questions, keys, strict=True):
        of_key = asked_by.setdefault(key, {})
        turn = of_key.setdefault(question, len(of_key))
        turn_of.append(turn)
        passed_on.setdefault(question, {})[turn, key] = None
    return turn_of, {question: tuple(turns_and_keys) for question, turns_and_keys in passed_on.items()}


def decide(definition: QueryDefinition, evidence: Evidence) -> Iterator[KeyExplanation]:
    """The answers, in the order of the keys. Pure: the same evidence gives the same answers."""
    answers = (explain_join if definition.is_join else explain_single)(definition, evidence)
    if definition.then is not None:
        behind = [{answer.text: answer for answer in decide(definition.then, turn)} for turn in evidence.then]
        answers = followed(definition, evidence, answers, behind)
    return not_followed(definition, evidence, answers) if definition.beyond else answers
