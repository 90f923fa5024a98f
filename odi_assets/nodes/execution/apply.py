"""Applies a change log: of the rows of one table in it, what the table's rows are now, with their types.

Rows are taken in the order of ``n``. The last one of each key counts. A value that the log does not have is the one of
the row before it, in the log or in the table; if the key of a row changed, of the row that had the former key. Keys are
compared as the table's types compare them. Rows with another key than the table has now are replaced by its last
snapshot: each change of a key brings one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from odi_assets.config.models import WriteMode
from odi_assets.errors import IncrementError, TableError
from odi_assets.nodes.planning.apply import key_of_log, value_types
from odi_assets.sources.cdc.log import Op
from odi_assets.sources.cdc.value_types import ValueTypes
from odi_assets.sources.sql.errors import VALUE
from odi_assets.tables.columns import quoted
from odi_assets.tables.engine import engine_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from odi_assets.nodes.planning.plan import ResolvedPlan

DELETED = "_deleted"
"""The marker of rows that are gone: ``write.delete_when`` of nodes that apply a log."""
_N, _KEY, _AFTER, _UNCHANGED = "n", "key", "after", "unchanged"
_DATA = (Op.READ, Op.CREATE, Op.UPDATE, Op.DELETE)


@dataclass(frozen=True)
class LogShape:
    """The columns of some rows of the log: names and types, in order."""

    id: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...] = ()

    def place(self, name: str) -> int | None:
        return next((place for place, (column, _) in enumerate(self.columns) if column == name), None)


def applied(rows: DataFrame, plan: ResolvedPlan, spark: SparkSession) -> DataFrame:
    """The rows that the node's table gains, and those that leave it, marked; lazily, but for the shapes.

    Args:
        rows: what the change log gained, or all of it.

    Raises:
        IncrementError: the log does not say what the columns of a row are.
    """
    config = plan.node.config.apply
    if config is None:
        raise AssertionError("a node that applies a log")
    of_table = rows.where(F.col("table") == config.table)
    shapes = shapes_of(of_table, str(plan.node))
    changes = of_table.where(F.col("op") != Op.SHAPE.value)
    types = value_types(plan)
    if config.history:
        return _history(changes, shapes, types)
    key = key_of_log(plan)
    stored = None
    if plan.target.exists and plan.write.mode is WriteMode.UPSERT:
        stored = engine_of(plan.target).read(spark, plan.target)
    return _state(changes, shapes, key, stored, types, str(plan.node), spark)


def shapes_of(rows: DataFrame, node: str) -> list[LogShape]:
    """The shapes of the rows, the last one first."""
    used = {
        row[0] for row in rows.where(F.col("op").isin([op.value for op in _DATA])).select("shape").distinct().collect()
    }
    listed = rows.where(F.col("op") == Op.SHAPE.value).select(_N, "shape", F.to_json("columns")).collect()
    found: dict[str, tuple[int, LogShape]] = {}
    for n, name, columns in listed:
        listed_columns = json.loads(columns)
        pairs = tuple((one["name"], one["type"]) for one in listed_columns)
        if name not in found or found[name][0] < n:
            found[name] = (n, LogShape(name, pairs, tuple(one["name"] for one in listed_columns if one["key"])))
    if not found:
        raise IncrementError(
            f"{node}: the change log has no row of its table yet: the snapshot of it has not begun",
            fix="run the node that captures once more; it goes on where it stopped",
            node=node,
        )
    missing = used - found.keys()
    if missing:
        raise IncrementError(
            f"{node}: the change log has rows whose columns it does not describe ({', '.join(sorted(missing))})",
            fix="capture the tables again: odi run PIPELINE --node CAPTURE --full-refresh --yes",
            node=node,
        )
    return [shape for _, shape in sorted(found.values(), key=lambda one: -one[0])]


def column_types(shapes: Sequence[LogShape]) -> dict[str, str]:
    """The columns of all shapes, and the type of the last shape that has each."""
    found: dict[str, str] = {}
    for shape in shapes:
        for name, kind in shape.columns:
            found.setdefault(name, kind)
    return found


def _by_shape(shapes: Sequence[LogShape], make: Any) -> Column:
    """What ``make`` gives for the shape of a row; NULL for a shape for which it gives None."""
    found: Column | None = None
    for shape in shapes:
        made = make(shape)
        if made is None:
            continue
        is_it = F.col("shape") == shape.id
        found = F.when(is_it, made) if found is None else found.when(is_it, made)
    return F.lit(None) if found is None else found


def text_of(shapes: Sequence[LogShape], name: str, array: str = _AFTER) -> Column:
    """The text of a column in a row of the log."""

    def make(shape: LogShape) -> Column | None:
        place = shape.place(name)
        return None if place is None else F.col(array)[place]

    return _by_shape(shapes, make).cast("string")


def is_unchanged(shapes: Sequence[LogShape], name: str) -> Column:
    """Whether the log does not have a column's value in a row."""

    def make(shape: LogShape) -> Column | None:
        place = shape.place(name)
        return None if place is None else F.coalesce(F.array_contains(_UNCHANGED, place), F.lit(False))

    return F.coalesce(_by_shape(shapes, make).cast("boolean"), F.lit(False))


def typed(text: Column, kind: str, name: str, types: ValueTypes) -> Column:
    """A text of the log as a value; a value that the type does not hold ends the run, and names the row."""
    wanted = types.spark_type(kind)
    if wanted == "STRING":
        return text
    if wanted == "BOOLEAN":
        return F.when(text == types.true, F.lit(True)).when(text == types.false, F.lit(False))
    if wanted == "BINARY":
        return F.unhex(F.substring(text, 3, 2_147_483_647))
    value = _instant(text, wanted, types).try_cast(wanted)
    holds = value.isNotNull()
    if wanted.startswith(("DATE", "TIMESTAMP")):
        # Spark leaves out what stands behind a date.
        holds = holds & ~text.endswith(" BC")
    if wanted.startswith("DECIMAL"):
        scale = int(wanted.rstrip(")").rpartition(",")[2])
        holds = holds & text.rlike(rf"^-?\d+(\.\d{{0,{scale}}}0*)?$")
    begin, end = VALUE.split("{}")
    key = F.array_join(F.col(_KEY), ", ")
    row = F.concat(F.lit(f"{begin}key "), key, F.lit(f": column {name} is "), text)
    return F.when(text.isNull() | holds, value).otherwise(
        F.raise_error(F.concat(row, F.lit(f", which no value of {wanted} is{end}"))).cast(wanted)
    )


def _instant(text: Column, wanted: str, types: ValueTypes) -> Column:
    """A text with its zone: Spark takes an instant without one for one of the session's zone."""
    return F.concat(text, F.lit(types.zone)) if wanted == "TIMESTAMP" else text


def shown_text(text: Column, kind: str, types: ValueTypes) -> Column:
    """A text of the log as Spark writes its value; NULL for a value that the type does not hold."""
    wanted = types.spark_type(kind)
    if wanted == "BOOLEAN":
        return F.when(text == types.true, F.lit("true")).when(text == types.false, F.lit("false"))
    if wanted in ("STRING", "BINARY"):
        return text
    return _instant(text, wanted, types).try_cast(wanted).cast("string")


def _history(changes: DataFrame, shapes: Sequence[LogShape], types: ValueTypes) -> DataFrame:
    """Each change as a row, with what it is and when it was committed."""
    kinds = column_types(shapes).items()
    columns = [typed(text_of(shapes, name), kind, name, types).alias(name) for name, kind in kinds]
    lacking = F.array_compact(F.array(*[F.when(is_unchanged(shapes, name), F.lit(name)) for name, _ in kinds]))
    facts = [
        F.col("op").alias("_op"),
        F.col(_N).alias("_n"),
        F.col("lsn").alias("_lsn"),
        F.col("xid").alias("_xid"),
        F.col("committed_at").alias("_committed_at"),
        F.col(_KEY).alias("_key"),
        # Their NULL is no value: the log does not have large values that did not change.
        F.when(F.col(_UNCHANGED).isNotNull(), lacking).alias("_unchanged"),
    ]
    return changes.select(*columns, *facts)


def _state(
    changes: DataFrame,
    shapes: Sequence[LogShape],
    key: Sequence[str],
    stored: DataFrame | None,
    types: ValueTypes,
    node: str,
    spark: SparkSession,
) -> DataFrame:
    """The last row of each key that changed, marked if it is gone."""
    names = column_types(shapes)
    wanted = [types.spark_type(names[name]) for name in key]
    changes, emptied = _after_truncation(changes, shapes, key)
    changes = changes.withColumn(_KEY, _comparable([F.col(_KEY)[place] for place in range(len(key))], wanted))
    last = _last_rows(changes, shapes, names)
    former = _comparable([text_of(shapes, name, "before") for name in key], wanted)
    moved = _moved(changes, shapes, names, former, spark)
    if moved is not None:
        last = last.join(moved.select(_KEY), _KEY, "left_anti").unionByName(moved)
    values = []
    for (name, kind), text in zip(names.items(), map(F.col, _places("v", names)), strict=True):
        # A row that is gone has no values but its key.
        known = F.when(F.col("gone"), F.col(_KEY)[key.index(name)]).otherwise(text) if name in key else text
        values.append(typed(known, kind, name, types))
    sources = [typed(F.col("source")[place], names[name], name, types) for place, name in enumerate(key)]
    found = last.select(
        "gone",
        *_places("u", names),
        *[value.alias(f"t_{place}") for place, value in enumerate(values)],
        *[value.alias(f"k_{place}") for place, value in enumerate(sources)],
    )
    if stored is not None and emptied is None:
        found = _filled(found, names, key, stored)
    rows = found.select(*[F.col(f"t_{i}").alias(name) for i, name in enumerate(names)], F.col("gone").alias(DELETED))
    return rows if emptied is None or stored is None else rows.unionByName(_others(stored, rows, key, node))


def _places(letter: str, names: Mapping[str, str]) -> list[str]:
    return [f"{letter}_{place}" for place in range(len(names))]


def _filled(rows: DataFrame, names: Mapping[str, str], key: Sequence[str], stored: DataFrame) -> DataFrame:
    """``rows`` with the values that the log does not have: those of the rows that are stored."""
    lacking = ~F.col("gone") & _any([F.col(name) for name in _places("u", names)])
    there = [name for name in names if name in stored.columns]
    kept = stored.select([F.col(quoted(name)).alias(f"s_{name}") for name in there])
    needs = rows.where(lacking)
    same = [needs[f"k_{place}"] == kept[quoted(f"s_{name}")] for place, name in enumerate(key)]
    filled = [
        F.when(F.col(f"u_{place}"), F.col(quoted(f"s_{name}"))).otherwise(F.col(f"t_{place}")).alias(f"t_{place}")
        if name in there
        else F.col(f"t_{place}")
        for place, name in enumerate(names)
    ]
    joined = needs.join(kept, same, "left").select("gone", *filled)
    return rows.where(~lacking).select("gone", *_places("t", names)).unionByName(joined)


def _any(flags: Sequence[Column]) -> Column:
    found = flags[0]
    for flag in flags[1:]:
        found = found | flag
    return found


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
    kept = rows.select([F.col(quoted(name)).alias(f"k_{place}") for place, name in enumerate(key)])
    same = [stored[quoted(name)] == kept[f"k_{place}"] for place, name in enumerate(key)]
    gone = [
        F.col(quoted(field.name)) if field.name in key else F.lit(None).cast(field.dataType).alias(field.name)
        for field in rows.drop(DELETED).schema
    ]
    others = stored.join(kept, same, "left_anti").select(*gone, F.lit(True).alias(DELETED))
    # With another key, several rows that are stored may have one key.
    return others.dropDuplicates(list(key))


def _after_truncation(
    changes: DataFrame, shapes: Sequence[LogShape], key: Sequence[str]
) -> tuple[DataFrame, int | None]:
    """The changes after the last one that emptied the table, and its number: of a row with another key too, as a new
    snapshot of the whole table is behind it."""
    other = [shape.id for shape in shapes if shape.key and shape.key != tuple(key)]
    ends = (F.col("op") == Op.TRUNCATE.value) | F.col("shape").isin(other)
    last = changes.where(F.coalesce(ends, F.lit(False))).agg(F.max(_N)).collect()[0][0]
    rows = changes.where(F.col("op") != Op.TRUNCATE.value)
    return (rows, None) if last is None else (rows.where(F.col(_N) > last), int(last))


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
    """By key, the last row: ``v_0 …`` its values as text, ``u_0 …`` whether no row of the log has them, ``gone``,
    and ``source``, the key of the stored row that has what the log does not have."""
    aggregates: list[Column] = [F.max_by(F.col("op") == Op.DELETE.value, _N).alias("gone")]
    for place, name in enumerate(names):
        has = ~is_unchanged(shapes, name)
        # NULL is a value too: the struct says that the log has it.
        value = F.max_by(F.when(has, F.struct(text_of(shapes, name).alias("v"))), F.when(has, F.col(_N)))
        aggregates += [value["v"].alias(f"v_{place}"), value.isNull().alias(f"u_{place}")]
    return changes.groupBy(_KEY).agg(*aggregates).withColumn("source", F.col(_KEY))


def _moved(
    changes: DataFrame, shapes: Sequence[LogShape], names: Mapping[str, str], former: Column, spark: SparkSession
) -> DataFrame | None:
    """The last rows of keys that went to a row of which the log does not have all values; None if there are none.

    Such rows are few: they are followed one by one, through all keys that they had.

    Args:
        former: the key that the row of a change had before it.
    """
    given = changes.where((F.col("op") == Op.CREATE.value) & F.col("before").isNotNull())
    pairs = given.select(_KEY, former.alias("former"), F.col(_UNCHANGED).isNotNull().alias("lacks")).collect()
    wanted = {tuple(row[_KEY]) for row in pairs if row["lacks"]}
    if not wanted:
        return None
    while more := {tuple(row["former"]) for row in pairs if tuple(row[_KEY]) in wanted} - wanted:
        wanted |= more
    keys = spark.createDataFrame([(list(one),) for one in sorted(wanted)], f"{_KEY} ARRAY<STRING>")
    texts = [text_of(shapes, name).alias(f"v_{place}") for place, name in enumerate(names)]
    lacks = [is_unchanged(shapes, name).alias(f"u_{place}") for place, name in enumerate(names)]
    of_them = changes.join(F.broadcast(keys), _KEY, "left_semi").select(
        _N, "op", _KEY, former.alias("former"), *texts, *lacks
    )
    rows = _followed(of_them.orderBy(_N).collect(), len(names))
    kinds = [(name, kind) for letter, kind in (("v", "STRING"), ("u", "BOOLEAN")) for name in _places(letter, names)]
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds)
    return spark.createDataFrame(rows, f"{_KEY} ARRAY<STRING>, gone BOOLEAN, source ARRAY<STRING>, {columns}")


def _followed(rows: Sequence[Any], count: int) -> list[tuple[Any, ...]]:
    """By key, the last row: whether it is gone, the key of the stored row that has the values that the log does not
    have, the values, and whether the log lacks them."""
    known: dict[tuple[str, ...], tuple[Any, list[str | None], list[bool]] | None] = {}
    left: dict[tuple[str, ...], tuple[Any, list[str | None], list[bool]]] = {}

    def before(key: tuple[str, ...]) -> tuple[Any, list[str | None], list[bool]]:
        """The row of a key before the log: all of it is in the table."""
        return key, [None] * count, [True] * count

    for row in rows:
        key = tuple(row[_KEY])
        if row["op"] == Op.DELETE.value:
            left[key] = known.get(key) or before(key)
            known[key] = None
            continue
        if row["op"] == Op.CREATE.value and row["former"][0] is not None:
            former = tuple(row["former"])
            source, values, lacking = left.get(former) or before(former)
        else:
            source, values, lacking = known.get(key) or before(key)
        texts = [row[f"v_{place}"] for place in range(count)]
        lacks = [row[f"u_{place}"] for place in range(count)]
        known[key] = (
            source,
            [old if missing else text for text, missing, old in zip(texts, lacks, values, strict=True)],
            [missing and was for missing, was in zip(lacks, lacking, strict=True)],
        )
    found = []
    for key, last in known.items():
        source, values, lacking = last or before(key)
        found.append((list(key), last is None, list(source), *values, *lacking))
    return found
