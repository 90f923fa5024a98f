"""Where is my row? The question of a stream node: what became of the rows of some keys, and why.

The evidence is what the inputs still hold, ``meta_batches`` (else the stamps of the table's commits, else the
checkpoint) and the node's own definition. The table confirms the answers, and so does the state where it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from odi_assets.checkpoints.copies import copy_of_remote
from odi_assets.checkpoints.reader import CheckpointReader
from odi_assets.config.graph import NodeKey
from odi_assets.delta.table import TableHandle
from odi_assets.errors import ConfigError
from odi_assets.explain.evidence.collect import FILE, SourceRows, collect_rows, key_sql
from odi_assets.explain.evidence.confirm import confirmed
from odi_assets.explain.evidence.evidence import Lost, Watermarks
from odi_assets.explain.evidence.explain import Past, collect_evidence, decide
from odi_assets.explain.evidence.fates import row_fates
from odi_assets.explain.evidence.rows_text import row_fate
from odi_assets.explain.evidence.words import capital
from odi_assets.explain.verdicts import KeyExplanation, key_parts
from odi_assets.nodes.node import Node
from odi_assets.nodes.project import Project
from odi_assets.sources.streamed import StreamedSource
from odi_assets.spark.plans.definition import SEPARATOR, Input, QueryDefinition
from odi_assets.streams.execution.definition import stream_definition
from odi_assets.streams.execution.ledger import records_of
from odi_assets.streams.kind import StreamKind
from odi_assets.streams.planning.inputs import require_known, stream_inputs
from odi_assets.streams.planning.marks import stream_marks
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.tables.columns import quoted
from odi_assets.tables.engine import engine_of
from odi_assets.tables.reader import file_uri_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA = """key STRING, verdict STRING, sentence STRING, batch BIGINT, table_version BIGINT, condition STRING,
rows ARRAY<STRUCT<input: STRING, fate: STRING, text: STRING, batch: BIGINT, read_in: BIGINT, watermark: TIMESTAMP,
time: TIMESTAMP, file: STRING>>, similar ARRAY<STRING>, lost ARRAY<STRING>, disagreements ARRAY<STRING>"""
_ROW_FIELDS = ("input", "fate", "text", "batch", "read_in", "watermark", "time", "file")


@dataclass(frozen=True)
class _Batch:
    """What is known of a batch."""

    watermark_ms: int
    ends: Mapping[str, Any]
    version: int | None


@dataclass(frozen=True)
class StreamExplainer:
    """Answers about the keys of one stream node, as its table and checkpoint are when it is made."""

    spark: SparkSession
    node: Node
    definition: QueryDefinition
    inputs: Mapping[str, StreamedSource]
    log: ProgressLog
    target: TableHandle

    @classmethod
    def of(cls, project: Project, key: NodeKey, spark: SparkSession) -> StreamExplainer:
        """The explainer of a stream node.

        Raises:
            ConfigError: it is no stream node, or its query is none that can be explained.
            IdentityMismatchError: an input has other names or places than its batches knew.
            SourceError, TableError: an input cannot be looked at.
        """
        node = Node.of(project, key)
        if not isinstance(node.kind, StreamKind):
            raise ConfigError(f"{node} is no stream node", fix=f"to follow its keys: odi explain {node} --key KEY")
        inputs = {source.name: source for source in stream_inputs(node)}
        target = TableHandle.open(node.target.location)
        marks = stream_marks(node, target)
        require_known(node, marks)
        return cls(spark, node, stream_definition(node, spark), inputs, marks.log, target)

    def explain(self, keys: Sequence[str]) -> Iterator[KeyExplanation]:
        """The answers, in the order of the keys.

        Args:
            keys: a key of several columns has its parts joined by ``SEPARATOR``.
        """
        asked = list(dict.fromkeys(keys))
        table = engine_of(self.target).read(self.spark, self.target) if self.target.exists else None
        sources = {name: source for name, (source, _) in self._sources.items()}
        evidence = collect_evidence(self.spark, self.definition, asked, sources, self._past, table)
        return decide(self.definition, evidence)

    def of_columns(self, columns: Sequence[str], keys: Sequence[str]) -> dict[str, KeyExplanation]:
        """The answers by key, for keys of some columns of the node's table; none if the query has another key."""
        asked_names = [name.lower() for name in columns]
        of_query = [None if name is None else name.lower() for name in self.definition.output_key]
        if None in of_query or sorted(filter(None, of_query)) != sorted(asked_names):
            return {}
        order = [asked_names.index(name) for name in of_query if name is not None]
        texts = {key: SEPARATOR.join(key_parts(key)[index] for index in order) for key in keys}
        answers = {answer.text: answer for answer in self.explain(list(texts.values()))}
        return {key: answers[text] for key, text in texts.items()}

    def confirmed(self, answers: Iterable[KeyExplanation]) -> list[KeyExplanation]:
        """The answers, with what the state of the query and its change feed say otherwise.

        Raises:
            CheckpointError: the state cannot be read.
        """
        explanations, last = list(answers), max(self._batches, default=-1)
        committed = self.log.committed()
        if self.definition.kind == "rows" or not committed or committed[-1] != last:
            # Before Spark has committed the last batch, there is no state after it.
            return explanations
        location = self.log.location
        with copy_of_remote(location) as copy:
            reader = CheckpointReader(location.uri, self.spark, copy=copy, settings=location.reader_options)
            with reader.errors():
                return confirmed(reader, self.definition, explanations, last)

    def keys_where(self, column: str, value: str) -> tuple[list[str], list[KeyExplanation]]:
        """The keys of the rows of any input whose ``column`` is ``value``; and the answers for the rows that have no
        key.

        Raises:
            ConfigError: no input has such a column.
        """
        keys: dict[str, None] = {}
        answers = []
        inputs_with_column = [
            query_input for query_input in self.definition.every_input if column.lower() in self._columns(query_input)
        ]
        if not inputs_with_column:
            columns = sorted(
                {name for query_input in self.definition.every_input for name in self._columns(query_input)}
            )
            raise ConfigError(f"no input has a column `{column}`", fix=f"there are: {', '.join(columns)}")
        for query_input in inputs_with_column:
            source, _ = self._sources[query_input.source]
            frame = source.frame.alias(query_input.view)
            is_value = f"CAST({query_input.view}.{quoted(column)} AS STRING) = '{_escaped(value)}'"
            rows = frame.where(is_value).selectExpr(f"{key_sql(query_input.key)} AS key").distinct().collect()
            keys |= {row["key"]: None for row in rows if row["key"] is not None}
            if any(row["key"] is None for row in rows):
                answers += self._without_key(query_input, source, column, value)
        return list(keys), answers

    @property
    def columns(self) -> list[str]:
        """The columns of the inputs, each once."""
        return sorted({name for query_input in self.definition.every_input for name in self._columns(query_input)})

    def to_dataframe(self, answers: Iterable[KeyExplanation]) -> DataFrame:
        """Answers as a DataFrame: a row for each key, its rows' fates in an array."""
        rows = [
            (
                answer.shown_key,
                answer.verdict.value,
                answer.sentence,
                answer.batch,
                answer.table_version,
                answer.condition,
                [tuple(getattr(row, name) for name in _ROW_FIELDS) for row in answer.rows],
                list(answer.similar),
                list(answer.lost),
                list(answer.disagreements),
            )
            for answer in answers
        ]
        return self.spark.createDataFrame(rows, " ".join(_SCHEMA.split("\n")))

    # -- evidence

    @cached_property
    def _batches(self) -> dict[int, _Batch]:
        """What is known of the batches that are in the table, from the best witness of each."""
        query = self.log.query()
        planned = {number: self.log.batch(number) for number in self.log.committed()}
        batches = {
            number: _Batch(batch.watermark_ms, _ends(batch.offsets), None) for number, batch in planned.items() if batch
        }
        in_table = [table_record for table_record in records_of(self.node, self.target) if table_record.query == query]
        last = max([*batches, *(table_record.batch for table_record in in_table)], default=None)
        recorded = self.node.project.open_batches().of_node(str(self.node), query) if query else []
        for record in (*recorded, *in_table):
            if last is not None and record.batch > last:
                # The table was put back from a copy since it was recorded.
                continue
            if record.table_version is not None or record.committed_at is not None:
                watermark_ms = round(record.watermark.timestamp() * 1000) if record.watermark else 0
                batches[record.batch] = _Batch(watermark_ms, _ends(record.offsets), record.table_version)
        return batches

    @cached_property
    def _past(self) -> Past:
        batches = self._batches
        last = max(batches, default=-1)
        missing = [number for number in range(last + 1) if number not in batches]
        lost = None
        if missing:
            lost = Lost(
                f"the watermarks and offsets of batches {missing[0]} to {missing[-1]} of {self.node} are lost: "
                "Spark has removed them from the checkpoint",
                "`meta_batches` keeps them, while it is not deleted; a larger `stream.retain_batches` would have too",
            )
        rows = {
            name: Lost(
                f"{self.inputs[name].label} no longer has {gone}",
                "files that a stream has read show why a row is missing, as long as they are kept",
            )
            for name, (_, gone) in self._sources.items()
            if gone is not None
        }
        versions = {number: batch.version for number, batch in batches.items() if batch.version is not None}
        return Past(Watermarks.of({n: batch.watermark_ms for n, batch in batches.items()}), versions, rows, lost)

    @cached_property
    def _sources(self) -> dict[str, tuple[SourceRows, str | None]]:
        """By input, its rows, and what of them is gone."""
        sources: dict[str, tuple[SourceRows, str | None]] = {}
        for name in {query_input.source for query_input in self.definition.every_input}:
            ends = {number: batch.ends.get(name) for number, batch in self._batches.items()}
            read = self.inputs[name].rows_by_file(self.spark, self.log, ends, FILE)
            rows = read.rows
            if rows is None:
                schema = self.inputs[name].schema().add(FILE, "string")
                rows = self.spark.createDataFrame([], schema)
            sources[name] = SourceRows(rows, read.batches, _shown(read.root)), read.gone
        return sources

    def _columns(self, query_input: Input) -> list[str]:
        return [name.lower() for name in self._sources[query_input.source][0].frame.columns if name != FILE]

    def _without_key(self, query_input: Input, source: SourceRows, column: str, value: str) -> list[KeyExplanation]:
        """The answers for rows whose key is NULL."""
        by_column = replace(
            query_input, key=(f"{query_input.view}.{quoted(column)}",), columns=(*query_input.columns, column)
        )
        nulls = replace(source, frame=source.frame.alias(query_input.view).where(f"{key_sql(query_input.key)} IS NULL"))
        found_rows = collect_rows(self.spark, self.definition, by_column, nulls, [value])
        fates = row_fates(query_input, found_rows.rows, self._past.watermarks)
        rows = tuple(row_fate(query_input, found_rows.rows, fates, index) for index in range(len(found_rows.rows)))
        sentence = f"{capital(rows[0].text)}."
        return [KeyExplanation((f"{column}={value}",), rows[0].fate, sentence, rows)]


def _ends(offsets: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: offset.get("end") for name, offset in offsets.items()}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")


def _shown(root: str) -> Any:
    return lambda uri: file_uri_key(uri).removeprefix(root)


def explain(project: Project, node: NodeKey | str, keys: Sequence[str], spark: SparkSession) -> DataFrame:
    """What became of the rows of ``keys`` in a stream node: a row for each key, with verdict, sentence and fates.

    Raises:
        ConfigError: there is no such stream node, or its query is none that can be explained.
    """
    key = NodeKey.parse(node) if isinstance(node, str) else node
    explainer = StreamExplainer.of(project, key, spark)
    return explainer.to_dataframe(explainer.explain(keys))


def key_text(parts: Sequence[str]) -> str:
    """A key of several columns as one text."""
    return SEPARATOR.join(parts)
