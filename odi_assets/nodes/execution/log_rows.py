"""Rows of a change log as values: their shapes, found in one pass, and the columns of a shape as text or typed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odi_assets.errors import IncrementError, TableError
from odi_assets.sources.cdc.log import Op
from odi_assets.sources.cdc.value_types import ValueTypes
from odi_assets.sources.sql.errors import VALUE
from odi_assets.spark.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from odi_assets.nodes.node import Node

N, KEY, AFTER, UNCHANGED = "n", "key", "after", "unchanged"
DATA = (Op.READ, Op.CREATE, Op.UPDATE, Op.DELETE)


@dataclass(frozen=True)
class LogShape:
    """The columns of some rows of the log: names and types, in order."""

    id: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, listing: Sequence[Mapping[str, Any]]) -> LogShape:
        """The shape with the columns that a row of the log lists."""
        pairs = tuple((column["name"], column["type"]) for column in listing)
        return cls(name, pairs, tuple(column["name"] for column in listing if column["key"]))

    def place(self, name: str) -> int | None:
        """Where a row has the column ``name``; None if it has no such column. Capitals count only between two columns
        that differ in nothing else."""
        names = [column for column, _ in self.columns]
        if name not in names:
            names, name = [column.casefold() for column in names], name.casefold()
        return names.index(name) if name in names else None


@dataclass(frozen=True)
class LogFacts:
    """What one pass over some rows of the log says of all of them.

    Attributes:
        shapes: their shapes, the last one first.
        last_n: by shape, the number of its last row.
        emptied: the number of the last row that emptied the table; None if no row did.
        lacks: rows do not have the values of all columns.
        moved_lacks: such a row got another key.
    """

    shapes: tuple[LogShape, ...]
    last_n: Mapping[str, int] = field(default_factory=dict)
    emptied: int | None = None
    lacks: bool = False
    moved_lacks: bool = False


def facts_of(rows: DataFrame, node: str, capture: Node) -> LogFacts:
    """What the rows of one table are.

    Args:
        rows: of the log that ``capture`` writes.
        node: which wants to know, for messages.

    Raises:
        IncrementError: no row of the log describes the columns of some rows.
    """
    op, lacks = F.col("op"), F.col(UNCHANGED).isNotNull()
    listed = F.when(op == Op.SHAPE.value, F.struct(N, F.to_json("columns").alias("columns")))
    row_groups = (
        rows.groupBy("shape")
        .agg(
            F.count_if(op.isin([operation.value for operation in DATA])).alias("rows"),
            F.max(N).alias("last"),
            F.max(F.when(op == Op.TRUNCATE.value, F.col(N))).alias("emptied"),
            F.count_if(lacks).alias("lacking"),
            F.count_if(lacks & (op == Op.CREATE.value) & F.col("before").isNotNull()).alias("moved"),
            F.collect_list(listed).alias("listed"),
        )
        .collect()
    )
    listings = sorted((max(row["listed"]), row["shape"]) for row in row_groups if row["listed"])
    if not listings:
        raise IncrementError(
            f"{node}: the change log has no row of its table yet: the snapshot of it has not begun",
            fix=f"run the node that captures once more, it goes on where it stopped: odi run {capture.command}",
            node=node,
        )
    missing = {row["shape"] for row in row_groups if row["rows"]} - {shape for _, shape in listings}
    if missing:
        raise IncrementError(
            f"{node}: the change log has rows whose columns it does not describe ({', '.join(sorted(missing))})",
            fix=f"capture the tables again: odi run {capture.command} --full-refresh --yes",
            node=node,
        )
    return LogFacts(
        tuple(LogShape.of(name, json.loads(listing["columns"])) for listing, name in reversed(listings)),
        {row["shape"]: row["last"] for row in row_groups if row["shape"] is not None},
        max((row["emptied"] for row in row_groups if row["emptied"] is not None), default=None),
        any(row["lacking"] for row in row_groups),
        any(row["moved"] for row in row_groups),
    )


def column_types(shapes: Sequence[LogShape]) -> dict[str, str]:
    """The columns of all shapes, with name and type of the last shape that has each."""
    columns: dict[str, tuple[str, str]] = {}
    for shape in shapes:
        for name, kind in shape.columns:
            columns.setdefault(name.casefold(), (name, kind))
    return dict(columns.values())


def same_names(shape: LogShape, added: Sequence[str]) -> tuple[str, str] | None:
    """Two columns of one name that the rows of a shape would have; None if there are none. Names know no capitals.

    Args:
        added: names of the columns that the node adds to the database's.
    """
    seen = {name.casefold(): name for name in added}
    for name, _ in shape.columns:
        if name.casefold() in seen:
            return seen[name.casefold()], name
        seen[name.casefold()] = name
    return None


def require_names(shapes: Sequence[LogShape], added: Sequence[str], node: Node, capture: Node) -> None:
    """Raises TableError if rows of a shape would have two columns of one name."""
    for shape in shapes:
        duplicates = same_names(shape, added)
        if duplicates is None:
            continue
        is_own = duplicates[0] in added
        what = (
            f"a column `{duplicates[1]}`, and `{duplicates[0]}` is a column that {node} adds"
            if is_own
            else f"two columns `{duplicates[0]}` and `{duplicates[1]}`; names know no capitals"
        )
        raise TableError(
            f"{node}: its table in the database has {what}",
            fix=f"rename it in the database, or publish the table without it; then capture the tables again: odi run "
            f"{capture.command} --full-refresh --yes",
            node=str(node),
            column=duplicates[1],
        )


def _by_shape(shapes: Sequence[LogShape], make: Any) -> Column:
    """What ``make`` gives for the shape of a row; NULL for a shape for which it gives None."""
    column: Column | None = None
    for shape in shapes:
        made = make(shape)
        if made is None:
            continue
        is_it = F.col("shape") == shape.id
        column = F.when(is_it, made) if column is None else column.when(is_it, made)
    return F.lit(None) if column is None else column


def text_of(shapes: Sequence[LogShape], name: str, array: str = AFTER) -> Column:
    """The text of a column in a row of the log."""

    def make(shape: LogShape) -> Column | None:
        index = shape.place(name)
        return None if index is None else F.col(array)[index]

    return _by_shape(shapes, make).cast("string")


def is_unchanged(shapes: Sequence[LogShape], name: str) -> Column:
    """Whether the log does not have a column's value in a row."""

    def make(shape: LogShape) -> Column | None:
        index = shape.place(name)
        return None if index is None else F.coalesce(F.array_contains(UNCHANGED, index), F.lit(False))

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
    key = F.array_join(F.col(KEY), ", ")
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
