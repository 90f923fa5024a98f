"""Collects the rows of some keys from the sources of a query: one pass over each source, then only what was found.

What the query computes of a row (its key, its times, the conditions it meets) is computed by Spark in the same pass,
from the query's own definition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.functions import broadcast, col, expr

from odi_assets.explain.evidence.evidence import NO_TIME, NOT_READ, Booleans, EvidenceRows, Integers, Pairs, objects
from odi_assets.explain.evidence.similar import normalized_sql
from odi_assets.spark.arrow import dataframe_of
from odi_assets.spark.plans.definition import JOINED, SEPARATOR, Condition, Input, QueryDefinition
from odi_assets.tables.columns import quoted
from odi_assets.tables.reader import file_uri_key
from odi_assets.util.lazy import pc

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FILE = "_odi_file"
"""Column of a source's frame with the file of a row, as Spark's file log writes it."""

_MOST_SIMILAR = 5
"""The most rows with almost the same key that are reported for each key."""


@dataclass(frozen=True)
class SourceRows:
    """A source of the query, to be read as a batch.

    Attributes:
        frame: its rows, all that batches have read and all that have landed since; with :data:`FILE`.
        batches: by the file's ``file_uri_key``, the first and the last batch that may have read it. A file that is
            not there was not read.
        shown: a file as people are to see it.
    """

    frame: DataFrame
    batches: Mapping[str, tuple[int, int]]
    shown: Callable[[str], str] = str


@dataclass(frozen=True)
class FoundRows:
    """The rows of one input that were found.

    Attributes:
        rows: the rows with a key that was asked for.
        similar: by key, the key and file of rows that are almost the same.
        table: the columns of ``rows`` that later steps need, named ``c_…``; the columns of a join's pairs are structs
            that have the names of its inputs.
    """

    rows: EvidenceRows
    similar: Mapping[str, tuple[tuple[str, str], ...]]
    table: pa.Table


def collect_rows(
    spark: SparkSession, definition: QueryDefinition, query_input: Input, source: SourceRows, keys: Sequence[str]
) -> FoundRows:
    """The rows of ``keys``, those with keys that are almost the same, and those that a deduplication compares them
    with."""
    asked = dataframe_of(spark, pa.table({"asked": pa.array(keys, pa.string())}))
    asked = asked.selectExpr("asked", f"{normalized_sql('asked')} AS plain")
    read = source.frame.select(*map(quoted, sorted({*query_input.columns, FILE}))).alias(query_input.view)
    needs_columns = definition.is_join or bool(definition.withheld)
    columns = _computed(definition, query_input) | {"file": f"{query_input.view}.{FILE}"}
    columns |= {f"c_{name}": f"{query_input.view}.`{name}`" for name in query_input.columns if needs_columns}
    computed = read.selectExpr(*(f"{sql} AS `{name}`" for name, sql in columns.items()))
    plain = expr(normalized_sql("key"))
    candidates = computed.join(broadcast(asked), plain == asked["plain"]).drop("plain").toArrow()
    exact = candidates.filter(pc.equal(candidates["key"], candidates["asked"])).drop_columns("asked")
    near = candidates.filter(pc.not_equal(candidates["key"], candidates["asked"]))
    once = query_input.once
    if once is not None and len(exact) and not set(query_input.key) <= set(once.identity):
        alike = only_asked(computed, pc.unique(exact["once_identity"]).to_pylist(), "once_identity").toArrow()
        of_others = pc.invert(pc.is_in(alike["key"], value_set=pa.array(keys, pa.string())))
        exact = pa.concat_tables([exact, alike.filter(of_others)])
    return FoundRows(_of_files(exact, source), _similar(near, source), exact)


def _computed(definition: QueryDefinition, query_input: Input) -> dict[str, str]:
    """SQL of what is computed of each row of an input."""
    once, nothing = query_input.once, "CAST(NULL AS BIGINT)"
    return {
        "key": key_sql(query_input.key),
        "time_us": query_input.time or nothing,
        "late_us": f"({query_input.late_time}) + {query_input.shift_ms * 1000}" if query_input.late_time else nothing,
        "failed": first_failing_sql(query_input.every_condition),
        "identity": identity_sql(definition.identity),
        "windows_us": _windows_sql(definition.windows),
        "after": first_failing_sql(definition.withheld) if definition.kind == "deduplication" else "-1",
        "once_identity": identity_sql(once.identity if once else ()),
        "once_late_us": once.late_time if once and once.late_time else nothing,
    }


@dataclass(frozen=True)
class PairsOn:
    """Pairs that a join passed on.

    Attributes:
        table: a column for each input of the join, a struct of its columns.
        of_key: by pair, the key that was asked for.
        first, last: the batch that joined it lies between them.
        file: where its rows are.
    """

    table: pa.Table
    of_key: Sequence[str]
    first: Integers
    last: Integers
    file: Sequence[str]


def pass_on(
    definition: QueryDefinition, rows_of_inputs: Sequence[FoundRows], pairs: Pairs, joined: Booleans
) -> PairsOn:
    """The pairs of a join that it joined, as rows of the operator behind it."""
    left, right = rows_of_inputs
    places = pairs.left[joined], pairs.right[joined]
    columns: dict[str, Any] = {}
    for query_input, found_rows, of in zip(definition.inputs, rows_of_inputs, places, strict=True):
        columns |= {
            name: column.take(of) for name, column in _columns(query_input, found_rows, as_structs=True).items()
        }
    files = [
        ", ".join(dict.fromkeys((str(a), str(b))))
        for a, b in zip(left.rows.file[places[0]], right.rows.file[places[1]], strict=True)
    ]
    return PairsOn(
        pa.table(columns),
        list(left.rows.key[places[0]]),
        np.maximum(left.rows.first[places[0]], right.rows.first[places[1]]),
        np.maximum(left.rows.last[places[0]], right.rows.last[places[1]]),
        files,
    )


def collect_passed_on(
    spark: SparkSession, definition: QueryDefinition, query_input: Input, pairs: PairsOn
) -> FoundRows:
    """The pairs that come to the operator behind a join, as rows of its input. They keep the order."""
    table = pairs.table.append_column("_place", pa.array(range(len(pairs.table)), pa.int64()))
    computed = _computed(definition, query_input)
    rows = dataframe_of(spark, table).selectExpr("_place", *(f"{sql} AS `{name}`" for name, sql in computed.items()))
    computed_table = rows.toArrow().sort_by("_place")
    ranges = np.column_stack((pairs.first, pairs.last)).reshape(-1, 2)
    return FoundRows(_rows(computed_table, ranges, objects(pairs.file)), {}, pairs.table)


def _columns(query_input: Input, found_rows: FoundRows, as_structs: bool = False) -> dict[str, Any]:
    """The columns of the rows of an input that SQL of the definition needs: by their names, or in a struct that has
    the name of the input. For a join's pairs, they are structs."""
    if query_input.source == JOINED:
        return {name: found_rows.table[name].combine_chunks() for name in found_rows.table.column_names}
    columns = {name: found_rows.table[f"c_{name}"].combine_chunks() for name in query_input.columns}
    if not as_structs:
        return columns
    return {query_input.view: pa.StructArray.from_arrays(list(columns.values()), names=list(columns))}


def key_sql(parts: Sequence[str]) -> str:
    """SQL of a key as one text; NULL if a part of it is NULL."""
    texts = [_text_sql(part) for part in parts]
    return texts[0] if len(texts) == 1 else f"concat({f', char({ord(SEPARATOR)}), '.join(texts)})"


def _text_sql(part: str) -> str:
    """SQL of a value as text; -0.0 and 0.0 are one value."""
    text = f"CAST({part} AS STRING)"
    return f"IF(typeof({part}) IN ('float', 'double') AND {text} = '-0.0', '0.0', {text})"


def value_text(text: str, kind: Any) -> str:
    """A value of the Delta type ``kind`` as :func:`key_sql` writes it: `0`, `-0.0` and `0.0` are one double."""
    if kind not in ("float", "double"):
        return text
    try:
        value = float(text)
    except ValueError:
        return text
    # Spark writes greater ones with an exponent.
    return f"{value + 0.0:.1f}" if value.is_integer() and abs(value) < 1e7 else text


def identity_sql(parts: Sequence[str]) -> str:
    """SQL of what makes two rows the same, as one text: NULL is the same as NULL."""
    if not parts:
        return "CAST(NULL AS STRING)"
    return key_sql([f"coalesce(CAST({part} AS STRING), '\\u0000')" for part in parts])


def only_asked(frame: DataFrame, keys: Sequence[str], column: str = "key") -> DataFrame:
    """The rows of ``frame`` whose ``column`` is one of ``keys``: joined to them, for a list of a hundred thousand keys
    is more than a plan can hold."""
    asked = dataframe_of(frame.sparkSession, pa.table({"_odi_asked": pa.array(list(keys), pa.string())}))
    return frame.join(broadcast(asked), col(column) == col("_odi_asked"), "left_semi")


def collect_pairs(spark: SparkSession, definition: QueryDefinition, left: FoundRows, right: FoundRows) -> Pairs:
    """The pairs of rows with one key, and which conditions of the join each meets."""
    frames = []
    names = ["_joined" if query_input.source == JOINED else query_input.view for query_input in definition.inputs]
    for name, query_input, found_rows in zip(names, definition.inputs, (left, right), strict=True):
        positions = pa.array(range(len(found_rows.table)), pa.int64())
        keys = pa.array(found_rows.rows.key, pa.string())
        table = pa.table({"_key": keys, "_place": positions, **_columns(query_input, found_rows)})
        frames.append(dataframe_of(spark, table).alias(name))
    holds = [f"coalesce({condition.sql}, false) AS h_{index}" for index, condition in enumerate(definition.conditions)]
    apart = [f"{_apart(condition.sides)} AS a_{index}" for index, condition in enumerate(definition.conditions)]

    same = expr(f"{names[0]}._key = {names[1]}._key")
    places = [f"{name}._place AS p_{index}" for index, name in enumerate(names)]
    found_rows = frames[0].join(frames[1], same).selectExpr(*places, *holds, *apart).toArrow()
    conditions = range(len(definition.conditions))
    shape = len(conditions), len(found_rows)
    return Pairs(
        _integers(found_rows["p_0"]),
        _integers(found_rows["p_1"]),
        np.array([found_rows[f"h_{index}"].to_numpy() for index in conditions], dtype=bool).reshape(shape).T,
        np.array([found_rows[f"a_{index}"].to_numpy() for index in conditions], dtype=float).reshape(shape).T,
    )


def count_written(table: DataFrame, columns: Sequence[str], keys: Sequence[str]) -> dict[str, int]:
    """How many rows a table has of each key."""
    asked_rows = only_asked(table.selectExpr(f"{key_sql([*map(quoted, columns)])} AS key"), keys)
    counted = asked_rows.groupBy("key").count().toArrow()
    return dict(zip(counted["key"].to_pylist(), counted["count"].to_pylist(), strict=True))


def failing_groups(
    spark: SparkSession, definition: QueryDefinition, found_rows: FoundRows, accepted: Booleans
) -> Integers:
    """For each row, the place of the first condition behind an aggregation that its group does not meet, else -1.

    Args:
        accepted: which of the rows the aggregation counts.
    """
    query_input, rows = definition.inputs[0], found_rows.rows
    starts = np.zeros(len(rows), dtype=np.int64) if rows.windows_us is None else rows.windows_us[:, 0, 0]
    groups: dict[tuple[str, int], int] = {}
    indexes = np.flatnonzero(accepted)
    of_row = np.full(len(rows), -1, dtype=np.int64)
    for index in indexes:
        of_row[index] = groups.setdefault((rows.key[index], int(starts[index])), len(groups))
    columns = {name: found_rows.table[f"c_{name}"].take(indexes) for name in query_input.columns}
    frame = dataframe_of(spark, pa.table({"_group": pa.array(of_row[indexes]), **columns})).alias(query_input.view)
    computed = frame.groupBy("_group").agg(expr(first_failing_sql(definition.withheld)).alias("after")).toArrow()
    failing = np.full(len(groups) + 1, -1, dtype=np.int64)
    failing[_integers(computed["_group"])] = _integers(computed["after"])
    # Rows of no group have the number -1, and so the last entry.
    return failing[of_row]


def first_failing_sql(conditions: Sequence[Condition]) -> str:
    """SQL of the place of the first condition that a row does not meet; -1 if it meets all."""
    cases = "".join(
        f" WHEN NOT coalesce({condition.sql}, false) THEN {index}" for index, condition in enumerate(conditions)
    )
    return f"CASE{cases} ELSE -1 END" if cases else "-1"


def _windows_sql(windows: Sequence[str]) -> str:
    each = [f"array(unix_micros(({window}).start), unix_micros(({window}).end))" for window in windows]
    return f"array({', '.join(each)})" if each else "CAST(NULL AS ARRAY<ARRAY<BIGINT>>)"


def _apart(sides: tuple[str, str] | None) -> str:
    return "CAST(NULL AS DOUBLE)" if sides is None else f"CAST({sides[0]} - {sides[1]} AS DOUBLE)"


def _of_files(table: pa.Table, source: SourceRows) -> EvidenceRows:
    files = table["file"].combine_chunks().dictionary_encode()
    names = files.dictionary.to_pylist()
    ranges = np.array([source.batches.get(file_uri_key(name), (NOT_READ, NOT_READ)) for name in names], dtype=np.int64)
    of_row = files.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    ranges = ranges.reshape(-1, 2)[of_row]
    shown = np.array([source.shown(name) for name in names], dtype=object)
    return _rows(table, ranges, shown[of_row] if len(names) else np.array([], dtype=object))


def _rows(table: pa.Table, ranges: NDArray[np.int64], file: NDArray[Any]) -> EvidenceRows:
    windows = [row_windows for row_windows in table["windows_us"].to_pylist() if row_windows is not None]
    return EvidenceRows(
        key=_texts(table["key"]),
        time_us=_times(table["time_us"]),
        late_us=_times(table["late_us"]),
        failed=_integers(table["failed"]),
        first=ranges[:, 0],
        last=ranges[:, 1],
        file=file,
        identity=_texts(table["identity"]),
        after=_integers(table["after"]),
        windows_us=np.array([[[_or_none(at) for at in window] for window in row] for row in windows])
        if windows
        else None,
        once_identity=_texts(table["once_identity"]),
        once_late_us=_times(table["once_late_us"]),
    )


def _texts(column: Any) -> NDArray[Any]:
    return objects(column.to_pylist())


def _or_none(time: int | None) -> int:
    return NO_TIME if time is None else time


def _times(column: Any) -> Any:
    return _integers(pc.fill_null(column, NO_TIME))


def _integers(column: Any) -> Any:
    return column.to_numpy().astype(np.int64)


def _similar(table: pa.Table, source: SourceRows) -> dict[str, tuple[tuple[str, str], ...]]:
    similar: dict[str, set[tuple[str, str]]] = defaultdict(set)
    columns = (table[name].to_pylist() for name in ("asked", "key", "file"))
    for asked, key, file in zip(*columns, strict=True):
        similar[asked].add((key, source.shown(file)))
    return {asked: tuple(sorted(each)[:_MOST_SIMILAR]) for asked, each in similar.items()}
