"""Applies a change log: of the rows of one table in it, what the table's rows are now, with their types.

Rows are taken in the order of ``n``. The last one of each key counts. A value that the log does not have is the one of
the row before it, in the log or in the table; if the key of a row changed, of the row that had the former key. Keys are
compared as the table's types compare them. Rows with another key than the table has now are replaced by its last
snapshot: each change of a key brings one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odi_assets.config.models import WriteMode
from odi_assets.errors import TableError
from odi_assets.nodes.execution.log_rows import (
    KEY,
    UNCHANGED,
    LogFacts,
    LogShape,
    N,
    column_types,
    facts_of,
    is_unchanged,
    require_names,
    text_of,
    typed,
)
from odi_assets.nodes.node import Node
from odi_assets.nodes.planning.apply import key_of_log, value_types
from odi_assets.sources.cdc.log import Op
from odi_assets.sources.cdc.value_types import ValueTypes
from odi_assets.spark.lazy import F
from odi_assets.spark.raised import stopped_by
from odi_assets.tables.columns import quoted
from odi_assets.tables.engine import engine_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from odi_assets.nodes.planning.plan import ResolvedPlan

DELETED = "_deleted"
"""The marker of rows that are gone: ``write.delete_when`` of nodes that apply a log."""
HISTORY = ("_op", "_n", "_lsn", "_xid", "_committed_at", "_key", "_unchanged")
"""What a history has beside the columns of its table."""
_ROWS_OF_A_TASK = 200_000
"""Rows that one task orders faster than Spark plans an exchange of them."""


def applied(rows: DataFrame, plan: ResolvedPlan, spark: SparkSession) -> DataFrame:
    """The rows that the node's table gains, and those that leave it, marked; lazily, but for one pass
    over the log.

    Args:
        rows: what the change log gained, or all of it.

    Raises:
        IncrementError: the log does not say what the columns of a row are.
        TableError: the table would have two columns of one name.
    """
    config, captured_by = plan.node.config.apply, plan.node.applies
    if config is None or captured_by is None:
        raise AssertionError("a node that applies a log")
    of_table = rows.where(F.col("table") == config.table)
    known = plan.reads[0].rows_known
    if known is not None and known <= _ROWS_OF_A_TASK:
        of_table = of_table.coalesce(1)
    capture = Node.of(plan.node.project, captured_by)
    facts = facts_of(of_table, str(plan.node), capture)
    require_names(facts.shapes, HISTORY if config.history else (DELETED,), plan.node, capture)
    changes = of_table.where(F.col("op") != Op.SHAPE.value)
    types = value_types(plan)
    if config.history:
        return history_rows(changes, facts.shapes, types)
    key = key_of_log(plan)
    stored = None
    if plan.target.exists and plan.write.mode is WriteMode.UPSERT:
        stored = engine_of(plan.target).read(spark, plan.target)
    return _state(changes, facts, key, stored, types, str(plan.node), spark)


def history_rows(changes: DataFrame, shapes: Sequence[LogShape], types: ValueTypes) -> DataFrame:
    """Each change as a row, with what it is and when it was committed."""
    kinds = column_types(shapes).items()
    columns = [typed(text_of(shapes, name), kind, name, types).alias(name) for name, kind in kinds]
    lacking = F.array_compact(F.array(*[F.when(is_unchanged(shapes, name), F.lit(name)) for name, _ in kinds]))
    facts = [
        F.col("op").alias("_op"),
        F.col(N).alias("_n"),
        F.col("lsn").alias("_lsn"),
        F.col("xid").alias("_xid"),
        F.col("committed_at").alias("_committed_at"),
        F.col(KEY).alias("_key"),
        # Their NULL is no value: the log does not have large values that did not change.
        F.when(F.col(UNCHANGED).isNotNull(), lacking).alias("_unchanged"),
    ]
    return changes.select(*columns, *facts)


def _state(
    changes: DataFrame,
    facts: LogFacts,
    key: Sequence[str],
    stored: DataFrame | None,
    types: ValueTypes,
    node: str,
    spark: SparkSession,
) -> DataFrame:
    """The last row of each key that changed, marked if it is gone."""
    shapes = facts.shapes
    names = column_types(shapes)
    key_types = [types.spark_type(names[name]) for name in key]
    emptied = _emptied(facts, key)
    changes = changes.where(F.col("op") != Op.TRUNCATE.value)
    if emptied is not None:
        changes = changes.where(F.col(N) > emptied)
    changes = changes.withColumn(KEY, _comparable([F.col(KEY)[index] for index in range(len(key))], key_types))
    last = (_last_values if facts.lacks else _last_rows)(changes, shapes, names)
    if facts.moved_lacks:
        former = _comparable([text_of(shapes, name, "before") for name in key], key_types)
        moved = _moved(changes, shapes, names, former, spark)
        if moved is not None:
            last = last.join(moved.select(KEY), KEY, "left_anti").unionByName(moved)
    values: list[Column] = []
    for (name, kind), text in zip(names.items(), map(F.col, _places("v", names)), strict=True):
        # A row that is gone has no values but its key.
        known = F.when(F.col("gone"), F.col(KEY)[key.index(name)]).otherwise(text) if name in key else text
        values.append(typed(known, kind, name, types).alias(f"t_{len(values)}"))
    if facts.lacks and stored is not None and emptied is None:
        sources = [typed(F.col("source")[i], names[name], name, types).alias(f"k_{i}") for i, name in enumerate(key)]
        typed_rows = _filled(last.select("gone", *_places("u", names), *values, *sources), names, key, stored)
    elif facts.lacks:
        is_known = F.col("gone") | ~_any([F.col(column) for column in _places("u", names)])
        typed_rows = last.select(_gone(is_known, F.array_join(KEY, ", ")), *values)
    else:
        typed_rows = last.select("gone", *values)
    rows = typed_rows.select(
        *[F.col(f"t_{i}").alias(name) for i, name in enumerate(names)], F.col("gone").alias(DELETED)
    )
    return rows if emptied is None or stored is None else rows.unionByName(_others(stored, rows, key, node))


def _places(letter: str, names: Mapping[str, str]) -> list[str]:
    return [f"{letter}_{index}" for index in range(len(names))]


def _filled(rows: DataFrame, names: Mapping[str, str], key: Sequence[str], stored: DataFrame) -> DataFrame:
    """``rows`` with the values that the log does not have: the values of the rows that are stored."""
    there = [name for name in names if name in stored.columns]
    kept = stored.select([F.col(quoted(name)).alias(f"s_{name}") for name in there])
    lacks = [~rows["gone"] & rows[name] for name in _places("u", names)]
    same = [rows[f"k_{index}"] == kept[quoted(f"s_{name}")] for index, name in enumerate(key)]
    filled = [
        F.when(lacking, F.col(quoted(f"s_{name}"))).otherwise(F.col(f"t_{index}")).alias(f"t_{index}")
        if name in there
        else F.col(f"t_{index}")
        for index, (name, lacking) in enumerate(zip(names, lacks, strict=True))
    ]
    known = ~_any(lacks) | kept[quoted(f"s_{key[0]}")].isNotNull()
    shown = F.concat_ws(", ", *[rows[f"k_{index}"].cast("string") for index in range(len(key))])
    return rows.join(kept, [_any(lacks), *same], "left").select(_gone(known, shown), *filled)


def _gone(known: Column, key: Column) -> Column:
    """The column ``gone``; a row that is not ``known`` ends the run: nobody has the values that its log lacks."""
    stop = stopped_by(
        "the change log has the row ",
        key,
        " without large values that did not change, and the table has no such row",
        fix="let a new snapshot of the table come into the change log (of Debezium, by a signal `execute-snapshot`), "
        "and run this node again",
    )
    return F.when(known, F.col("gone")).otherwise(stop.cast("boolean")).alias("gone")


def _any(flags: Sequence[Column]) -> Column:
    combined = flags[0]
    for flag in flags[1:]:
        combined = combined | flag
    return combined


def _others(stored: DataFrame, rows: DataFrame, key: Sequence[str], node: str) -> DataFrame:
    """The rows that a statement took out when it emptied the table, marked as gone.

    Raises:
        TableError: rows that are stored have no such key.
    """
    is_keyed = set(key) <= set(stored.columns)
    if not is_keyed or stored.where(_any([F.col(quoted(name)).isNull() for name in key])).take(1):
        raise TableError(
            f"{node}: the key of its table in the database is now {', '.join(key)}, and rows that are stored have no "
            "such key",
            fix=f"odi run {node.replace('.', ' --node ')} --full-refresh makes the table from the change log again",
            node=node,
        )
    row_keys = rows.select([F.col(quoted(name)).alias(f"k_{index}") for index, name in enumerate(key)])
    same = [stored[quoted(name)] == row_keys[f"k_{index}"] for index, name in enumerate(key)]
    gone = [
        F.col(quoted(field.name)) if field.name in key else F.lit(None).cast(field.dataType).alias(field.name)
        for field in rows.drop(DELETED).schema
    ]
    others = stored.join(row_keys, same, "left_anti").select(*gone, F.lit(True).alias(DELETED))
    # With another key, several rows that are stored may have one key.
    return others.dropDuplicates(list(key))


def _emptied(facts: LogFacts, key: Sequence[str]) -> int | None:
    """The number of the last change that emptied the table; None if there is none.

    A row with another key counts too: a new snapshot of the whole table is behind it.
    """
    others = [facts.last_n[shape.id] for shape in facts.shapes if shape.key and shape.key != tuple(key)]
    return max([*others, *([] if facts.emptied is None else [facts.emptied])], default=None)


def _comparable(key: Sequence[Column], wanted: Sequence[str]) -> Column:
    """Texts of a key as one array, which is equal where the values are equal.

    Args:
        wanted: the types of the values.
    """
    return F.array(*[_one_text(text, kind) for text, kind in zip(key, wanted, strict=True)])


def _one_text(text: Column, wanted: str) -> Column:
    if wanted.startswith("DECIMAL"):
        return F.regexp_replace(F.regexp_replace(text, r"(\.\d*?)0+$", "$1"), r"\.$", "")
    return F.when(text == "-0", F.lit("0")).otherwise(text) if wanted in ("FLOAT", "DOUBLE") else text


def _last_rows(changes: DataFrame, shapes: Sequence[LogShape], names: Mapping[str, str]) -> DataFrame:
    """By key, the last row: ``v_0 …`` its values as text, and ``gone``; where the log has all values."""
    texts = [text_of(shapes, name).alias(f"v_{index}") for index, name in enumerate(names)]
    row = F.struct((F.col("op") == Op.DELETE.value).alias("gone"), *texts)
    return changes.groupBy(KEY).agg(F.max_by(row, N).alias("last")).select(KEY, "last.*")


def _last_values(changes: DataFrame, shapes: Sequence[LogShape], names: Mapping[str, str]) -> DataFrame:
    """By key, the last row, with the last value of each column that the log has.

    Beside the columns of :func:`_last_rows` it has ``u_0 …``, whether no row of the log has the value, and ``source``,
    the key of the stored row that has it.
    """
    aggregates: list[Column] = [F.max_by(F.col("op") == Op.DELETE.value, N).alias("gone")]
    for index, name in enumerate(names):
        has = ~is_unchanged(shapes, name)
        # NULL is a value too: the struct says that the log has it.
        value = F.max_by(F.when(has, F.struct(text_of(shapes, name).alias("v"))), F.when(has, F.col(N)))
        aggregates += [value["v"].alias(f"v_{index}"), value.isNull().alias(f"u_{index}")]
    return changes.groupBy(KEY).agg(*aggregates).withColumn("source", F.col(KEY))


def _moved(
    changes: DataFrame, shapes: Sequence[LogShape], names: Mapping[str, str], former: Column, spark: SparkSession
) -> DataFrame | None:
    """The last rows of keys that went to a row of which the log does not have all values; None if there are none.

    Such rows are few: they are followed one by one, through all keys that they had.

    Args:
        former: the key that the row of a change had before it.
    """
    moves = changes.where((F.col("op") == Op.CREATE.value) & F.col("before").isNotNull())
    pairs = moves.select(KEY, former.alias("former"), F.col(UNCHANGED).isNotNull().alias("lacks")).collect()
    moved_keys = {tuple(row[KEY]) for row in pairs if row["lacks"]}
    if not moved_keys:
        return None
    while more := {tuple(row["former"]) for row in pairs if tuple(row[KEY]) in moved_keys} - moved_keys:
        moved_keys |= more
    keys = spark.createDataFrame([(list(key),) for key in sorted(moved_keys)], f"{KEY} ARRAY<STRING>")
    texts = [text_of(shapes, name).alias(f"v_{index}") for index, name in enumerate(names)]
    lacks = [is_unchanged(shapes, name).alias(f"u_{index}") for index, name in enumerate(names)]
    of_them = changes.join(F.broadcast(keys), KEY, "left_semi").select(
        N, "op", KEY, former.alias("former"), *texts, *lacks
    )
    rows = _followed(of_them.orderBy(N).collect(), len(names))
    kinds = [(name, kind) for letter, kind in (("v", "STRING"), ("u", "BOOLEAN")) for name in _places(letter, names)]
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds)
    return spark.createDataFrame(rows, f"{KEY} ARRAY<STRING>, gone BOOLEAN, source ARRAY<STRING>, {columns}")


def _followed(rows: Sequence[Any], count: int) -> list[tuple[Any, ...]]:
    """By key, the last row: whether it is gone, the key of the stored row that has the values that the log does not
    have, the values, and whether the log lacks them."""
    known: dict[tuple[str, ...], tuple[Any, list[str | None], list[bool]] | None] = {}
    left: dict[tuple[str, ...], tuple[Any, list[str | None], list[bool]]] = {}

    def before(key: tuple[str, ...]) -> tuple[Any, list[str | None], list[bool]]:
        """The row of a key before the log: all of it is in the table."""
        return key, [None] * count, [True] * count

    for row in rows:
        key = tuple(row[KEY])
        if row["op"] == Op.DELETE.value:
            left[key] = known.get(key) or before(key)
            known[key] = None
            continue
        if row["op"] == Op.CREATE.value and row["former"][0] is not None:
            former = tuple(row["former"])
            source, values, lacking = left.get(former) or before(former)
        else:
            source, values, lacking = known.get(key) or before(key)
        texts = [row[f"v_{index}"] for index in range(count)]
        lacks = [row[f"u_{index}"] for index in range(count)]
        known[key] = (
            source,
            [old if missing else text for text, missing, old in zip(texts, lacks, values, strict=True)],
            [missing and was for missing, was in zip(lacks, lacking, strict=True)],
        )
    last_rows = []
    for key, last in known.items():
        source, values, lacking = last or before(key)
        last_rows.append((list(key), last is None, list(source), *values, *lacking))
    return last_rows
