"""Follows a key from the landing files through each node to a table: where it is, and where it was lost, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from odi_assets.config.compared_columns import known_rows
from odi_assets.config.graph import NodeKey
from odi_assets.config.models import WriteMode
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.explain.absence import Absence
from odi_assets.explain.evidence.collect import FILE, key_sql, only_asked, value_text
from odi_assets.explain.log import captured_in_log, followed_in_log
from odi_assets.explain.places import Trace, present, some_names
from odi_assets.explain.spans import Stay, stays
from odi_assets.explain.verdicts import KeyExplanation, KeyVerdict, SearchedPlace, key_parts
from odi_assets.explain.way import Followed, followed_nodes, rows_of, upstream
from odi_assets.nodes.execution.errors import errors_named
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.sources.delta.source import DeltaTableSource
from odi_assets.sources.source import Source
from odi_assets.spark.lazy import F
from odi_assets.spark.own_session import own_session
from odi_assets.spark.plans.definition import SEPARATOR
from odi_assets.state.backend import StateBackend
from odi_assets.tables.columns import quoted
from odi_assets.tables.reader import file_uri_key
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odi_assets.explain.stream import StreamExplainer


def trace(
    project: Project,
    spark: SparkSession,
    state: StateBackend,
    key: NodeKey,
    columns: Sequence[str],
    keys: Sequence[str],
    table: str | None = None,
) -> list[KeyExplanation]:
    """Follow ``keys`` to the table of a node.

    Args:
        columns: the columns of the node's table that the key is made of.
        keys: each as one text (``SEPARATOR`` between the parts of several columns).
        table: of a node that captures a log, the captured table that the keys are of.

    Raises:
        ConfigError: the node's table has no such column.
        SourceError, TableError: something on the way cannot be read.
    """
    asked = keys if table is not None else _as_written(TableHandle.open(project.target(key)), columns, keys)
    key_trace = Trace(project, spark, state, asked)
    with own_session(spark), errors_named(Node.of(project, key), ()):
        for followed in followed_nodes(project, spark, key, tuple(columns)):
            if table is None:
                _look(key_trace, followed)
            else:
                captured_in_log(key_trace, followed.node, table, followed.columns)
    return [_conclusion(key_trace, str(key), asked_key) for asked_key in asked]


def _as_written(handle: TableHandle, columns: Sequence[str], keys: Sequence[str]) -> list[str]:
    """``keys``, of columns of a table, as they are compared."""
    types = {name.lower(): kind for name, kind in handle.columns.items()} if handle.exists else {}
    kinds = [types.get(column.lower()) for column in columns]
    parts = ((key, key_parts(key)) for key in keys)
    return [SEPARATOR.join(map(value_text, own, kinds)) if len(own) == len(kinds) else key for key, own in parts]


def with_places_above(explainer: StreamExplainer, answers: Sequence[KeyExplanation]) -> list[KeyExplanation]:
    """The answers of a stream; where an input is the table of a node that has no row of a key, with the places above.

    Raises:
        SourceError, TableError: something on the way cannot be read.
    """
    node, answer_by_key = explainer.node, {explanation.text: explanation for explanation in answers}
    above = upstream(node)
    for query_input in explainer.definition.inputs:
        columns = [part.removeprefix(f"{query_input.view}.").strip("`") for part in query_input.key]
        absent = [
            key
            for key, explanation in answer_by_key.items()
            if any(row.input == query_input.view and row.fate is KeyVerdict.NEVER_ARRIVED for row in explanation.rows)
        ]
        if not absent or query_input.source not in above or not set(columns) <= set(query_input.columns):
            continue
        state = node.project.open_state()
        explanations_above = trace(node.project, explainer.spark, state, above[query_input.source], columns, absent)
        for key, explanation_above in zip(absent, explanations_above, strict=True):
            answer = answer_by_key[key]
            answer_by_key[key] = replace(
                answer,
                sentence=f"{answer.sentence} {explanation_above.sentence}",
                places=(*answer.places, *explanation_above.places),
                absent_since=explanation_above.absent_since,
            )
    return list(answer_by_key.values())


# -- looking -----------------------------------------------------------------------------------------------------------


def _look(key_trace: Trace, followed: Followed) -> None:
    node = followed.node
    for source in node.sources:
        if source.name in followed.sources and not isinstance(source, DeltaTableSource):
            _look_into_source(key_trace, source, followed.sources[source.name])
    handle = TableHandle.open(node.target.location)
    there = _stays(key_trace, handle, followed.columns)
    if node.config.apply is not None:
        followed_in_log(key_trace, node, followed.columns, there)
        return
    absent = [key for key in key_trace.keys if key not in there or not there[key].rows]
    for key in key_trace.keys:
        if key not in absent:
            key_trace.add(key, present(node, there[key], _more_above(key_trace, node, key, there[key].rows)))
    if absent:
        Absence(key_trace, followed, handle).explain(absent, there)


def _more_above(key_trace: Trace, node: Node, key: str, rows: int) -> str:
    """What a sentence about a table goes on with that has fewer rows of a key than the one source of which it keeps
    each row."""
    config = node.config
    keeps_each = config.transform is None and config.write.mode is WriteMode.APPEND and not known_rows(config)
    if not keeps_each or len(node.sources) != 1:
        return ""
    (source,) = node.sources
    above = key_trace.at[key].get(str(upstream(node).get(source.name, source.label)))
    if above is None or (above.rows or 0) <= rows:
        return ""
    return f"; {above.name} has {counted(above.rows, 'row')}, and `odi audit {node}` says what is missing"


def _stays(key_trace: Trace, handle: TableHandle, columns: tuple[str, ...]) -> dict[str, Stay]:
    if not handle.exists:
        return {}
    known = {name.lower(): name for name in handle.columns}
    missing = next((column for column in columns if column.lower() not in known), None)
    if missing is not None:
        raise ConfigError(
            f"the table at {handle.location.uri} has no column {missing}",
            fix=f"it has {', '.join(handle.columns)}: name one, as in --key COLUMN=VALUE",
            column=missing,
        )
    return stays(
        key_trace.spark, handle, key_sql([quoted(known[column.lower()]) for column in columns]), key_trace.keys
    )


def _look_into_source(key_trace: Trace, source: Source, columns: tuple[str, ...]) -> None:
    rows = rows_of(key_trace.spark, source)
    counts = {} if rows is None else _by_file(key_trace, source, rows, columns)
    for key in key_trace.keys:
        in_files = counts.get(key, {})
        if in_files:
            total, names = sum(in_files.values()), tuple(sorted(name for name in in_files if name))
            where = f" in {some_names(names)}" if names else ""
            text = f"{source.label} has {counted(total, 'row')} of it{where}"
            key_trace.add(
                key, SearchedPlace(source.label, KeyVerdict.PRESENT, text, total, files=names, is_source=True)
            )
        else:
            text = f"{source.label} has no row of it"
            key_trace.add(key, SearchedPlace(source.label, KeyVerdict.NOT_LANDED, text, is_source=True))


def _by_file(key_trace: Trace, source: Source, rows: DataFrame, columns: tuple[str, ...]) -> dict[str, dict[str, int]]:
    base = getattr(source.unwaited, "base", None)
    root = "" if base is None else file_uri_key(base.uri).rstrip("/") + "/"
    key = key_sql([quoted(column) for column in columns])
    frame = rows.withColumn(FILE, F.input_file_name()).selectExpr(f"{key} AS key", FILE)
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for row in only_asked(frame, key_trace.keys).groupBy("key", FILE).count().collect():
        counts[row["key"]][file_uri_key(row[FILE]).removeprefix(root) if row[FILE] else ""] = row["count"]
    return counts


# -- the answer --------------------------------------------------------------------------------------------------------


def _conclusion(key_trace: Trace, node: str, key: str) -> KeyExplanation:
    places = tuple(key_trace.places[key])

    def answer(verdict: KeyVerdict, sentence: str, absent_since: str | None = None) -> KeyExplanation:
        changes = tuple(key_trace.changes[key])
        return KeyExplanation(
            key_parts(key), verdict, sentence, places=places, absent_since=absent_since, changes=changes
        )

    last = key_trace.at[key][node]
    if last.verdict is KeyVerdict.PRESENT:
        return answer(last.verdict, f"{_capital(last.text)}.")
    # The reason is at the first place that lacks the key although a place before it has the key.
    tables = [place for place in places if not place.files and place.verdict is not KeyVerdict.PRESENT]
    cause = next((place for place in tables if not (place.is_source or place.verdict is KeyVerdict.NOT_LANDED)), None)
    if cause is None or (not any(place.rows for place in places) and last.verdict is KeyVerdict.NOT_LANDED):
        looked = dict.fromkeys(place.name for place in places if place.is_source)
        sentence = (
            f"It has not landed: {' and '.join(looked) or node} {'have' if len(looked) > 1 else 'has'} no row of it."
        )
        return answer(KeyVerdict.NOT_LANDED, sentence)
    return answer(cause.verdict, f"{_capital(cause.text)}.", cause.name)


def _capital(text: str) -> str:
    # The name of a node stays as it is.
    return text if "." in text.partition(" ")[0] else text[:1].upper() + text[1:]
