"""Columns that a node names and that its source or its rows lack, or that have a wrong type there.

Only where the project file names all columns. What is left open there is left to the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from odi_assets.config.checks.view import NodeView, ProjectView
from odi_assets.config.compared_values import NAMED_BY, names_value, sql_type
from odi_assets.config.cursor_values import INTEGERS, cursor_value
from odi_assets.config.diagnostics.mistakes import Mistake, Path, about, closest
from odi_assets.config.known_columns import READ, KnownColumns, columns_read, columns_written, unknown_views
from odi_assets.config.models import PartitionConfig, ReadConfig, RollingWindowIncrement, StatefulIncrement
from odi_assets.errors import ConfigError

_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
_NUMBERS = INTEGERS | {"float", "double", "decimal"}
_WITHOUT_ORDER = frozenset({"boolean", "array", "map", "struct"})
_OF_SESSIONS = ("catalog", "warehouse", "hive", "metastore")
"""Parts of settings of Spark by which a session finds tables that are no views of the node."""


def wrong_columns(project: ProjectView) -> Iterator[Mistake]:
    """Find columns that are not there, or whose type does not do."""
    for node in project.nodes:
        for at, read in node.config.reads.items():
            columns = columns_read(read)
            if columns is not None:
                yield from _cursors(read, columns, (*node.path, *at, "incremental"))
        written = columns_written(node.config, project.root)
        if written is not None and node.config.apply is None:
            yield from _of_write(node, written)
        yield from _of_partition(node, columns_read(node.config.read), written)
        yield from _of_inputs(project, node)


def _missing(name: str, columns: KnownColumns, whose: str, at: Path, *, as_written: bool = True) -> Iterator[Mistake]:
    """Find a name that is no column.

    Args:
        as_written: the name is in marks or in the table's layout, where capitals count. Else Spark looks for it, which
            knows none.
    """
    if name and not columns.has(name):
        listed = ", ".join(columns.names)
        yield about(name, f"is no column of {whose}: {listed}", at=at, suggestion=closest(name, columns.names))
    elif name and as_written and name not in columns.names:
        known = next(column for column in columns.names if column.casefold() == name.casefold())
        yield about(name, f"is `{known}` in {whose}, and capitals count here: write `{known}`", at=at)


def _cursors(read: ReadConfig, columns: KnownColumns, at: Path) -> Iterator[Mistake]:
    increment = read.incremental
    if not isinstance(increment, StatefulIncrement | RollingWindowIncrement):
        return
    fallback = increment.fallback_column if isinstance(increment, StatefulIncrement) else None
    for key, name in (("column", increment.column), ("fallback_column", fallback)):
        if name is not None:
            yield from _missing(name, columns, "`read.schema`", (*at, key))
    kind = columns.kind(increment.column)
    if kind is None:
        return
    if isinstance(increment, RollingWindowIncrement):
        if kind not in _TIMES:
            yield about(
                increment.column, f"is {kind}, and a rolling window is one of dates or times", at=(*at, "column")
            )
    elif kind in _WITHOUT_ORDER:
        yield about(increment.column, f"is {kind}, and no cursor: it does not put rows in an order", at=(*at, "column"))
    elif increment.date_format is not None and kind != "string":
        text = f"is for dates written as text, and `{increment.column}` is {kind}: leave it out"
        yield Mistake(text, at=(*at, "date_format"))
    else:
        yield from _values(increment, "timestamp" if increment.date_format else kind, columns, at)


def _values(increment: StatefulIncrement, kind: str, columns: KnownColumns, at: Path) -> Iterator[Mistake]:
    """Find values of other types than the cursor."""
    fallback = columns.kind(increment.fallback_column) if increment.fallback_column else None
    if fallback is not None and _group(fallback) != _group("string" if increment.date_format else kind):
        text = f"is {fallback}, and `{increment.column}` is {kind}: a cursor and its fallback have to be of one type"
        if increment.date_format:
            text = f"is {fallback}, and `date_format` is for dates written as text: choose a column of text"
        yield about(str(increment.fallback_column), text, at=(*at, "fallback_column"))
    if increment.initial_value is not None:
        try:
            cursor_value(increment.initial_value, kind)
        except ValueError:
            yield about(
                increment.initial_value,
                f"is no value of `{increment.column}`, which is {kind}",
                at=(*at, "initial_value"),
            )
    lag = increment.watermark_lag
    if lag and (kind in _TIMES) != isinstance(lag, timedelta) and kind in _TIMES | _NUMBERS:
        wanted = "a duration, as in `2h`" if kind in _TIMES else "a number"
        yield Mistake(
            f"does not subtract from `{increment.column}`, which is {kind}: write {wanted}", at=(*at, "watermark_lag")
        )


def _group(kind: str) -> str:
    return "integer" if kind in INTEGERS else "float" if kind in {"float", "double"} else kind


def _of_write(node: NodeView, columns: KnownColumns) -> Iterator[Mistake]:
    write, at = node.config.write, (*node.path, "write")
    whose = "`read.schema`" if node.config.transform is None else "what the transform gives"
    for key, names in {"keys": write.keys, "partition_by": write.partition_by}.items():
        for i, name in enumerate(names):
            yield from _missing(name, columns, whose, (*at, key, i))
    for key, column in {"only_if_newer": write.only_if_newer, "delete_when": write.delete_when}.items():
        if column is not None:
            yield from _missing(column, columns, whose, (*at, key), as_written=key == "only_if_newer")
    kind = columns.kind(write.delete_when) if write.delete_when else None
    if kind not in (None, "boolean"):
        text = f"is {kind} and not boolean: make it a condition in the transform, as {write.delete_when} = 'D'"
        yield about(str(write.delete_when), text, at=(*at, "delete_when"))


def _of_partition(node: NodeView, read: KnownColumns | None, written: KnownColumns | None) -> Iterator[Mistake]:
    config, partition = node.config, node.config.partition
    at = (*node.path, "partition", "column")
    if partition is not None and written is not None:
        whose = "`read.schema`" if config.transform is None else "what the transform gives"
        for where, column in partition.places.items():
            yield from _missing(column, written, whose, (*node.path, "partition", *where))
        yield from _of_values(partition, written, node.path)
        kind = written.kind(partition.column) if partition.is_timed else None
        if partition.every == "hour" and kind == "date":
            text = f"`{partition.column}` is a date, and has no hours: write `every: day`, or take a time"
            yield Mistake(text, at=(*node.path, "partition", "every"))
        elif kind is not None and kind not in _TIMES | INTEGERS | {"string"}:
            text = f"is {kind}, which does not say to which partition a row belongs: take a column of dates, times, "
            yield about(partition.column, f"{text}texts or integers", at=at)
    follows = config.read is not None and config.read.incremental is not None
    if read is None or not follows or config.write.mode.traits.increment != "partitions" or config.transform is None:
        return
    name = partition.column if partition is not None else next(iter(config.write.partition_by), "")
    if name and not read.has(name) and (written is None or written.has(name)):
        text = (
            "is no column of `read.schema`: it is not known which partitions new rows affect; write what is read with "
            "`append` or `upsert`, and let a second node write by partitions"
        )
        yield about(name, text, at=at if partition is not None else (*node.path, "write", "partition_by", 0))


def _of_values(partition: PartitionConfig, written: KnownColumns, node: Path) -> Iterator[Mistake]:
    """Partitions that are values, and that a column of its type does not hold."""
    named = partition.named
    kind = written.kind(named.column) if named is not None else None
    if named is None or kind is None:
        return
    at = (*node, "partition", "and") if partition.is_timed else (*node, "partition")
    if kind not in NAMED_BY:
        text = f"is {kind}, whose values are no partitions by their names: take texts, integers, dates or booleans"
        yield about(named.column, text, at=(*at, "column"))
        return
    for index, value in enumerate(named.values):
        if not names_value(value, kind):
            text = f"is no value of `{named.column}`, which is {sql_type(kind)}"
            yield about(value, text, at=(*at, "values", index))


def _of_inputs(project: ProjectView, node: NodeView) -> Iterator[Mistake]:
    """Find inputs that are followed and lack the column by which the node replaces partitions."""
    config, partition = node.config, node.config.partition
    name = partition.column if partition is not None else next(iter(config.write.partition_by), "")
    if config.write.mode.traits.increment != "partitions" or not name:
        return
    at = (*node.path, "partition", "column") if partition is not None else (*node.path, "write", "partition_by", 0)
    for view, node_input in config.inputs.items():
        if node_input.incremental is None or not node_input.node:
            continue
        pipeline, _, upstream_name = node_input.node.rpartition(".")
        upstream = project.by_name.get((pipeline or node.pipeline, upstream_name))
        columns = None if upstream is None else columns_written(upstream.config, project.root)
        if columns is not None and not columns.has(name):
            text = (
                f"is no column of the input `{view}`, which has {', '.join(columns.names)}: it is not known which "
                "partitions its new rows affect; read the input whole (without `incremental`), or write with `append` "
                "or `upsert`"
            )
            yield about(name, text, at=at)


def unknown_tables(project: ProjectView) -> Iterator[Mistake]:
    """Find tables in queries that are misspelled views of their node, where no catalog may have a table of the name."""
    spark = project.config.spark
    elsewhere = spark.remote or (spark.master or "local").partition("[")[0] != "local" or spark.packages
    has_catalog = any(part in key.lower() for key in spark.conf for part in _OF_SESSIONS)
    code = any(node.config.transform is not None and node.config.transform.function for node in project.nodes)
    if elsewhere or has_catalog or code or project.config.python:
        # A catalog, or somebody's code, may bring tables of its own.
        return
    for node in project.nodes:
        transform = node.config.transform
        if transform is None:
            continue
        views = [*([READ] if node.config.read is not None else []), *node.config.inputs]
        try:
            names = unknown_views(transform.sql_text(project.root), frozenset(views))
        except (ConfigError, UnicodeDecodeError):
            continue
        at = (*node.path, "transform", "sql" if transform.sql is not None else "sql_file")
        for name in names:
            # The session may have a view of any name, but for one that is a view of the node, misspelled.
            if (meant := closest(name, views)) is not None:
                text = f"reads `{name}`, which is no view of the node: it has {', '.join(views)}"
                yield Mistake(text, plain="reads a table that is no view of the node", at=at, suggestion=meant)
